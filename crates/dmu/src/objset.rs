//! An object set: the meta-dnode and all objects in it (`module/zfs/dmu_objset.c`, `module/zfs/dmu_object.c`).
//!
//! Space totals per user, group and project are kept by [`crate::userused`]. An object set that carries them and cannot
//! keep them (its pool lacks the feature) loses its "complete" flags with the first change, so that they are recounted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use platter_ondisk::blkptr::SECTOR;
use platter_ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_SIZE, MAX_BLKPTRS, MAX_INDIRECT_SHIFT, MAX_OBJECT, MAX_SLOTS};
use platter_ondisk::types::object_type;
use platter_ondisk::zil::ZilHeader;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjsetPhys, Txg};
use platter_zio::{BlockStore, Bookmark, Needs, Priority, Result, SpaceAccounting, SpaceMet, Tx, TxgGate, ZioError};

use crate::blocktree::{levels_for, shl};
use crate::cache::DnodeCache;
use crate::core::{Core, new_phys};
use crate::dirty::{TXG_SLOTS, slot_of};
use crate::dnode::{Dnode, NewDnode, check_block_size, is_special};
use crate::number_sets::NumberSets;
use crate::numbers::{self, Numbers, PER_BLOCK};
use crate::userused::{self, Totals, UserAccounting};

/// How blocks of this object set are written; from the dataset's properties, already resolved (no "inherit"/"on").
#[derive(Clone, Debug)]
pub struct WriteProperties {
    /// `enum zio_checksum` for data (7 = fletcher4, 8 = sha256).
    pub checksum: u8,
    /// `enum zio_compress` for data (2 = off, 15 = lz4).
    pub compression: u8,
    /// Level for gzip/zstd.
    pub compression_level: i32,
    /// Data copies, 1..=3.
    pub copies: u8,
    /// Data block size in bytes for new files.
    pub record_size: u32,
    /// Copies of metadata blocks to add to `copies` (1: two copies for datasets; the MOS uses 3 in all).
    pub is_mos: bool,
    /// Whether embedded block pointers may be written (feature `embedded_data`).
    pub embedded_data: bool,
    /// Dnode size of new files and directories, in bytes (512 = legacy). An object takes it only when asked to: the
    /// master node and all else that a file system keeps for itself have the smallest.
    pub dnode_size: u32,
    /// Which metadata gets a copy more than data.
    pub redundant_metadata: RedundantMetadata,
    /// Which totals are kept.
    pub accounting: UserAccounting,
    /// What the pool's version and features let the structures themselves be.
    pub format: Format,
}

/// What the pool's version and features let an object set's own structures be; the default is the present format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// `enum zio_compress` for metadata, and what "on" means for data: 15 (lz4), or 3 (lzjb) where the pool lacks the
    /// feature `lz4_compress`.
    pub compression: u8,
    /// log2 of the largest indirect block of a new object: 17, or 14 for software from before feature flags.
    pub indirect_shift_max: u8,
    /// Size of a new object set's head, in bytes.
    pub head_size: usize,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            compression: platter_ondisk::types::compression::LZ4,
            indirect_shift_max: MAX_INDIRECT_SHIFT,
            head_size: platter_ondisk::objset::OBJSET_PHYS_SIZE_V3,
        }
    }
}

/// Property `redundant_metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// All metadata.
    #[default]
    All,
    /// All but the lowest indirect blocks of files.
    Most,
    /// Only what many files depend on.
    Some,
    /// None.
    None,
}

/// What an object set needs from its surroundings.
#[derive(Clone)]
pub struct ObjsetParams {
    /// The pool's blocks.
    pub store: Arc<dyn BlockStore>,
    /// Where births and deaths are booked.
    pub accounting: Arc<dyn SpaceAccounting>,
    /// Transaction groups.
    pub gate: Arc<TxgGate>,
    /// Dataset object number in the MOS (0 for the MOS itself); the objset part of bookmarks.
    pub id: ObjectId,
    /// Initial write properties.
    pub properties: WriteProperties,
    /// Whether changes are refused.
    pub read_only: bool,
}

