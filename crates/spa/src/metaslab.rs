//! Metaslabs: the regions of a top-level vdev in which space is handed out (`module/zfs/metaslab.c`).
//!
//! Invariants, for every metaslab at every moment:
//! - each byte is in exactly one of: allocated, `allocatable`, `freeing`, `freed`, one of `deferred`;
//! - `allocating` holds what this group allocated and has not yet written to the space map (a subset of allocated);
//! - freed space is not handed out before two more groups are on disk (`TXG_DEFER_SIZE`), so that the last uberblocks
//!   stay usable;
//! - while `pins` are held (a scrub slice), freed space stays in `deferred`.

use platter_ondisk::{ObjectId, Txg};
use platter_zio::Canary;

use crate::range_set::{RangeError, RangeSet};

/// Groups for which freed space is held back.
pub const DEFER: usize = 2;
/// Groups that can be open or on their way to disk at one time, as a power of two (`TXG_SIZE`).
pub const LOG_SLOTS: usize = 4;

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
    /// Free, to be handed out.
    pub allocatable: RangeSet,
    /// Allocated in the syncing group, not yet in the space map.
    pub allocating: RangeSet,
    /// Allocated for the intent log in groups that are not syncing yet, by `txg % LOG_SLOTS`.
    pub log_allocated: [RangeSet; LOG_SLOTS],
    /// Freed in the syncing group, not yet in the space map.
    pub freeing: RangeSet,
    /// Freed in the syncing group, in the space map.
    pub freed: RangeSet,
    /// Freed in the last groups, by `txg % DEFER`.
    pub deferred: [RangeSet; DEFER],
    /// Where the next search begins.
    pub cursor: u64,
    /// The group since which changes are only in log space maps; 0 while the metaslab was never logged.
    pub unflushed_txg: Txg,
    /// Allocated in logged groups, not in the space map.
    pub unflushed_allocs: RangeSet,
    /// Freed in logged groups, not in the space map.
    pub unflushed_frees: RangeSet,
    /// Whether logs that another program left were applied when it was loaded.
    pub logged: bool,
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
            allocatable: RangeSet::of(start, size),
            allocating: RangeSet::new(),
            log_allocated: Default::default(),
            freeing: RangeSet::new(),
            freed: RangeSet::new(),
            deferred: Default::default(),
            cursor: start,
            unflushed_txg: Txg(0),
            unflushed_allocs: RangeSet::new(),
            unflushed_frees: RangeSet::new(),
            logged: false,
        }
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
        cancel_or_add(&mut self.unflushed_frees, &mut self.unflushed_allocs, allocated);
        cancel_or_add(&mut self.unflushed_allocs, &mut self.unflushed_frees, freed);
    }

    /// Whether the syncing group changed it and its space map does not know yet.
    pub fn is_dirty(&self) -> bool {
        !self.allocating.is_empty() || !self.freeing.is_empty()
    }

    /// Bytes neither allocatable nor on their way there: what `zpool list` counts as allocated.
    pub fn allocated(&self) -> u64 {
        self.size - self.allocatable.total()
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

    /// The allocated ranges as the syncing group leaves them: everything that is in none of the free sets, nor
    /// allocated in a later group.
    pub fn allocated_ranges(&self) -> RangeSet {
        let mut ranges = RangeSet::of(self.start, self.size);
        let free = [&self.allocatable, &self.freeing, &self.freed].into_iter();
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
        let start = self.allocatable.find(self.cursor, length)?;
        self.allocatable.remove(start, length).expect("find returns free space");
        self.allocating.add(start, length).expect("allocatable space is not allocated");
        self.cursor = start + length;
        Some(start)
    }

    /// Takes `length` bytes for an intent log in open group `txg`, or nothing.
    pub fn allocate_log(&mut self, length: u64, txg: Txg) -> Option<u64> {
        let start = self.allocatable.find(self.cursor, length)?;
        self.allocatable.remove(start, length).expect("find returns free space");
        self.log_allocated[log_slot(txg)].add(start, length).expect("allocatable space is not allocated");
        self.cursor = start + length;
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
        self.allocatable.remove(start, length)?;
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
        if Canary::FreedAtOnce.sings() {
            return self.allocatable.add(start, length);
        }
        self.freeing.add(start, length)
    }

    fn is_partly_free(&self, start: u64, length: u64) -> bool {
        let sets = [&self.allocatable, &self.freed].into_iter().chain(&self.deferred).chain(&self.log_allocated);
        sets.into_iter().any(|set| set.overlaps(start, length))
    }

    /// Whether all of this range, which lies in this metaslab, is in use and not freed in this group.
    pub fn is_allocated(&self, start: u64, length: u64) -> bool {
        !self.is_partly_free(start, length) && !self.freeing.overlaps(start, length)
    }

    /// After group `txg` is on disk: what was freed `DEFER` groups ago becomes allocatable, unless pinned.
    pub fn finish(&mut self, txg: Txg, pinned: bool) {
        debug_assert!(!self.is_dirty());
        let slot = (txg.0 as usize) % DEFER;
        let freed = self.freed.take();
        if pinned {
            for (start, length) in freed.iter() {
                self.deferred[slot].add(start, length).expect("freed once");
            }
            return;
        }
        let mature = std::mem::replace(&mut self.deferred[slot], freed);
        for (start, length) in mature.iter() {
            self.allocatable.add(start, length).expect("deferred space is in no other set");
        }
    }

    /// Lengths of all free runs: those to be handed out and those held back.
    pub fn free_runs(&self) -> Vec<u64> {
        let sets = [&self.allocatable, &self.freed].into_iter().chain(&self.deferred).chain(&self.log_allocated);
        sets.flat_map(|set| set.iter().map(|(_, length)| length)).collect()
    }
}

