//! What the unsynced groups change in sets of numbers: a number that joins and leaves within one group is not among it.
//!
//! Invariants:
//! - what a group has for a number is the difference to the group before: nothing when it came and went, or went and
//!   came;
//! - a group's changes are taken before the group four later, which has its place, changes anything.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use platter_ondisk::{ObjectId, Txg};
use rustc_hash::FxHashMap;

use crate::dirty::{TXG_SLOTS, slot_of};

/// What one group changes.
#[derive(Default)]
struct Changes {
    txg: Txg,
    /// Set and number → whether it joins.
    joins: FxHashMap<(ObjectId, u64), bool>,
}

/// What the unsynced groups change.
#[derive(Default)]
pub(crate) struct NumberSets {
    slots: Mutex<[Changes; TXG_SLOTS]>,
}

impl NumberSets {
    pub(crate) fn note(&self, txg: Txg, set: ObjectId, number: u64, joins: bool) {
        let changes = &mut self.slots.lock()[slot_of(txg)];
        assert!(changes.txg == txg || changes.joins.is_empty(), "a group four back was never synced");
        changes.txg = txg;
        if changes.joins.get(&(set, number)) == Some(&!joins) {
            changes.joins.remove(&(set, number));
        } else {
            changes.joins.insert((set, number), joins);
        }
    }

    pub(crate) fn is_changed(&self, txg: Txg) -> bool {
        !self.slots.lock()[slot_of(txg)].joins.is_empty()
    }

    /// The changes of a group, by set and number.
    pub(crate) fn take(&self, txg: Txg) -> BTreeMap<ObjectId, BTreeMap<u64, bool>> {
        let mut sets = BTreeMap::<_, BTreeMap<_, _>>::new();
        let changes = std::mem::take(&mut self.slots.lock()[slot_of(txg)]);
        assert!(changes.txg == txg || changes.joins.is_empty(), "another group's changes");
        for ((set, number), joins) in changes.joins {
            sets.entry(set).or_default().insert(number, joins);
        }
        sets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: ObjectId = ObjectId(5);

    #[test]
    fn a_group_keeps_only_the_difference_to_the_one_before() {
        let sets = NumberSets::default();
        let (first, second) = (Txg(8), Txg(9));
        sets.note(first, SET, 1, true);
        sets.note(first, SET, 2, true);
        sets.note(first, SET, 1, false);
        assert_eq!(sets.take(first), BTreeMap::from([(SET, BTreeMap::from([(2, true)]))]));
        assert!(!sets.is_changed(first));
        // Left and joined again: as before.
        sets.note(second, SET, 2, false);
        assert!(sets.is_changed(second) && !sets.is_changed(first));
        sets.note(second, SET, 2, true);
        assert!(!sets.is_changed(second));
        // Twice is as good as once.
        sets.note(second, SET, 3, false);
        sets.note(second, SET, 3, false);
        assert_eq!(sets.take(second), BTreeMap::from([(SET, BTreeMap::from([(3, false)]))]));
    }
}
