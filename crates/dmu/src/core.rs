//! What an object set and its open objects share: the surroundings and the lists of what is dirty.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use parking_lot::{Mutex, RwLock};
use platter_buffer::Buf;
use platter_ondisk::{DnodePhys, ObjectId, Txg};
use platter_zio::{BlockStore, Priority, Result, ZioError};

use crate::blocktree::TreeReader;
use crate::dirty::{TXG_SLOTS, slot_of};
use crate::dnode::Dnode;
use crate::flights::Flights;
use crate::objset::{Objset, ObjsetParams, WriteProperties};

/// What a group changes.
#[derive(Default)]
struct Changed {
    dnodes: Vec<Arc<Dnode>>,
    /// The dnode blocks in which they are.
    blocks: BTreeSet<u64>,
}

/// Shared by an [`Objset`] and its [`Dnode`]s.
pub(crate) struct Core {
    pub(crate) params: ObjsetParams,
    pub(crate) properties: RwLock<WriteProperties>,
    /// Objects changed per group. Holds them in memory.
    dirty: Mutex<[Changed; TXG_SLOTS]>,
    /// Whether holes remember their birth (feature `hole_birth`).
    pub(crate) hole_birth: AtomicBool,
    pub(crate) objset: OnceLock<Weak<Objset>>,
    flights: Flights,
    /// Bytes written in memory per unsynced group.
    unsynced: [AtomicU64; TXG_SLOTS],
}

impl Core {
    pub(crate) fn new(params: ObjsetParams) -> Arc<Self> {
        let properties = RwLock::new(params.properties.clone());
        Arc::new(Self {
            params,
            properties,
            dirty: Mutex::default(),
            hole_birth: AtomicBool::new(true),
            objset: OnceLock::new(),
            flights: Flights::default(),
            unsynced: Default::default(),
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn BlockStore> {
        &self.params.store
    }

    pub(crate) fn reader(&self, object: ObjectId, priority: Priority) -> TreeReader<'_> {
        let flights = Some(&self.flights);
        TreeReader { store: &self.params.store, flights, objset: self.params.id, object, priority }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.params.read_only { Err(ZioError::ReadOnly) } else { Ok(()) }
    }

    /// `dnode` is changed in `txg`, and was not before.
    pub(crate) fn register_dirty(&self, txg: Txg, dnode: Arc<Dnode>) {
        let object = dnode.object();
        // Let go of after the list: the last one to hold it forgets what the list has.
        let objset = self.objset.get().and_then(Weak::upgrade);
        let most = {
            let mut dirty = self.dirty.lock();
            let changed = &mut dirty[slot_of(txg)];
            changed.dnodes.push(dnode);
            objset.as_ref().map_or(0, |objset| self.enter_block(&mut changed.blocks, &objset.meta, object))
        };
        self.promise(txg, most);
    }

    pub(crate) fn forget_dirty(&self) {
        let changed = std::mem::take(&mut *self.dirty.lock());
        drop(changed);
    }

    /// The objects changed in `txg`, in the order in which they are synced.
    pub(crate) fn take_dirty(&self, txg: Txg) -> Vec<Arc<Dnode>> {
        let mut dirty = std::mem::take(&mut self.dirty.lock()[slot_of(txg)]).dnodes;
        dirty.sort_unstable_by_key(|dnode| dnode.object());
        dirty
    }

    pub(crate) fn any_dirty(&self, txg: Txg) -> bool {
        !self.dirty.lock()[slot_of(txg)].dnodes.is_empty()
    }

    /// Counts newly dirtied bytes that cost `most` on disk. The MOS is only changed by the sync itself, whose data
    /// throttles nobody.
    pub(crate) fn add_dirty(&self, txg: Txg, bytes: u64, most: u64) {
        if bytes > 0 && !self.params.properties.is_mos {
            self.unsynced[slot_of(txg)].fetch_add(bytes, Ordering::Relaxed);
            self.params.gate.add_dirty(txg, bytes, most);
        }
    }

    /// Counts what `txg` needs on disk at most, for a change without data.
    pub(crate) fn promise(&self, txg: Txg, most: u64) {
        if most > 0 && !self.params.properties.is_mos {
            self.params.gate.add_dirty(txg, 0, most);
        }
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// Forgets what group `txg` wrote: it is on disk and booked.
    pub(crate) fn forget_unsynced(&self, txg: Txg) {
        self.unsynced[slot_of(txg)].store(0, Ordering::Relaxed);
    }

    /// Takes bytes off the count: they reached the disk.
    pub(crate) fn wrote(&self, txg: Txg, bytes: u64) {
        if bytes > 0 && !self.params.properties.is_mos {
            self.params.gate.wrote(txg, bytes);
        }
    }

    /// Takes bytes off the count: they will never have to reach the disk.
    pub(crate) fn remove_dirty(&self, txg: Txg, bytes: u64) {
        if bytes > 0 && !self.params.properties.is_mos {
            self.params.gate.remove_dirty(txg, bytes);
        }
    }
}

/// A run of zeros of `length` bytes; shares memory up to 1 MiB.
pub(crate) fn zeros(length: usize) -> Buf {
    static ZEROS: LazyLock<Buf> = LazyLock::new(|| Buf::zeroed(1 << 20));
    if length <= ZEROS.len() { ZEROS.slice(..length) } else { Buf::zeroed(length) }
}

/// An empty object's dnode.
pub(crate) fn new_phys(
    object_type: u8,
    block_size: u32,
    indirect_shift: u8,
    pointers: usize,
    slots: usize,
) -> DnodePhys {
    DnodePhys {
        object_type,
        indirect_shift,
        levels: 1,
        bonus_type: 0,
        checksum: 0,
        compression: 0,
        flags: platter_ondisk::dnode::FLAG_USED_BYTES,
        data_block_sectors: (block_size / 512) as u16,
        bonus_length: 0,
        extra_slots: slots as u8 - 1,
        max_blkid: 0,
        used: 0,
        blkptrs: vec![platter_ondisk::BlkPtr::HOLE; pointers],
        bonus: Vec::new(),
        spill: None,
    }
}
