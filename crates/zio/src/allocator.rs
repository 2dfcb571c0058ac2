//! Where new blocks go: striping over top-level vdevs by free space, and a metaslab within the vdev
//! (`metaslab_alloc_dva`, `module/zfs/metaslab.c`).
//!
//! Invariants:
//! - the copies of one block are on different top-level vdevs when there are enough, else as far apart as the vdev
//!   allows;
//! - a run of about `aliquot` bytes goes to one vdev before the next takes its turn; fuller vdevs get shorter runs;
//! - free ranges that are in memory take no more than `budget`, but for those of metaslabs that what is not yet on disk
//!   was allocated from, and of the one loaded last;
//! - all figures are bytes; `allocated` and `size` count raw space (parity included), `deflated` what users see.

use std::sync::Arc;

use platter_ondisk::gang::HEADER_SIZE;
use platter_ondisk::{BlkPtr, Dva, Txg};
use platter_vdev::{AllocationClass, Leaf, VdevState};

use crate::error::{Result, ZioError};
use crate::group::{Found, Geometry, Group};
use crate::log_bias::LogBias;
use crate::metaslab::{Metaslab, Ranges};
use crate::range_set::{RangeError, RangeSet};
use crate::waiting_blocks::Shared;

/// The pool's space.
pub struct Allocator {
    groups: Vec<Group>,
    rotor: usize,
    placed: u64,
    pins: u32,
    /// Bytes that loaded ranges may take.
    budget: u64,
    /// Counts allocations and loads, to tell what is unused longest.
    uses: u64,
    /// The last group that is on disk.
    finished: Txg,
    /// Whether metaslabs note what became free, for who gives it up.
    notes_frees: bool,
    /// Hears of freed space before it is handed out again.
    watch: Option<Arc<Shared>>,
}

impl Default for Allocator {
    fn default() -> Self {
        let (groups, budget) = (Vec::new(), u64::MAX);
        let (pins, uses, finished) = (0, 0, Txg::default());
        Self { groups, rotor: 0, placed: 0, pins, budget, uses, finished, notes_frees: false, watch: None }
    }
}

/// A metaslab of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaslabId {
    /// Index of the top-level vdev.
    pub vdev: u32,
    /// Index within it.
    pub index: usize,
}

/// What came of an attempt to allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// It is allocated.
    Done(T),
    /// This metaslab must be loaded first; then it is to be tried again.
    Unloaded(MetaslabId),
    /// There is room only where nothing is handed out for a moment: it is to be tried again then.
    Disabled,
}

/// Bytes of memory that a free run takes in two sorted sets (measured).
const RUN_BYTES: u64 = 59;
/// Bytes of memory that loaded ranges take in any case.
const LOADED_BYTES: u64 = 512;

/// Bytes of memory for so many runs.
fn cost(runs: u64) -> u64 {
    LOADED_BYTES + runs.saturating_mul(RUN_BYTES)
}

impl Allocator {
    /// Adds a top-level vdev's space.
    pub fn add_group(&mut self, group: Group) {
        self.groups.push(group);
    }

