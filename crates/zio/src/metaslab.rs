//! Metaslabs: the regions of a top-level vdev in which space is handed out (`module/zfs/metaslab.c`).
//!
//! The free ranges of a metaslab are read from its space map when something needs them ([`crate::loading`]), and let go
//! when memory is short and nothing of it is under way. Until then it is known by sums: free bytes, a histogram.
//!
//! Invariants, for every metaslab at every moment:
//! - each byte is in exactly one of: allocated, free to be handed out, `freeing`, `freed`, one of `deferred`. Free to
//!   be handed out is `allocatable` while the ranges are loaded, else a number of bytes;
//! - what is allocated lies in loaded ranges: `allocating` and `log_allocated` are empty while they are not;
//! - `allocating` holds what this group allocated and has not yet written to the space map (a subset of allocated);
//! - while it is disabled nothing of it is handed out, so that what is free stays free;
//! - freed space is not handed out before two more groups are on disk (`TXG_DEFER_SIZE`), so that the last uberblocks
//!   stay usable;
//! - while `pins` are held (a scrub slice), freed space stays in `deferred`.

use std::sync::Arc;

use platter_hooks::Canary;
use platter_ondisk::{ObjectId, Txg};

use crate::disabling::Disabling;
use crate::histogram::Histogram;
use crate::range_set::{RangeError, RangeSet};

/// Groups for which freed space is held back.
pub const DEFER: usize = 2;
/// Groups that can be open or on their way to disk at one time, as a power of two (`TXG_SIZE`).
pub const LOG_SLOTS: usize = 4;
/// With so many ranges at most a debug build compares them all after each group.
const COMPARED_RANGES_MAX: usize = 4096;
/// Ranges that became free and are remembered to be given up: a trim of everything finds the others.
const TRIMMABLE_MAX: usize = 1 << 16;

/// What is in memory of a metaslab's free ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// All: `allocatable`.
    Loaded,
    /// None.
    OnDisk {
        /// Bytes that could be handed out.
        free: u64,
        /// The longest run, when it is known better than from the histogram.
        largest: Option<u64>,
    },
    /// None: the space map contradicts itself or cannot be read. Nothing is handed out.
    Damaged(Arc<str>),
}

/// One metaslab. All positions and sizes are bytes within the top-level vdev's allocatable space.
#[derive(Clone, Debug)]
pub struct Metaslab {
    /// Index within the vdev.
    pub index: u64,
    /// First byte.
    pub start: u64,
    /// Length.
    pub size: u64,
    /// The space map object; none before the first write.
    pub space_map: ObjectId,
    /// Bytes of the space map object in use (`smp_length`).
    pub map_length: u64,
    /// Allocated bytes according to the space map on disk (`smp_alloc`).
    pub map_allocated: i64,
    /// The free runs when the space map was last written, loaded or let go; what became free since counts as runs of
    /// its own, as in OpenZFS (`metaslab_sync`). None when nobody knows.
    pub histogram: Option<Histogram>,
    /// Whether `allocatable` is known.
    pub ranges: Ranges,
    /// Free, to be handed out; empty unless loaded.
    pub allocatable: RangeSet,
    /// Allocated in the syncing group, not yet in the space map.
    pub allocating: RangeSet,
    /// Allocated for the intent log in groups that are not syncing yet, by `txg % LOG_SLOTS`.
    pub log_allocated: [RangeSet; LOG_SLOTS],
    /// Allocated for the intent log since the pool was opened. What is to be a log's next block may not be written for
    /// long, and holds until then what lay there before.
    pub for_logs: RangeSet,
    /// Freed in the syncing group, not yet in the space map.
    pub freeing: RangeSet,
    /// Freed in the syncing group, in the space map.
    pub freed: RangeSet,
    /// Freed in the last groups, by `txg % DEFER`.
    pub deferred: [RangeSet; DEFER],
    /// Became free while somebody wants to know (`ms_trim`), and is free still.
    pub trimmable: RangeSet,
    /// How many keep anything from being handed out (`ms_disabled`).
    pub disabled: Disabling,
    /// Where the next search begins.
    pub cursor: u64,
    /// Counts the uses of all metaslabs: the least is the one unused longest.
    pub last_used: u64,
    /// The group since which changes are only in log space maps; 0 while the metaslab was never logged.
    pub unflushed_txg: Txg,
    /// Allocated in logged groups, not in the space map.
    pub unflushed_allocs: RangeSet,
    /// Freed in logged groups, not in the space map.
    pub unflushed_frees: RangeSet,
}

