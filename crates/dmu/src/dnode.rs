//! One object: reading and writing its contents, bonus and spill block (`module/zfs/dnode.c`, `module/zfs/dbuf.c`).
//!
//! Invariants:
//! - no lock is held across an await; the state's lock is held for map look-ups and at most one block's copy;
//! - whoever changes an object serialises that with other changes of the same object, and takes its locks *before* it
//!   begins its transaction. Reads and the sync run beside it freely;
//! - a block that was read through an outdated pointer (freed and reused meanwhile) fails its checksum; it is looked up
//!   again and the read repeated.

use std::sync::{Arc, Weak};

use futures::stream::{FuturesOrdered, StreamExt};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_ondisk::types::object_type;
use platter_ondisk::{DnodePhys, ObjectId, Txg};
use platter_zio::{Priority, Result, Tx, ZioError};

use crate::blocktree::{SPILL_BLKID, levels_for};
use crate::core::{Core, zeros};
use crate::dirty::{Newest, State};
use crate::objset::Objset;

/// Largest spill block, in bytes (`SPA_OLD_MAXBLOCKSIZE`).
const SPILL_SIZE_MAX: usize = 128 << 10;
/// How often a read is repeated because the tree changed under it.
const READ_ATTEMPTS: usize = 16;
/// Blocks of one read under way at a time.
const READ_WIDTH: usize = 64;
/// Bytes that one prefetch has under way at a time.
const PREFETCH_BYTES: usize = 8 << 20;

/// What a new object is made of.
#[derive(Clone, Debug)]
pub struct NewDnode {
    /// `dmu_object_type_t`.
    pub object_type: u8,
    /// Data block size in bytes: a multiple of 512, 512 B..16 MiB.
    pub block_size: u32,
    /// log2 of the indirect block size; 17 (128 KiB) in general.
    pub indirect_shift: u8,
    /// `dmu_object_type_t` of the bonus; 0 for none.
    pub bonus_type: u8,
    /// Bonus bytes in use.
    pub bonus_length: u16,
    /// Dnode size in bytes (512..16384); 0 takes the object set's default.
    pub dnode_size: u32,
}

/// Facts about an object for `stat` and friends.
#[derive(Clone, Debug)]
pub struct DnodeInfo {
    /// `dmu_object_type_t`.
    pub object_type: u8,
    /// Bonus type.
    pub bonus_type: u8,
    /// Data block size, bytes.
    pub block_size: u32,
    /// Levels of the block tree.
    pub levels: u8,
    /// Index of the last data block.
    pub max_blkid: u64,
    /// Allocated bytes on disk (as of the last sync).
    pub used: u64,
    /// Dnode size in bytes.
    pub dnode_size: u32,
    /// Indirect block shift.
    pub indirect_shift: u8,
}

/// An open object.
pub struct Dnode {
    object: ObjectId,
    this: Weak<Dnode>,
    pub(crate) core: Arc<Core>,
    pub(crate) state: Mutex<State>,
    /// What the ZAPs over this object share, when it is one.
    zap: crate::zap::Shared,
}

impl Dnode {
    /// What the [`Zap`](crate::zap::Zap)s over this object share.
    pub(crate) fn zap_state(&self) -> &crate::zap::Shared {
        &self.zap
    }

