//! The znodes in memory.
//!
//! Invariants:
//! - one slot, and so one [`Znode`], for an object; whoever comes while it is being read waits for it;
//! - a znode leaves the cache only when nobody holds it, it is not open, and everything in it is on stable storage;
//! - there are no more of them than may be kept, those that may not leave, and a few that wait for the next newcomers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use platter_ondisk::{ObjectId, Txg};
use rustc_hash::FxHashMap;
use tokio::sync::OnceCell;

use crate::error::Result;
use crate::shards::{SHARDS, shard_of};
use crate::znode::Znode;

/// Candidates looked at for each newcomer when a shard is full: more than the one that has to go for each, or what
/// piled up while a group was on its way would stay.
const SWEEP: usize = 4;

#[derive(Default)]
struct Slot {
    cell: OnceCell<Arc<Znode>>,
    /// Used since the hand last passed.
    used: AtomicBool,
}

#[derive(Default)]
struct Shard {
    slots: FxHashMap<u64, Arc<Slot>>,
    /// The clock's ring; may name objects that left already.
    ring: VecDeque<u64>,
    /// The group that the ring's first waits for; no candidate is looked at before it is on stable storage.
    waits_for: Txg,
}

/// Znodes by object number.
pub(crate) struct Cache {
    shards: Vec<Mutex<Shard>>,
    shard_max: usize,
}

impl Cache {
    pub fn new(znodes_max: usize) -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), shard_max: (znodes_max / SHARDS).max(4) }
    }

    fn shard(&self, object: ObjectId) -> &Mutex<Shard> {
        &self.shards[shard_of(object)]
    }

    /// The znode of `object`, read by `load` when it is not here. `synced` is the last group on stable storage.
    pub async fn get(
        &self,
        object: ObjectId,
        synced: Txg,
        load: impl Future<Output = Result<Znode>>,
    ) -> Result<Arc<Znode>> {
        let slot = self.slot(object, synced);
        match slot.cell.get_or_try_init(|| async { load.await.map(Arc::new) }).await {
            Ok(znode) => Ok(znode.clone()),
            Err(error) => {
                let mut shard = self.shard(object).lock();
                if shard.slots.get(&object.0).is_some_and(|s| Arc::ptr_eq(s, &slot) && !s.cell.initialized()) {
                    shard.slots.remove(&object.0);
                }
                Err(error)
            }
        }
    }

    /// As [`Self::get`] when `load` can do without waiting, and nobody else is at it.
    pub fn get_now(&self, object: ObjectId, synced: Txg, load: impl FnOnce() -> Option<Znode>) -> Option<Arc<Znode>> {
        let slot = self.slot(object, synced);
        if slot.cell.get().is_none() {
            // Whoever was faster has made the only one there is. A slot without contents is for who comes after us.
            let _ = slot.cell.set(Arc::new(load()?));
        }
        slot.cell.get().cloned()
    }

    /// The znode of `object` when it is here.
    pub fn peek(&self, object: ObjectId) -> Option<Arc<Znode>> {
        let shard = self.shard(object).lock();
        let slot = shard.slots.get(&object.0)?;
        slot.used.store(true, Ordering::Relaxed);
        slot.cell.get().cloned()
    }

    /// Adds a new object's znode.
    pub fn insert(&self, znode: Arc<Znode>, synced: Txg) {
        let object = znode.object;
        let slot = Arc::new(Slot { cell: OnceCell::new_with(Some(znode)), used: AtomicBool::default() });
        let mut shard = self.shard(object).lock();
        self.make_room(&mut shard, synced);
        match shard.slots.insert(object.0, slot) {
            None => shard.ring.push_back(object.0),
            Some(before) => {
                let is_gone = before.cell.get().is_none_or(|znode| znode.state.lock().freed);
                assert!(is_gone, "object {object} has a znode already");
            }
        }
    }

    /// Forgets a freed object. Its number may belong to a new one already, which stays.
    pub fn remove(&self, znode: &Arc<Znode>) {
        let mut shard = self.shard(znode.object).lock();
        if shard.slots.get(&znode.object.0).and_then(|slot| slot.cell.get()).is_some_and(|z| Arc::ptr_eq(z, znode)) {
            shard.slots.remove(&znode.object.0);
        }
    }

    fn slot(&self, object: ObjectId, synced: Txg) -> Arc<Slot> {
        let mut shard = self.shard(object).lock();
        if let Some(slot) = shard.slots.get(&object.0) {
            slot.used.store(true, Ordering::Relaxed);
            return slot.clone();
        }
        self.make_room(&mut shard, synced);
        let slot = Arc::<Slot>::default();
        shard.slots.insert(object.0, slot.clone());
        shard.ring.push_back(object.0);
        slot
    }

    fn make_room(&self, shard: &mut Shard, synced: Txg) {
        if shard.ring.len() < self.shard_max || shard.waits_for > synced {
            return;
        }
        for _ in 0..SWEEP {
            let Some(object) = shard.ring.pop_front() else { return };
            let Some(slot) = shard.slots.get(&object) else { continue };
            if slot.used.swap(false, Ordering::Relaxed) {
                shard.ring.push_back(object);
                continue;
            }
            match holds(slot, synced) {
                Hold::Nothing => _ = shard.slots.remove(&object),
                Hold::Use => shard.ring.push_back(object),
                Hold::Group(txg) => {
                    // Those behind it mostly came later and wait for the same group or the next.
                    shard.ring.push_front(object);
                    shard.waits_for = txg;
                    return;
                }
            }
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    /// All znodes, by object number.
    pub fn all(&self) -> Vec<Arc<Znode>> {
        #[expect(clippy::disallowed_methods, reason = "they are sorted below")]
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| shard.lock().slots.values().filter_map(|s| s.cell.get().cloned()).collect::<Vec<_>>())
            .collect();
        all.sort_by_key(|znode| znode.object);
        all
    }
}

/// What keeps a znode in the cache.
enum Hold {
    Nothing,
    /// Somebody has it.
    Use,
    /// It changed in this group, which is not on stable storage.
    Group(Txg),
}

fn holds(slot: &Arc<Slot>, synced: Txg) -> Hold {
    // Both counts are looked at under the shard's lock, through which every new reference passes.
    let Some(znode) = slot.cell.get().filter(|_| Arc::strong_count(slot) == 1) else { return Hold::Use };
    let state = znode.state.lock();
    if Arc::strong_count(znode) > 1 || state.opens > 0 || state.atime_dirty {
        Hold::Use
    } else if state.changed > synced {
        Hold::Group(state.changed)
    } else {
        Hold::Nothing
    }
}
