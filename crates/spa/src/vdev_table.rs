//! The pool's top-level vdevs by index.
//!
//! Invariant: an entry never changes once it is there; new vdevs come behind the last one. So readers need no lock and
//! may keep references for as long as they have the table.

use std::sync::{Arc, OnceLock};

use platter_vdev::TopVdev;

/// Most top-level vdevs of a pool; a larger index in a label is damage.
pub const TOP_VDEVS_MAX: usize = 4096;

/// Top-level vdevs by index; holes in the numbering are `None`.
pub struct VdevTable {
    slots: Box<[OnceLock<Option<Arc<TopVdev>>>]>,
}

impl VdevTable {
    /// A table with these vdevs, in order.
    ///
    /// # Panics
    /// With more than [`TOP_VDEVS_MAX`] vdevs.
    pub fn new(vdevs: Vec<Option<Arc<TopVdev>>>) -> Self {
        assert!(vdevs.len() <= TOP_VDEVS_MAX);
        let table = Self { slots: (0..TOP_VDEVS_MAX).map(|_| OnceLock::new()).collect() };
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
        is_next && self.slots.get(index).is_some_and(|slot| slot.set(Some(vdev)).is_ok())
    }
}
