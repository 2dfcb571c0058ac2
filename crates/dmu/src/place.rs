//! Where a block stands in its tree, and how many of the blocks above it change with it.

use std::collections::BTreeSet;

use platter_ondisk::{DnodePhys, ObjectType};

use crate::blocktree::levels_for;

/// Where a block stands in its tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockPlace {
    pub(crate) object_type: ObjectType,
    /// Bytes of the block.
    pub(crate) size: u64,
    pub(crate) blkid: u64,
    /// The last block, this one included.
    pub(crate) max_blkid: u64,
    /// log2 of the size of indirect blocks.
    pub(crate) indirect_shift: u8,
    /// How many of the indirect blocks above it the group had not touched.
    pub(crate) new_parents: u8,
    /// Levels by which the tree grows: what was on top comes below new blocks.
    pub(crate) grown: u8,
}

/// The levels of a tree that must hold block `max_blkid`.
pub(crate) fn levels_of(disk: &DnodePhys, max_blkid: u64) -> u8 {
    disk.levels.max(levels_for(max_blkid, disk.blkptrs.len(), disk.pointers_per_indirect_shift()))
}

/// How many of the `parents` indirect blocks above `blkid` lead to none of its neighbours among the blocks that a group
/// changed already.
pub(crate) fn new_parents(neighbours: impl Iterator<Item = u64>, blkid: u64, epbs: u32, parents: u8) -> u8 {
    let shared = neighbours.map(|other| (64 - (other ^ blkid).leading_zeros()).div_ceil(epbs)).min();
    // Two blocks have the same parent from that level on at which their numbers are the same.
    shared.map_or(parents, |level| parents.min(level.saturating_sub(1) as u8))
}

/// The blocks next to `blkid`.
pub(crate) fn neighbours(set: &BTreeSet<u64>, blkid: u64) -> impl Iterator<Item = u64> {
    set.range(..blkid).next_back().into_iter().chain(set.range(blkid..).next()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_counts_once_however_many_of_its_children_change() {
        let none: [u64; 0] = [];
        assert_eq!(new_parents(none.into_iter(), 5, 10, 3), 3);
        assert_eq!(new_parents([4].into_iter(), 5, 10, 3), 0);
        assert_eq!(new_parents([1023].into_iter(), 1024, 10, 3), 1);
        assert_eq!(new_parents([1023, 1025].into_iter(), 1024, 10, 3), 0);
        assert_eq!(new_parents([0].into_iter(), 1 << 20, 10, 3), 2);
        assert_eq!(new_parents([0].into_iter(), 1 << 30, 10, 3), 3);
        assert_eq!(new_parents([0].into_iter(), u64::MAX, 10, 1), 1);
        assert_eq!(new_parents([7].into_iter(), 7, 10, 3), 0);
    }
}
