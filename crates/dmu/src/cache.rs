//! The open objects of an object set: at most one [`Dnode`] per object number at a time, and the lately used ones kept.
//!
//! Two generations approximate "least recently used": what is used moves to the young one; when that is full the old
//! one is forgotten and the young one becomes old. Objects in use elsewhere (or dirty) stay findable through weak
//! references, whatever generation they were in.

use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;

use crate::core::Dnode;

/// Objects of one generation.
const GENERATION: usize = 10_000;

#[derive(Default)]
pub(crate) struct DnodeCache {
    all: FxHashMap<u64, Weak<Dnode>>,
    young: FxHashMap<u64, Arc<Dnode>>,
    old: FxHashMap<u64, Arc<Dnode>>,
}

/// What a change of the cache let go of: to be dropped after the cache's lock.
pub(crate) type Evicted = Option<FxHashMap<u64, Arc<Dnode>>>;

impl DnodeCache {
    pub(crate) fn get(&mut self, object: u64) -> (Option<Arc<Dnode>>, Evicted) {
        if let Some(dnode) = self.young.get(&object) {
            return (Some(dnode.clone()), None);
        }
        let Some(dnode) = self.all.get(&object).and_then(Weak::upgrade) else { return (None, None) };
        self.old.remove(&object);
        let evicted = self.keep(object, dnode.clone());
        (Some(dnode), evicted)
    }

    /// Whether there is one that is in use or was lately.
    pub(crate) fn has(&self, object: u64) -> bool {
        self.all.get(&object).is_some_and(|dnode| dnode.strong_count() > 0)
    }

    pub(crate) fn insert(&mut self, object: u64, dnode: Arc<Dnode>) -> Evicted {
        self.all.insert(object, Arc::downgrade(&dnode));
        self.old.remove(&object);
        self.keep(object, dnode)
    }

    pub(crate) fn remove(&mut self, object: u64) -> Option<Arc<Dnode>> {
        self.all.remove(&object);
        self.young.remove(&object).or_else(|| self.old.remove(&object))
    }

    fn keep(&mut self, object: u64, dnode: Arc<Dnode>) -> Evicted {
        self.young.insert(object, dnode);
        if self.young.len() < GENERATION {
            return None;
        }
        let forgotten = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        // Whoever is neither kept nor used elsewhere is in `forgotten` only, and goes.
        self.all.retain(|object, dnode| {
            let only_here = usize::from(forgotten.contains_key(object));
            dnode.strong_count() > only_here
        });
        Some(forgotten)
    }
}