impl Metaslab {
    /// A metaslab that is entirely free.
    pub fn new(index: u64, start: u64, size: u64) -> Self {
        Self {
            index,
            start,
            size,
            space_map: ObjectId::NONE,
            map_length: 0,
            map_allocated: 0,
            histogram: None,
            ranges: Ranges::Loaded,
            allocatable: RangeSet::of(start, size),
            allocating: RangeSet::new(),
            log_allocated: Default::default(),
            for_logs: RangeSet::new(),
            freeing: RangeSet::new(),
            freed: RangeSet::new(),
            deferred: Default::default(),
            trimmable: RangeSet::new(),
            disabled: Disabling::default(),
            cursor: start,
            last_used: 0,
            unflushed_txg: Txg(0),
            unflushed_allocs: RangeSet::new(),
            unflushed_frees: RangeSet::new(),
        }
    }

    /// A metaslab whose space map is `space_map`, with the bytes in use and the bytes allocated that its header says.
    /// `None` when more is allocated than there is.
    pub fn on_disk(index: u64, (start, size): (u64, u64), space_map: ObjectId, header: (u64, i64)) -> Option<Self> {
        let (map_length, map_allocated) = header;
        // A map that was never written to has no histogram yet.
        let largest = (map_length == 0).then_some(size);
        let free = size.checked_sub(u64::try_from(map_allocated).ok()?)?;
        Some(Self {
            space_map,
            map_length,
            map_allocated,
            ranges: Ranges::OnDisk { free, largest },
            allocatable: RangeSet::new(),
            ..Self::new(index, start, size)
        })
    }

    /// Whether the free ranges are in memory.
    pub fn is_loaded(&self) -> bool {
        self.ranges == Ranges::Loaded
    }

    /// Notes what a log has of a group when the pool is opened; the ranges are not loaded.
    ///
    /// # Errors
    /// When it contradicts what later groups' logs or sums say.
    pub fn note_found(&mut self, start: u64, length: u64, allocates: bool, txg: Txg) -> Result<(), RangeError> {
        let change = RangeSet::of(start, length);
        let (opposite, same) = match allocates {
            true => (&mut self.unflushed_frees, &mut self.unflushed_allocs),
            false => (&mut self.unflushed_allocs, &mut self.unflushed_frees),
        };
        cancel_or_add(opposite, same, &change)?;
        if self.unflushed_txg.0 == 0 {
            self.unflushed_txg = txg;
        }
        let error = RangeError { start, length, problem: "is more than the metaslab has" };
        let Ranges::OnDisk { free, largest } = &mut self.ranges else { return Err(error) };
        if let Some(histogram) = self.histogram.as_mut().filter(|_| !allocates) {
            histogram.add(length);
        }
        let changed = if allocates { free.checked_sub(length) } else { free.checked_add(length) };
        *free = changed.filter(|&free| free <= self.size).ok_or(error)?;
        *largest = None;
        Ok(())
    }

    /// Whether its space map has everything that logs of former groups have.
    pub fn is_flushed(&self) -> bool {
        self.unflushed_allocs.is_empty() && self.unflushed_frees.is_empty()
    }

    /// Whether something of it is under way or at rest, so that each group has to look at it.
    pub fn is_active(&self) -> bool {
        let logged = self.log_allocated.iter().chain(&self.deferred);
        self.is_dirty() || !self.freed.is_empty() || logged.into_iter().any(|set| !set.is_empty())
    }

    /// Whether its ranges can be let go: nothing that was allocated is still to be written down.
    pub fn is_idle(&self) -> bool {
        !self.is_dirty() && self.log_allocated.iter().all(RangeSet::is_empty)
    }

    /// Lets the ranges go; `shift` is log2 of the smallest piece.
    pub fn unload(&mut self, shift: u32) {
        assert!(self.is_loaded() && self.is_idle());
        self.histogram = Some(Histogram::of(self.allocatable.iter().map(|(_, length)| length), shift));
        let (free, largest) = (self.allocatable.total(), Some(self.allocatable.largest()));
        self.allocatable = RangeSet::new();
        self.ranges = Ranges::OnDisk { free, largest };
    }