fn log_slot(txg: Txg) -> usize {
    (txg.0 as usize) % LOG_SLOTS
}

/// For each range of `changes`: what of it is in `opposite` leaves it, the rest joins `same`.
fn cancel_or_add(opposite: &mut RangeSet, same: &mut RangeSet, changes: &RangeSet) {
    for (start, length) in changes.iter() {
        let mut rest = RangeSet::of(start, length);
        for (from, size) in opposite.within(start, length) {
            opposite.remove(from, size).expect("just found");
            rest.remove(from, size).expect("it is inside");
        }
        for (from, size) in rest.iter() {
            same.add(from, size).expect("space changes hands once at a time");
        }
    }
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
        metaslab.finish(Txg(9), false);
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
    fn freed_space_comes_back_after_two_groups() {
        let mut metaslab = Metaslab::new(0, 0, 1 << 20);
        let start = metaslab.allocate(4096).unwrap();
        metaslab.take_changes();
        metaslab.finish(Txg(10), false);
        metaslab.free(start, 4096).unwrap();
        assert!(metaslab.free(start, 4096).is_err());
        metaslab.take_changes();
        metaslab.finish(Txg(11), false);
        assert!(metaslab.free(start, 4096).is_err(), "a double free is noticed");
        assert_eq!(metaslab.allocated(), 4096);
        metaslab.finish(Txg(12), false);
        assert_eq!(metaslab.allocated(), 4096);
        metaslab.finish(Txg(13), false);
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
        metaslab.finish(Txg(10), false);
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
        metaslab.finish(Txg(10), false);
        let new = metaslab.allocate(4096).unwrap();
        metaslab.free(old, 4096).unwrap();
        assert_eq!(metaslab.allocated_before().iter().collect::<Vec<_>>(), [(old, 8192)]);
        assert_eq!(metaslab.allocated_ranges().iter().collect::<Vec<_>>(), [(old + 4096, 4096 + 4096)]);
        assert_eq!(new, old + 8192);
    }
}
