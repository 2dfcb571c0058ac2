//! One top-level vdev's space: its geometry and its metaslabs (`metaslab_group_t`, `module/zfs/metaslab.c`).
//!
//! Invariants:
//! - `allocated` and `runs` are the sums over all metaslabs, `loaded` and `active` list those that are: a metaslab only
//!   changes through [`Group::change`];
//! - a metaslab with room whose ranges are in memory is preferred; only without one is another one's map read.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_ondisk::sector::SECTOR;
use platter_ondisk::{ObjectId, Sectors, Txg};
use platter_vdev::AllocationClass;

use crate::histogram::{Histogram, Sum};
use crate::metaslab::{Metaslab, Ranges};
use crate::range_set::RangeSet;

/// What the allocator must know of a top-level vdev.
pub trait Geometry: Send + Sync {
    /// Allocated bytes for `psize` bytes of block (`vdev_psize_to_asize`).
    fn asize_for(&self, psize: u64) -> u64;
    /// The smallest piece of it: everything lies at a multiple of this many bytes and is one long (a power of two).
    fn unit(&self) -> u64 {
        SECTOR
    }
    /// `vdev_deflate_ratio`: deflated 512ths of a raw byte, so that a mirror or disk counts 1:1.
    fn deflate_ratio(&self) -> u64;
    /// Whether new blocks may be put here (it is open and writable).
    fn is_allocatable(&self) -> bool;
    /// What kind of blocks it is for.
    fn class(&self) -> AllocationClass {
        AllocationClass::Normal
    }
}

/// What a search for space found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It was allocated there.
    At(u64),
    /// The ranges of this metaslab, which may have room, must be loaded first.
    Unloaded(usize),
    /// There is no room.
    Nothing,
}

/// What a space map's header says after it was written.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// The map.
    pub object: ObjectId,
    /// Bytes in use.
    pub length: u64,
    /// Bytes allocated.
    pub allocated: i64,
    /// Free runs; the former ones when none.
    pub histogram: Option<Histogram>,
}

/// One top-level vdev's space.
pub struct Group {
    /// Index of the top-level vdev.
    pub vdev: u32,
    /// Its geometry.
    pub geometry: Arc<dyn Geometry>,
    /// What kind of blocks it is for, as the geometry says.
    pub(crate) class: AllocationClass,
    /// Nothing more is allocated here (`metaslab_group_passivate`, `module/zfs/metaslab.c`): it is to be removed.
    pub is_passive: bool,
    /// No group on the devices knows it yet: what an intent log had there would be gone with a crash
    /// (`metaslab_sync_done`, `module/zfs/metaslab.c`, makes a new metaslab available).
    is_new: bool,
    /// Metaslabs behind these that no group on the devices knows yet.
    grown: Vec<Metaslab>,
    /// By index.
    metaslabs: Vec<Metaslab>,
    /// log2 of the metaslab size.
    pub metaslab_shift: u32,
    /// Bytes to place here before the next vdev takes its turn.
    pub(crate) aliquot: u64,
    current: usize,
    size: u64,
    allocated: u64,
    runs: Sum,
    /// Metaslabs whose ranges are in memory.
    loaded: BTreeSet<usize>,
    /// Runs in all of these.
    loaded_runs: u64,
    /// Metaslabs with changes or with freed space at rest, and some that were.
    active: BTreeSet<usize>,
    /// Metaslabs whose map could not be read for want of a device.
    unreadable: Vec<usize>,
}

/// With so many metaslabs at most a debug build adds them all up at each change.
const SUMMED_AT_EACH_CHANGE: usize = 32;

/// The runs of a metaslab that are in memory.
fn loaded_runs(metaslab: &Metaslab) -> u64 {
    if metaslab.is_loaded() { metaslab.runs() } else { 0 }
}