    /// The ranges to be handed out, where `free` is what the space map says is free: with what only logs and memory
    /// have.
    ///
    /// # Errors
    /// When the two contradict each other.
    fn assembled(&self, mut free: RangeSet, expected: u64) -> Result<RangeSet, RangeError> {
        for (start, length) in self.unflushed_frees.iter() {
            free.add(start, length)?;
        }
        for (start, length) in self.unflushed_allocs.iter() {
            free.remove(start, length)?;
        }
        if let Some((start, length)) = self.freeing.iter().find(|&(start, length)| free.overlaps(start, length)) {
            return Err(RangeError { start, length, problem: "was freed twice" });
        }
        for (start, length) in std::iter::once(&self.freed).chain(&self.deferred).flat_map(RangeSet::iter) {
            free.remove(start, length)?;
        }
        if free.total() != expected {
            let (start, length) = (self.start, free.total());
            return Err(RangeError { start, length, problem: "is not as much free space as the header says" });
        }
        Ok(free)
    }

    /// Takes the free ranges that the space map has; `shift` is log2 of the smallest piece. Afterwards it is loaded, or
    /// damaged.
    pub(crate) fn install(&mut self, free: Result<RangeSet, String>, shift: u32) {
        let Ranges::OnDisk { free: expected, .. } = self.ranges else { return };
        assert!(self.allocating.is_empty() && self.log_allocated.iter().all(RangeSet::is_empty));
        match free.and_then(|free| self.assembled(free, expected).map_err(|error| error.to_string())) {
            Ok(free) => {
                self.allocatable = free;
                self.ranges = Ranges::Loaded;
                self.cursor = self.start;
                self.histogram = Some(Histogram::of(self.free_runs(), shift));
            }
            Err(reason) => {
                self.ranges = Ranges::Damaged(reason.into());
                self.trimmable = RangeSet::new();
            }
        }
    }

    /// Whether there may be a run of `length` bytes in ranges that are not loaded.
    pub(crate) fn could_hold(&self, length: u64) -> bool {
        !self.disabled.is_on() && self.has_room_unloaded(length)
    }

    /// Whether there is a run of `length` bytes in loaded ranges that may be handed out.
    pub(crate) fn can_hold(&self, length: u64) -> bool {
        !self.disabled.is_on() && self.allocatable.largest() >= length
    }

    /// Whether it is only its being disabled that keeps so many bytes from being handed out, as far as is known.
    pub(crate) fn would_hold(&self, length: u64) -> bool {
        self.disabled.is_on() && (self.allocatable.largest() >= length || self.has_room_unloaded(length))
    }

    fn has_room_unloaded(&self, length: u64) -> bool {
        let Ranges::OnDisk { free, largest } = self.ranges else { return false };
        let known = largest.or_else(|| {
            let histogram = self.histogram.filter(|histogram| histogram.runs() > 0)?;
            // What was freed since the header was written joins its neighbours.
            Some(if self.unflushed_frees.is_empty() {
                histogram.end().saturating_sub(1)
            } else {
                histogram.end().saturating_mul(2).saturating_add(self.unflushed_frees.largest())
            })
        });
        free >= length && known.is_none_or(|largest| largest >= length)
    }

    /// Runs of free space, about.
    pub fn runs(&self) -> u64 {
        if self.is_loaded() {
            return self.allocatable.count() as u64;
        }
        // Each free run of a map is at least one entry of eight bytes that ends it.
        self.histogram.map_or(self.map_length / 8, |histogram| histogram.runs())
    }

    /// Takes what the syncing group changed since the last call: (allocated, freed). Freed space moves on to `freed`.
    pub fn take_changes(&mut self) -> (RangeSet, RangeSet) {
        let allocating = self.allocating.take();
        let freeing = self.freeing.take();
        for (start, length) in freeing.iter() {
            self.freed.add(start, length).expect("freed once in a group");
        }
        (allocating, freeing)
    }

