//! An object's state in memory: the tree on disk, and above it what each unsynced group changed.
//!
//! Invariants:
//! - `disk` is what the last finished sync left; it is replaced as a whole, in the same critical section in which
//!   the changes it contains (`syncing`) are dropped: a reader sees either both or the new one;
//! - within one slot a block in `blocks` is newer than a range in `freed` that holds it;
//! - a change made in group N also lands in every later slot that already shadows the same thing. Callers begin
//!   their transactions under their own locks, so this is rare; but two transactions that did overlap lose nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectType, Txg};

use crate::blocktree::{pointer, shr};
use crate::place::{BlockPlace, levels_of, new_parents};
use crate::ranges::RangeSet;

/// Groups that can be unfinished at a time (`TXG_SIZE`).
pub(crate) const TXG_SLOTS: usize = 4;

pub(crate) fn slot_of(txg: Txg) -> usize {
    txg.0 as usize & (TXG_SLOTS - 1)
}

/// What one group changed in one object.
#[derive(Debug)]
pub(crate) struct DirtySlot {
    pub(crate) txg: Txg,
    /// Newest contents of data blocks, each one block long.
    pub(crate) blocks: BTreeMap<u64, Buf>,
    /// Those of them that need not be cached when they are written (`WritePolicy::passing`).
    pub(crate) passing: BTreeSet<u64>,
    /// Data blocks freed before (or without) being written.
    pub(crate) freed: RangeSet,
    pub(crate) block_size: Option<u32>,
    pub(crate) max_blkid: Option<u64>,
    pub(crate) bonus: Option<(ObjectType, Arc<[u8]>)>,
    /// A new object type (`dmu_object_zapify`).
    pub(crate) object_type: Option<ObjectType>,
    /// `Some(None)`: removed.
    pub(crate) spill: Option<Option<Buf>>,
    /// The object came into being in this group.
    pub(crate) allocated: bool,
    /// The object was freed in this group.
    pub(crate) object_freed: bool,
}

impl DirtySlot {
    fn new(txg: Txg) -> Self {
        Self {
            txg,
            blocks: BTreeMap::new(),
            passing: BTreeSet::new(),
            freed: RangeSet::default(),
            block_size: None,
            max_blkid: None,
            bonus: None,
            object_type: None,
            spill: None,
            allocated: false,
            object_freed: false,
        }
    }

    /// Whether the group has its own version of the block.
    fn shadows(&self, blkid: u64) -> bool {
        self.blocks.contains_key(&blkid) || self.freed.contains(blkid)
    }
}

/// Where the newest contents of a block are.
pub(crate) enum Newest {
    /// In memory.
    Dirty(Buf),
    /// Freed and not written since.
    Hole,
    /// On disk, below `disk`.
    Disk,
}

/// Where the newest contents of some blocks in a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// In memory.
    Memory,
    /// Freed and not written since.
    Freed,
    /// On disk, below `disk`.
    Disk,
}

/// See the module text.
pub(crate) struct State {
    pub(crate) disk: Arc<DnodePhys>,
    /// Whether the meta-dnode's blocks hold this dnode.
    pub(crate) on_disk: bool,
    /// Freed in some group: nothing can be done with it any more.
    pub(crate) freed: bool,
    pub(crate) object_type: ObjectType,
    pub(crate) bonus_type: ObjectType,
    pub(crate) bonus: Arc<[u8]>,
    pub(crate) block_size: u32,
    pub(crate) max_blkid: u64,
    pub(crate) has_spill: bool,
    pub(crate) slots: [Option<Box<DirtySlot>>; TXG_SLOTS],
    pub(crate) syncing: Option<Arc<DirtySlot>>,
    /// The indirect block that was last looked into, with its number and the tree it is of: a tree of many levels need
    /// not be walked from its top for each neighbour.
    parent: Option<(Arc<DnodePhys>, u64, Buf)>,
}

impl State {
    pub(crate) fn new(disk: DnodePhys, on_disk: bool) -> Self {
        Self {
            on_disk,
            freed: false,
            object_type: disk.object_type,
            bonus_type: disk.bonus_type,
            bonus: disk.bonus.as_slice().into(),
            block_size: disk.data_block_size() as u32,
            max_blkid: disk.max_blkid,
            has_spill: disk.spill.is_some(),
            disk: Arc::new(disk),
            slots: Default::default(),
            syncing: None,
            parent: None,
        }
    }

