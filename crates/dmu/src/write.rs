//! Changing an object in open context (or, with a syncing transaction, in the sync itself): contents, holes, block
//! size, bonus and spill block. Everything lands in the slot of the transaction's group; see `dirty.rs` for what holds
//! there.

use std::sync::Arc;

use platter_buffer::Buf;
use platter_ondisk::dnode::MAX_LEVELS;
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{DnodePhys, ObjectType, Txg};
use platter_zio::{Priority, Result, Tx, ZioError};

use crate::contents::{check_block_size, resized};
use crate::core::Dnode;
use crate::dirty::{Newest, State};
use crate::place::{BlockPlace, levels_of};

/// Largest spill block, in bytes (`SPA_OLD_MAXBLOCKSIZE`).
const SPILL_SIZE_MAX: usize = 128 << 10;

impl Dnode {
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
        self.put_block(tx, blkid, data, false).await
    }

    /// As [`Self::write_block`], for a writer that keeps a copy: the block is not cached when it has been written.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub async fn write_passing_block(&self, tx: &Tx, blkid: u64, data: Buf) -> Result<()> {
        self.put_block(tx, blkid, data, true).await
    }

    async fn put_block(&self, tx: &Tx, blkid: u64, data: Buf, passing: bool) -> Result<()> {
        self.prepare(tx.txg(), blkid).await?;
        let mut state = self.state.lock();
        if data.len() != state.block_size as usize {
            return Err(ZioError::Invalid(format!(
                "object {}: {} bytes written as a block of {}",
                self.object(),
                data.len(),
                state.block_size
            )));
        }
        self.dirty_slot(&mut state, tx.txg())?;
        let place = state.place_of_new(tx.txg(), blkid, data.len() as u64);
        let bytes = state.put(tx.txg(), blkid, data);
        if passing {
            state.slot(tx.txg()).0.passing.insert(blkid);
        }
        drop(state);
        self.count(tx.txg(), bytes, place);
        Ok(())
    }

    /// Changes block `blkid` in memory: `change` sees its newest contents, one block long.
    ///
    /// # Errors
    /// See [`write`](Self::write).
    pub async fn modify(&self, tx: &Tx, blkid: u64, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let txg = tx.txg();
        {
            let mut state = self.state.lock();
            // Changed where it lies when no reader holds it.
            if let Some(block) = state.own_block(txg, blkid) {
                change(block.make_mut());
                return Ok(());
            }
        }
        self.prepare(txg, blkid).await?;
        let mut from_disk: Option<(Buf, Option<Arc<DnodePhys>>)> = None;
        loop {
            {
                let mut state = self.state.lock();
                let size = state.block_size as usize;
                self.dirty_slot(&mut state, txg)?;
                let mine = state.slot(txg).0.blocks.get(&blkid).map_or(0, |block| block.len() as u64);
                let block = match (state.newest(blkid), &from_disk) {
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
                    let bytes = (block.len() as u64).saturating_sub(mine);
                    let place = state.place_of_new(txg, blkid, block.len() as u64);
                    state.put(txg, blkid, block);
                    drop(state);
                    self.count(txg, bytes, place);
                    return Ok(());
                }
            }
            // Not cached: this version is read by snapshots at most from now on, and changed where it lies.
            from_disk = Some(self.read_newest(blkid, Priority::SyncRead, true).await?);
        }
    }

    /// Counts bytes that became dirty, and what the block costs when it is new in its group.
    fn count(&self, txg: Txg, bytes: u64, place: Option<BlockPlace>) {
        // The MOS's are not counted.
        if !self.core.params.properties.is_mos {
            self.core.add_dirty(txg, bytes, place.map_or(0, |place| self.core.cost_of_block(place)));
        }
    }

    /// Makes sure that the indirect blocks above `blkid` can be read, so that damage there fails the writer and not
    /// the sync, and that the sync finds them cached.
    async fn prepare(&self, txg: Txg, blkid: u64) -> Result<()> {
        let tree = {
            let state = self.state.lock();
            self.check_reach(&state, blkid)?;
            if blkid > 0 && !state.block_size.is_power_of_two() {
                return Err(ZioError::Invalid(format!(
                    "object {}: block {blkid} while the block size is {}",
                    self.object(),
                    state.block_size
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
        match self.core.reader(self.object(), Priority::SyncRead).resolve(&tree, blkid).await {
            // The tree was replaced meanwhile: the sync that did it had the blocks in hand.
            Err(error) if Arc::ptr_eq(&tree, &self.state.lock().disk) => Err(error),
            _ => Ok(()),
        }
    }

    /// Enters the object in `txg`'s list when this is its first change there.
    fn dirty_slot(&self, state: &mut State, txg: Txg) -> Result<()> {
        self.core.check_writable()?;
        if state.freed {
            return Err(ZioError::NotFound(format!("object {}", self.object())));
        }
        self.enter(state, txg);
        Ok(())
    }

    /// Fails when no tree with indirect blocks of this size can hold block `blkid`.
    fn check_reach(&self, state: &State, blkid: u64) -> Result<()> {
        if blkid > state.max_blkid && levels_of(&state.disk, blkid) > MAX_LEVELS {
            return Err(ZioError::Invalid(format!("object {} cannot have a block {blkid}", self.object())));
        }
        Ok(())
    }

    /// As [`Self::dirty_slot`], without its checks.
    pub(crate) fn enter(&self, state: &mut State, txg: Txg) {
        let (_, made) = state.slot(txg);
        if made && self.object().is_some() {
            let this = self.this.upgrade().expect("a method runs on a live object");
            self.core.register_dirty(txg, this);
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
            Newest::Disk => match self.core.reader(self.object(), Priority::SyncRead).resolve(&tree, blkid).await {
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
        let (vanished, most) = {
            let mut state = self.state.lock();
            self.dirty_slot(&mut state, tx.txg())?;
            let (used, size) = (state.disk.used_bytes(), u64::from(state.block_size));
            let edges = state.places_of_edges(first, last).map(|edge| self.core.cost_of_parents(edge)).sum::<u64>();
            let most = edges + self.core.cost_of_freeing(used, size);
            let vanished = state.free(tx.txg(), first, last);
            if !shrink && state.max_blkid < max_blkid {
                // A hole punched at the end: the object keeps its length.
                state.max_blkid = max_blkid;
                state.slot(tx.txg()).0.max_blkid = Some(max_blkid);
            }
            (vanished, most)
        };
        self.core.promise(tx.txg(), most);
        self.core.remove_dirty(tx.txg(), vanished);
        Ok(())
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
            let (_, tree) = self.read_newest(0, Priority::SyncRead, false).await?;
            let Some(tree) = tree else { break false };
            match self.core.reader(self.object(), Priority::SyncRead).resolve(&tree, 0).await {
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
                self.object(),
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
        let place = BlockPlace {
            object_type: state.object_type,
            size: u64::from(size),
            blkid: 0,
            max_blkid: 0,
            indirect_shift: state.disk.indirect_shift,
            new_parents: 0,
            grown: 0,
        };
        drop(state);
        self.count(txg, grown, (grown > 0).then_some(place));
        Ok(())
    }

    /// Replaces the bonus with `bytes` (its new length) of type `bonus_type`.
    ///
    /// # Errors
    /// The bonus does not fit beside the pointers and the spill pointer.
    pub fn set_bonus(&self, tx: &Tx, bonus_type: ObjectType, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let capacity =
            platter_ondisk::dnode::bonus_capacity(state.disk.slots(), state.disk.blkptrs.len(), state.has_spill);
        if bytes.len() > capacity {
            return Err(ZioError::Invalid(format!(
                "object {}: a bonus of {} bytes where {capacity} fit",
                self.object(),
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

    /// Changes bytes of the bonus where they lie, if `change` finds that it can, and says whether it could. Also
    /// `false` when a later group changed the bonus already.
    ///
    /// # Errors
    /// Read-only object set, freed object.
    pub fn change_bonus(&self, tx: &Tx, change: impl FnOnce(&mut [u8]) -> bool) -> Result<bool> {
        let txg = tx.txg();
        let mut state = self.state.lock();
        self.dirty_slot(&mut state, txg)?;
        if state.slots.iter().flatten().any(|slot| slot.txg > txg && slot.bonus.is_some()) {
            return Ok(false);
        }
        // Its reference would have the bytes copied.
        let before = state.slot(txg).0.bonus.take();
        let is_changed = change(Arc::make_mut(&mut state.bonus));
        let now = if is_changed { Some((state.bonus_type, state.bonus.clone())) } else { before };
        state.slot(txg).0.bonus = now;
        Ok(is_changed)
    }

    /// Changes what the object holds, for an object that so far only used its bonus (`dmu_object_zapify`).
    ///
    /// # Errors
    /// Read-only object set, freed object.
    pub fn set_object_type(&self, tx: &Tx, object_type: ObjectType) -> Result<()> {
        let mut state = self.state.lock();
        self.dirty_slot(&mut state, tx.txg())?;
        state.object_type = object_type;
        for slot in state.slots.iter_mut().flatten().filter(|slot| slot.txg == tx.txg()) {
            slot.object_type = Some(object_type);
        }
        Ok(())
    }

    /// Replaces or removes the spill block (`Some`: length a multiple of 512, at most 128 KiB).
    ///
    /// # Errors
    /// A bad length; the bonus leaves no room for the spill pointer.
    pub fn set_spill(&self, tx: &Tx, data: Option<Buf>) -> Result<()> {
        let mut state = self.state.lock();
        if let Some(data) = &data {
            if data.is_empty() || data.len() > SPILL_SIZE_MAX || !(data.len() as u64).is_multiple_of(SECTOR) {
                return Err(ZioError::Invalid(format!(
                    "object {}: a spill block of {} bytes",
                    self.object(),
                    data.len()
                )));
            }
            let (slots, pointers) = (state.disk.slots(), state.disk.blkptrs.len());
            if state.bonus.len() > platter_ondisk::dnode::bonus_capacity(slots, pointers, true)
                || state.bonus_type == ObjectType::NONE
            {
                return Err(ZioError::Invalid(format!(
                    "object {}: a bonus of {} bytes leaves no room for a spill pointer",
                    self.object(),
                    state.bonus.len()
                )));
            }
        }
        self.dirty_slot(&mut state, tx.txg())?;
        if let Some(data) = &data {
            self.core.promise(tx.txg(), self.core.cost_of_spill(data.len() as u64));
        }
        state.has_spill = data.is_some();
        for slot in state.slots.iter_mut().flatten() {
            if slot.txg == tx.txg() || slot.txg > tx.txg() && slot.spill.is_some() {
                slot.spill = Some(data.clone());
            }
        }
        Ok(())
    }

    /// Enters the object among what `tx`'s group changes, without changing it: its dnode is written anew.
    ///
    /// # Errors
    /// Read-only object set, freed object.
    pub fn touch(&self, tx: &Tx) -> Result<()> {
        self.dirty_slot(&mut self.state.lock(), tx.txg())
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
            let (used, size) = (state.disk.used_bytes(), u64::from(state.block_size));
            self.core.promise(txg, self.core.cost_of_freeing(used, size));
        }
        self.core.remove_dirty(txg, vanished);
        Ok(())
    }
}