/// An open object set.
pub struct Objset {
    pub(crate) core: Arc<Core>,
    /// Object 0: its blocks hold the dnodes. Only the sync writes to it.
    pub(crate) meta: Arc<Dnode>,
    pub(crate) head: RwLock<Head>,
    /// Groups in which the head itself (intent log header, creation) was changed.
    pub(crate) head_dirty: Mutex<[bool; TXG_SLOTS]>,
    pub(crate) cache: Mutex<DnodeCache>,
    pub(crate) numbers: Mutex<Numbers>,
    pub(crate) sets: NumberSets,
    /// The ZAPs with the totals per user, group and project.
    pub(crate) special: Mutex<[Option<Arc<Dnode>>; 3]>,
    /// The totals of projects are being counted for the first time.
    pub(crate) recount: Mutex<Option<userused::Recount>>,
    /// The count of what is not in the totals yet.
    pub(crate) counting: userused::Counting,
    allocator: tokio::sync::Mutex<Cursor>,
    /// Counts changes of dnode blocks, so that a dnode is not made from an outdated block.
    pub(crate) generation: AtomicU64,
}

impl Drop for Objset {
    /// What nobody will write any more (the pool was stopped) is let go: changed objects and their object set hold
    /// each other.
    fn drop(&mut self) {
        self.core.forget_dirty();
    }
}

/// The object set's own block and where it stands.
pub(crate) struct Head {
    pub(crate) root: BlkPtr,
    pub(crate) phys: ObjsetPhys,
}

/// Where the next object is allocated.
#[derive(Default)]
struct Cursor {
    /// The dnode block.
    block: u64,
    /// Its slots that are taken, one bit each, and perhaps some that were freed since it was looked at; `None` before.
    taken: Option<u32>,
}

impl Objset {
    fn assemble(params: ObjsetParams, root: BlkPtr, phys: ObjsetPhys) -> Arc<Self> {
        let core = Core::new(params);
        let meta = Dnode::new(&core, ObjectId(0), phys.meta_dnode.clone(), !root.is_hole());
        let stored = [&phys.userused, &phys.groupused, &phys.projectused];
        let mut special = [const { None }; 3];
        for ((place, phys), totals) in special.iter_mut().zip(stored).zip(Totals::ALL) {
            *place = phys.as_ref().map(|phys| Dnode::new(&core, totals.object(), phys.clone(), true));
        }
        let this = Arc::new(Self {
            core: core.clone(),
            meta,
            head: RwLock::new(Head { root, phys }),
            head_dirty: Mutex::default(),
            cache: Mutex::default(),
            numbers: Mutex::default(),
            sets: NumberSets::default(),
            special: Mutex::new(special),
            recount: Mutex::default(),
            counting: userused::Counting::default(),
            allocator: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
        });
        core.objset.set(Arc::downgrade(&this)).expect("set once, here");
        this
    }

    /// Opens the object set whose root block is `root`.
    ///
    /// # Errors
    /// Damage, unreadable blocks; it is encrypted.
    pub async fn open(params: ObjsetParams, root: BlkPtr) -> Result<Arc<Self>> {
        let bookmark = Bookmark { objset: params.id, object: ObjectId(0), level: -1, blkid: 0 };
        if root.is_hole() {
            return Err(ZioError::corrupt("object set", format!("{bookmark}: its root pointer is a hole")));
        }
        if root.is_protected() {
            return Err(ZioError::Invalid(format!(
                "object set {} is encrypted: this version cannot read it",
                params.id
            )));
        }
        let block = match params.store.read_cached(&root) {
            Some(block) => block,
            None => params.store.read(&root, bookmark, Priority::SyncRead).await?,
        };
        let phys =
            ObjsetPhys::decode(&block).map_err(|e| ZioError::corrupt("object set", format!("{bookmark}: {e}")))?;
        let meta = &phys.meta_dnode;
        if meta.object_type != object_type::DNODE || meta.data_block_size() != DNODE_BLOCK_SIZE as u64 {
            return Err(ZioError::corrupt(
                "meta-dnode",
                format!("{bookmark}: type {}, blocks of {} bytes", meta.object_type, meta.data_block_size()),
            ));
        }
        Ok(Self::assemble(params, root, phys))
    }