    /// The slot of `txg`, made when missing; the flag says whether it was.
    pub(crate) fn slot(&mut self, txg: Txg) -> (&mut DirtySlot, bool) {
        let slot = &mut self.slots[slot_of(txg)];
        let made = slot.is_none();
        let slot = slot.get_or_insert_with(|| Box::new(DirtySlot::new(txg)));
        assert_eq!(slot.txg, txg, "a group four back was never synced");
        (slot, made)
    }

    /// The slot of `txg`, when the group changed anything here.
    pub(crate) fn slot_if_any(&self, txg: Txg) -> Option<&DirtySlot> {
        self.slots[slot_of(txg)].as_deref().filter(|slot| slot.txg == txg)
    }

    /// The first block at or after `blkid` that some unsynced group wrote (a later one may have freed it again).
    pub(crate) fn next_dirty(&self, blkid: u64) -> Option<u64> {
        self.newest_first().filter_map(|slot| slot.blocks.range(blkid..).next().map(|(&blkid, _)| blkid)).min()
    }

    /// Where block `blkid` is, and the first block after it for which that may be different. Of those in memory `most`
    /// are looked at.
    pub(crate) fn source(&self, blkid: u64, most: usize) -> (Source, u64) {
        let mut end = u64::MAX;
        for slot in self.newest_first() {
            let mut written = slot.blocks.range(blkid..).map(|(&blkid, _)| blkid);
            let first = written.next();
            if first == Some(blkid) {
                let run = written.zip(blkid + 1..).take(most).take_while(|(block, next)| block == next).count();
                return (Source::Memory, end.min(blkid + 1 + run as u64));
            }
            end = end.min(first.unwrap_or(u64::MAX));
            if let Some(last) = slot.freed.end_of(blkid) {
                return (Source::Freed, end.min(last.saturating_add(1)));
            }
            end = end.min(slot.freed.next(blkid).unwrap_or(u64::MAX));
        }
        (Source::Disk, end)
    }

    /// The pointer of block `blkid` on disk, when the indirect block that has it was the last one looked into.
    pub(crate) fn pointer_nearby(&self, blkid: u64) -> Option<BlkPtr> {
        let (tree, index, block) = self.parent.as_ref()?;
        let epbs = tree.pointers_per_indirect_shift();
        let is_there = Arc::ptr_eq(tree, &self.disk) && shr(blkid, epbs) == *index;
        is_there.then(|| pointer(block, (blkid & ((1 << epbs) - 1)) as usize))
    }

    /// Block `blkid` of `tree` was found in the indirect block `parent`.
    pub(crate) fn looked_into(&mut self, tree: &Arc<DnodePhys>, blkid: u64, parent: Buf) {
        // With fewer levels there is nothing to be saved but a look into the cache.
        if tree.levels > 2 {
            self.parent = Some((tree.clone(), shr(blkid, tree.pointers_per_indirect_shift()), parent));
        }
    }