impl Group {
    /// A group with its metaslabs; `children` is how many a block is spread over (a turn is 512 KiB for each,
    /// `mg_aliquot`).
    pub fn new(
        vdev: u32,
        geometry: Arc<dyn Geometry>,
        mut metaslabs: Vec<Metaslab>,
        metaslab_shift: u32,
        children: u64,
    ) -> Self {
        let size = metaslabs.iter().map(|m| m.size).sum();
        let allocated = metaslabs.iter().map(Metaslab::allocated).sum();
        let shift = geometry.unit().trailing_zeros();
        let mut runs = Sum::default();
        let loaded = (0..metaslabs.len()).filter(|&i| metaslabs[i].is_loaded()).collect();
        let loaded_runs = metaslabs.iter().map(loaded_runs).sum();
        for metaslab in &mut metaslabs {
            if !metaslab.space_map.is_some() && metaslab.is_loaded() {
                metaslab.histogram = Some(Histogram::of(metaslab.free_runs(), shift));
            }
            runs.replace(None, metaslab.histogram.as_ref());
        }
        let aliquot = (512 << 10) * children.max(1);
        let (active, unreadable) = (BTreeSet::new(), Vec::new());
        Self {
            vdev,
            class: geometry.class(),
            geometry,
            is_passive: false,
            is_new: false,
            grown: Vec::new(),
            metaslabs,
            metaslab_shift,
            aliquot,
            current: 0,
            size,
            allocated,
            runs,
            loaded,
            loaded_runs,
            active,
            unreadable,
        }
    }

    /// Whether nothing is allocated here, nor was lately: what is freed rests for some groups.
    pub fn is_empty(&self) -> bool {
        self.allocated == 0 && self.active.iter().all(|&index| !self.metaslabs[index].is_active())
    }

    /// Its metaslabs, by index.
    pub fn metaslabs(&self) -> &[Metaslab] {
        &self.metaslabs
    }

    /// The same, which joins a pool in the syncing group: nothing is put there before that is on the devices.
    #[must_use]
    pub fn joining(self) -> Self {
        Self { is_new: true, ..self }
    }

    /// Adds metaslabs behind the last, all free: the vdev has grown in the syncing group. Nothing is put there before
    /// that is on the devices.
    pub fn extend(&mut self, new: Vec<Metaslab>) {
        assert!(self.grown.is_empty(), "a vdev grows once in a group");
        self.grown = new;
    }

    /// Whether it has grown in the syncing group.
    pub fn is_growing(&self) -> bool {
        !self.grown.is_empty()
    }

    /// The group in which it joined or grew is on the devices.
    pub(crate) fn settle(&mut self) {
        self.is_new = false;
        let shift = self.geometry.unit().trailing_zeros();
        for mut metaslab in std::mem::take(&mut self.grown) {
            let end = self.metaslabs.last().map_or(0, |last| last.start + last.size);
            assert!(metaslab.start == end && metaslab.is_loaded(), "it comes behind the last, and is empty");
            metaslab.histogram = Some(Histogram::of(metaslab.free_runs(), shift));
            self.runs.replace(None, metaslab.histogram.as_ref());
            self.size += metaslab.size;
            self.loaded.insert(self.metaslabs.len());
            self.loaded_runs += loaded_runs(&metaslab);
            self.metaslabs.push(metaslab);
        }
    }

    /// Whether blocks may be put here.
    pub(crate) fn is_open(&self) -> bool {
        self.geometry.is_allocatable() && !self.is_passive && !self.is_new
    }

    /// Changes metaslab `index`, and what is known of all of them with it. `None` when there is no such metaslab.
    pub fn change<T>(&mut self, index: usize, change: impl FnOnce(&mut Metaslab) -> T) -> Option<T> {
        let metaslab = self.metaslabs.get_mut(index)?;
        let (allocated, was_active, was_loaded) = (metaslab.allocated(), metaslab.is_active(), metaslab.is_loaded());
        let runs = loaded_runs(metaslab);
        // While the ranges are in memory the histogram stays as it was written.
        let before = if was_loaded { None } else { metaslab.histogram };
        let changed = change(metaslab);
        if !was_loaded {
            self.runs.replace(before.as_ref(), metaslab.histogram.as_ref());
        }
        self.allocated = self.allocated - allocated + metaslab.allocated();
        self.loaded_runs = self.loaded_runs - runs + loaded_runs(metaslab);
        if !was_active && metaslab.is_active() {
            self.active.insert(index);
        }
        if was_loaded != metaslab.is_loaded() {
            if was_loaded {
                self.loaded.remove(&index)
            } else {
                self.loaded.insert(index)
            };
        }
        debug_assert!(self.metaslabs.len() > SUMMED_AT_EACH_CHANGE || self.sums_agree());
        Some(changed)
    }

