//! The pool's top-level vdevs by index.
//!
//! Invariant: an entry never changes once it is there; new vdevs come behind the last one. So readers need no lock and
//! may keep references for as long as they have the table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_vdev::{AllocationClass, TopVdev};

/// Most top-level vdevs of a pool; a larger index in a label is damage.
pub const TOP_VDEVS_MAX: usize = 4096;

/// Top-level vdevs by index; holes in the numbering are `None`.
pub struct VdevTable {
    slots: Box<[OnceLock<Option<Arc<TopVdev>>>]>,
    /// What [`Self::most_space`] found, by log2 of the size; 0 where it has not looked yet.
    most: [AtomicU64; SIZES],
}

/// Powers of two up to the largest block, 16 MiB.
const SIZES: usize = 25;

impl VdevTable {
    /// A table with these vdevs, in order.
    ///
    /// # Panics
    /// With more than [`TOP_VDEVS_MAX`] vdevs.
    pub fn new(vdevs: Vec<Option<Arc<TopVdev>>>) -> Self {
        assert!(vdevs.len() <= TOP_VDEVS_MAX);
        let table = Self { slots: (0..TOP_VDEVS_MAX).map(|_| OnceLock::new()).collect(), most: Default::default() };
        for (slot, vdev) in table.slots.iter().zip(vdevs) {
            let _ = slot.set(vdev);
        }
        table
    }

    /// The entry at `index`; `None` behind the last one.
    pub fn get(&self, index: usize) -> Option<&Option<Arc<TopVdev>>> {
        self.slots.get(index)?.get()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Option<Arc<TopVdev>>> {
        self.slots.iter().map_while(OnceLock::get)
    }

    /// Adds a vdev at `index`, which must be the one behind the last. Returns whether it was.
    pub fn push(&self, index: usize, vdev: Arc<TopVdev>) -> bool {
        let is_next = index == 0 || self.get(index - 1).is_some();
        let is_added = is_next && self.slots.get(index).is_some_and(|slot| slot.set(Some(vdev)).is_ok());
        self.most.iter().for_each(|most| most.store(0, Ordering::Relaxed));
        is_added
    }

    /// The most space, in deflated bytes, that one copy of a block of up to `size` bytes takes on any vdev that holds
    /// more than logs; sizes are rounded up to powers of two.
    pub fn most_space(&self, size: u64) -> u64 {
        let order = (size.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1);
        let found = self.most[order].load(Ordering::Relaxed);
        if found > 0 {
            return found;
        }
        let ordinary = self.iter().flatten().filter(|vdev| vdev.class() != AllocationClass::Log);
        let most = ordinary.map(|vdev| vdev.deflate(vdev.asize_for(1 << order))).max().unwrap_or(size);
        self.most[order].store(most, Ordering::Relaxed);
        most
    }
}