    /// Notes changes that went to a log space map only. What is undone by a later change cancels out.
    pub fn note_logged(&mut self, allocated: &RangeSet, freed: &RangeSet) {
        let once = "space changes hands once at a time";
        cancel_or_add(&mut self.unflushed_frees, &mut self.unflushed_allocs, allocated).expect(once);
        cancel_or_add(&mut self.unflushed_allocs, &mut self.unflushed_frees, freed).expect(once);
    }

    /// Whether the syncing group changed it and its space map does not know yet.
    pub fn is_dirty(&self) -> bool {
        !self.allocating.is_empty() || !self.freeing.is_empty()
    }

    /// Bytes that cannot be handed out: what `zpool list` counts as allocated.
    pub fn allocated(&self) -> u64 {
        self.size - self.free_bytes()
    }

    /// Bytes that can be handed out.
    pub fn free_bytes(&self) -> u64 {
        match self.ranges {
            Ranges::Loaded => self.allocatable.total(),
            Ranges::OnDisk { free, .. } => free,
            Ranges::Damaged(_) => 0,
        }
    }

    /// Makes a range that is in no set free to be handed out.
    fn give_back(&mut self, start: u64, length: u64) -> Result<(), RangeError> {
        match &mut self.ranges {
            Ranges::Loaded => self.allocatable.add(start, length)?,
            Ranges::OnDisk { free, largest } => {
                // What a damaged pool frees twice is only seen when the map is loaded.
                *free = free.saturating_add(length).min(self.size);
                self.histogram.iter_mut().for_each(|histogram| histogram.add(length));
                // It may have joined its neighbours.
                *largest = None;
            }
            Ranges::Damaged(_) => {}
        }
        Ok(())
    }

    /// Undoes an allocation of the syncing group.
    pub(crate) fn unallocate(&mut self, start: u64, length: u64) {
        if self.allocating.remove(start, length).is_ok() {
            self.give_back(start, length).expect("allocated space is not allocatable");
        }
    }

    /// The allocated ranges as they were before the syncing group (valid in its first pass, before anything was freed
    /// for good).
    pub fn allocated_before(&self) -> RangeSet {
        let mut ranges = self.allocated_ranges();
        for (start, length) in self.freeing.iter().chain(self.freed.iter()) {
            ranges.clear_range(start, length);
            ranges.add(start, length).expect("just cleared");
        }
        // Last: a block of an intent log may be allocated and freed in the same group.
        for (start, length) in self.allocating.iter() {
            ranges.clear_range(start, length);
        }
        ranges
    }

    /// The space map cannot be read any more and is to be written anew. Unless the ranges are in memory, all that is
    /// not known to be free counts as allocated from now on: space is lost, nothing that is stored is. `shift` is log2
    /// of the smallest piece.
    pub fn begin_anew(&mut self, shift: u32) {
        if self.is_loaded() {
            return;
        }
        let mut free = self.unflushed_frees.clone();
        for (start, length) in [&self.freeing, &self.freed].into_iter().chain(&self.deferred).flat_map(RangeSet::iter) {
            free.clear_range(start, length);
        }
        self.histogram = Some(Histogram::of(free.iter().map(|(_, length)| length), shift));
        self.ranges = Ranges::OnDisk { free: free.total(), largest: Some(free.largest()) };
    }

    /// The allocated ranges as the syncing group leaves them: everything that is in none of the free sets, nor
    /// allocated in a later group. Of ranges that are not in memory, what is not known to be free counts as allocated.
    pub fn allocated_ranges(&self) -> RangeSet {
        let mut ranges = RangeSet::of(self.start, self.size);
        let known = if self.is_loaded() { &self.allocatable } else { &self.unflushed_frees };
        let free = [known, &self.freeing, &self.freed].into_iter();
        let free = free.chain(&self.deferred).chain(&self.log_allocated);
        for set in free {
            for (start, length) in set.iter() {
                ranges.clear_range(start, length);
            }
        }
        ranges
    }

    /// Takes `length` bytes, or nothing.
    pub fn allocate(&mut self, length: u64) -> Option<u64> {
        let start = self.take_out(length)?;
        self.allocating.add(start, length).expect("allocatable space is not allocated");
        Some(start)
    }

