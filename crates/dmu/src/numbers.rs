//! Object numbers: which are free, and which to give out next (`module/zfs/dmu_object.c`).
//!
//! Invariants:
//! - a number is free when neither the (newest) dnode block nor `pending` nor `freed` uses its slot;
//! - an object allocated in a group is in `pending` until that group's sync put it into its dnode block;
//! - an object freed in a group is in `freed` until that group's sync cleared it there: its number is not reused
//!   before;
//! - an object takes a run of slots that does not leave its dnode block.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use platter_ondisk::ObjectId;
use platter_ondisk::dnode::{DNODE_SIZE, DNODES_PER_BLOCK};

/// Slots per dnode block.
pub(crate) const PER_BLOCK: u64 = DNODES_PER_BLOCK as u64;

/// Whether the object is one of those that only the object set's head knows (space totals).
pub(crate) fn is_special(object: ObjectId) -> bool {
    object.0 >= u64::MAX - 2
}

#[derive(Default)]
pub(crate) struct Numbers {
    /// Allocated and not in a dnode block yet.
    pub(crate) pending: Held,
    /// Freed and still in a dnode block (or in `pending`).
    pub(crate) freed: Held,
    /// Dnode blocks in which a sync made room.
    pub(crate) sparse: BTreeSet<u64>,
}

impl Numbers {
    /// Slots of `block` that memory knows to be taken, one bit each.
    pub(crate) fn mask(&self, block: u64) -> u32 {
        self.pending.slots(block).taken | self.freed.slots(block).taken
    }
}

/// Objects, by the dnode block that they are in.
#[derive(Default)]
pub(crate) struct Held(BTreeMap<u64, Slots>);

/// Some slots of a dnode block, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slots {
    /// Those in which an object begins.
    pub(crate) first: u32,
    /// All that the objects take.
    taken: u32,
}

impl Held {
    pub(crate) fn insert(&mut self, object: u64, slots: u8) {
        let at = (object % PER_BLOCK) as u32;
        assert!(u64::from(at) + u64::from(slots) <= PER_BLOCK, "an object stays inside its dnode block");
        let block = self.0.entry(object / PER_BLOCK).or_default();
        block.first |= 1 << at;
        block.taken |= run_mask(at, slots);
    }

    /// Takes out an object that came in with as many slots.
    pub(crate) fn remove(&mut self, object: u64, slots: u8) {
        let at = (object % PER_BLOCK) as u32;
        let Entry::Occupied(mut block) = self.0.entry(object / PER_BLOCK) else { return };
        block.get_mut().first &= !(1 << at);
        block.get_mut().taken &= !run_mask(at, slots);
        if block.get().first == 0 {
            block.remove();
        }
    }

    /// What is held of `block`.
    pub(crate) fn slots(&self, block: u64) -> Slots {
        self.0.get(&block).copied().unwrap_or_default()
    }

    /// The first block from `block` on of which something is held.
    pub(crate) fn next_block(&self, block: u64) -> Option<u64> {
        self.0.range(block..).next().map(|(&block, _)| block)
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
    fn held_objects_give_back_their_slots() {
        let mut held = Held::default();
        held.insert(33, 1);
        held.insert(34, 2);
        held.insert(100, 1);
        assert_eq!(held.slots(1), Slots { first: 0b110, taken: 0b1110 });
        assert_eq!((held.next_block(0), held.next_block(2), held.next_block(4)), (Some(1), Some(3), None));
        held.remove(34, 2);
        assert_eq!(held.slots(1), Slots { first: 0b10, taken: 0b10 });
        held.remove(33, 1);
        held.remove(33, 1);
        assert_eq!((held.slots(1), held.next_block(0)), (Slots::default(), Some(3)));
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
