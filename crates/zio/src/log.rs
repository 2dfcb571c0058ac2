//! Blocks of intent logs: allocated in an open group, written at once, read when nobody knows whether they are there
//! (`zio_alloc_zil`, `module/zfs/zio.c`).
//!
//! Invariants:
//! - the caller holds the group it allocates in open until the block that leads to the new one is stable, or given up:
//!   so no group on disk has space that nothing leads to;
//! - a write is only stable after [`Store::flush_vdevs`] of the block's vdev.

use std::collections::BTreeSet;

use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, Dva, Txg};
use platter_vdev::{Priority, Verify};

use crate::copies::vdev_of;
use crate::error::{Result, ZioError};
use crate::lost::Lost;
use crate::read::{Copies, stored};
use crate::scrub::{self, scrub_stored};
use crate::store::{ScrubbedBlock, Store};

impl Store {
    /// Writes the contents of the log block `bp`.
    ///
    /// # Errors
    /// When too few devices took it for it to be readable.
    pub async fn write_log(&self, bp: &BlkPtr, bytes: Buf) -> Result<()> {
        for dva in bp.dvas() {
            let vdev = self.vdev(&dva)?;
            let written = vdev.write(dva.offset, bytes.clone(), bp.birth(), Priority::SyncWrite).await;
            written.map_err(|e| ZioError::Io(e.to_string()))?;
        }
        Ok(())
    }

    /// Reads the stored bytes of `bp` as far as they pass `verify`; `None` when no copy does. No device is blamed for
    /// that, since the block may never have been written.
    ///
    /// # Errors
    /// When devices are missing or fail, so that nobody can tell whether the block is there.
    pub async fn read_log(&self, bp: &BlkPtr, verify: Verify<'_>) -> Result<Option<Buf>> {
        self.check_addresses(bp)?;
        perhaps(Copies::of_log_block(self, bp, verify).read(Priority::SyncRead).await)
    }

    /// Whether the data block `bp`, which a log record leads to, is there.
    ///
    /// # Errors
    /// As [`read_log`](Self::read_log).
    pub async fn has_block(&self, bp: &BlkPtr) -> Result<bool> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(true);
        }
        self.check_addresses(bp)?;
        Ok(perhaps(stored(self, bp, Priority::SyncRead, true).await)?.is_some())
    }

    /// Gives every device what it should hold of a log block that was read: the power may have failed when only some of
    /// them had taken it.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub async fn complete_log(&self, bp: &BlkPtr, verify: Verify<'_>) -> Result<()> {
        let completed = scrub::copies(Copies::of_log_block(self, bp, verify), &mut ScrubbedBlock::default()).await;
        completed.map_err(|lost| ZioError::Io(lost.to_string()))
    }

    /// As [`complete_log`](Self::complete_log), of a data block that a log record leads to.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub async fn complete_block(&self, bp: &BlkPtr) -> Result<()> {
        let completed = scrub_stored(self, bp, true, &mut ScrubbedBlock::default()).await;
        completed.map_err(|lost| ZioError::Io(lost.to_string()))
    }

    /// A log that leads to a vdev that does not exist is damaged, and not at its end.
    fn check_addresses(&self, bp: &BlkPtr) -> Result<()> {
        bp.dvas().try_for_each(|dva| self.vdev(&dva).map(|_| ()))
    }

    /// Flushes the write caches of top-level vdevs, each with the group its log blocks were written in.
    ///
    /// # Errors
    /// When more devices failed than redundancy covers.
    pub async fn flush_vdevs(&self, vdevs: &BTreeSet<(u32, Txg)>) -> Result<()> {
        let places = vdevs.iter();
        let flushes = places.filter_map(|&(vdev, txg)| Some((self.top(vdev)?, txg)));
        for flushed in futures::future::join_all(flushes.map(|(vdev, txg)| vdev.flush_log(txg))).await {
            flushed.map_err(|e| ZioError::Io(e.to_string()))?;
        }
        Ok(())
    }

    fn vdev(&self, dva: &Dva) -> Result<&platter_vdev::TopVdev> {
        vdev_of(self, *dva).map_err(|what| ZioError::corrupt("address", what))
    }
}

/// `None` for what is not there.
fn perhaps<T>(read: std::result::Result<T, Lost>) -> Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(lost) if lost.by_device || lost.doubtful => Err(ZioError::Io(lost.to_string())),
        Err(_) => Ok(None),
    }
}
