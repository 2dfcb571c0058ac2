//! Where new blocks go: striping over top-level vdevs by free space, and a metaslab within the vdev
//! (`metaslab_alloc_dva`, `module/zfs/metaslab.c`).
//!
//! Invariants:
//! - the copies of one block are on different top-level vdevs when there are enough, else as far apart as the vdev
//!   allows;
//! - a run of about `aliquot` bytes goes to one vdev before the next takes its turn; fuller vdevs get shorter runs;
//! - all figures are bytes; `allocated` and `size` count raw space (parity included), `deflated` what users see.

use std::sync::Arc;

use platter_ondisk::gang::HEADER_SIZE;
use platter_ondisk::{BlkPtr, Dva, Txg};
use platter_zio::{Result, ZioError};

use crate::metaslab::Metaslab;
use crate::range_set::{RangeError, RangeSet};

/// What the allocator must know of a top-level vdev.
pub trait Geometry: Send + Sync {
    /// Allocated bytes for `psize` bytes of block (`vdev_psize_to_asize`).
    fn asize_for(&self, psize: u64) -> u64;
    /// The smallest piece of it: everything lies at a multiple of this many bytes and is one long (a power of two).
    fn unit(&self) -> u64 {
        512
    }
    /// `vdev_deflate_ratio`: deflated 512ths of a raw byte, so that a mirror or disk counts 1:1.
    fn deflate_ratio(&self) -> u64;
    /// Whether new blocks may be put here (it is open and writable).
    fn is_allocatable(&self) -> bool;
    /// Whether it is for intent logs only, and they may be put here.
    fn is_log(&self) -> bool {
        false
    }
}

/// One top-level vdev's space.
pub struct Group {
    /// Index of the top-level vdev.
    pub vdev: u32,
    /// Its geometry.
    pub geometry: Arc<dyn Geometry>,
    /// Its metaslabs, by index.
    pub metaslabs: Vec<Metaslab>,
    /// log2 of the metaslab size.
    pub metaslab_shift: u32,
    /// Bytes to place here before the next vdev takes its turn.
    aliquot: u64,
    current: usize,
    size: u64,
}

impl Group {
    /// A group with its metaslabs; `children` is the number of leaves (a turn is 512 KiB for each, `mg_aliquot`).
    pub fn new(
        vdev: u32,
        geometry: Arc<dyn Geometry>,
        metaslabs: Vec<Metaslab>,
        metaslab_shift: u32,
        children: u64,
    ) -> Self {
        let size = metaslabs.iter().map(|m| m.size).sum();
        Self { vdev, geometry, metaslabs, metaslab_shift, aliquot: (512 << 10) * children.max(1), current: 0, size }
    }

    /// Raw bytes allocated.
    pub fn allocated(&self) -> u64 {
        self.metaslabs.iter().map(Metaslab::allocated).sum()
    }

    /// Raw bytes in all metaslabs.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fragmentation in percent: how far the free space is from being in long runs. The table follows the meaning of
    /// `zfs_frag_table` (a run of 512 bytes counts 100, 16 MiB and more 0).
    pub fn fragmentation(&self) -> u64 {
        const TABLE: [u64; 16] = [100, 100, 98, 95, 90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 5, 0];
        let (mut total, mut weighted) = (0u128, 0u128);
        for metaslab in &self.metaslabs {
            for (_, length) in metaslab.allocatable.iter() {
                let order = (63 - length.leading_zeros()).saturating_sub(9).min(15);
                total += u128::from(length);
                weighted += u128::from(length) * u128::from(TABLE[order as usize]);
            }
        }
        weighted.checked_div(total).unwrap_or(0) as u64
    }

    fn deflate(&self, asize: u64) -> u64 {
        (asize >> 9) * self.geometry.deflate_ratio()
    }