    /// Finds `length` bytes that are to be handed out, and takes them out of what is.
    fn take_out(&mut self, length: u64) -> Option<u64> {
        if self.disabled.is_on() {
            return None;
        }
        let start = self.allocatable.find(self.cursor, length)?;
        assert!(self.is_loaded(), "what is allocated lies in loaded ranges");
        self.allocatable.remove(start, length).expect("find returns free space");
        self.forget_trimmable(start, length);
        self.forget_log(start, length);
        self.cursor = start + length;
        Some(start)
    }

    fn forget_log(&mut self, start: u64, length: u64) {
        if !self.for_logs.is_empty() {
            self.for_logs.clear_range(start, length);
        }
    }

    fn forget_trimmable(&mut self, start: u64, length: u64) {
        if !self.trimmable.is_empty() {
            self.trimmable.clear_range(start, length);
        }
    }

    /// Notes what just became free for who gives it up, unless that is more than is worth remembering.
    pub(crate) fn note_trimmable(&mut self, start: u64, length: u64) {
        if self.trimmable.count() < TRIMMABLE_MAX && !matches!(self.ranges, Ranges::Damaged(_)) {
            self.trimmable.clear_range(start, length);
            self.trimmable.add(start, length).expect("just cleared");
        }
    }

    /// Takes `length` bytes for an intent log in open group `txg`, or nothing.
    pub fn allocate_log(&mut self, length: u64, txg: Txg) -> Option<u64> {
        let start = self.take_out(length)?;
        self.log_allocated[log_slot(txg)].add(start, length).expect("allocatable space is not allocated");
        self.for_logs.add(start, length).expect("what is handed out is no log's any more");
        Some(start)
    }

    /// Group `txg` is syncing: what was allocated in it for intent logs becomes part of what it allocates.
    pub fn absorb_log(&mut self, txg: Txg) {
        for (start, length) in self.log_allocated[log_slot(txg)].take().iter() {
            self.allocating.add(start, length).expect("allocated once");
        }
    }

    /// Marks a range, allocated according to somebody else's claim, as allocated (replaying an intent log).
    ///
    /// # Errors
    /// When part of it is not free.
    pub fn claim(&mut self, start: u64, length: u64) -> Result<(), RangeError> {
        assert!(!self.disabled.is_on(), "what logs need is claimed before anything is given up");
        self.allocatable.remove(start, length)?;
        self.forget_trimmable(start, length);
        self.allocating.add(start, length)
    }

    /// Gives a range back.
    ///
    /// # Errors
    /// When part of it is free already: a double free, the pool's accounting is damaged.
    pub fn free(&mut self, start: u64, length: u64) -> Result<(), RangeError> {
        if self.is_partly_free(start, length) {
            return Err(RangeError { start, length, problem: "is free already" });
        }
        self.forget_log(start, length);
        if Canary::FreedAtOnce.sings() {
            return self.give_back(start, length);
        }
        self.freeing.add(start, length)
    }

    /// As far as is known: what only the space map has, loading looks at.
    fn is_partly_free(&self, start: u64, length: u64) -> bool {
        let known = if self.is_loaded() { &self.allocatable } else { &self.unflushed_frees };
        let sets = [known, &self.freed].into_iter().chain(&self.deferred).chain(&self.log_allocated);
        sets.into_iter().any(|set| set.overlaps(start, length))
    }

    /// Whether all of this range, which lies in this metaslab and is not a log's, has been in use since `is_old` blocks
    /// were born, as far as is known: not what was freed, nor what others have by now.
    pub(crate) fn is_kept(&self, start: u64, length: u64, is_old: bool) -> bool {
        let is_taken = is_old && self.allocating.overlaps(start, length) || self.for_logs.overlaps(start, length);
        !is_taken && self.is_allocated(start, length)
    }

    /// Whether all of this range, which lies in this metaslab, is in use and not freed in this group.
    pub fn is_allocated(&self, start: u64, length: u64) -> bool {
        !self.is_partly_free(start, length) && !self.freeing.overlaps(start, length)
    }

