//! Giving out object numbers: new objects, freed ones, and finding those there are (`module/zfs/dmu_object.c`).

use std::sync::Arc;

use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::dnode::{DNODE_SIZE, MAX_BLKPTRS, MAX_OBJECT, MAX_SLOTS, MIN_INDIRECT_SHIFT, bonus_capacity};
use platter_ondisk::sector::SECTOR;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjectType};
use platter_zio::{Priority, Result, SpaceMet, Tx, ZioError};

use crate::blocktree::shl;
use crate::contents::check_block_size;
use crate::core::Dnode;
use crate::new_dnode::{NewDnode, new_phys};
use crate::numbers::{self, PER_BLOCK};
use crate::objset::{Cursor, Objset};

impl Objset {
    /// Slots taken in dnode block `block`, one bit each.
    async fn taken(&self, block: u64) -> Result<u32> {
        // Memory first: an object that a sync moves from there to the block meanwhile is seen at least once.
        let known = self.numbers.lock().mask(block);
        let on_disk = numbers::block_mask(&self.meta.read_block(block, Priority::SyncRead).await?);
        Ok(known | on_disk | u32::from(block == 0))
    }

    /// Allocates an object at a free number.
    ///
    /// # Errors
    /// No number left; contents that do not fit a dnode; unreadable dnode blocks.
    pub async fn allocate(self: &Arc<Self>, tx: &Tx, new: NewDnode) -> Result<Arc<Dnode>> {
        let (phys, slots) = self.describe(&new)?;
        let mut cursor = self.allocator.lock().await;
        loop {
            let block = cursor.block;
            let taken = match cursor.taken {
                Some(taken) => taken,
                None => self.taken(block).await?,
            };
            if let Some(at) = numbers::free_run(taken, slots) {
                cursor.taken = Some(taken | numbers::run_mask(at, slots));
                return self.install(tx, ObjectId(block * PER_BLOCK + u64::from(at)), phys);
            }
            *cursor = Cursor { block: self.next_block_with_room(block, slots).await?, taken: None };
        }
    }

    /// Where to look for room after `block` was found full.
    async fn next_block_with_room(&self, block: u64, slots: u8) -> Result<u64> {
        if let Some(sparse) = self.numbers.lock().sparse.pop_first() {
            return Ok(sparse);
        }
        let epbs = self.meta.phys().pointers_per_indirect_shift();
        // Fill counts say how many dnodes lie below a pointer. With dnodes of one size that tells exactly where there
        // is room; mixed sizes can hide some, and then the end of the meta-dnode serves.
        let room = |level: u8, bp: &BlkPtr| {
            bp.fill().saturating_mul(u64::from(slots)) < shl(PER_BLOCK, u32::from(level) * epbs)
        };
        let last = MAX_OBJECT / PER_BLOCK - 1;
        let found = loop {
            let tree = self.meta.phys();
            match self.core.reader(ObjectId(0), Priority::SyncRead).find(&tree, block + 1, last, room).await {
                // A sync replaced the tree meanwhile.
                Err(_) if !Arc::ptr_eq(&tree, &self.meta.phys()) => {}
                other => break other?,
            }
        };
        // A flat meta-dnode (MOS) is searched no further than its pointers reach; past them all is free.
        let beyond = self.meta.state.lock().max_blkid.max(block) + 1;
        found.or(Some(beyond)).filter(|&block| block <= last).ok_or(ZioError::NoSpace)
    }

    /// Allocates the object with this very number.
    ///
    /// # Errors
    /// [`ZioError::Exists`] when it (or a slot that it needs) is taken, or was freed in a group not yet synced.
    pub async fn claim(self: &Arc<Self>, tx: &Tx, object: ObjectId, new: NewDnode) -> Result<Arc<Dnode>> {
        let (phys, slots) = self.describe(&new)?;
        let at = (object.0 % PER_BLOCK) as u32;
        if !object.is_some() || object.0 >= MAX_OBJECT || u64::from(at) + u64::from(slots) > PER_BLOCK {
            return Err(ZioError::Invalid(format!("object number {object} for a dnode of {slots} slots")));
        }
        let mut cursor = self.allocator.lock().await;
        let wanted = numbers::run_mask(at, slots);
        if self.taken(object.0 / PER_BLOCK).await? & wanted != 0 {
            return Err(ZioError::Exists(format!("object {object}")));
        }
        if cursor.block == object.0 / PER_BLOCK {
            cursor.taken = cursor.taken.map(|taken| taken | wanted);
        }
        self.install(tx, object, phys)
    }