    fn allocate(&mut self, asize: u64, away_from: &[(u64, u64)]) -> Option<u64> {
        let count = self.metaslabs.len();
        let far = |metaslab: &Metaslab, distance: u64| {
            away_from.iter().all(|&(offset, _)| metaslab.start.abs_diff(offset) >= distance)
        };
        // A second copy on the same vdev goes at least an eighth of the vdev away, if that can be had
        // (ditto_same_vdev_distance_shift).
        let eighth = self.size() / 8;
        let distances: &[u64] = if away_from.is_empty() { &[0] } else { &[eighth, 0] };
        for &distance in distances {
            if away_from.is_empty()
                && let Some(offset) = self.metaslabs.get_mut(self.current).and_then(|m| m.allocate(asize))
            {
                return Some(offset);
            }
            let best = (0..count)
                .filter(|&i| self.metaslabs[i].allocatable.largest() >= asize && far(&self.metaslabs[i], distance))
                .max_by_key(|&i| (self.metaslabs[i].allocatable.total(), std::cmp::Reverse(i)));
            if let Some(index) = best {
                if away_from.is_empty() {
                    self.current = index;
                    let metaslab = &mut self.metaslabs[index];
                    metaslab.cursor = metaslab.start;
                }
                return self.metaslabs[index].allocate(asize);
            }
        }
        None
    }

    fn allocate_log(&mut self, asize: u64, txg: Txg) -> Option<u64> {
        let current = self.metaslabs.get_mut(self.current).and_then(|m| m.allocate_log(asize, txg));
        current.or_else(|| {
            let room = self.metaslabs.iter_mut().filter(|m| m.allocatable.largest() >= asize);
            room.max_by_key(|m| m.allocatable.total()).and_then(|m| m.allocate_log(asize, txg))
        })
    }

    fn metaslab_of(&mut self, offset: u64) -> Option<&mut Metaslab> {
        self.metaslabs.get_mut((offset >> self.metaslab_shift) as usize)
    }
}

/// The pool's space.
#[derive(Default)]
pub struct Allocator {
    groups: Vec<Group>,
    rotor: usize,
    placed: u64,
    pins: u32,
}

impl Allocator {
    /// Adds a top-level vdev's space.
    pub fn add_group(&mut self, group: Group) {
        self.groups.push(group);
    }

    /// All groups.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// All groups, to sync their space maps.
    pub fn groups_mut(&mut self) -> &mut [Group] {
        &mut self.groups
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
        self.groups.iter().filter(|g| !g.geometry.is_log())
    }

    /// Raw bytes allocated in the pool, log devices left out.
    pub fn allocated(&self) -> u64 {
        self.ordinary().map(Group::allocated).sum()
    }

    /// Raw bytes in the pool, log devices left out.
    pub fn size(&self) -> u64 {
        self.ordinary().map(Group::size).sum()
    }

    /// Deflated bytes allocated and in all: what data sets can use before reserves (`spa_get_dspace`).
    pub fn deflated(&self) -> (u64, u64) {
        let sum = |f: &dyn Fn(&Group) -> u64| self.ordinary().map(|g| g.deflate(f(g))).sum();
        (sum(&Group::allocated), sum(&Group::size))
    }

    /// The deflated size of one copy.
    pub fn dsize(&self, dva: &Dva) -> u64 {
        self.group(dva.vdev).map_or(dva.asize, |g| g.deflate(dva.asize))
    }

    /// Allocates `copies` places for a block of `psize` bytes.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`]; nothing is allocated then. At least one copy is promised; further copies are given up
    /// silently only when space is short.
    pub fn allocate(&mut self, psize: u64, copies: u8) -> Result<Vec<Dva>> {
        let mut dvas: Vec<Dva> = Vec::with_capacity(usize::from(copies));
        for _ in 0..copies {
            match self.allocate_one(psize, &dvas) {
                Some(dva) => dvas.push(dva),
                None if dvas.is_empty() => return Err(ZioError::NoSpace),
                None => break,
            }
        }
        Ok(dvas)
    }

    fn allocate_one(&mut self, psize: u64, taken: &[Dva]) -> Option<Dva> {
        let count = self.groups.len();
        if count == 0 {
            return None;
        }
        // First a vdev that holds no copy yet, then any.
        for fresh in [true, false] {
            for turn in 0..count {
                let index = (self.rotor + turn) % count;
                let vdev = self.groups[index].vdev;
                if !self.groups[index].geometry.is_allocatable() || (fresh && taken.iter().any(|dva| dva.vdev == vdev))
                {
                    continue;
                }
                let away: Vec<(u64, u64)> =
                    taken.iter().filter(|dva| dva.vdev == vdev).map(|dva| (dva.offset, dva.asize)).collect();
                let asize = self.groups[index].geometry.asize_for(psize);
                if let Some(offset) = self.groups[index].allocate(asize, &away) {
                    self.advance(index, asize);
                    return Some(Dva { vdev, offset, asize, gang: false });
                }
            }
        }
        None
    }