    /// The space of top-level vdev `vdev` is no part of the pool any more. It has nothing allocated, or is a log to
    /// which nothing leads.
    ///
    /// # Panics
    /// When it is not empty, or not there.
    pub fn remove_group(&mut self, vdev: u32) -> Group {
        let index = self.groups.iter().position(|group| group.vdev == vdev).expect("what is removed is there");
        let is_unneeded = self.groups[index].is_empty() || self.groups[index].class == AllocationClass::Log;
        assert!(is_unneeded, "blocks on vdev {vdev} would be lost");
        self.rotor = 0;
        self.groups.remove(index)
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All groups, to sync their space maps.
    pub fn groups_mut(&mut self) -> &mut [Group] {
        &mut self.groups
    }

    /// Loaded ranges may take so many bytes from now on; more are let go after the next group.
    pub fn set_budget(&mut self, bytes: u64) {
        self.budget = bytes;
    }

    fn loaded_bytes(&self) -> u64 {
        let bytes = self.groups.iter().map(|group| {
            let (metaslabs, runs) = group.in_memory();
            metaslabs * LOADED_BYTES + runs * RUN_BYTES
        });
        bytes.sum()
    }

    /// Whether a metaslab can be loaded without another being let go for it.
    pub(crate) fn has_room_to_load(&self, id: MetaslabId) -> bool {
        let metaslab = self.group(id.vdev).and_then(|group| group.metaslabs().get(id.index));
        metaslab.is_some_and(|metaslab| self.loaded_bytes().saturating_add(cost(metaslab.runs())) <= self.budget)
    }

    /// Takes the free ranges that the space map of a metaslab has, and lets others go for them.
    pub(crate) fn install(&mut self, id: MetaslabId, free: std::result::Result<RangeSet, String>) {
        self.uses += 1;
        let now = self.uses;
        let Some(group) = self.group_mut(id.vdev) else { return };
        group.install(id.index, free);
        group.change(id.index, |metaslab| metaslab.last_used = now);
        self.unload_unused(Some(id));
    }

    /// Lets ranges go, those first that were not used for longest, until the rest fits the budget.
    fn unload_unused(&mut self, keep: Option<MetaslabId>) {
        let mut bytes = self.loaded_bytes();
        if bytes <= self.budget {
            return;
        }
        let mut idle = Vec::new();
        for group in &self.groups {
            let loaded = group.loaded().filter(|metaslab| metaslab.is_idle());
            idle.extend(loaded.map(|metaslab| {
                let id = MetaslabId { vdev: group.vdev, index: metaslab.index as usize };
                (metaslab.last_used, id, cost(metaslab.runs()))
            }));
        }
        idle.sort_unstable_by_key(|&(last_used, id, _)| (last_used, id.vdev, id.index));
        for (_, id, cost) in idle.into_iter().filter(|&(_, id, _)| Some(id) != keep) {
            if bytes <= self.budget {
                break;
            }
            bytes -= cost;
            self.group_mut(id.vdev).into_iter().for_each(|group| group.unload(id.index));
        }
    }

    /// The map of a metaslab cannot be read for want of a device: it is passed over until [`Self::try_again`].
    pub(crate) fn pass_over(&mut self, id: MetaslabId) {
        self.group_mut(id.vdev).into_iter().for_each(|group| group.pass_over(id.index));
    }

    /// Maps that could not be read for want of a device are tried again.
    pub(crate) fn try_again(&mut self) {
        self.groups.iter_mut().for_each(Group::try_again);
    }

    /// The group of top-level vdev `vdev`.
    pub fn group(&self, vdev: u32) -> Option<&Group> {
        self.groups.iter().find(|g| g.vdev == vdev)
    }

    fn group_mut(&mut self, vdev: u32) -> Option<&mut Group> {
        self.groups.iter_mut().find(|g| g.vdev == vdev)
    }

    /// The vdevs that hold what data sets hold: log devices do not count.
    fn ordinary(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(|g| g.class != AllocationClass::Log)
    }

    /// Raw bytes allocated in the pool, log devices left out.
    pub fn allocated(&self) -> u64 {
        self.ordinary().map(Group::allocated).sum()
    }

    /// Raw bytes in the pool, log devices left out.
    pub fn size(&self) -> u64 {
        self.ordinary().map(Group::size).sum()
    }

    /// Deflated bytes allocated and in all: what data sets can use before reserves (`spa_get_dspace`). What lies where
    /// nothing more is put counts as allocated, and the space there does not count.
    pub fn deflated(&self) -> (u64, u64) {
        let sum = |f: &dyn Fn(&Group) -> u64| self.ordinary().map(|g| g.deflate(f(g))).sum();
        (sum(&Group::allocated), sum(&|g| if g.is_passive { 0 } else { g.size() }))
    }

    /// Deflated bytes that are free, and in all, where blocks of data sets would be put if none were on top-level vdev
    /// `vdev`. `None` when there is no such place.
    pub fn room_without(&self, vdev: u32) -> Option<(u64, u64)> {
        let others = || self.groups.iter().filter(|g| g.vdev != vdev && g.takes(AllocationClass::Normal));
        let free = others().map(|g| g.deflate(g.size() - g.allocated())).sum();
        others().next().map(|_| (free, others().map(|g| g.deflate(g.size())).sum()))
    }

    /// The deflated size of one copy.
    pub fn dsize(&self, dva: &Dva) -> u64 {
        self.group(dva.vdev).map_or(dva.asize, |g| g.deflate(dva.asize))
    }

    /// Allocates places for a block of `psize` bytes until `dvas` has `copies` of them.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`]; nothing is allocated then. At least one copy is promised; further copies are given up
    /// silently only when space is short.
    pub fn allocate(&mut self, psize: u64, copies: u8, dvas: &mut Vec<Dva>) -> Result<Attempt<()>> {
        while dvas.len() < usize::from(copies) {
            match self.allocate_one(psize, dvas) {
                Some(Attempt::Done(dva)) => {
                    assert!(dvas.iter().all(|other| are_apart(other, &dva)), "two copies share no byte");
                    dvas.push(dva);
                }
                Some(Attempt::Unloaded(id)) => return Ok(Attempt::Unloaded(id)),
                Some(Attempt::Disabled) => return Ok(Attempt::Disabled),
                None if dvas.is_empty() => return Err(ZioError::NoSpace),
                None => break,
            }
        }
        Ok(Attempt::Done(()))
    }

    fn allocate_one(&mut self, psize: u64, taken: &[Dva]) -> Option<Attempt<Dva>> {
        let count = self.groups.len();
        if count == 0 {
            return None;
        }
        self.uses += 1;
        let now = self.uses;
        // First a vdev that holds no copy yet, then any.
        for fresh in [true, false] {
            for turn in 0..count {
                let index = (self.rotor + turn) % count;
                let vdev = self.groups[index].vdev;
                if !self.groups[index].takes(AllocationClass::Normal)
                    || (fresh && taken.iter().any(|dva| dva.vdev == vdev))
                {
                    continue;
                }
                let away: Vec<(u64, u64)> =
                    taken.iter().filter(|dva| dva.vdev == vdev).map(|dva| (dva.offset, dva.asize)).collect();
                let asize = self.groups[index].geometry.asize_for(psize);
                match self.groups[index].allocate(asize, &away, now) {
                    Found::At(offset) => {
                        self.advance(index, asize);
                        return Some(Attempt::Done(Dva { vdev, offset, asize, gang: false }));
                    }
                    Found::Unloaded(index) => return Some(Attempt::Unloaded(MetaslabId { vdev, index })),
                    Found::Nothing => {}
                }
            }
        }
        let would_hold =
            |group: &Group| group.takes(AllocationClass::Normal) && group.would_hold(group.geometry.asize_for(psize));
        self.groups.iter().any(would_hold).then_some(Attempt::Disabled)
    }

    /// Allocates a block of `psize` bytes for an intent log in open group `txg`: where other blocks go, with
    /// [`LogBias::Latency`] on a log device when there is one with room.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`].
    pub fn allocate_log(&mut self, psize: u64, txg: Txg, bias: LogBias) -> Result<Attempt<Dva>> {
        let count = self.groups.len();
        self.uses += 1;
        let now = self.uses;
        let (mut logs, mut others) = (Vec::new(), Vec::new());
        for index in (0..count).map(|turn| (self.rotor + turn) % count) {
            let group = &self.groups[index];
            match group.class {
                _ if !group.is_open() => {}
                AllocationClass::Log if bias == LogBias::Latency => logs.push(index),
                AllocationClass::Log => {}
                AllocationClass::Normal => others.push(index),
            }
        }
        for index in logs.into_iter().chain(others) {
            let group = &mut self.groups[index];
            let asize = group.geometry.asize_for(psize);
            let vdev = group.vdev;
            match group.allocate_log(asize, txg, now) {
                Found::At(offset) => {
                    if self.groups[index].class == AllocationClass::Normal {
                        self.advance(index, asize);
                    }
                    return Ok(Attempt::Done(Dva { vdev, offset, asize, gang: false }));
                }
                Found::Unloaded(index) => return Ok(Attempt::Unloaded(MetaslabId { vdev, index })),
                Found::Nothing => {}
            }
        }
        let would_hold = |group: &Group| group.is_open() && group.would_hold(group.geometry.asize_for(psize));
        if self.groups.iter().any(would_hold) { Ok(Attempt::Disabled) } else { Err(ZioError::NoSpace) }
    }

    /// Group `txg` is syncing: space allocated in it for intent logs becomes part of what it allocates.
    pub fn absorb_log(&mut self, txg: Txg) {
        self.groups.iter_mut().for_each(|group| group.change_active(|metaslab| metaslab.absorb_log(txg)));
    }

    /// The metaslab that has all of what a block pointer of a disk names, which may be anything.
    fn metaslab_with(&self, dva: &Dva) -> Option<MetaslabId> {
        let group = self.group(dva.vdev)?;
        let whole = dva.asize > 0 && (dva.offset | dva.asize).is_multiple_of(group.geometry.unit());
        let end = dva.offset.checked_add(dva.asize).filter(|_| whole)?;
        let index = (dva.offset >> group.metaslab_shift) as usize;
        let metaslab = group.metaslabs().get(index)?;
        (end <= metaslab.start + metaslab.size).then_some(MetaslabId { vdev: dva.vdev, index })
    }

    /// From now on metaslabs note what becomes free for who gives it up, or forget what they have noted.
    pub fn note_frees(&mut self, noting: bool) {
        self.notes_frees = noting;
        if !noting {
            self.groups.iter_mut().for_each(Group::forget_trimmable);
        }
    }

    /// Keeps anything from being handed out of a metaslab whose free ranges are in memory, as long as the share is
    /// kept, and tells them. `None` when they are not, or there is no such metaslab.
    pub(crate) fn disable(&self, id: MetaslabId) -> Option<(Arc<()>, Vec<(u64, u64)>)> {
        let metaslab = self.group(id.vdev)?.metaslabs().get(id.index)?;
        metaslab.is_loaded().then(|| (metaslab.disabled.share(), metaslab.allocatable.iter().collect()))
    }

    /// Whether nothing is handed out of some metaslab for a moment.
    pub(crate) fn has_disabled(&self) -> bool {
        self.groups.iter().flat_map(Group::metaslabs).any(|metaslab| metaslab.disabled.is_on())
    }

    /// Notes once more what is free of a metaslab that `share` keeps disabled, unless nobody wants to know any more.
    pub(crate) fn note_trimmable(&mut self, id: MetaslabId, share: &Arc<()>, ranges: &[(u64, u64)]) {
        if !self.notes_frees {
            return;
        }
        let note = |metaslab: &mut Metaslab| {
            // A log that has left took its metaslabs along.
            if metaslab.disabled.has(share) {
                ranges.iter().for_each(|(start, length)| metaslab.note_trimmable(*start, *length));
            }
        };
        let _ = self.group_mut(id.vdev).and_then(|group| group.change(id.index, note));
    }

    /// Takes what a metaslab noted as freed, and is free still: its free ranges are in memory.
    pub(crate) fn take_trimmable(&mut self, id: MetaslabId) -> RangeSet {
        let take = |metaslab: &mut Metaslab| metaslab.trimmable.take();
        self.group_mut(id.vdev).and_then(|group| group.change(id.index, take)).unwrap_or_default()
    }

    fn change<T>(&mut self, id: MetaslabId, change: impl FnOnce(&mut Metaslab) -> T) -> T {
        let changed = self.group_mut(id.vdev).and_then(|group| group.change(id.index, change));
        changed.expect("it was just found")
    }

    /// Marks a copy of a block of an intent log found at import as allocated, in the first group to be synced. Its
    /// metaslab must be loaded.
    ///
    /// # Errors
    /// When it is outside the pool or not free: log and space maps contradict each other. When its space map is
    /// damaged.
    pub fn claim(&mut self, dva: &Dva) -> Result<Attempt<()>> {
        let id = self
            .metaslab_with(dva)
            .ok_or_else(|| ZioError::corrupt("intent log", format!("{dva:?} points outside every metaslab")))?;
        let vdev = dva.vdev;
        self.change(id, |metaslab| match &metaslab.ranges {
            Ranges::OnDisk { .. } => Ok(Attempt::Unloaded(id)),
            Ranges::Damaged(reason) => {
                Err(ZioError::corrupt("space map", format!("metaslab {} of vdev {vdev}: {reason}", id.index)))
            }
            Ranges::Loaded => {
                let claimed = metaslab.claim(dva.offset, dva.asize);
                claimed.map_err(|e| ZioError::corrupt("intent log", format!("claiming {dva:?}: {e}")))?;
                Ok(Attempt::Done(()))
            }
        })
    }

    /// The metaslabs that the copies of a block lie in and whose ranges are not in memory.
    pub(crate) fn unloaded_below(&self, bp: &BlkPtr) -> Vec<MetaslabId> {
        let is_on_disk = |id: &MetaslabId| {
            let metaslab = self.group(id.vdev).and_then(|group| group.metaslabs().get(id.index));
            metaslab.is_some_and(|metaslab| matches!(metaslab.ranges, Ranges::OnDisk { .. }))
        };
        bp.dvas().filter_map(|dva| self.metaslab_at(&dva)).filter(is_on_disk).collect()
    }

    fn metaslab_at(&self, dva: &Dva) -> Option<MetaslabId> {
        let index = (dva.offset >> self.group(dva.vdev)?.metaslab_shift) as usize;
        Some(MetaslabId { vdev: dva.vdev, index })
    }

    /// Books a placement and passes the turn on when the vdev has had its share.
    fn advance(&mut self, index: usize, asize: u64) {
        let count = self.groups.len();
        if index != self.rotor {
            self.rotor = index;
            self.placed = 0;
        }
        self.placed += asize;
        if count == 1 || self.placed < self.groups[index].aliquot / 20 {
            return;
        }
        let (allocated, size) = (self.groups[index].allocated(), self.groups[index].size().max(1));
        let (pool_allocated, pool_size) = (self.allocated(), self.size().max(1));
        // A vdev with twice the pool's share of free space gets twice the aliquot.
        let free = (size - allocated.min(size)) as f64 / size as f64;
        let pool_free = ((pool_size - pool_allocated.min(pool_size)) as f64 / pool_size as f64).max(0.001);
        let share = (free / pool_free).clamp(0.05, 4.0);
        if self.placed as f64 >= self.groups[index].aliquot as f64 * share {
            self.rotor = (index + 1) % count;
            self.placed = 0;
        }
    }

    /// Undoes an allocation of this very group whose write failed or is not needed.
    pub fn unallocate(&mut self, dva: &Dva) {
        let Some(id) = self.metaslab_at(dva) else { return };
        let group = self.group_mut(dva.vdev);
        group.and_then(|group| group.change(id.index, |metaslab| metaslab.unallocate(dva.offset, dva.asize)));
    }

    /// Gives all copies of `bp` back in the syncing group.
    ///
    /// # Errors
    /// When a copy is outside the pool or free already.
    pub fn free(&mut self, bp: &BlkPtr) -> Result<()> {
        for dva in bp.dvas() {
            let id = self
                .metaslab_with(&dva)
                .ok_or_else(|| ZioError::corrupt("block pointer", format!("{bp:?} points outside every metaslab")))?;
            self.change(id, |metaslab| metaslab.free(dva.offset, dva.asize)).map_err(|e| double_free(bp, e))?;
        }
        Ok(())
    }

    /// Whether every copy of a block lies in space that is in use and not freed in this group. Of a gang block only the
    /// headers are looked at.
    pub fn is_allocated(&self, bp: &BlkPtr) -> bool {
        bp.dvas().all(|dva| {
            self.place_of(bp, &dva).is_some_and(|(metaslab, length)| metaslab.is_allocated(dva.offset, length))
        })
    }

    /// Whether a copy of a block that is no log's lies in space that is known to be free, was freed in this group, is
    /// allocated in it although the block is older, or was given to a log: then the block is nobody's. What cannot be
    /// told is a block whose copy became another's that has been written, but not all over it (padding of a RAID-Z
    /// block), or was freed before its metaslab's ranges were put away.
    pub(crate) fn is_freed(&self, bp: &BlkPtr) -> bool {
        let is_old = bp.physical_birth() <= self.finished;
        bp.dvas().any(|dva| {
            self.place_of(bp, &dva).is_some_and(|(metaslab, length)| !metaslab.is_kept(dva.offset, length, is_old))
        })
    }

    /// The metaslab in which all of a copy lies, and how much of it is the block's own, if that can be; bytes.
    fn place_of(&self, bp: &BlkPtr, dva: &Dva) -> Option<(&Metaslab, u64)> {
        let group = self.group(dva.vdev)?;
        let unit = group.geometry.unit();
        let length = if bp.is_gang() { group.geometry.asize_for(HEADER_SIZE as u64) } else { dva.asize };
        let whole = length > 0 && (dva.offset | length).is_multiple_of(unit);
        let end = dva.offset.checked_add(length).filter(|_| whole)?;
        let metaslab = group.metaslabs().get((dva.offset >> group.metaslab_shift) as usize)?;
        (end <= metaslab.start + metaslab.size).then_some((metaslab, length))
    }

    /// Gives back the header of a gang block, all copies: of the size in its addresses only the header is its own.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_gang_header(&mut self, bp: &BlkPtr) -> Result<()> {
        self.free(&self.own_space(bp))
    }