    /// After group `txg` is on disk: what was freed `DEFER` groups ago becomes allocatable, unless pinned.
    /// With `noting`, what becomes allocatable is noted for who gives it up. Returned is what became allocatable.
    pub fn finish(&mut self, txg: Txg, pinned: bool, noting: bool) -> RangeSet {
        assert!(!self.is_dirty(), "what a group changed is on disk before freed space moves on");
        let slot = (txg.0 as usize) % DEFER;
        let freed = self.freed.take();
        if pinned {
            for (start, length) in freed.iter() {
                self.deferred[slot].add(start, length).expect("freed once");
            }
            return RangeSet::new();
        }
        let mature = std::mem::replace(&mut self.deferred[slot], freed);
        for (start, length) in mature.iter() {
            self.give_back(start, length).expect("deferred space is in no other set");
            if noting {
                self.note_trimmable(start, length);
            }
        }
        if cfg!(debug_assertions) {
            self.assert_internally_consistent();
        }
        mature
    }

    /// No byte is in two places, and none outside.
    fn assert_internally_consistent(&self) {
        let sets = [&self.allocatable, &self.allocating, &self.freeing, &self.freed].into_iter();
        let sets: Vec<&RangeSet> = sets.chain(&self.deferred).chain(&self.log_allocated).collect();
        if sets.iter().map(|set| set.count()).sum::<usize>() > COMPARED_RANGES_MAX {
            return;
        }
        let mut all = RangeSet::new();
        for (start, length) in sets.into_iter().flat_map(RangeSet::iter) {
            assert!(
                self.start <= start && start + length <= self.start + self.size,
                "{start:#x} is in another metaslab"
            );
            all.add(start, length).expect("a byte is free, or freed, or allocated by one group");
        }
        assert!(self.is_loaded() || self.allocatable.is_empty(), "only loaded ranges are handed out");
        let is_free = |(start, length)| !self.is_loaded() || self.allocatable.contains(start, length);
        assert!(self.trimmable.iter().all(is_free), "what was noted as free is free");
    }

    /// Lengths of all free runs: those to be handed out and those held back. The ranges are loaded.
    pub fn free_runs(&self) -> Vec<u64> {
        let sets = [&self.allocatable, &self.freed].into_iter().chain(&self.deferred).chain(&self.log_allocated);
        sets.flat_map(|set| set.iter().map(|(_, length)| length)).collect()
    }
}

fn log_slot(txg: Txg) -> usize {
    (txg.0 as usize) % LOG_SLOTS
}