    /// A new, empty object set of `kind` (`dmu_objset_type_t`: 1 meta, 2 ZFS), dirty in `tx`'s group.
    pub fn create(params: ObjsetParams, kind: u64, tx: &Tx) -> Arc<Self> {
        let format = params.properties.format;
        let shift = format.indirect_shift_max;
        let mut meta = new_phys(object_type::DNODE, DNODE_BLOCK_SIZE as u32, shift, MAX_BLKPTRS, 1);
        if !params.properties.is_mos {
            // As high as it will ever be: in a file system the meta-dnode never grows levels (the MOS, which is synced
            // in several passes, starts flat to keep those short).
            meta.levels = levels_for(MAX_OBJECT / PER_BLOCK - 1, MAX_BLKPTRS, meta.pointers_per_indirect_shift());
        }
        let mut head = ObjsetPhys { size: format.head_size, ..ObjsetPhys::new(kind, meta) };
        // There is nothing to count yet.
        head.flags = userused::complete_flags(userused::possible(params.properties.accounting, kind, head.size));
        let this = Self::assemble(params, BlkPtr::HOLE, head);
        this.head_dirty.lock()[slot_of(tx.txg())] = true;
        this
    }

    /// The surroundings it was opened with.
    pub fn params(&self) -> &ObjsetParams {
        &self.core.params
    }

    /// `dmu_objset_type_t`.
    pub fn kind(&self) -> u64 {
        self.head.read().phys.object_set_type
    }

    /// The object set's head as of the last sync.
    pub fn phys(&self) -> ObjsetPhys {
        self.head.read().phys.clone()
    }

    /// The current write properties.
    pub fn properties(&self) -> WriteProperties {
        self.core.properties.read().clone()
    }

    /// Changes how later blocks are written.
    pub fn set_properties(&self, properties: WriteProperties) {
        *self.core.properties.write() = properties;
    }

    /// Whether new holes remember their birth (they do unless told otherwise): only with feature `hole_birth`.
    pub fn set_hole_birth(&self, enabled: bool) {
        self.core.hole_birth.store(enabled, Ordering::Relaxed);
    }

    /// The root pointer of the last synced state (a hole before the first sync).
    pub fn root(&self) -> BlkPtr {
        self.head.read().root
    }

    /// The intent log's header.
    pub fn zil_header(&self) -> ZilHeader {
        self.head.read().phys.zil()
    }

    /// Replaces the intent log's header in `tx`'s group.
    ///
    /// # Errors
    /// Read-only object sets.
    pub fn set_zil_header(&self, tx: &Tx, header: &ZilHeader) -> Result<()> {
        self.core.check_writable()?;
        self.head.write().phys.set_zil(header);
        self.head_dirty.lock()[slot_of(tx.txg())] = true;
        Ok(())
    }

    /// Makes the head part of `tx`'s group, so that it is looked at when the group is synced.
    ///
    /// # Errors
    /// Read-only object sets.
    pub fn touch_head(&self, tx: &Tx) -> Result<()> {
        self.core.check_writable()?;
        self.head_dirty.lock()[slot_of(tx.txg())] = true;
        Ok(())
    }

    /// The object `object`.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::NotFound`] when it is not allocated.
    pub async fn dnode(self: &Arc<Self>, object: ObjectId) -> Result<Arc<Dnode>> {
        let absent = || ZioError::NotFound(format!("object {object} in object set {}", self.core.params.id));
        let (cached, evicted) = self.cache.lock().get(object.0);
        drop(evicted);
        if let Some(dnode) = cached {
            return if dnode.is_freed() { Err(absent()) } else { Ok(dnode) };
        }
        if is_special(object) {
            return self.special(object).ok_or_else(absent);
        }
        if !object.is_some() || object.0 >= MAX_OBJECT {
            return Err(absent());
        }
        loop {
            let generation = self.generation.load(Ordering::Acquire);
            let blkid = object.0 / PER_BLOCK;
            let block = self.meta.read_metadata(blkid).await?;
            if let Some(opened) = self.open_dnode(object, generation, &block) {
                return opened?.ok_or_else(absent);
            }
        }
    }

