//! Objects that somebody outside knows by number (the kernel, for each node it has looked up and not forgotten).
//!
//! An object that is known is not freed (`unlinked`): neither is its number given to another file, nor do its
//! attributes go away while a process still has it as its working directory or behind an `O_PATH` descriptor. An object
//! without a name that is still known or open is an orphan; whoever lets go of it last frees it.
//!
//! Invariant: an object that is here is known once at least.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use platter_ondisk::ObjectId;
use rustc_hash::FxHashMap;

use crate::shards::{SHARDS, shard_of};

/// Who is known how often, and who of them has no name.
#[derive(Debug)]
pub(crate) struct Known {
    counts: Vec<Mutex<FxHashMap<u64, u64>>>,
    orphans: Mutex<BTreeSet<ObjectId>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { counts: (0..SHARDS).map(|_| Mutex::default()).collect(), orphans: Mutex::default() }
    }
}

impl Known {
    fn shard(&self, object: ObjectId) -> &Mutex<FxHashMap<u64, u64>> {
        &self.counts[shard_of(object)]
    }

    /// `object` is known once more.
    pub fn remember(&self, object: ObjectId) {
        *self.shard(object).lock().entry(object.0).or_insert(0) += 1;
    }

    /// `object` is known `times` less; whether it is unknown now.
    pub fn forget(&self, object: ObjectId, times: u64) -> bool {
        let mut counts = self.shard(object).lock();
        let Some(count) = counts.get_mut(&object.0) else { return true };
        assert!(*count > 0, "object {object} is here and nobody knows it");
        *count = count.saturating_sub(times);
        if *count > 0 {
            return false;
        }
        counts.remove(&object.0);
        true
    }

    pub fn forget_all(&self) {
        self.counts.iter().for_each(|shard| shard.lock().clear());
    }

    pub fn is_known(&self, object: ObjectId) -> bool {
        self.shard(object).lock().contains_key(&object.0)
    }

    pub fn add_orphan(&self, object: ObjectId) {
        self.orphans.lock().insert(object);
    }

    pub fn remove_orphan(&self, object: ObjectId) {
        self.orphans.lock().remove(&object);
    }

    pub fn is_orphan(&self, object: ObjectId) -> bool {
        self.orphans.lock().contains(&object)
    }

    /// All orphans, by number.
    pub fn orphans(&self) -> Vec<ObjectId> {
        self.orphans.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_unknown_after_as_many_forgets_as_lookups() {
        let (known, object) = (Known::default(), ObjectId(70));
        assert!(known.forget(object, 1));
        (0..3).for_each(|_| known.remember(object));
        assert!(!known.forget(object, 2) && known.is_known(object));
        assert!(known.forget(object, 1) && !known.is_known(object));
        // The kernel's word is not trusted to be consistent.
        known.remember(object);
        assert!(known.forget(object, 9) && !known.is_known(object));
    }
}
