//! Dirty time logs: the transaction groups whose writes a leaf has missed (`DTL_MISSING`, `module/zfs/vdev.c`).
//!
//! Invariant: ranges are disjoint, not adjacent, and in order.

use std::collections::BTreeMap;

use platter_ondisk::Txg;

/// A set of transaction groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingRanges {
    /// First group of a range → last group of it, both included.
    ranges: BTreeMap<u64, u64>,
}

/// What became of a leaf's list at the end of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// What it still misses.
    pub missing: MissingRanges,
    /// Groups of which something was noted since the scan began: writes and repairs that failed.
    pub noted: MissingRanges,
}

impl MissingRanges {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one group.
    pub fn note(&mut self, txg: Txg) {
        self.note_range(txg, txg);
    }

    /// Adds the groups `first ..= last`.
    pub fn note_range(&mut self, first: Txg, last: Txg) {
        if first > last {
            return;
        }
        let (mut first, mut last) = (first.0, last.0);
        // Everything that overlaps or touches is absorbed.
        let touching: Vec<(u64, u64)> = self
            .ranges
            .range(..=last.saturating_add(1))
            .rev()
            .take_while(|&(_, &end)| end.saturating_add(1) >= first)
            .map(|(&start, &end)| (start, end))
            .collect();
        for (start, end) in touching {
            first = first.min(start);
            last = last.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, last);
        debug_assert!(self.is_in_order());
    }

    /// Whether the invariant holds.
    fn is_in_order(&self) -> bool {
        let mut after_last = None;
        self.ranges.iter().all(|(&first, &last)| {
            let is_apart = after_last.is_none_or(|after: u64| first > after);
            after_last = Some(last.saturating_add(1));
            first <= last && is_apart
        })
    }

    /// Whether a group is in the set.
    pub fn contains(&self, txg: Txg) -> bool {
        self.ranges.range(..=txg.0).next_back().is_some_and(|(_, &end)| end >= txg.0)
    }

    /// The first group of the set.
    pub fn first(&self) -> Option<Txg> {
        self.ranges.keys().next().map(|&first| Txg(first))
    }

    /// The last group before those that are missed without a gap up to group `newest`, or beyond it: `newest` itself
    /// when that one was not missed. What was missed earlier has no part in it.
    pub fn complete_until(&self, newest: Txg) -> Txg {
        let last = self.ranges.iter().next_back().filter(|(_, end)| **end >= newest.0);
        last.map_or(newest, |(&first, _)| Txg(first.saturating_sub(1)))
    }

    /// Whether nothing was missed.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Removes groups up to and including `last` (a resilver or scrub has made up for them).
    pub fn clear_through(&mut self, last: Txg) {
        let later = last.0.checked_add(1).map(|next| self.ranges.split_off(&next)).unwrap_or_default();
        if let Some((_, &end)) = self.ranges.iter().next_back()
            && end > last.0
        {
            self.ranges = BTreeMap::from([(last.0 + 1, end)]);
        } else {
            self.ranges.clear();
        }
        self.ranges.extend(later);
        debug_assert!(self.is_in_order());
    }

    /// The groups of the set up to and including `last`.
    pub fn through(&self, last: Txg) -> Self {
        let kept = self.ranges.range(..=last.0).map(|(&first, &end)| (first, end.min(last.0)));
        Self { ranges: kept.collect() }
    }

    /// Removes all groups that are in `other`.
    pub fn subtract(&mut self, other: &Self) {
        for (&first, &last) in &other.ranges {
            let touched: Vec<(u64, u64)> = self
                .ranges
                .range(..=last)
                .rev()
                .take_while(|&(_, &end)| end >= first)
                .map(|(&start, &end)| (start, end))
                .collect();
            for (start, end) in touched {
                self.ranges.remove(&start);
                if start < first {
                    self.ranges.insert(start, first - 1);
                }
                if end > last {
                    self.ranges.insert(last + 1, end);
                }
            }
        }
        debug_assert!(self.is_in_order());
    }

    /// The ranges in order, both ends included.
    pub fn iter(&self) -> impl Iterator<Item = (Txg, Txg)> + '_ {
        self.ranges.iter().map(|(&first, &last)| (Txg(first), Txg(last)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_was_missed_long_ago_does_not_say_how_far_a_device_came() {
        let mut missed = MissingRanges::new();
        assert_eq!(missed.complete_until(Txg(15)), Txg(15));
        missed.note_range(Txg(7), Txg(9));
        assert_eq!(missed.complete_until(Txg(15)), Txg(15), "it was there since");
        missed.note_range(Txg(13), Txg(16));
        assert_eq!(missed.complete_until(Txg(15)), Txg(12), "it once said 6, and a copy that ends at 8 was believed");
        missed.note_range(Txg(10), Txg(12));
        assert_eq!(missed.complete_until(Txg(15)), Txg(6));
    }

    proptest! {
        #[test]
        fn a_set_of_groups_behaves_as_a_set(
            steps in proptest::collection::vec((0u64..60, 0u64..6, any::<bool>()), 1..40)
        ) {
            let mut others = MissingRanges::new();
            let (mut ranges, mut model) = (MissingRanges::new(), BTreeSet::new());
            for (start, extent, clear) in steps {
                if clear && extent == 0 {
                    ranges.clear_through(Txg(start));
                    model.retain(|&txg| txg > start);
                } else if clear {
                    others.note_range(Txg(start), Txg(start + extent));
                    ranges.subtract(&others);
                    model.retain(|&txg| !others.contains(Txg(txg)));
                } else {
                    ranges.note_range(Txg(start), Txg(start + extent));
                    model.extend(start..=start + extent);
                }
                for txg in 0..70 {
                    prop_assert_eq!(ranges.contains(Txg(txg)), model.contains(&txg));
                }
                let early = ranges.through(Txg(start));
                prop_assert!((0..70).all(|txg| early.contains(Txg(txg)) == (txg <= start && model.contains(&txg))));
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].1.0 + 1 < pair[1].0.0));
            }
        }
    }
}