    /// As [`Self::dnode`] when memory has it: nothing is waited for.
    pub fn dnode_now(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        let (cached, evicted) = self.cache.lock().get(object.0);
        drop(evicted);
        if cached.is_some() {
            return cached.filter(|dnode| !dnode.is_freed());
        }
        if is_special(object) || !object.is_some() || object.0 >= MAX_OBJECT {
            return None;
        }
        let generation = self.generation.load(Ordering::Acquire);
        let block = self.meta.read_block_now(object.0 / PER_BLOCK)?;
        self.open_dnode(object, generation, &block)?.ok().flatten()
    }

    /// The dnode of an object that nobody uses, without opening it, when memory has its block: for a look at attributes
    /// that will not be asked for again soon. `None` as well when somebody uses it, as only he knows what has changed.
    pub fn dnode_at_rest(&self, object: ObjectId) -> Option<DnodePhys> {
        if is_special(object) || !object.is_some() || object.0 >= MAX_OBJECT || self.cache.lock().has(object.0) {
            return None;
        }
        let generation = self.generation.load(Ordering::Acquire);
        let block = self.meta.read_block_now(object.0 / PER_BLOCK)?;
        let phys = decode_slot(object, &block).ok()??;
        let cache = self.cache.lock();
        let is_at_rest = !cache.has(object.0) && self.generation.load(Ordering::Acquire) == generation;
        is_at_rest.then_some(phys)
    }

    /// Opens the object in its dnode block, as that was when dnode blocks had this `generation`: the outer `None` says
    /// that they have changed since, the inner one that it is not allocated.
    fn open_dnode(&self, object: ObjectId, generation: u64, block: &[u8]) -> Option<Result<Option<Arc<Dnode>>>> {
        let phys = match decode_slot(object, block) {
            Ok(phys) => phys,
            Err(error) => return Some(Err(error)),
        };
        let mut cache = self.cache.lock();
        if self.generation.load(Ordering::Acquire) != generation {
            return None;
        }
        let (found, mut evicted) = cache.get(object.0);
        let dnode = match (found, phys) {
            (Some(dnode), _) => (!dnode.is_freed()).then_some(dnode),
            (None, None) => None,
            (None, Some(phys)) => {
                let dnode = Dnode::new(&self.core, object, phys, true);
                evicted = cache.insert(object.0, dnode.clone());
                Some(dnode)
            }
        };
        drop(cache);
        drop(evicted);
        Some(Ok(dnode))
    }

    /// One of the dnodes in the head: user, group or project totals (`DMU_USERUSED_OBJECT` and so on). Only the sync
    /// changes them.
    fn special(&self, object: ObjectId) -> Option<Arc<Dnode>> {
        Totals::of(object).and_then(|totals| self.special.lock()[totals as usize].clone())
    }

    /// Sets flags of the head in `tx`'s group.
    pub(crate) fn mark_complete(&self, tx: &Tx, flags: u64) {
        self.head.write().phys.flags |= flags;
        self.head_dirty.lock()[slot_of(tx.txg())] = true;
    }

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
        let block_size = new.block_size.max(512).next_multiple_of(512);
        check_block_size(block_size)?;
        if new.bonus_type == object_type::NONE && new.bonus_length > 0 {
            return Err(ZioError::Invalid(format!("a bonus of {} bytes without a type", new.bonus_length)));
        }
        if new.object_type == object_type::NONE {
            return Err(ZioError::Invalid("an object of type NONE".into()));
        }
        let capacity = platter_ondisk::dnode::bonus_capacity(slots, 1, false);
        let bonus_length = usize::from(new.bonus_length);
        if bonus_length > capacity {
            return Err(ZioError::Invalid(format!("a bonus of {bonus_length} bytes where {capacity} fit")));
        }
        // Room that the bonus leaves is used for pointers; system attributes may grow, so they get it all.
        let pointers = if new.bonus_type == object_type::SA {
            1
        } else {
            (1 + (capacity - bonus_length) / platter_ondisk::blkptr::BLKPTR_SIZE).min(MAX_BLKPTRS)
        };
        let shift_max = self.core.properties.read().format.indirect_shift_max;
        let indirect_shift = new.indirect_shift.clamp(platter_ondisk::dnode::MIN_INDIRECT_SHIFT, shift_max);
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