    pub(crate) fn new(core: &Arc<Core>, object: ObjectId, disk: DnodePhys, on_disk: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            object,
            this: this.clone(),
            core: core.clone(),
            state: Mutex::new(State::new(disk, on_disk)),
            zap: crate::zap::Shared::default(),
        })
    }

    /// Its number.
    pub fn object(&self) -> ObjectId {
        self.object
    }

    /// Its object set.
    ///
    /// # Panics
    /// When the object set was closed before its objects.
    pub fn objset(&self) -> Arc<Objset> {
        self.core.objset.get().and_then(Weak::upgrade).expect("an object set outlives its objects")
    }

    /// Current facts (open context: pending changes included, except `used`).
    pub fn info(&self) -> DnodeInfo {
        let state = self.state.lock();
        let disk = &state.disk;
        DnodeInfo {
            object_type: state.object_type,
            bonus_type: state.bonus_type,
            block_size: state.block_size,
            levels: disk.levels.max(levels_for(
                state.max_blkid,
                disk.blkptrs.len(),
                disk.pointers_per_indirect_shift(),
            )),
            max_blkid: state.max_blkid,
            used: disk.used_bytes(),
            dnode_size: (disk.slots() * 512) as u32,
            indirect_shift: disk.indirect_shift,
        }
    }

    /// The dnode as the last sync left it.
    pub fn phys(&self) -> Arc<DnodePhys> {
        self.state.lock().disk.clone()
    }

    /// Whether the object was freed (in memory or on disk) since it was opened.
    pub fn is_freed(&self) -> bool {
        self.state.lock().freed
    }

    /// Whether changes wait for a sync.
    pub fn is_dirty(&self) -> bool {
        self.state.lock().newest_first().next().is_some()
    }

    /// Data block size in bytes.
    pub fn block_size(&self) -> u32 {
        self.state.lock().block_size
    }

    /// Fills `out` from byte `offset`; holes and what lies past the end read as zeros.
    ///
    /// # Errors
    /// Damaged blocks.
    pub async fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let size = u64::from(self.block_size());
        let last_byte = offset
            .checked_add(out.len() as u64 - 1)
            .ok_or_else(|| ZioError::Invalid(format!("a read at {offset} leaves the 64-bit range")))?;
        let (first, last) = (offset / size, last_byte / size);
        if first == last {
            let block = self.read_block(first, Priority::SyncRead).await?;
            let at = (offset % size) as usize;
            out.copy_from_slice(&block[at..at + out.len()]);
            return Ok(());
        }
        let mut blocks = FuturesOrdered::new();
        let (mut next, mut done) = (first, 0);
        loop {
            while next <= last && blocks.len() < READ_WIDTH {
                blocks.push_back(self.read_block(next, Priority::SyncRead));
                next += 1;
            }
            let Some(block) = blocks.next().await else { return Ok(()) };
            let block = block?;
            let at = ((offset + done as u64) % size) as usize;
            let length = (out.len() - done).min(block.len() - at);
            out[done..done + length].copy_from_slice(&block[at..at + length]);
            done += length;
        }
    }

    /// The newest contents of data block `blkid` (zeros for a hole), always one block long, without copying.
    ///
    /// # Errors
    /// A damaged block.
    pub async fn read_block(&self, blkid: u64, priority: Priority) -> Result<Buf> {
        Ok(self.read_with_tree(blkid, priority).await?.0)
    }

    /// Also gives the tree in which the block was looked up, or `None` when memory had it.
    async fn read_with_tree(&self, blkid: u64, priority: Priority) -> Result<(Buf, Option<Arc<DnodePhys>>)> {
        let mut failed: Option<(ZioError, Arc<DnodePhys>)> = None;
        for _ in 0..READ_ATTEMPTS {
            let (tree, size) = {
                let state = self.state.lock();
                let size = state.block_size as usize;
                match state.newest(blkid) {
                    Newest::Dirty(block) => return Ok((resized(block, size), None)),
                    Newest::Hole => return Ok((zeros(size), None)),
                    Newest::Disk => (state.disk.clone(), size),
                }
            };
            if let Some((error, seen)) = &failed
                && Arc::ptr_eq(seen, &tree)
            {
                return Err(error.clone());
            }
            let reader = self.core.reader(self.object, priority);
            let block = match reader.resolve(&tree, blkid).await {
                Ok(bp) if bp.is_hole() => Ok(zeros(size)),
                Ok(bp) => reader.block(&bp, 0, blkid).await.map(|block| resized(block, size)),
                Err(error) => Err(error),
            };
            match block {
                Ok(block) => return Ok((block, Some(tree))),
                Err(error) => failed = Some((error, tree)),
            }
        }
        Err(failed.expect("only a failed read is repeated").0)
    }

    /// Starts reading blocks `blkid..blkid+count` into the cache; returns at once.
    pub fn prefetch(self: &Arc<Self>, blkid: u64, count: u64) {
        let (last, size) = {
            let state = self.state.lock();
            (state.max_blkid, state.block_size as usize)
        };
        let width = (PREFETCH_BYTES / size).clamp(4, 256);
        let range = blkid..blkid.saturating_add(count).min(last.saturating_add(1));
        if range.is_empty() {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            let reads = range.map(|blkid| this.read_block(blkid, Priority::AsyncRead));
            // Whoever wants the block later meets the error himself.
            futures::stream::iter(reads).buffered(width).for_each(|_| async {}).await;
        });
    }

    /// Writes `data` at byte `offset`. Grows the tree as needed. Does not grow the block size.
    ///
    /// # Errors
    /// A partly written block whose old contents are damaged; a second block while the block size is no power of two.
    pub async fn write(&self, tx: &Tx, offset: u64, data: &[u8]) -> Result<()> {
        let size = self.block_size() as usize;
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (blkid, within) = (at / size as u64, (at % size as u64) as usize);
            let piece = &data[done..done + (data.len() - done).min(size - within)];
            if piece.len() == size {
                self.write_block(tx, blkid, Buf::copy_from(piece)).await?;
            } else {
                self.modify(tx, blkid, |block| block[within..within + piece.len()].copy_from_slice(piece)).await?;
            }
            done += piece.len();
        }
        Ok(())
    }

    /// Replaces whole block `blkid` with `data` (exactly one block), without copying.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub async fn write_block(&self, tx: &Tx, blkid: u64, data: Buf) -> Result<()> {
        self.prepare(tx.txg(), blkid).await?;
        let mut state = self.state.lock();
        if data.len() != state.block_size as usize {
            return Err(ZioError::Invalid(format!(
                "object {}: {} bytes written as a block of {}",
                self.object,
                data.len(),
                state.block_size
            )));
        }
        self.dirty_slot(&mut state, tx.txg())?;
        let bytes = state.put(tx.txg(), blkid, data);
        drop(state);
        self.core.add_dirty(tx.txg(), bytes);
        Ok(())
    }

    /// Changes block `blkid` in memory: `change` sees its newest contents, one block long.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub async fn modify(&self, tx: &Tx, blkid: u64, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let txg = tx.txg();
        self.prepare(txg, blkid).await?;
        let mut from_disk: Option<(Buf, Option<Arc<DnodePhys>>)> = None;
        loop {
            {
                let mut state = self.state.lock();
                let size = state.block_size as usize;
                self.dirty_slot(&mut state, txg)?;
                // Taken out, so that the slot's own buffer is written in place when no reader holds it.
                let own = state.slot(txg).0.blocks.remove(&blkid);
                let mine = own.as_ref().map_or(0, |block| block.len() as u64);
                let newest = match own {
                    Some(block) if !later_slot_shadows(&state, txg, blkid) => Newest::Dirty(block),
                    Some(block) => {
                        state.slot(txg).0.blocks.insert(blkid, block);
                        state.newest(blkid)
                    }
                    None => state.newest(blkid),
                };
                let block = match (newest, &from_disk) {
                    (Newest::Dirty(block), _) => Some(resized(block, size)),
                    (Newest::Hole, _) => Some(Buf::zeroed(size)),
                    (Newest::Disk, Some((block, Some(tree)))) if Arc::ptr_eq(tree, &state.disk) => Some(block.clone()),
                    (Newest::Disk, _) if blkid > state.disk.max_blkid || !state.on_disk => Some(Buf::zeroed(size)),
                    (Newest::Disk, _) => None,
                };
                if let Some(mut block) = block {
                    from_disk = None;
                    drop(from_disk);
                    change(block.make_mut());
                    let bytes = state.put(txg, blkid, block).saturating_sub(mine);
                    drop(state);
                    self.core.add_dirty(txg, bytes);
                    return Ok(());
                }
            }
            from_disk = Some(self.read_with_tree(blkid, Priority::SyncRead).await?);
        }
    }

    /// Makes sure that the indirect blocks above `blkid` can be read, so that damage there fails the writer and not
    /// the sync, and that the sync finds them cached.
    async fn prepare(&self, txg: Txg, blkid: u64) -> Result<()> {
        let tree = {
            let state = self.state.lock();
            if blkid > 0 && !state.block_size.is_power_of_two() {
                return Err(ZioError::Invalid(format!(
                    "object {}: block {blkid} while the block size is {}",
                    self.object, state.block_size
                )));
            }
            if state.disk.levels == 1 {
                return Ok(());
            }
            // A neighbour below the same indirect block was prepared before.
            let mask = (1u64 << state.disk.pointers_per_indirect_shift()) - 1;
            let neighbours = (blkid & !mask)..=(blkid | mask);
            if state.slot_if_any(txg).is_some_and(|slot| slot.blocks.range(neighbours).next().is_some()) {
                return Ok(());
            }
            state.disk.clone()
        };
        match self.core.reader(self.object, Priority::SyncRead).resolve(&tree, blkid).await {
            // The tree was replaced meanwhile: the sync that did it had the blocks in hand.
            Err(error) if Arc::ptr_eq(&tree, &self.state.lock().disk) => Err(error),
            _ => Ok(()),
        }
    }

    /// Enters the object in `txg`'s list when this is its first change there.
    fn dirty_slot(&self, state: &mut State, txg: Txg) -> Result<()> {
        self.core.check_writable()?;
        if state.freed {
            return Err(ZioError::NotFound(format!("object {}", self.object)));
        }
        if is_special(self.object) {
            return Err(ZioError::ReadOnly);
        }
        self.enter(state, txg);
        Ok(())
    }

    /// As [`Self::dirty_slot`], without its checks.
    pub(crate) fn enter(&self, state: &mut State, txg: Txg) {
        let (_, made) = state.slot(txg);
        if made && self.object.is_some() {
            let this = self.this.upgrade().expect("a method runs on a live object");
            self.core.register_dirty(txg, self.object, this);
        }
    }

    /// Makes bytes `offset..offset+length` read as zeros and frees whole blocks inside; `length` of `u64::MAX` means to
    /// the end (and `max_blkid` shrinks).
    ///
    /// # Errors
    /// A partly freed block whose contents are damaged.
    pub async fn free_range(&self, tx: &Tx, offset: u64, length: u64) -> Result<()> {
        let (size, max_blkid) = {
            let state = self.state.lock();
            (u64::from(state.block_size), state.max_blkid)
        };
        let to_end = length == u64::MAX || offset.checked_add(length).is_none();
        // The first byte past the last block, when that can be said.
        let object_end = max_blkid.saturating_add(1).saturating_mul(size);
        let end = if to_end { object_end } else { (offset + length).min(object_end) };
        if offset >= end {
            return Ok(());
        }
        let (first_whole, end_whole) = (offset.div_ceil(size), end / size);
        if offset / size == (end - 1) / size && !(offset.is_multiple_of(size) && end.is_multiple_of(size)) {
            return self.zero_part(tx, offset / size, offset % size, end - offset, size).await;
        }
        if !offset.is_multiple_of(size) {
            self.zero_part(tx, offset / size, offset % size, size - offset % size, size).await?;
        }
        if !end.is_multiple_of(size) {
            self.zero_part(tx, end_whole, 0, end % size, size).await?;
        }
        if first_whole < end_whole {
            let last = if end == object_end { u64::MAX } else { end_whole - 1 };
            self.free_blocks(tx, first_whole, last, to_end).await?;
        }
        Ok(())
    }

    async fn zero_part(&self, tx: &Tx, blkid: u64, at: u64, length: u64, size: u64) -> Result<()> {
        debug_assert!(at + length <= size);
        let (tree, newest) = {
            let state = self.state.lock();
            (state.disk.clone(), state.newest(blkid))
        };
        let hole = match newest {
            Newest::Hole => true,
            Newest::Dirty(_) => false,
            Newest::Disk => match self.core.reader(self.object, Priority::SyncRead).resolve(&tree, blkid).await {
                Ok(bp) => bp.is_hole() && Arc::ptr_eq(&tree, &self.state.lock().disk),
                Err(_) => false,
            },
        };
        if hole {
            return Ok(());
        }
        self.modify(tx, blkid, |block| block[at as usize..(at + length) as usize].fill(0)).await
    }

    async fn free_blocks(&self, tx: &Tx, first: u64, last: u64, shrink: bool) -> Result<()> {
        // Only the indirect blocks at the edges are kept and rewritten; those inside are only walked.
        self.prepare(tx.txg(), first).await?;
        let max_blkid = self.state.lock().max_blkid;
        if last < max_blkid {
            self.prepare(tx.txg(), last).await?;
        }
        let vanished = {
            let mut state = self.state.lock();
            self.dirty_slot(&mut state, tx.txg())?;
            let vanished = state.free(tx.txg(), first, last);
            if !shrink && state.max_blkid < max_blkid {
                // A hole punched at the end: the object keeps its length.
                state.max_blkid = max_blkid;
                state.slot(tx.txg()).0.max_blkid = Some(max_blkid);
            }
            vanished
        };
        self.core.remove_dirty(tx.txg(), vanished);
        Ok(())
    }

    /// The next byte offset at or after `offset` that is data (`hole == false`) or hole (`hole == true`), at block
    /// granularity; `None` when there is none below the last block.
    ///
    /// # Errors
    /// Damaged indirect blocks.
    pub async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>> {
        let (size, last) = {
            let state = self.state.lock();
            (u64::from(state.block_size), state.max_blkid)
        };
        let mut blkid = offset / size;
        let found = loop {
            if blkid > last {
                break None;
            }
            let (tree, dirty, newest) = {
                let state = self.state.lock();
                (state.disk.clone(), state.next_dirty(blkid.saturating_add(1)), state.newest(blkid))
            };
            let reader = self.core.reader(self.object, Priority::SyncRead);
            let here = match newest {
                Newest::Dirty(_) => !hole,
                Newest::Hole => hole,
                Newest::Disk => match reader.resolve(&tree, blkid).await {
                    // A sync replaced the tree meanwhile.
                    Err(_) if !Arc::ptr_eq(&tree, &self.phys()) => continue,
                    other => other?.is_hole() == hole,
                },
            };
            if here {
                break Some(blkid);
            }
            blkid += 1;
            if !hole {
                // Skip what is a hole on disk, up to the next block that memory knows about.
                let on_disk = match reader.find(&tree, blkid, last, |_, bp| !bp.is_hole()).await {
                    Err(_) if !Arc::ptr_eq(&tree, &self.phys()) => continue,
                    other => other?,
                };
                match on_disk.into_iter().chain(dirty).min() {
                    Some(next) => blkid = next,
                    None => break None,
                }
            }
        };
        Ok(found.map(|blkid| (blkid * size).max(offset)))
    }

    /// Changes the data block size (bytes); allowed only while at most block 0 exists. Existing data is kept.
    ///
    /// # Errors
    /// More than one block; a size that is no multiple of 512 or above 16 MiB.
    pub async fn set_block_size(&self, tx: &Tx, size: u32) -> Result<()> {
        check_block_size(size)?;
        let txg = tx.txg();
        if self.block_size() == size {
            return Ok(());
        }
        let on_disk = loop {
            let (_, tree) = self.read_with_tree(0, Priority::SyncRead).await?;
            let Some(tree) = tree else { break false };
            match self.core.reader(self.object, Priority::SyncRead).resolve(&tree, 0).await {
                // A sync replaced the tree meanwhile.
                Err(_) if !Arc::ptr_eq(&tree, &self.phys()) => {}
                other => break !other?.is_hole(),
            }
        };
        let has_data = on_disk || matches!(self.state.lock().newest(0), Newest::Dirty(_));
        if has_data {
            // Brings block 0 into this group's slot, in its old size.
            self.modify(tx, 0, |_| {}).await?;
        }
        let mut state = self.state.lock();
        if state.max_blkid != 0 {
            return Err(ZioError::Invalid(format!(
                "object {}: the block size is fixed, {} blocks exist",
                self.object,
                state.max_blkid + 1
            )));
        }
        self.dirty_slot(&mut state, txg)?;
        state.block_size = size;
        let (slot, _) = state.slot(txg);
        slot.block_size = Some(size);
        let mut grown = 0;
        if let Some(block) = slot.blocks.get_mut(&0) {
            grown = u64::from(size).saturating_sub(block.len() as u64);
            *block = resized(block.clone(), size as usize);
        }
        drop(state);
        self.core.add_dirty(txg, grown);
        Ok(())
    }

    /// The bonus bytes, newest.
    pub fn bonus(&self) -> Vec<u8> {
        self.state.lock().bonus.to_vec()
    }

    /// Bytes the bonus may take (smaller while a spill block exists).
    pub fn bonus_capacity(&self, with_spill: bool) -> usize {
        let state = self.state.lock();
        platter_ondisk::dnode::bonus_capacity(state.disk.slots(), state.disk.blkptrs.len(), with_spill)
    }

    /// Whether a spill block exists (newest).
    pub fn has_spill(&self) -> bool {
        self.state.lock().has_spill
    }

    /// Replaces the bonus with `bytes` (its new length) of type `bonus_type`.
    ///
    /// # Errors
    /// The bonus does not fit beside the pointers and the spill pointer.
    pub fn set_bonus(&self, tx: &Tx, bonus_type: u8, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let capacity =
            platter_ondisk::dnode::bonus_capacity(state.disk.slots(), state.disk.blkptrs.len(), state.has_spill);
        if bytes.len() > capacity {
            return Err(ZioError::Invalid(format!(
                "object {}: a bonus of {} bytes where {capacity} fit",
                self.object,
                bytes.len()
            )));
        }
        self.dirty_slot(&mut state, tx.txg())?;
        let bonus: Arc<[u8]> = bytes.into();
        state.bonus = bonus.clone();
        state.bonus_type = bonus_type;
        for slot in state.slots.iter_mut().flatten() {
            if slot.txg == tx.txg() || slot.txg > tx.txg() && slot.bonus.is_some() {
                slot.bonus = Some((bonus_type, bonus.clone()));
            }
        }
        Ok(())
    }

    /// Changes what the object holds, for an object that so far only used its bonus (`dmu_object_zapify`).
    ///
    /// # Errors
    /// Read-only object set, freed object.
    pub fn set_object_type(&self, tx: &Tx, object_type: u8) -> Result<()> {
        let mut state = self.state.lock();
        self.dirty_slot(&mut state, tx.txg())?;
        state.object_type = object_type;
        for slot in state.slots.iter_mut().flatten().filter(|slot| slot.txg == tx.txg()) {
            slot.object_type = Some(object_type);
        }
        Ok(())
    }

    /// The spill block's contents, newest.
    ///
    /// # Errors
    /// A damaged spill block.
    pub async fn spill(&self) -> Result<Option<Buf>> {
        let mut failed: Option<(ZioError, Arc<DnodePhys>)> = None;
        loop {
            let tree = {
                let state = self.state.lock();
                if let Some(spill) = state.newest_first().find_map(|slot| slot.spill.as_ref()) {
                    return Ok(spill.clone());
                }
                state.disk.clone()
            };
            let Some(bp) = tree.spill.filter(|bp| !bp.is_hole()) else { return Ok(None) };
            if let Some((error, seen)) = &failed
                && Arc::ptr_eq(seen, &tree)
            {
                return Err(error.clone());
            }
            match self.core.reader(self.object, Priority::SyncRead).block(&bp, 0, SPILL_BLKID).await {
                Ok(spill) => return Ok(Some(spill)),
                Err(error) => failed = Some((error, tree)),
            }
        }
    }

    /// Replaces or removes the spill block (`Some`: length a multiple of 512, at most 128 KiB).
    ///
    /// # Errors
    /// A bad length; the bonus leaves no room for the spill pointer.
    pub fn set_spill(&self, tx: &Tx, data: Option<Buf>) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(data) = &data {
            if data.is_empty() || data.len() > SPILL_SIZE_MAX || !data.len().is_multiple_of(512) {
                return Err(ZioError::Invalid(format!(
                    "object {}: a spill block of {} bytes",
                    self.object,
                    data.len()
                )));
            }
            let (slots, pointers) = (state.disk.slots(), state.disk.blkptrs.len());
            if state.bonus.len() > platter_ondisk::dnode::bonus_capacity(slots, pointers, true)
                || state.bonus_type == object_type::NONE
            {
                return Err(ZioError::Invalid(format!(
                    "object {}: a bonus of {} bytes leaves no room for a spill pointer",
                    self.object,
                    state.bonus.len()
                )));
            }
        }
        self.dirty_slot(&mut state, tx.txg())?;
        state.has_spill = data.is_some();
        for slot in state.slots.iter_mut().flatten() {
            if slot.txg == tx.txg() || slot.txg > tx.txg() && slot.spill.is_some() {
                slot.spill = Some(data.clone());
            }
        }
        Ok(())
    }

    /// Marks the object freed in `tx`'s group.
    pub(crate) fn mark_freed(&self, tx: &Tx) -> Result<()> {
        let txg = tx.txg();
        let mut vanished = 0;
        {
            let mut state = self.state.lock();
            self.dirty_slot(&mut state, txg)?;
            state.freed = true;
            let (slot, _) = state.slot(txg);
            slot.object_freed = true;
            vanished += slot.blocks.values().map(|block| block.len() as u64).sum::<u64>();
            slot.blocks.clear();
            slot.spill = None;
            slot.bonus = None;
        }
        self.core.remove_dirty(txg, vanished);
        Ok(())
    }
}

/// Whether a group after `txg` has its own version of the block.
fn later_slot_shadows(state: &State, txg: Txg, blkid: u64) -> bool {
    state
        .slots
        .iter()
        .flatten()
        .any(|slot| slot.txg > txg && (slot.blocks.contains_key(&blkid) || slot.freed.contains(blkid)))
}

/// `block` with exactly `size` bytes: zeros are added, or the end cut off.
fn resized(block: Buf, size: usize) -> Buf {
    if block.len() == size {
        return block;
    }
    let mut grown = platter_buffer::BufMut::zeroed(size);
    let length = block.len().min(size);
    grown[..length].copy_from_slice(&block[..length]);
    grown.freeze()
}

/// Whether the object is one of those that only the object set's head knows (space totals).
pub(crate) fn is_special(object: ObjectId) -> bool {
    object.0 >= u64::MAX - 2
}

pub(crate) fn check_block_size(size: u32) -> Result<()> {
    if size == 0 || size > 16 << 20 || !size.is_multiple_of(512) {
        return Err(ZioError::Invalid(format!("a block size of {size} bytes")));
    }
    Ok(())
}

impl std::fmt::Debug for Dnode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object {} of object set {}", self.object, self.core.params.id)
    }
}
