//! The blocks of the group that is being written, to be read back when a device failed meanwhile: one that lost power
//! has lost what it had accepted and not flushed, and does not say so when it is back.

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use platter_ondisk::BlkPtr;
use platter_zio::{Priority, Result, ZioError};

use crate::read;
use crate::store::Store;

/// More blocks than these (32 MiB of pointers) are not remembered.
const BLOCKS_MAX: usize = 1 << 18;
/// Blocks being read back at one time.
const READS: usize = 32;

/// Blocks written since the last group was committed.
#[derive(Debug, Default)]
pub(crate) struct Born {
    blocks: Vec<BlkPtr>,
    overflown: bool,
}

impl Born {
    /// A block was written; a later one at the same address takes its place.
    pub(crate) fn note(&mut self, bp: &BlkPtr) {
        if self.blocks.len() < BLOCKS_MAX {
            self.blocks.push(*bp);
        } else {
            self.overflown = true;
        }
    }
}

impl Store {
    /// The group is on disk: its blocks need not be remembered.
    pub fn forget_born(&self) {
        *self.state().born.lock() = Born::default();
    }

    /// Reads back every block that was written since [`forget_born`](Self::forget_born), past the cache.
    ///
    /// # Errors
    /// [`ZioError::Io`] when a device fails again, so that it can be tried once more; [`ZioError::Checksum`] when a
    /// block is not what was written: the devices have lost it.
    pub async fn verify_born(&self) -> Result<()> {
        let blocks = {
            let born = self.state().born.lock();
            if born.overflown {
                return Err(ZioError::corrupt("group", "too large to be read back after devices failed"));
            }
            let mut seen = BTreeSet::new();
            let place = |bp: &BlkPtr| (bp.dva(0).vdev, bp.dva(0).offset);
            born.blocks.iter().rev().filter(|bp| seen.insert(place(bp))).copied().collect::<Vec<_>>()
        };
        let mut checks = stream::iter(blocks)
            .map(|bp| async move {
                read::stored(self, &bp, Priority::AsyncRead).await.map(drop).map_err(|lost| match lost.by_device {
                    true => ZioError::Io(lost.reason),
                    false => ZioError::corrupt("group", format!("the devices lost {bp:?}: {lost}")),
                })
            })
            .buffer_unordered(READS);
        while let Some(checked) = checks.next().await {
            checked?;
        }
        Ok(())
    }
}