    /// The pointer with the space that is the block's own: of a gang block the headers.
    pub(crate) fn own_space(&self, bp: &BlkPtr) -> BlkPtr {
        let mut own = *bp;
        for (index, dva) in bp.dvas().enumerate().filter(|(_, dva)| dva.gang) {
            let asize = self.group(dva.vdev).map_or(dva.asize, |g| g.geometry.asize_for(HEADER_SIZE as u64));
            own.set_dva(index, Dva { asize, ..dva });
        }
        own
    }

    /// Whether any metaslab has changes that its space map does not have.
    pub fn is_dirty(&self) -> bool {
        self.groups.iter().any(|group| group.active().any(Metaslab::is_dirty))
    }

    /// After group `txg` is on disk.
    pub fn finish(&mut self, txg: Txg) {
        self.finished = txg;
        let (pinned, noting) = (self.pins > 0, self.notes_frees);
        for group in &mut self.groups {
            let vdev = group.vdev;
            group.change_active(|metaslab| {
                let mature = metaslab.finish(txg, pinned, noting);
                if let Some(watch) = &self.watch {
                    mature.iter().for_each(|(start, length)| watch.forget(vdev, start, length));
                }
            });
            group.settle();
        }
        self.try_again();
        self.unload_unused(None);
    }

    /// Raw bytes that were freed and wait in `deferred` (an idle pool syncs twice more to release them).
    pub fn deferred(&self) -> u64 {
        let metaslabs = self.groups.iter().flat_map(Group::active);
        metaslabs.flat_map(|m| &m.deferred).map(RangeSet::total).sum()
    }

