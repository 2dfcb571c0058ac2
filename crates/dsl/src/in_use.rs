//! Snapshots that are being read for a stream: they are not destroyed meanwhile (`dsl_dataset_long_hold`).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_ondisk::ObjectId;

/// How many read which.
#[derive(Clone, Debug, Default)]
pub struct InUse(Arc<Mutex<BTreeMap<ObjectId, usize>>>);

/// Keeps one.
#[derive(Debug)]
pub struct Kept {
    all: InUse,
    object: ObjectId,
}

impl InUse {
    /// Keeps snapshot `object` while the result lives.
    pub fn keep(&self, object: ObjectId) -> Kept {
        *self.0.lock().entry(object).or_default() += 1;
        Kept { all: self.clone(), object }
    }

    /// Whether somebody keeps it.
    pub fn has(&self, object: ObjectId) -> bool {
        self.0.lock().contains_key(&object)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let count = all.get_mut(&self.object).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if count == 0 {
            all.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_kept_until_the_last_lets_go() {
        let all = InUse::default();
        let (first, second) = (all.keep(ObjectId(7)), all.keep(ObjectId(7)));
        drop(first);
        assert!(all.has(ObjectId(7)) && !all.has(ObjectId(8)));
        drop(second);
        assert!(!all.has(ObjectId(7)));
    }
}
