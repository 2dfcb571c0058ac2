//! What is in memory of an object set's objects: each [`Dnode`] that is open, and what all of them share, which is the
//! surroundings and the lists of what is dirty. The two name each other, as an object that is changed enters itself in
//! the list and the list keeps it in memory; what they do stands in the files above.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use futures::future::{BoxFuture, WeakShared};
use parking_lot::{Mutex, RwLock};
use platter_buffer::Buf;
use platter_ondisk::{DnodePhys, Dva, ObjectId, Txg};
use platter_zio::{BlockStore, Result, ZioError};
use rustc_hash::FxHashMap;

use crate::dirty::{State, TXG_SLOTS, slot_of};
use crate::neighbours::Neighbours;
use crate::properties::{ObjsetParams, WriteProperties};
use crate::zap_entries::shared::Shared;

/// What a group changes.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) dnodes: Vec<Arc<Dnode>>,
    /// The dnode blocks in which they are.
    pub(crate) blocks: BTreeSet<u64>,
}

/// A block that is being read.
pub(crate) type Flight = BoxFuture<'static, Result<Buf>>;

/// Blocks that are being read.
#[derive(Default)]
pub(crate) struct Flights {
    // Only ever looked up, never walked in an order that matters.
    pub(crate) under_way: FxHashMap<(Dva, Txg), WeakShared<Flight>>,
    /// Entries that the last sweep has left.
    pub(crate) left: usize,
}

/// Shared by an object set and its [`Dnode`]s.
pub(crate) struct Core {
    pub(crate) params: ObjsetParams,
    pub(crate) properties: RwLock<WriteProperties>,
    /// Objects changed per group. Holds them in memory.
    pub(crate) dirty: Mutex<[Changed; TXG_SLOTS]>,
    /// Whether holes remember their birth (feature `hole_birth`).
    pub(crate) hole_birth: AtomicBool,
    /// The object whose blocks hold the dnodes.
    pub(crate) meta: OnceLock<Weak<Dnode>>,
    pub(crate) flights: Mutex<Flights>,
    /// Bytes written in memory per unsynced group.
    unsynced: [AtomicU64; TXG_SLOTS],
    /// The most that each unsynced group needs on disk; counted where it is checked only.
    promised: [AtomicU64; TXG_SLOTS],
}

impl Core {
    pub(crate) fn new(params: ObjsetParams) -> Arc<Self> {
        let properties = RwLock::new(params.properties.clone());
        Arc::new(Self {
            params,
            properties,
            dirty: Mutex::default(),
            hole_birth: AtomicBool::new(true),
            meta: OnceLock::new(),
            flights: Mutex::default(),
            unsynced: Default::default(),
            promised: Default::default(),
        })
    }

    pub(crate) fn store(&self) -> &Arc<dyn BlockStore> {
        &self.params.store
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.params.read_only { Err(ZioError::ReadOnly) } else { Ok(()) }
    }

    /// Counts newly dirtied bytes that cost `most` on disk. The MOS is only changed by the sync itself, whose data
    /// throttles nobody.
    pub(crate) fn add_dirty(&self, txg: Txg, bytes: u64, most: u64) {
        if bytes > 0 && !self.params.properties.is_mos {
            self.unsynced[slot_of(txg)].fetch_add(bytes, Ordering::Relaxed);
            self.note_promised(txg, most);
            self.params.gate.add_dirty(txg, bytes, most);
        }
    }

    /// Counts what `txg` needs on disk at most, for a change without data.
    pub(crate) fn promise(&self, txg: Txg, most: u64) {
        if most > 0 && !self.params.properties.is_mos {
            self.note_promised(txg, most);
            self.params.gate.add_dirty(txg, 0, most);
        }
    }

    fn note_promised(&self, txg: Txg, most: u64) {
        if cfg!(debug_assertions) {
            self.promised[slot_of(txg)].fetch_add(most, Ordering::Relaxed);
        }
    }

    /// What group `txg`, which is being synced, was promised since this was asked last; 0 where nobody counts that.
    pub(crate) fn take_promised(&self, txg: Txg) -> u64 {
        self.promised[slot_of(txg)].swap(0, Ordering::Relaxed)
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

/// An open object.
pub struct Dnode {
    object: ObjectId,
    pub(crate) this: Weak<Dnode>,
    pub(crate) core: Arc<Core>,
    pub(crate) state: Mutex<State>,
    /// What the ZAPs over this object share, when it is one.
    pub(crate) zap: Shared,
    /// Where blocks of metadata were missing.
    pub(crate) neighbours: Mutex<Neighbours>,
}

impl Dnode {
    pub(crate) fn new(core: &Arc<Core>, object: ObjectId, disk: DnodePhys, on_disk: bool) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            object,
            this: this.clone(),
            core: core.clone(),
            state: Mutex::new(State::new(disk, on_disk)),
            zap: Shared::default(),
            neighbours: Mutex::default(),
        })
    }

    /// Its number.
    pub fn object(&self) -> ObjectId {
        self.object
    }
}
