//! An object set: the meta-dnode and all objects in it (`module/zfs/dmu_objset.c`, `module/zfs/dmu_object.c`).
//!
//! Space totals per user, group and project are kept by `userused.rs`. An object set that carries them and cannot
//! keep them (its pool lacks the feature) loses its "complete" flags with the first change, so that they are recounted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use platter_ondisk::dnode::{DNODE_BLOCK_SIZE, DNODE_SIZE, MAX_BLKPTRS, MAX_OBJECT};
use platter_ondisk::zil::ZilHeader;
use platter_ondisk::{BlkPtr, DnodePhys, ObjectId, ObjectType, ObjsetPhys, ObjsetType, Txg};
use platter_zio::{Bookmark, Priority, Result, Tx, ZioError};

use crate::blocktree::levels_for;
use crate::cache::DnodeCache;
use crate::core::{Core, Dnode};
use crate::dirty::{TXG_SLOTS, slot_of};
use crate::new_dnode::new_phys;
use crate::number_sets::NumberSets;
use crate::numbers::{self, Numbers, PER_BLOCK, is_special};
use crate::properties::{ObjsetParams, WriteProperties};
use crate::totals::{Counting, Recount, Totals, complete_flags, possible};

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
    pub(crate) recount: Mutex<Option<Recount>>,
    /// The count of what is not in the totals yet.
    pub(crate) counting: Counting,
    pub(crate) allocator: tokio::sync::Mutex<Cursor>,
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
pub(crate) struct Cursor {
    /// The dnode block.
    pub(crate) block: u64,
    /// Its slots that are taken, one bit each, and perhaps some that were freed since it was looked at; `None` before.
    pub(crate) taken: Option<u32>,
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
            counting: Counting::default(),
            allocator: tokio::sync::Mutex::default(),
            generation: AtomicU64::new(0),
        });
        core.meta.set(Arc::downgrade(&this.meta)).expect("set once, here");
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
        let block = match params.store.cache().get(&root) {
            Some(block) => block,
            None => params.store.read(&root, bookmark, Priority::SyncRead).await?,
        };
        let phys =
            ObjsetPhys::decode(&block).map_err(|e| ZioError::corrupt("object set", format!("{bookmark}: {e}")))?;
        let meta = &phys.meta_dnode;
        if meta.object_type != ObjectType::DNODE || meta.data_block_size() != DNODE_BLOCK_SIZE as u64 {
            return Err(ZioError::corrupt(
                "meta-dnode",
                format!("{bookmark}: type {}, blocks of {} bytes", meta.object_type, meta.data_block_size()),
            ));
        }
        Ok(Self::assemble(params, root, phys))
    }

    /// A new, empty object set of `kind`, dirty in `tx`'s group.
    pub fn create(params: ObjsetParams, kind: ObjsetType, tx: &Tx) -> Arc<Self> {
        let format = params.properties.format;
        let shift = format.indirect_shift_max;
        let mut meta = new_phys(ObjectType::DNODE, DNODE_BLOCK_SIZE as u32, shift, MAX_BLKPTRS, 1);
        if !params.properties.is_mos {
            // As high as it will ever be: in a file system the meta-dnode never grows levels (the MOS, which is synced
            // in several passes, starts flat to keep those short).
            meta.levels = levels_for(MAX_OBJECT / PER_BLOCK - 1, MAX_BLKPTRS, meta.pointers_per_indirect_shift());
        }
        let mut head = ObjsetPhys { size: format.head_size, ..ObjsetPhys::new(kind, meta) };
        // There is nothing to count yet.
        head.flags = complete_flags(possible(params.properties.accounting, kind, head.size));
        let this = Self::assemble(params, BlkPtr::HOLE, head);
        this.head_dirty.lock()[slot_of(tx.txg())] = true;
        this
    }

    /// The surroundings it was opened with.
    pub fn params(&self) -> &ObjsetParams {
        &self.core.params
    }

    /// What it holds.
    pub fn kind(&self) -> ObjsetType {
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

    /// Number of allocated objects as of the last sync (from the meta-dnode's fill count).
    pub fn object_count(&self) -> u64 {
        self.head.read().phys.meta_dnode.blkptrs.iter().map(BlkPtr::fill).fold(0, u64::saturating_add)
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
