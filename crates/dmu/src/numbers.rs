//! Object numbers: which are free, and which to give out next (`module/zfs/dmu_object.c`).
//!
//! Invariants:
//! - a number is free when neither the (newest) dnode block nor `pending` nor `freed` uses its slot;
//! - an object allocated in a group is in `pending` until that group's sync put it into its dnode block;
//! - an object freed in a group is in `freed` until that group's sync cleared it there: its number is not reused
//!   before;
//! - an object takes a run of slots that does not leave its dnode block.

use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::dnode::{DNODE_SIZE, DNODES_PER_BLOCK};

/// Slots per dnode block.
pub(crate) const PER_BLOCK: u64 = DNODES_PER_BLOCK as u64;

#[derive(Default)]
pub(crate) struct Numbers {
    /// Allocated and not in a dnode block yet: number to slots.
    pub(crate) pending: BTreeMap<u64, u8>,
    /// Freed and still in a dnode block (or in `pending`): number to slots.
    pub(crate) freed: BTreeMap<u64, u8>,
    /// Dnode blocks in which a sync made room.
    pub(crate) sparse: BTreeSet<u64>,
}

impl Numbers {
    /// Slots of `block` that memory knows to be taken, one bit each.
    pub(crate) fn mask(&self, block: u64) -> u32 {
        let range = block * PER_BLOCK..(block + 1) * PER_BLOCK;
        let taken = self.pending.range(range.clone()).chain(self.freed.range(range));
        taken.fold(0, |mask, (&object, &slots)| mask | run_mask((object % PER_BLOCK) as u32, slots))
    }
}

/// `slots` bits from bit `at`.
pub(crate) fn run_mask(at: u32, slots: u8) -> u32 {
    ((((1u64 << slots) - 1) << at) & u64::from(u32::MAX)) as u32
}

/// Slots taken in a dnode block, one bit each.
pub(crate) fn block_mask(block: &[u8]) -> u32 {
    let mut mask = 0;
    for (slot, slots) in dnode_slots(block) {
        mask |= run_mask(slot as u32, slots);
    }
    mask
}

/// First slot and number of slots of each dnode in a dnode block, without decoding them.
pub(crate) fn dnode_slots(block: &[u8]) -> impl Iterator<Item = (usize, u8)> + '_ {
    let mut slot = 0;
    std::iter::from_fn(move || {
        while (slot + 1) * DNODE_SIZE <= block.len() {
            let at = slot;
            let core = &block[at * DNODE_SIZE..];
            // A dnode that claims more than the block is damaged; it takes at least its own slot.
            let slots = core[12].saturating_add(1).clamp(1, (DNODES_PER_BLOCK - at % DNODES_PER_BLOCK) as u8);
            if core[0] == 0 {
                slot += 1;
                continue;
            }
            slot += usize::from(slots);
            return Some((at, slots));
        }
        None
    })
}

/// The lowest run of `slots` free bits.
pub(crate) fn free_run(taken: u32, slots: u8) -> Option<u32> {
    (0..=PER_BLOCK as u32 - u32::from(slots)).find(|&at| taken & run_mask(at, slots) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_stay_inside_the_block() {
        assert_eq!(free_run(1, 1), Some(1));
        assert_eq!(free_run(1, 31), Some(1));
        assert_eq!(free_run(1, 32), None);
        assert_eq!(free_run(0, 32), Some(0));
        assert_eq!(free_run(0b1011, 2), Some(4));
        assert_eq!(free_run(u32::MAX, 1), None);
    }

    #[test]
    fn a_block_of_mixed_dnodes_gives_its_mask() {
        let mut block = vec![0u8; 16384];
        block[512] = 19;
        block[512 + 12] = 1;
        // Bytes inside the large dnode look like a dnode and are none.
        block[1024] = 7;
        block[5 * 512] = 20;
        assert_eq!(block_mask(&block), 0b100110);
    }
}