    /// From now on `watch` hears of freed space before it is handed out again.
    pub(crate) fn watch_reuse(&mut self, watch: Option<Arc<Shared>>) {
        self.watch = watch;
    }

    /// Keeps freed space from being reused until [`unpin`](Self::unpin).
    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    /// Whether freed space is kept from being reused.
    pub fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    /// Ends a pin.
    pub(crate) fn unpin(&mut self) {
        self.pins = self.pins.checked_sub(1).expect("each pin ends once");
    }
}

/// Whether two copies share no byte.
fn are_apart(one: &Dva, other: &Dva) -> bool {
    one.vdev != other.vdev || one.offset + one.asize <= other.offset || other.offset + other.asize <= one.offset
}

fn double_free(bp: &BlkPtr, error: RangeError) -> ZioError {
    ZioError::corrupt("space map", format!("freeing {bp:?}: {error}"))
}

impl Geometry for platter_vdev::TopVdev {
    fn unit(&self) -> u64 {
        1 << self.ashift()
    }

    fn asize_for(&self, psize: u64) -> u64 {
        self.asize_for(psize)
    }

    fn deflate_ratio(&self) -> u64 {
        self.deflate_ratio()
    }

    fn is_allocatable(&self) -> bool {
        // What is made stable in a log is nowhere else: the last of its devices may be a file that was deleted, or have
        // had too many errors.
        let is_sound = |leaf: &Arc<Leaf>| leaf.condition().state == VdevState::Healthy;
        self.condition().is_usable() && (self.class() != AllocationClass::Log || self.leaves().iter().any(is_sound))
    }

