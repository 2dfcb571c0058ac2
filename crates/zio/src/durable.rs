//! The blocks of the group that is being written, to be read back when a device failed meanwhile: one that lost power
//! has lost what it had accepted and not flushed, and does not say so when it is back.
//!
//! Invariants:
//! - a block written in this group is on the list, or was made durable: flushed with no failure since it was written,
//!   or read back after it;
//! - the list has blocks of one group only, and stays short whatever the group's size: when it is full its blocks are
//!   made durable at once, and only writers that had begun before may add one each.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use futures::{StreamExt, stream};
use platter_ondisk::{BlkPtr, Checksum};
use platter_vdev::Priority;

use crate::born::Born;
use crate::error::{Result, ZioError};
use crate::read::stored;
use crate::store::Store;

/// Blocks being read back at one time.
const READS: usize = 32;

impl Store {
    /// A block was written that began to be when the pool had been resumed `resumptions` times; a later one at the same
    /// address takes its place.
    ///
    /// # Errors
    /// The list was full, and what it held could not be made durable.
    pub(crate) async fn note_born(&self, bp: &BlkPtr, resumptions: u64) -> Result<()> {
        let state = self.state();
        let is_full = |born: &Born| born.blocks.len() >= state.born_max.load(Ordering::Relaxed);
        {
            let mut born = state.born.lock();
            let is_of_the_group = born.blocks.last().is_none_or(|last| last.birth() == bp.birth());
            assert!(is_of_the_group, "a group's list is forgotten before the next one writes");
            born.blocks.push(*bp);
            born.resumptions = born.resumptions.min(resumptions);
            // Later passes write little, and in place: what is being read back must not change.
            if !is_full(&born) || state.pass.load(Ordering::Relaxed) > 1 {
                return Ok(());
            }
        }
        // All other writers that find the list full wait here, so that it cannot grow on.
        let _settling = state.settling.lock().await;
        let Born { blocks, resumptions } = {
            let mut born = state.born.lock();
            if !is_full(&born) {
                return Ok(());
            }
            std::mem::take(&mut *born)
        };
        self.settle(&blocks, bp, resumptions).await
    }

    /// Makes blocks durable of which the first began to be written after `since` resumptions.
    async fn settle(&self, blocks: &[BlkPtr], newest: &BlkPtr, mut since: u64) -> Result<()> {
        let suspension = self.suspension();
        loop {
            let before = suspension.resumptions();
            let attempt = async {
                self.flush(newest.birth()).await?;
                let now = suspension.resumptions();
                if now != since {
                    self.read_back(blocks).await?;
                }
                Ok(now)
            };
            match attempt.await {
                Ok(now) if now == since => return Ok(()),
                Ok(now) => since = now,
                Err(ZioError::Io(reason)) => {
                    if !suspension.hold(before, &reason).await {
                        return Err(ZioError::Io(reason));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The group is on disk: its blocks need not be remembered.
    pub fn forget_born(&self) {
        *self.state().born.lock() = Born::default();
    }

    /// Reads back every block that was written since [`forget_born`](Self::forget_born) and is not known to be durable,
    /// past the cache.
    ///
    /// # Errors
    /// [`ZioError::Io`] when a device fails again, so that it can be tried once more; [`ZioError::Checksum`] when a
    /// block is not what was written: the devices have lost it.
    pub async fn verify_born(&self) -> Result<()> {
        let blocks = self.state().born.lock().blocks.clone();
        self.read_back(&blocks).await
    }

    async fn read_back(&self, blocks: &[BlkPtr]) -> Result<()> {
        let mut seen = BTreeSet::new();
        let place = |bp: &BlkPtr| (bp.dva(0).vdev, bp.dva(0).offset);
        let newest: Vec<BlkPtr> = blocks.iter().rev().filter(|bp| seen.insert(place(bp))).copied().collect();
        let mut checks = stream::iter(newest)
            .map(|bp| async move {
                match stored(self, &bp, Priority::AsyncRead, false).await {
                    Ok(_) => Ok(()),
                    Err(lost) if lost.by_device => Err(ZioError::Io(lost.reason)),
                    // Without a checksum nobody can tell whether it is lost. The pool goes on; the devices' lists say
                    // so to whoever wants to read it.
                    Err(_) if bp.checksum_kind() == Checksum::OFF => Ok(()),
                    Err(lost) => Err(ZioError::corrupt("group", format!("the devices lost {bp:?}: {lost}"))),
                }
            })
            .buffer_unordered(READS);
        while let Some(checked) = checks.next().await {
            checked?;
        }
        Ok(())
    }
}