/// For each range of `changes`: what of it is in `opposite` leaves it, the rest joins `same`.
fn cancel_or_add(opposite: &mut RangeSet, same: &mut RangeSet, changes: &RangeSet) -> Result<(), RangeError> {
    for (start, length) in changes.iter() {
        let mut rest = RangeSet::of(start, length);
        for (from, size) in opposite.within(start, length) {
            opposite.remove(from, size).expect("just found");
            rest.remove(from, size).expect("it is inside");
        }
        for (from, size) in rest.iter() {
            same.add(from, size)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_changes_that_undo_each_other_cancel_out() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        metaslab.note_logged(&RangeSet::of(0, 8192), &RangeSet::new());
        metaslab.note_logged(&RangeSet::new(), &RangeSet::of(4096, 4096));
        assert_eq!(metaslab.unflushed_allocs.iter().collect::<Vec<_>>(), [(0, 4096)]);
        assert!(metaslab.unflushed_frees.is_empty());
        metaslab.note_logged(&RangeSet::new(), &RangeSet::of(65536, 512));
        metaslab.note_logged(&RangeSet::of(65536, 1024), &RangeSet::new());
        assert!(metaslab.unflushed_frees.is_empty());
        assert_eq!(metaslab.unflushed_allocs.iter().collect::<Vec<_>>(), [(0, 4096), (66048, 512)]);
    }

    /// What an intent log had allocated and freed in the group that rewrote a space map was allocated in that map for
    /// ever: the log of the group, in which both cancel out, did not take it back.
    #[test]
    fn what_comes_and_goes_in_a_group_was_not_there_before_it() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let old = metaslab.allocate(4096).unwrap();
        metaslab.take_changes();
        metaslab.finish(Txg(9), false, false);
        let before = metaslab.allocated_ranges();
        let log = metaslab.allocate_log(8192, Txg(10)).unwrap();
        metaslab.absorb_log(Txg(10));
        let new = metaslab.allocate(512).unwrap();
        for (start, length) in [(log, 8192), (old, 4096)] {
            metaslab.free(start, length).unwrap();
        }
        assert!(metaslab.allocated_before().iter().eq(before.iter()));
        assert!(metaslab.allocated_ranges().iter().eq([(new, 512)]));
    }

    #[test]
    fn what_became_free_is_noted_until_it_is_handed_out_again() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let start = metaslab.allocate(65536).unwrap();
        metaslab.take_changes();
        metaslab.finish(Txg(10), false, true);
        metaslab.free(start, 65536).unwrap();
        metaslab.take_changes();
        for txg in 11..13 {
            metaslab.finish(Txg(txg), false, true);
            assert!(metaslab.trimmable.is_empty(), "a group that may be gone back to needs it");
        }
        metaslab.finish(Txg(13), false, true);
        assert!(metaslab.trimmable.iter().eq([(start, 65536)]));
        metaslab.cursor = start;
        let share = metaslab.disabled.share();
        assert_eq!((metaslab.allocate(512), metaslab.allocate_log(512, Txg(14))), (None, None));
        assert!(metaslab.would_hold(512));
        drop(share);
        assert_eq!(metaslab.allocate(512), Some(start));
        assert!(metaslab.trimmable.iter().eq([(start + 512, 65536 - 512)]));
    }

    // More was free than there is, and what is allocated below zero.
    #[test]
    fn what_a_damaged_pool_frees_twice_is_not_counted_beyond_the_whole() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        metaslab.ranges = Ranges::OnDisk { free: (1 << 20) - 4096, largest: None };
        for _ in 0..3 {
            metaslab.give_back(0, 4096).unwrap();
        }
        assert_eq!((metaslab.free_bytes(), metaslab.allocated()), (1 << 20, 0));
    }

    #[test]
    fn freed_space_comes_back_after_two_groups() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let start = metaslab.allocate(4096).unwrap();
        metaslab.take_changes();
        metaslab.finish(Txg(10), false, false);
        metaslab.free(start, 4096).unwrap();
        assert!(metaslab.free(start, 4096).is_err());
        metaslab.take_changes();
        metaslab.finish(Txg(11), false, false);
        assert!(metaslab.free(start, 4096).is_err(), "a double free is noticed");
        assert_eq!(metaslab.allocated(), 4096);
        metaslab.finish(Txg(12), false, false);
        assert_eq!(metaslab.allocated(), 4096);
        metaslab.finish(Txg(13), false, false);
        assert_eq!(metaslab.allocated(), 0);
    }

    #[test]
    fn log_blocks_belong_to_the_group_they_were_allocated_in() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let data = metaslab.allocate(8192).unwrap();
        let log = metaslab.allocate_log(4096, Txg(11)).unwrap();
        // Group 10 syncs while the log has a block in group 11 already.
        metaslab.absorb_log(Txg(10));
        assert_eq!(metaslab.allocated_ranges().iter().collect::<Vec<_>>(), [(data, 8192)]);
        assert_eq!(metaslab.take_changes().0.iter().collect::<Vec<_>>(), [(data, 8192)]);
        metaslab.finish(Txg(10), false, false);
        assert!(metaslab.free(log, 4096).is_err(), "it is not the syncing group's to free");
        metaslab.absorb_log(Txg(11));
        metaslab.free(log, 4096).unwrap();
        let (allocated, freed) = metaslab.take_changes();
        assert_eq!(allocated.iter().collect::<Vec<_>>(), freed.iter().collect::<Vec<_>>());
        assert_eq!(metaslab.allocated_ranges().iter().collect::<Vec<_>>(), [(data, 8192)]);
    }

    #[test]
    fn the_state_before_a_group_leaves_out_what_the_group_did() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let old = metaslab.allocate(8192).unwrap();
        metaslab.take_changes();
        metaslab.finish(Txg(10), false, false);
        let new = metaslab.allocate(4096).unwrap();
        metaslab.free(old, 4096).unwrap();
        assert_eq!(metaslab.allocated_before().iter().collect::<Vec<_>>(), [(old, 8192)]);
        assert_eq!(metaslab.allocated_ranges().iter().collect::<Vec<_>>(), [(old + 4096, 4096 + 4096)]);
        assert_eq!(new, old + 8192);
    }
}