    fn class(&self) -> AllocationClass {
        platter_vdev::TopVdev::class(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use platter_ondisk::{Checksum, Compression, ObjectType};

    struct LargeSectors;

    /// A log device, and whether it can be used.
    struct LogDevice(bool);

    impl Geometry for LogDevice {
        fn asize_for(&self, psize: u64) -> u64 {
            psize
        }

        fn deflate_ratio(&self) -> u64 {
            512
        }

        fn is_allocatable(&self) -> bool {
            self.0
        }

        fn class(&self) -> AllocationClass {
            AllocationClass::Log
        }
    }

    impl Geometry for LargeSectors {
        fn asize_for(&self, psize: u64) -> u64 {
            psize.next_multiple_of(4096)
        }

        fn deflate_ratio(&self) -> u64 {
            512
        }

        fn is_allocatable(&self) -> bool {
            true
        }

        fn unit(&self) -> u64 {
            4096
        }
    }

    // Each commit went to the log device that was gone, failed there, and waited for its group instead.
    #[test]
    fn a_log_goes_elsewhere_when_its_device_cannot_be_used() {
        for is_there in [true, false] {
            let metaslabs = || (0..4).map(|index| Metaslab::new(index, index << 20, 1 << 20)).collect();
            let mut allocator = Allocator::default();
            allocator.add_group(Group::new(0, Arc::new(LargeSectors), metaslabs(), 20, 1));
            allocator.add_group(Group::new(1, Arc::new(LogDevice(is_there)), metaslabs(), 20, 1));
            let Attempt::Done(dva) = allocator.allocate_log(4096, Txg(9), LogBias::Latency).unwrap() else {
                panic!("all is loaded")
            };
            assert_eq!(dva.vdev, u32::from(is_there));
            let elsewhere = allocator.allocate_log(4096, Txg(9), LogBias::Throughput).unwrap();
            assert!(matches!(elsewhere, Attempt::Done(Dva { vdev: 0, .. })), "{elsewhere:?}");
        }
    }

    #[test]
    fn where_nothing_is_put_there_is_no_space() {
        let metaslabs = || (0..4).map(|index| Metaslab::new(index, index << 20, 1 << 20)).collect();
        let mut allocator = Allocator::default();
        (0..2).for_each(|vdev| allocator.add_group(Group::new(vdev, Arc::new(LargeSectors), metaslabs(), 20, 1)));
        allocator.add_group(Group::new(2, Arc::new(LogDevice(true)), metaslabs(), 20, 1));
        assert_eq!((allocator.deflated(), allocator.room_without(0)), ((0, 8 << 20), Some((4 << 20, 4 << 20))));
        allocator.groups_mut()[1].is_passive = true;
        assert_eq!((allocator.deflated(), allocator.room_without(0)), ((0, 4 << 20), None));
        let mut dvas = Vec::new();
        assert_eq!(allocator.allocate(4096, 2, &mut dvas).unwrap(), Attempt::Done(()));
        assert!(dvas.len() == 2 && dvas.iter().all(|dva| dva.vdev == 0), "{dvas:?}");
        assert_eq!(allocator.room_without(1), Some(((4 << 20) - 8192, 4 << 20)));
    }

    /// A log block that was acknowledged lay on a vdev that no uberblock knew yet when the power failed: the pool could
    /// not be opened for writing any more.
    #[test]
    fn nothing_is_put_where_no_group_on_the_devices_leads() {
        let metaslabs = |range: std::ops::Range<u64>| range.map(|i| Metaslab::new(i, i << 20, 1 << 20)).collect();
        let mut allocator = Allocator::default();
        allocator.add_group(Group::new(0, Arc::new(LargeSectors), metaslabs(0..1), 20, 1));
        allocator.add_group(Group::new(1, Arc::new(LogDevice(true)), metaslabs(0..1), 20, 1).joining());
        let place =
            |allocator: &mut Allocator, txg| match allocator.allocate_log(4096, Txg(txg), LogBias::Latency).unwrap() {
                Attempt::Done(dva) => dva,
                Attempt::Unloaded(_) | Attempt::Disabled => panic!("all is loaded"),
            };
        assert_eq!(place(&mut allocator, 9).vdev, 0);
        allocator.absorb_log(Txg(8));
        assert_eq!(place(&mut allocator, 9).vdev, 0);
        allocator.finish(Txg(8));
        assert_eq!(place(&mut allocator, 9).vdev, 1);
        // A vdev that grows.
        allocator.groups_mut()[1].extend(metaslabs(1..2));
        let full = (0..300).map(|_| place(&mut allocator, 9)).collect::<Vec<_>>();
        assert!(full.iter().all(|dva| dva.vdev == 0 || dva.offset < 1 << 20), "{full:?}");
        allocator.finish(Txg(9));
        let dva = place(&mut allocator, 10);
        assert_eq!((dva.vdev, dva.offset), (1, 1 << 20));
    }

    /// A pointer of a hostile pool gave back half a sector; its space map could not be written then, and panicked.
    #[test]
    fn only_whole_sectors_inside_one_metaslab_are_freed_or_claimed() {
        let metaslabs = (0..4).map(|index| Metaslab::new(index, index << 20, 1 << 20)).collect();
        let mut allocator = Allocator::default();
        allocator.add_group(Group::new(0, Arc::new(LargeSectors), metaslabs, 20, 1));
        let pointer = |offset, asize| {
            let mut bp = BlkPtr::describe(
                4096,
                4096,
                Compression::LZ4,
                Checksum::FLETCHER_4,
                ObjectType::PLAIN_FILE_CONTENTS,
                0,
                Txg(9),
            );
            bp.set_dva(0, Dva { vdev: 0, offset, asize, gang: false });
            bp
        };
        let wrong = [(512, 4096), (4096, 512), ((1 << 20) - 4096, 8192), (1 << 22, 4096), (4096, 1 << 30)];
        for (offset, asize) in wrong {
            let bp = pointer(offset, asize);
            assert!(allocator.free(&bp).is_err(), "{bp:?}");
            assert!(allocator.claim(&bp.dva(0)).is_err(), "{bp:?}");
        }
        assert_eq!(allocator.allocated(), 0);
        let bp = pointer(4096, 8192);
        assert_eq!(allocator.claim(&bp.dva(0)).unwrap(), Attempt::Done(()));
        assert_eq!(allocator.allocated(), 8192);
    }
}
