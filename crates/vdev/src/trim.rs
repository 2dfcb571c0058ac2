//! What is free in a top-level vdev, on one of its leaves: given up, or written over (`vdev_xlate` in
//! `module/zfs/vdev.c`, `vdev_raidz_xlate` in `module/zfs/vdev_raidz.c`).
//!
//! Invariants:
//! - whoever calls this has seen to it that nothing is allocated in the range until the call is over;
//! - a range never leaves the allocatable space of the leaf;
//! - a leaf that is exchanged meanwhile is waited for, as for any other operation.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_device::{DeviceError, TrimKind};
use platter_hooks::Canary;
use platter_ondisk::Guid;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;

use crate::error::{Result, VdevError};
use crate::geometry::Layout;
use crate::leaf::Leaf;
use crate::priority::Priority;
use crate::shape::Shape;
use crate::state::{Condition, VdevAux, VdevState};
use crate::top::TopVdev;

/// Bytes, first and how many; of a leaf or of a whole vdev, both without labels.
pub type Range = (u64, u64);

/// What child `child` of `children` has of the sectors in `range`, which lie row by row over all of them.
fn on_column(child: usize, children: usize, ashift: u8, (start, length): Range) -> Range {
    let (child, children) = (child as u64, children as u64);
    // The first row whose sector on this child is not before the given one.
    let row = |sector: u64| sector.saturating_sub(child).div_ceil(children);
    let (first, last) = (row(start >> ashift), row((start + length) >> ashift));
    (first << ashift, (last - first) << ashift)
}

impl Shape {
    /// The leaf of this identity, and which child it is of.
    fn place_of(&self, leaf: Guid) -> Option<(usize, &Arc<Leaf>)> {
        let children = self.children.iter().enumerate();
        let mut leaves = children.flat_map(|(index, child)| child.leaves().iter().map(move |leaf| (index, leaf)));
        leaves.find(|(_, other)| other.guid() == leaf)
    }

    fn present(&self, leaf: Guid) -> Result<&Arc<Leaf>> {
        let gone = || VdevError::Unavailable { leaf: leaf.to_string(), reason: "it is not part of the vdev".into() };
        self.place_of(leaf).map(|(_, leaf)| leaf).ok_or_else(gone)
    }
}

impl TopVdev {
    /// What a leaf has of `range`, which is made of whole sectors; nothing when the leaf is not here.
    pub fn on_leaf(&self, leaf: Guid, range: Range) -> Option<Range> {
        let shape = self.shape();
        let (child, _) = shape.place_of(leaf)?;
        assert!((range.0 | range.1).is_multiple_of(1 << self.ashift()), "what is free is made of whole sectors");
        let there = match shape.layout {
            Layout::Single | Layout::Mirror => range,
            Layout::Raidz { .. } => on_column(child, shape.children.len(), self.ashift(), range),
        };
        Some(there).filter(|(_, length)| *length > 0)
    }

    /// Gives up bytes of one leaf, as [`Self::on_leaf`] tells them.
    ///
    /// # Errors
    /// The leaf is not here or cannot be used; [`VdevError::OutOfRange`]; the device's own.
    pub async fn trim(&self, leaf: Guid, range: Range, kind: TrimKind) -> Result<()> {
        let shape = self.shape();
        shape.present(leaf)?.trim(range, kind).await
    }

    /// Writes over bytes of one leaf, as [`Self::on_leaf`] tells them.
    ///
    /// # Errors
    /// As [`Self::trim`].
    pub async fn initialize(&self, leaf: Guid, offset: u64, data: Buf) -> Result<()> {
        let shape = self.shape();
        let leaf = shape.present(leaf)?;
        let written = leaf.write_data(offset, vec![data], Priority::Initialize).await;
        if written.is_err() {
            leaf.stats().note_initialize_error();
        }
        written
    }
}

impl Leaf {
    /// Gives up bytes of the allocatable space. That fails is counted, and makes nobody doubt the device
    /// (`zio_vdev_io_done`), unless it has gone.
    async fn trim(&self, (offset, length): Range, kind: TrimKind) -> Result<()> {
        let length = if Canary::TrimmedTooFar.sings() { length + (64 << 10) } else { length };
        let queue = self.data_queue(offset, length)?;
        match queue.trim(VDEV_LABEL_START_SIZE + offset, length, kind).await {
            Ok(()) => {
                self.stats().note_trim(length);
                Ok(())
            }
            Err(error) => {
                self.stats().note_trim_error();
                if let DeviceError::Gone { reason, .. } = &error {
                    let gone = Condition::new(VdevState::Removed, VdevAux::None).with_detail(reason.clone());
                    self.give_up(&queue, gone);
                }
                Err(error.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::raidz_map::RaidzMap;

    #[test]
    fn sectors_lie_row_by_row() {
        // Sectors 3 to 7 of five columns: the last two of the first row, the first three of the second.
        let on = |child| on_column(child, 5, 9, (3 << 9, 5 << 9));
        assert_eq!([0, 1, 2].map(on), [(512, 512); 3]);
        assert_eq!([3, 4].map(on), [(0, 512); 2]);
        assert_eq!(on_column(4, 5, 9, (0, 4 << 9)).1, 0);
    }

    proptest! {
        /// What is free beside a block is on no leaf what the block has there, and all of the block is free or not.
        #[test]
        fn a_range_is_on_each_child_what_a_block_there_would_have(
            children in 2usize..12, parity in 1usize..=3, ashift in 9u8..=13, start in 0u64..4000, sectors in 1u64..200
        ) {
            prop_assume!(children > parity);
            let map = RaidzMap::new(start << ashift, sectors << ashift, ashift, children, parity);
            let asize = Layout::Raidz { parity }.asize_for(children, ashift, sectors << ashift);
            let mut block = BTreeSet::new();
            for column in &map.columns {
                let rows = (column.offset >> ashift)..((column.offset + column.size as u64) >> ashift);
                block.extend(rows.map(|row| (column.child, row)));
            }
            block.extend(map.skips.iter().map(|skip| (skip.child, skip.offset >> ashift)));
            let rows_of = |range: Range| {
                let rows = move |child| {
                    let (offset, length) = on_column(child, children, ashift, range);
                    ((offset >> ashift)..((offset + length) >> ashift)).map(move |row| (child, row))
                };
                (0..children).flat_map(rows).collect::<BTreeSet<_>>()
            };
            let (first, end) = (start << ashift, (start << ashift) + asize);
            prop_assert_eq!(&rows_of((first, asize)), &block);
            prop_assert!(rows_of((0, first)).is_disjoint(&block));
            prop_assert!(rows_of((end, 1000 << ashift)).is_disjoint(&block));
        }
    }
}
