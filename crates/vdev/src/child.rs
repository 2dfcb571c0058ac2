//! A child of a top-level vdev: leaves that all hold the same bytes. There is one, or several while a device is being
//! replaced or a spare stands in for it (`vdev_replacing_ops` and `vdev_spare_ops` in `module/zfs/vdev_mirror.c`).
//!
//! Invariants:
//! - there is at least one leaf;
//! - what counts as had or written is what one leaf has; what the others lack is in their own lists;
//! - of a block without checksum a leaf that missed it is not asked while another one can be.

use std::sync::Arc;

use futures::future::join_all;
use platter_buffer::{Buf, BufMut};
use platter_device::ReadSlot;

use crate::error::{Result, VdevError};
use crate::extent::Extent;
use crate::leaf::Leaf;
use crate::lists::Flush;
use crate::priority::Priority;
use crate::purpose::Purpose;
use crate::queue::finish;
use crate::state::Condition;

/// A child. See the module text.
#[derive(Debug)]
pub(crate) struct Child {
    leaves: Vec<Arc<Leaf>>,
}

/// The leaf that delivered what a child was asked for.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Its index in the child.
    pub(crate) leaf: usize,
    /// Whether it had missed the block's group when it was asked.
    pub(crate) stale: bool,
    /// The bytes, when they are not in the slot: it was not the first to be asked.
    pub(crate) bytes: Option<BufMut>,
}

/// What came of asking a child.
#[derive(Debug, Default)]
pub(crate) struct ChildRead {
    /// Who delivered.
    pub(crate) answer: Option<Answer>,
    /// The leaves that were asked before and failed, by index in the child.
    pub(crate) failed: Vec<(usize, VdevError)>,
}

impl Child {
    /// A child of leaves that hold the same. There is at least one.
    pub(crate) fn new(leaves: Vec<Arc<Leaf>>) -> Self {
        assert!(!leaves.is_empty(), "a child has a leaf");
        Self { leaves }
    }

    /// Its leaves.
    pub(crate) fn leaves(&self) -> &[Arc<Leaf>] {
        &self.leaves
    }

    /// Whether some leaf can be read and written.
    pub(crate) fn is_usable(&self) -> bool {
        self.leaves.iter().any(|leaf| leaf.is_usable())
    }

    /// Whether no leaf that can be used is known to hold a block.
    pub(crate) fn is_stale(&self, extent: Extent) -> bool {
        match &self.leaves[..] {
            [leaf] => leaf.is_stale_for(extent),
            leaves => leaves.iter().filter(|leaf| leaf.is_usable()).all(|leaf| leaf.is_stale_for(extent)),
        }
    }

    /// What it is called in messages.
    pub(crate) fn name(&self) -> String {
        self.leaves.iter().map(|leaf| leaf.name()).collect::<Vec<_>>().join(" and ")
    }

    /// As good as its leaves make it.
    pub(crate) fn condition(&self) -> Condition {
        Condition::of_copies(self.leaves.iter().map(|leaf| leaf.condition()))
    }

    /// The leaves in the order in which to ask them for a block, each with whether it missed it.
    fn order(&self, extent: Extent) -> Vec<(usize, bool)> {
        let all = || self.leaves.iter().enumerate().map(|(index, leaf)| (index, leaf.is_stale_for(extent)));
        let mut order: Vec<(usize, bool)> = all().filter(|(index, _)| self.leaves[*index].is_usable()).collect();
        if order.is_empty() {
            // They went away just now: asking them says how.
            return all().collect();
        }
        order.sort_by_cached_key(|&(index, stale)| (stale, self.leaves[index].sits_out(), self.leaves[index].load()));
        if !extent.checked && order.iter().any(|(_, stale)| !stale) {
            order.retain(|(_, stale)| !stale);
        }
        debug_assert!(!order.is_empty(), "somebody is asked");
        order
    }

    /// Reads a part of a block into `slot`, or, when the leaf that is asked first fails, into a buffer of its own.
    pub(crate) async fn read_data(&self, offset: u64, slot: ReadSlot, priority: Priority, extent: Extent) -> ChildRead {
        let mut read = ChildRead::default();
        if let [leaf] = &self.leaves[..] {
            let stale = leaf.is_stale_for(extent);
            match leaf.read_data(offset, slot, priority).await {
                Ok(()) => read.answer = Some(Answer { leaf: 0, stale, bytes: None }),
                Err(error) => read.failed.push((0, error)),
            }
            return read;
        }
        let (size, mut slot) = (slot.len(), Some(slot));
        for (leaf, stale) in self.order(extent) {
            let (assembly, slot) = match slot.take() {
                Some(slot) => (None, slot),
                None => {
                    let (assembly, slot) = ReadSlot::whole(size);
                    (Some(assembly), slot)
                }
            };
            match self.leaves[leaf].read_data(offset, slot, priority).await {
                Ok(()) => {
                    read.answer = Some(Answer { leaf, stale, bytes: assembly.map(finish) });
                    break;
                }
                Err(error) => read.failed.push((leaf, error)),
            }
        }
        read
    }

    /// Writes to all leaves. Returns those that did not take it, by index in the child.
    ///
    /// # Errors
    /// What a leaf said, when none took it.
    pub(crate) async fn write_for(
        &self,
        purpose: Purpose,
        offset: u64,
        data: Vec<Buf>,
        priority: Priority,
    ) -> Result<Vec<usize>> {
        if let [leaf] = &self.leaves[..] {
            return leaf.write_for(purpose, offset, data, priority).await.map(|()| Vec::new());
        }
        let writes = self.leaves.iter().map(|leaf| leaf.write_for(purpose, offset, data.clone(), priority));
        let results = join_all(writes).await.into_iter().enumerate();
        let (failed, mut errors): (Vec<usize>, Vec<VdevError>) =
            results.filter_map(|(index, result)| result.err().map(|error| (index, error))).unzip();
        if failed.len() == self.leaves.len() { Err(errors.swap_remove(0)) } else { Ok(failed) }
    }

    /// Lets zeros be written where that joins two writes of a group's data ([`Leaf::pad`]).
    pub(crate) async fn pad(&self, offset: u64, length: u64) {
        match &self.leaves[..] {
            [leaf] => leaf.pad(offset, length).await,
            leaves => {
                join_all(leaves.iter().map(|leaf| leaf.pad(offset, length))).await;
            }
        }
    }

    /// Makes what was written stable, for `end`. A leaf that fails to, or was given up, may have lost any of it.
    ///
    /// # Errors
    /// What a leaf said, when all failed.
    pub(crate) async fn flush(&self, end: Flush) -> Result<()> {
        let flushes = self.leaves.iter().map(|leaf| async move {
            let flushed = if leaf.is_usable() { leaf.flush().await } else { Err(leaf.unavailable()) };
            leaf.note_unflushed(end, flushed.is_err());
            flushed
        });
        let mut results = join_all(flushes).await;
        if results.iter().any(|flushed| flushed.is_ok()) { Ok(()) } else { results.swap_remove(0) }
    }
}