    /// Whether the sums are those over all metaslabs.
    fn sums_agree(&self) -> bool {
        let allocated: u64 = self.metaslabs.iter().map(Metaslab::allocated).sum();
        let runs: u64 = self.metaslabs.iter().map(loaded_runs).sum();
        let loaded = self.metaslabs.iter().filter(|metaslab| metaslab.is_loaded()).count();
        (allocated, runs, loaded) == (self.allocated, self.loaded_runs, self.loaded.len())
    }

    /// Changes every metaslab that has changes or freed space at rest, in order.
    pub fn change_active(&mut self, mut change: impl FnMut(&mut Metaslab)) {
        for index in std::mem::take(&mut self.active) {
            self.change(index, &mut change);
            if self.metaslabs[index].is_active() {
                self.active.insert(index);
            }
        }
    }

    /// The metaslabs that have changes or freed space at rest.
    pub fn active(&self) -> impl Iterator<Item = &Metaslab> {
        self.active.iter().map(|&index| &self.metaslabs[index])
    }

    /// Nobody wants to know any more what became free.
    pub(crate) fn forget_trimmable(&mut self) {
        self.metaslabs.iter_mut().for_each(|metaslab| metaslab.trimmable = RangeSet::new());
    }

    /// The space map of metaslab `index` was written.
    pub fn written(&mut self, index: usize, map: Written) {
        let Some(metaslab) = self.metaslabs.get_mut(index) else { return };
        metaslab.space_map = map.object;
        metaslab.map_length = map.length;
        metaslab.map_allocated = map.allocated;
        if map.histogram.is_some() {
            self.runs.replace(metaslab.histogram.as_ref(), map.histogram.as_ref());
            metaslab.histogram = map.histogram;
        }
    }

    /// Takes the free ranges that the space map of metaslab `index` has.
    pub(crate) fn install(&mut self, index: usize, free: Result<RangeSet, String>) {
        let shift = self.geometry.unit().trailing_zeros();
        self.change(index, |metaslab| metaslab.install(free, shift));
    }

    /// Lets the ranges of metaslab `index` go.
    pub(crate) fn unload(&mut self, index: usize) {
        let (shift, before) = (self.geometry.unit().trailing_zeros(), self.metaslabs[index].histogram);
        self.change(index, |metaslab| metaslab.unload(shift));
        self.runs.replace(before.as_ref(), self.metaslabs[index].histogram.as_ref());
    }

    /// The space map of metaslab `index` cannot be read for want of a device: it is passed over until the next group.
    pub(crate) fn pass_over(&mut self, index: usize) {
        if let Ranges::OnDisk { largest, .. } = &mut self.metaslabs[index].ranges {
            *largest = Some(0);
            self.unreadable.push(index);
        }
    }

    /// Space maps that could not be read are tried again.
    pub(crate) fn try_again(&mut self) {
        for index in self.unreadable.drain(..) {
            if let Ranges::OnDisk { largest, .. } = &mut self.metaslabs[index].ranges {
                *largest = None;
            }
        }
    }

