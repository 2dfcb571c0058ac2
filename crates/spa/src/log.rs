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
use platter_vdev::Extent;
use platter_zio::{Priority, Result, ZioError};

use crate::copies::Check;
use crate::read;
use crate::store::Store;

impl Store {
    /// Allocates a log block of `size` bytes in open group `txg`.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`].
    pub fn allocate_log(&self, size: u64, txg: Txg) -> Result<Dva> {
        self.state().allocator.lock().allocate_log(size, txg)
    }

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
    pub async fn read_log(&self, bp: &BlkPtr, verify: &(dyn Fn(&[u8]) -> bool + Sync)) -> Result<Option<Buf>> {
        self.read_perhaps(bp, Check { verify, can_tell: true }).await
    }

    async fn read_perhaps(&self, bp: &BlkPtr, check: Check<'_>) -> Result<Option<Buf>> {
        for dva in bp.dvas().filter(|dva| !dva.gang) {
            let (psize, birth, checked) = (bp.psize(), bp.physical_birth(), check.can_tell);
            let extent = Extent { offset: dva.offset, psize, birth, speculative: true, checked };
            match self.vdev(&dva)?.read(extent, Priority::SyncRead, check.verify).await {
                Ok((bytes, _)) => return Ok(Some(bytes)),
                Err(platter_vdev::VdevError::Checksum { .. } | platter_vdev::VdevError::OutOfRange { .. }) => {}
                Err(error) => return Err(ZioError::Io(error.to_string())),
            }
        }
        Ok(None)
    }

    /// Whether the data block `bp`, which a log record leads to, is there.
    ///
    /// # Errors
    /// As [`read_log`](Self::read_log).
    pub async fn has_block(&self, bp: &BlkPtr) -> Result<bool> {
        if bp.is_hole() || bp.is_embedded() {
            return Ok(true);
        }
        let pointer = *bp;
        let check =
            Check { verify: &|bytes: &[u8]| read::matches(self, &pointer, bytes), can_tell: read::can_tell(self, bp) };
        Ok(self.read_perhaps(bp, check).await?.is_some())
    }

    /// Flushes the write caches of top-level vdevs, each with the group its log blocks were written in.
    ///
    /// # Errors
    /// When more devices failed than redundancy covers.
    pub async fn flush_vdevs(&self, vdevs: &BTreeSet<(u32, Txg)>) -> Result<()> {
        let places = vdevs.iter();
        let flushes = places.filter_map(|&(vdev, txg)| Some((self.top(vdev)?, txg)));
        for flushed in futures::future::join_all(flushes.map(|(vdev, txg)| vdev.flush(txg))).await {
            flushed.map_err(|e| ZioError::Io(e.to_string()))?;
        }
        Ok(())
    }

    fn vdev(&self, dva: &Dva) -> Result<&platter_vdev::TopVdev> {
        self.top(dva.vdev)
            .map(AsRef::as_ref)
            .ok_or_else(|| ZioError::corrupt("address", format!("top-level vdev {} does not exist", dva.vdev)))
    }
}
