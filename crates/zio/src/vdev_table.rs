//! The pool's top-level vdevs by index.
//!
//! Invariant: an entry never changes once it is there, but for one that is removed: it reads as a hole from then on.
//! New vdevs come behind the last one. So readers need no lock and may keep references for as long as they have the
//! table.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use platter_ondisk::sector::SECTOR;
use platter_vdev::{AllocationClass, Layout, TopVdev};

/// Most top-level vdevs of a pool; a larger index in a label is damage.
pub const TOP_VDEVS_MAX: usize = 4096;

/// Top-level vdevs by index; holes in the numbering are `None`.
pub struct VdevTable {
    slots: Box<[Slot]>,
    /// What [`Self::most_space`] found, by log2 of the size; 0 where it has not looked yet.
    most: [AtomicU64; SIZES],
}

/// What there is at one index.
#[derive(Default)]
struct Slot {
    vdev: OnceLock<Option<Arc<TopVdev>>>,
    is_removed: AtomicBool,
}

/// What a removed vdev reads as.
static HOLE: Option<Arc<TopVdev>> = None;

impl Slot {
    fn get(&self) -> Option<&Option<Arc<TopVdev>>> {
        let vdev = self.vdev.get()?;
        Some(if self.is_removed.load(Ordering::Acquire) { &HOLE } else { vdev })
    }
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
        let table = Self { slots: (0..TOP_VDEVS_MAX).map(|_| Slot::default()).collect(), most: Default::default() };
        for (slot, vdev) in table.slots.iter().zip(vdevs) {
            let _ = slot.vdev.set(vdev);
        }
        table
    }

    /// The entry at `index`; `None` behind the last one.
    pub fn get(&self, index: usize) -> Option<&Option<Arc<TopVdev>>> {
        self.slots.get(index)?.get()
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &Option<Arc<TopVdev>>> {
        self.slots.iter().map_while(Slot::get)
    }

    /// The vdevs that hold more than logs: without a log the pool goes on.
    pub fn ordinary(&self) -> impl Iterator<Item = &Arc<TopVdev>> {
        self.iter().flatten().filter(|vdev| vdev.class() != AllocationClass::Log)
    }

    /// Adds a vdev at `index`, which must be the one behind the last. Returns whether it was.
    pub fn push(&self, index: usize, vdev: Arc<TopVdev>) -> bool {
        let is_next = index == 0 || self.get(index - 1).is_some();
        let is_added = is_next && self.slots.get(index).is_some_and(|slot| slot.vdev.set(Some(vdev)).is_ok());
        self.most.iter().for_each(|most| most.store(0, Ordering::Relaxed));
        is_added
    }

    /// The vdev at `index`, on which nothing is allocated any more, is removed: a hole stays in the numbering.
    ///
    /// # Panics
    /// When there is none.
    pub fn remove(&self, index: usize) {
        let slot = self.slots.get(index).filter(|slot| slot.get().is_some_and(Option::is_some));
        slot.expect("what is removed is there").is_removed.store(true, Ordering::Release);
    }

    /// For each raidz that holds more than logs, the raw bytes that blocks of these two sizes take there.
    pub fn raidz_sizes(&self, one: u64, other: u64) -> impl Iterator<Item = (u64, u64)> {
        let raidz = self.ordinary().filter(|vdev| matches!(vdev.layout(), Layout::Raidz { .. }));
        raidz.map(move |vdev| (vdev.asize_for(one), vdev.asize_for(other)))
    }

    /// The smallest block, in bytes, that wastes little wherever it is put (`calculate_volblocksize`,
    /// `cmd/zfs/zfs_main.c`).
    pub fn least_sensible_block(&self) -> u64 {
        let sectors = |vdev: &TopVdev| match vdev.layout() {
            Layout::Raidz { parity: 1 } => 2,
            Layout::Raidz { .. } => 4,
            Layout::Single | Layout::Mirror => 1,
        };
        self.ordinary().map(|vdev| sectors(vdev) << vdev.ashift()).max().unwrap_or(SECTOR)
    }

    /// The most space, in deflated bytes, that one copy of a block of up to `size` bytes takes on any vdev that holds
    /// more than logs; sizes are rounded up to powers of two.
    pub fn most_space(&self, size: u64) -> u64 {
        let order = (size.max(1).next_power_of_two().trailing_zeros() as usize).min(SIZES - 1);
        let found = self.most[order].load(Ordering::Relaxed);
        if found > 0 {
            return found;
        }
        let most = self.ordinary().map(|vdev| vdev.deflate(vdev.asize_for(1 << order))).max().unwrap_or(size);
        self.most[order].store(most, Ordering::Relaxed);
        most
    }
}