    /// All unsynced changes, newest group first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &DirtySlot> {
        // Groups that are unfinished at the same time follow each other, each in the slot after the one before.
        let last = self.slots.iter().flatten().map(|slot| slot.txg.0).max();
        let groups =
            last.into_iter().flat_map(|last| (0..TXG_SLOTS as u64).filter_map(move |back| last.checked_sub(back)));
        groups.filter_map(|txg| self.slot_if_any(Txg(txg))).chain(self.syncing.as_deref())
    }

    /// Whether no unsynced group allocates or frees blocks.
    pub(crate) fn is_settled(&self) -> bool {
        let mut all = self.slots.iter().flatten().map(|slot| &**slot).chain(self.syncing.as_deref());
        all.all(|slot| slot.blocks.is_empty() && slot.freed.next(0).is_none() && slot.spill.is_none())
    }

    pub(crate) fn newest(&self, blkid: u64) -> Newest {
        for slot in self.newest_first() {
            if let Some(block) = slot.blocks.get(&blkid) {
                return Newest::Dirty(block.clone());
            }
            if slot.freed.contains(blkid) {
                return Newest::Hole;
            }
        }
        Newest::Disk
    }

    /// What `txg` itself wrote to the block, to be changed: when that is as long as a block is now, and no later group
    /// has its own version.
    pub(crate) fn own_block(&mut self, txg: Txg, blkid: u64) -> Option<&mut Buf> {
        let is_shadowed = self.slots.iter().flatten().any(|slot| slot.txg > txg && slot.shadows(blkid));
        if self.freed || is_shadowed {
            return None;
        }
        let size = self.block_size as usize;
        let slot = self.slots[slot_of(txg)].as_deref_mut().filter(|slot| slot.txg == txg)?;
        let block = slot.blocks.get_mut(&blkid).filter(|block| block.len() == size)?;
        slot.passing.remove(&blkid);
        Some(block)
    }

    /// Where block `blkid`, of `size` bytes, will stand when `txg` changes it; `None` when it did so before.
    pub(crate) fn place_of_new(&self, txg: Txg, blkid: u64, size: u64) -> Option<BlockPlace> {
        let slot = self.slot_if_any(txg);
        if slot.is_some_and(|slot| slot.blocks.contains_key(&blkid)) {
            return None;
        }
        let max_blkid = self.max_blkid.max(blkid);
        let (before, levels) = (levels_of(&self.disk, self.max_blkid), levels_of(&self.disk, max_blkid));
        let next_to = slot.into_iter().flat_map(|slot| {
            let before = slot.blocks.range(..blkid).next_back();
            before.into_iter().chain(slot.blocks.range(blkid..).next()).map(|(&blkid, _)| blkid)
        });
        Some(BlockPlace {
            object_type: self.object_type,
            size,
            blkid,
            max_blkid,
            indirect_shift: self.disk.indirect_shift,
            new_parents: match levels {
                0 | 1 => 0,
                levels => new_parents(next_to, blkid, self.disk.pointers_per_indirect_shift(), levels - 1),
            },
            grown: levels - before,
        })
    }

    /// Where the edges of what is freed stand, as far as they are in the tree: the indirect blocks above them change.
    pub(crate) fn places_of_edges(&self, first: u64, last: u64) -> impl Iterator<Item = BlockPlace> {
        let parents = self.disk.levels.saturating_sub(1);
        let max_blkid = self.max_blkid;
        let edges = [Some(first), (last != first).then_some(last)].into_iter().flatten();
        edges.filter(move |&blkid| parents > 0 && blkid <= max_blkid).map(move |blkid| BlockPlace {
            object_type: self.object_type,
            size: 0,
            blkid,
            max_blkid,
            indirect_shift: self.disk.indirect_shift,
            new_parents: parents,
            grown: 0,
        })
    }

    /// Puts a block into the slot of `txg` and returns the bytes newly dirtied.
    pub(crate) fn put(&mut self, txg: Txg, blkid: u64, block: Buf) -> u64 {
        for later in self.slots.iter_mut().flatten().filter(|slot| slot.txg > txg) {
            if later.shadows(blkid) {
                later.blocks.insert(blkid, block.clone());
            }
        }
        let length = block.len() as u64;
        let max_blkid = self.max_blkid.max(blkid);
        self.max_blkid = max_blkid;
        let (slot, _) = self.slot(txg);
        slot.max_blkid = Some(slot.max_blkid.map_or(max_blkid, |max| max.max(blkid)));
        slot.passing.remove(&blkid);
        if slot.blocks.insert(blkid, block).is_none() { length } else { 0 }
    }

    /// Frees blocks `first..=last` in the slot of `txg`; returns the dirty bytes that vanished by it.
    pub(crate) fn free(&mut self, txg: Txg, first: u64, last: u64) -> u64 {
        self.slot(txg);
        let mut vanished = 0;
        for slot in self.slots.iter_mut().flatten().filter(|slot| slot.txg >= txg) {
            let inside: Vec<u64> = slot.blocks.range(first..=last).map(|(&blkid, _)| blkid).collect();
            for blkid in inside {
                let length = slot.blocks.remove(&blkid).map_or(0, |block| block.len() as u64);
                if slot.txg == txg {
                    vanished += length;
                }
            }
            slot.freed.insert(first, last);
        }
        if last >= self.max_blkid && first <= self.max_blkid {
            self.max_blkid = first.saturating_sub(1);
            for slot in self.slots.iter_mut().flatten().filter(|slot| slot.txg >= txg) {
                slot.max_blkid = Some(self.max_blkid);
            }
        }
        vanished
    }
}
