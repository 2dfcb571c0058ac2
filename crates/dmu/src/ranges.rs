//! A set of block numbers kept as disjoint, non-touching ranges: what a group freed in an object.

use std::collections::BTreeMap;

/// Inclusive ranges `first..=last`, keyed by `first`. Inclusive, so that "to the end" is `u64::MAX` without overflow.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Adds `first..=last`, merging with what touches it.
    pub(crate) fn insert(&mut self, first: u64, last: u64) {
        assert!(first <= last, "a range has a block");
        let (mut first, mut last) = (first, last);
        if let Some((&start, &end)) = self.ranges.range(..=first).next_back()
            && end >= first.saturating_sub(1)
        {
            first = start;
            last = last.max(end);
        }
        while let Some((&start, &end)) = self.ranges.range(first..=last.saturating_add(1)).next() {
            self.ranges.remove(&start);
            last = last.max(end);
        }
        self.ranges.insert(first, last);
    }

    pub(crate) fn contains(&self, block: u64) -> bool {
        self.covers(block, block)
    }

    /// Whether all of `first..=last` is in the set.
    pub(crate) fn covers(&self, first: u64, last: u64) -> bool {
        self.ranges.range(..=first).next_back().is_some_and(|(_, &end)| end >= last)
    }

    /// The last block of the range that holds `block`.
    pub(crate) fn end_of(&self, block: u64) -> Option<u64> {
        self.ranges.range(..=block).next_back().map(|(_, &end)| end).filter(|&end| end >= block)
    }

    /// The first block of the set at or after `block`.
    pub(crate) fn next(&self, block: u64) -> Option<u64> {
        if self.contains(block) {
            return Some(block);
        }
        self.ranges.range(block..).next().map(|(&start, _)| start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn the_set_holds_exactly_what_was_inserted(inserts in prop::collection::vec((0u64..60, 0u64..8), 0..20)) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (first, length) in inserts {
                set.insert(first, first + length);
                model.extend(first..=first + length);
            }
            for block in 0..80 {
                prop_assert_eq!(set.contains(block), model.contains(&block));
                prop_assert_eq!(set.next(block), model.range(block..).next().copied());
                let end = (block..).take_while(|block| model.contains(block)).last();
                prop_assert_eq!(set.end_of(block), end);
                prop_assert_eq!(set.covers(block, block + 3), (block..=block + 3).all(|b| model.contains(&b)));
            }
            let ranges: Vec<_> = set.ranges.iter().map(|(&a, &b)| (a, b)).collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].1 + 1 < w[1].0), "touching ranges are merged");
        }
    }

    #[test]
    fn a_range_to_the_end_of_everything_does_not_overflow() {
        let mut set = RangeSet::default();
        set.insert(5, u64::MAX);
        set.insert(0, 4);
        assert!(set.covers(0, u64::MAX));
    }
}