    /// Allocates a block of `psize` bytes for an intent log in open group `txg`: on a log device when there is one with
    /// room, else where other blocks go.
    ///
    /// # Errors
    /// [`ZioError::NoSpace`].
    pub fn allocate_log(&mut self, psize: u64, txg: Txg) -> Result<Dva> {
        let count = self.groups.len();
        let (mut logs, mut others) = (Vec::new(), Vec::new());
        for index in (0..count).map(|turn| (self.rotor + turn) % count) {
            let geometry = &self.groups[index].geometry;
            if geometry.is_log() {
                logs.push(index);
            } else if geometry.is_allocatable() {
                others.push(index);
            }
        }
        for index in logs.into_iter().chain(others) {
            let group = &mut self.groups[index];
            let asize = group.geometry.asize_for(psize);
            if let Some(offset) = group.allocate_log(asize, txg) {
                let vdev = group.vdev;
                if !self.groups[index].geometry.is_log() {
                    self.advance(index, asize);
                }
                return Ok(Dva { vdev, offset, asize, gang: false });
            }
        }
        Err(ZioError::NoSpace)
    }

    /// Group `txg` is syncing: space allocated in it for intent logs becomes part of what it allocates.
    pub fn absorb_log(&mut self, txg: Txg) {
        self.groups.iter_mut().flat_map(|g| &mut g.metaslabs).for_each(|m| m.absorb_log(txg));
    }

    /// The metaslab that has all of what a block pointer of a disk names, which may be anything.
    fn metaslab_with(&mut self, dva: &Dva) -> Option<&mut Metaslab> {
        let group = self.group_mut(dva.vdev)?;
        let whole = dva.asize > 0 && (dva.offset | dva.asize).is_multiple_of(group.geometry.unit());
        let end = dva.offset.checked_add(dva.asize).filter(|_| whole)?;
        group.metaslab_of(dva.offset).filter(|metaslab| end <= metaslab.start + metaslab.size)
    }

    /// Marks a block of an intent log found at import as allocated, in the first group to be synced; of a gang block,
    /// its header.
    ///
    /// # Errors
    /// When a copy is outside the pool or not free: log and space maps contradict each other.
    pub(crate) fn claim(&mut self, bp: &BlkPtr) -> Result<()> {
        for dva in self.own_space(bp).dvas() {
            let metaslab = self
                .metaslab_with(&dva)
                .ok_or_else(|| ZioError::corrupt("intent log", format!("{bp:?} points outside every metaslab")))?;
            let claimed = metaslab.claim(dva.offset, dva.asize);
            claimed.map_err(|e| ZioError::corrupt("intent log", format!("claiming {bp:?}: {e}")))?;
        }
        Ok(())
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
        if let Some(metaslab) = self.group_mut(dva.vdev).and_then(|g| g.metaslab_of(dva.offset))
            && metaslab.allocating.remove(dva.offset, dva.asize).is_ok()
        {
            metaslab.allocatable.add(dva.offset, dva.asize).expect("allocated space is not allocatable");
        }
    }

    /// Gives all copies of `bp` back in the syncing group.
    ///
    /// # Errors
    /// When a copy is outside the pool or free already.
    pub fn free(&mut self, bp: &BlkPtr) -> Result<()> {
        for dva in bp.dvas() {
            let metaslab = self
                .metaslab_with(&dva)
                .ok_or_else(|| ZioError::corrupt("block pointer", format!("{bp:?} points outside every metaslab")))?;
            metaslab.free(dva.offset, dva.asize).map_err(|e| double_free(bp, e))?;
        }
        Ok(())
    }