    /// Number of allocated objects as of the last sync (from the meta-dnode's fill count).
    pub fn object_count(&self) -> u64 {
        self.head.read().phys.meta_dnode.blkptrs.iter().map(BlkPtr::fill).fold(0, u64::saturating_add)
    }

    /// Joins the open transaction group (throttled), for a change of names or attributes.
    ///
    /// # Errors
    /// The pool stopped or is full, or the object set is read-only.
    pub async fn begin(&self) -> Result<Tx> {
        self.begin_writing(0..0, 0).await
    }

    /// As [`begin`](Self::begin), for one that also writes these bytes of an object in blocks of `block_size`.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub async fn begin_writing(&self, bytes: Range<u64>, block_size: u32) -> Result<Tx> {
        self.core.check_writable()?;
        let block_size = u64::from(block_size);
        let memory = match bytes.end.saturating_sub(bytes.start) {
            0 => 0,
            _ => (bytes.end.div_ceil(block_size.max(1)) - bytes.start / block_size.max(1)) * block_size,
        };
        let disk = self.core.cost_of_operation(bytes.end.saturating_sub(bytes.start), block_size);
        self.core.params.gate.begin_for(Needs { disk, memory }).await
    }

    /// How many of `bytes` one transaction should write in blocks of `block_size`, so that there is room for it: less
    /// than all of them only when the pool is nearly full, and at least a block.
    pub fn bytes_at_once(&self, bytes: u64, block_size: u32) -> u64 {
        let (share, block_size) = (self.core.params.gate.share(), u64::from(block_size).max(512));
        let mut at_once = bytes;
        while at_once > block_size && self.core.cost_of_operation(at_once, block_size) > share {
            at_once = (at_once / 2).next_multiple_of(block_size);
        }
        at_once.min(bytes)
    }

    /// Joins the open group for a change that frees more than it writes; works on a full pool.
    ///
    /// # Errors
    /// [`platter_zio::ZioError::Suspended`] once the pool stopped.
    pub async fn begin_net_free(&self) -> Result<Tx> {
        self.params().gate.begin_net_free(self.core.cost_of_operation(0, 0)).await
    }

    /// Promises group `txg` space for a block of the intent log of `bytes`; `false` when there is none to spare.
    pub fn promise_log(&self, txg: Txg, bytes: u64) -> bool {
        self.params().gate.promise_log(txg, self.params().store.most_space(bytes))
    }

    /// Whether anything was changed in `txg` and not yet synced.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.core.any_dirty(txg) || self.head_dirty.lock()[slot_of(txg)] || self.sets.is_changed(txg)
    }

    /// Whether anything was changed in some group and not yet synced.
    pub fn has_changes(&self) -> bool {
        (0..TXG_SLOTS as u64).any(|slot| self.is_dirty(Txg(slot)))
    }

    /// Bytes written in memory by all groups that are not synced yet, those overwritten or freed since included.
    pub fn unsynced_bytes(&self) -> u64 {
        self.core.unsynced_bytes()
    }

    /// Sync context: writes everything changed in `txg` and returns the new root pointer. May be called again for the
    /// same group in a later pass when more was dirtied (the MOS converges that way). `pass` starts at 1.
    ///
    /// # Errors
    /// A block could not be written, or one needed to build the new tree not be read: the pool must stop, and what
    /// was dirty stays readable in memory.
    pub async fn sync(self: &Arc<Self>, txg: Txg, pass: u32) -> Result<BlkPtr> {
        crate::sync::sync(self, txg, pass).await
    }
}

impl std::fmt::Debug for Objset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "object set {}", self.core.params.id)
    }
}
/// The object's dnode in its dnode block; `None` when it is not allocated.
fn decode_slot(object: ObjectId, block: &[u8]) -> Result<Option<DnodePhys>> {
    let slot = (object.0 % PER_BLOCK) as usize;
    match numbers::dnode_slots(block).find(|&(at, _)| at >= slot) {
        Some((at, _)) if at == slot => DnodePhys::decode(&block[slot * DNODE_SIZE..])
            .map_err(|e| ZioError::corrupt("dnode", format!("object {object}: {e}"))),
        _ => Ok(None),
    }
}