    /// Indices of the metaslabs whose ranges are in memory.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Metaslab> {
        self.loaded.iter().map(|&index| &self.metaslabs[index])
    }

    /// How many metaslabs have their ranges in memory, and how many runs those are.
    pub(crate) fn in_memory(&self) -> (u64, u64) {
        (self.loaded.len() as u64, self.loaded_runs)
    }

    /// How many metaslabs have a damaged space map.
    pub fn damaged(&self) -> usize {
        self.metaslabs.iter().filter(|metaslab| matches!(metaslab.ranges, Ranges::Damaged(_))).count()
    }

    /// Raw bytes allocated.
    pub fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Raw bytes in all metaslabs.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fragmentation in percent, as the headers of the space maps say; `None` when they say nothing.
    pub fn fragmentation(&self) -> Option<u64> {
        self.runs.fragmentation()
    }

    pub(crate) fn deflate(&self, asize: u64) -> u64 {
        Sectors::within(asize).0 * self.geometry.deflate_ratio()
    }

    /// The metaslab with the most free space of those that `fits` lets through.
    fn roomiest<'a>(&'a self, all: impl Iterator<Item = &'a Metaslab>) -> Option<usize> {
        let best = all.max_by_key(|metaslab| (metaslab.free_bytes(), std::cmp::Reverse(metaslab.index)));
        best.map(|metaslab| metaslab.index as usize)
    }

    /// The metaslab to load for a run of `asize` bytes: one that is certain to have it, else one that may.
    fn to_load(&self, asize: u64, far: impl Fn(&Metaslab) -> bool) -> Option<usize> {
        let candidates = || self.metaslabs.iter().filter(|metaslab| metaslab.could_hold(asize) && far(metaslab));
        let promises = |metaslab: &&Metaslab| metaslab.histogram.is_none_or(|histogram| histogram.promises(asize));
        self.roomiest(candidates().filter(promises)).or_else(|| self.roomiest(candidates()))
    }

    /// Whether there would be room for `asize` bytes if no metaslab were disabled.
    pub(crate) fn would_hold(&self, asize: u64) -> bool {
        self.metaslabs.iter().any(|metaslab| metaslab.would_hold(asize))
    }

    /// Whether new blocks of this class may be put here.
    pub(crate) fn takes(&self, class: AllocationClass) -> bool {
        self.class == class && self.is_open()
    }

    pub(crate) fn allocate(&mut self, asize: u64, away_from: &[(u64, u64)], now: u64) -> Found {
        // A second copy on the same vdev goes at least an eighth of the vdev away, if that can be had
        // (ditto_same_vdev_distance_shift).
        let eighth = self.size() / 8;
        let distances: &[u64] = if away_from.is_empty() { &[0] } else { &[eighth, 0] };
        let take = |metaslab: &mut Metaslab| {
            metaslab.last_used = now;
            metaslab.allocate(asize)
        };
        for &distance in distances {
            if away_from.is_empty()
                && let Some(offset) = self.change(self.current, take).flatten()
            {
                return Found::At(offset);
            }
            let far =
                |metaslab: &Metaslab| away_from.iter().all(|&(offset, _)| metaslab.start.abs_diff(offset) >= distance);
            let fits = |metaslab: &&Metaslab| metaslab.can_hold(asize) && far(metaslab);
            if let Some(index) = self.roomiest(self.loaded().filter(fits)) {
                if away_from.is_empty() {
                    self.current = index;
                    let metaslab = &mut self.metaslabs[index];
                    metaslab.cursor = metaslab.start;
                }
                return self.change(index, take).flatten().map_or(Found::Nothing, Found::At);
            }
            if let Some(index) = self.to_load(asize, far) {
                return Found::Unloaded(index);
            }
        }
        Found::Nothing
    }

    pub(crate) fn allocate_log(&mut self, asize: u64, txg: Txg, now: u64) -> Found {
        let take = |metaslab: &mut Metaslab| {
            metaslab.last_used = now;
            metaslab.allocate_log(asize, txg)
        };
        if let Some(offset) = self.change(self.current, take).flatten() {
            return Found::At(offset);
        }
        if let Some(index) = self.roomiest(self.loaded().filter(|metaslab| metaslab.can_hold(asize))) {
            return self.change(index, take).flatten().map_or(Found::Nothing, Found::At);
        }
        self.to_load(asize, |_| true).map_or(Found::Nothing, Found::Unloaded)
    }
}