    /// Whether every copy of a block lies in space that is in use and not freed in this group. Of a gang block only the
    /// headers are looked at.
    pub fn is_allocated(&self, bp: &BlkPtr) -> bool {
        bp.dvas().all(|dva| {
            let Some(group) = self.group(dva.vdev) else { return false };
            let unit = group.geometry.unit();
            let length = if bp.is_gang() { group.geometry.asize_for(HEADER_SIZE as u64) } else { dva.asize };
            let whole = length > 0 && (dva.offset | length).is_multiple_of(unit);
            let end = dva.offset.checked_add(length).filter(|_| whole);
            let metaslab = group.metaslabs.get((dva.offset >> group.metaslab_shift) as usize);
            metaslab.zip(end).is_some_and(|(metaslab, end)| {
                end <= metaslab.start + metaslab.size && metaslab.is_allocated(dva.offset, length)
            })
        })
    }

    /// Gives back the header of a gang block, all copies: of the size in its addresses only the header is its own.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_gang_header(&mut self, bp: &BlkPtr) -> Result<()> {
        self.free(&self.own_space(bp))
    }

    /// The pointer with the space that is the block's own: of a gang block the headers.
    fn own_space(&self, bp: &BlkPtr) -> BlkPtr {
        let mut own = *bp;
        for (index, dva) in bp.dvas().enumerate().filter(|(_, dva)| dva.gang) {
            let asize = self.group(dva.vdev).map_or(dva.asize, |g| g.geometry.asize_for(HEADER_SIZE as u64));
            own.set_dva(index, Dva { asize, ..dva });
        }
        own
    }

    /// Whether any metaslab has changes that its space map does not have.
    pub fn is_dirty(&self) -> bool {
        self.groups.iter().any(|g| g.metaslabs.iter().any(Metaslab::is_dirty))
    }

    /// After group `txg` is on disk.
    pub fn finish(&mut self, txg: Txg) {
        let pinned = self.pins > 0;
        for metaslab in self.groups.iter_mut().flat_map(|g| &mut g.metaslabs) {
            metaslab.finish(txg, pinned);
        }
    }

    /// Raw bytes that were freed and wait in `deferred` (an idle pool syncs twice more to release them).
    pub fn deferred(&self) -> u64 {
        let metaslabs = self.groups.iter().flat_map(|g| &g.metaslabs);
        metaslabs.flat_map(|m| &m.deferred).map(RangeSet::total).sum()
    }

    /// Keeps freed space from being reused until [`unpin`](Self::unpin).
    pub fn pin(&mut self) {
        self.pins += 1;
    }

    /// Whether freed space is kept from being reused.
    pub fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    /// Ends a pin.
    pub fn unpin(&mut self) {
        self.pins -= 1;
    }
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
        !platter_vdev::TopVdev::is_log(self) && self.condition().is_usable()
    }

    fn is_log(&self) -> bool {
        platter_vdev::TopVdev::is_log(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct LargeSectors;

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

    /// A pointer of a hostile pool gave back half a sector; its space map could not be written then, and panicked.
    #[test]
    fn only_whole_sectors_inside_one_metaslab_are_freed_or_claimed() {
        let metaslabs = (0..4).map(|index| Metaslab::new(index, index << 20, 1 << 20)).collect();
        let mut allocator = Allocator::default();
        allocator.add_group(Group::new(0, Arc::new(LargeSectors), metaslabs, 20, 1));
        let pointer = |offset, asize| {
            let mut bp = BlkPtr::describe(4096, 4096, 15, 7, 19, 0, Txg(9));
            bp.set_dva(0, Dva { vdev: 0, offset, asize, gang: false });
            bp
        };
        let wrong = [(512, 4096), (4096, 512), ((1 << 20) - 4096, 8192), (1 << 22, 4096), (4096, 1 << 30)];
        for (offset, asize) in wrong {
            let bp = pointer(offset, asize);
            assert!(allocator.free(&bp).is_err(), "{bp:?}");
            assert!(allocator.claim(&bp).is_err(), "{bp:?}");
        }
        assert_eq!(allocator.allocated(), 0);
        let bp = pointer(4096, 8192);
        allocator.claim(&bp).unwrap();
        assert_eq!(allocator.allocated(), 8192);
    }
}