    /// The dnode that `new` asks for, and its slots.
    fn describe(&self, new: &NewDnode) -> Result<(DnodePhys, u8)> {
        self.core.check_writable()?;
        let size = new.dnode_size;
        let slots = (size as usize).div_ceil(DNODE_SIZE).max(1);
        if slots > MAX_SLOTS {
            return Err(ZioError::Invalid(format!("a dnode of {size} bytes")));
        }
        let block_size = new.block_size.max(SECTOR as u32).next_multiple_of(SECTOR as u32);
        check_block_size(block_size)?;
        if new.bonus_type == ObjectType::NONE && new.bonus_length > 0 {
            return Err(ZioError::Invalid(format!("a bonus of {} bytes without a type", new.bonus_length)));
        }
        if new.object_type == ObjectType::NONE {
            return Err(ZioError::Invalid("an object of type NONE".into()));
        }
        let capacity = bonus_capacity(slots, 1, false);
        let bonus_length = usize::from(new.bonus_length);
        if bonus_length > capacity {
            return Err(ZioError::Invalid(format!("a bonus of {bonus_length} bytes where {capacity} fit")));
        }
        // Room that the bonus leaves is used for pointers; system attributes may grow, so they get it all.
        let pointers = if new.bonus_type == ObjectType::SA {
            1
        } else {
            (1 + (capacity - bonus_length) / BLKPTR_SIZE).min(MAX_BLKPTRS)
        };
        let shift_max = self.core.properties.read().format.indirect_shift_max;
        let indirect_shift = new.indirect_shift.clamp(MIN_INDIRECT_SHIFT, shift_max);
        let mut phys = new_phys(new.object_type, block_size, indirect_shift, pointers, slots);
        phys.bonus_type = new.bonus_type;
        phys.bonus_length = new.bonus_length;
        phys.bonus = vec![0; bonus_length];
        Ok((phys, slots as u8))
    }

    /// Makes the object known under its number; the allocator's lock is held.
    fn install(&self, tx: &Tx, object: ObjectId, phys: DnodePhys) -> Result<Arc<Dnode>> {
        self.numbers.lock().pending.insert(object.0, phys.slots() as u8);
        let dnode = Dnode::new(&self.core, object, phys, false);
        let evicted = self.cache.lock().insert(object.0, dnode.clone());
        drop(evicted);
        let mut state = dnode.state.lock();
        dnode.enter(&mut state, tx.txg());
        state.slot(tx.txg()).0.allocated = true;
        drop(state);
        Ok(dnode)
    }

    /// Frees an object with all its blocks.
    ///
    /// # Errors
    /// [`ZioError::NotFound`] when it is not allocated.
    pub async fn free_object(self: &Arc<Self>, tx: &Tx, object: ObjectId) -> Result<()> {
        let dnode = self.dnode(object).await?;
        let slots = dnode.phys().slots() as u8;
        // Entered first: between the two nobody may take the number for free.
        self.numbers.lock().freed.insert(object.0, slots);
        let marked = dnode.mark_freed(tx);
        if marked.is_err() && !dnode.is_freed() {
            self.numbers.lock().freed.remove(object.0, slots);
        }
        marked
    }

    /// The next allocated object after `after`, or `None`.
    ///
    /// # Errors
    /// Unreadable dnode blocks.
    pub async fn next_object(self: &Arc<Self>, after: ObjectId) -> Result<Option<ObjectId>> {
        let mut next = after.0.saturating_add(1);
        let empty = SpaceMet::lenient();
        while next < MAX_OBJECT {
            let block = next / PER_BLOCK;
            let (pending, freed) = {
                let numbers = self.numbers.lock();
                (numbers.pending.slots(block).first, numbers.freed.slots(block).first)
            };
            let dnodes = self.meta.read_block(block, Priority::SyncRead).await?;
            let on_disk = numbers::dnode_slots(&dnodes).fold(0, |mask, (slot, _)| mask | 1u32 << slot);
            let wanted = (on_disk | pending) & !freed & u32::MAX << (next % PER_BLOCK);
            if wanted != 0 {
                return Ok(Some(ObjectId(block * PER_BLOCK + u64::from(wanted.trailing_zeros()))));
            }
            next = (block + 1) * PER_BLOCK;
            // A block without an object is a hole unless its tree is damaged; then a few may stand for any number.
            if !empty.add(SECTOR, || self.core.store().space_used()) {
                let what = format!("the dnode blocks after object {after} are empty, and more than the pool holds");
                return Err(ZioError::corrupt("object set", what));
            }
            // The next dnode block that is there: on disk, being synced, or only in memory.
            let (tree, dirty) = {
                let state = self.meta.state.lock();
                (state.disk.clone(), state.next_dirty(block + 1))
            };
            let pending = self.numbers.lock().pending.next_block(block + 1);
            let reader = self.core.reader(ObjectId(0), Priority::SyncRead);
            let on_disk = match reader.find(&tree, block + 1, tree.max_blkid, |_, bp| !bp.is_hole()).await {
                // A sync replaced the tree meanwhile.
                Err(_) if !Arc::ptr_eq(&tree, &self.meta.phys()) => continue,
                other => other?,
            };
            match on_disk.into_iter().chain(dirty).chain(pending).min() {
                Some(block) => next = next.max(block * PER_BLOCK),
                None => return Ok(None),
            }
        }
        Ok(None)
    }
}
