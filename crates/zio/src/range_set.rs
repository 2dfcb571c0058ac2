//! A set of byte ranges, kept merged, searchable by position and by size: the in-memory form of space maps
//! (`range_tree_t`, `module/zfs/range_tree.c`).
//!
//! Invariants: ranges never touch or overlap (neighbours are merged); `total` is the sum of their lengths; `by_size`
//! holds exactly the ranges of `by_start`.

use std::collections::{BTreeMap, BTreeSet};

/// Byte ranges `start..end`.
#[derive(Clone, Debug, Default)]
pub struct RangeSet {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    total: u64,
}

/// A range was added twice or removed without being there: the space accounting is wrong, or a space map is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range {start:#x}+{length:#x} {problem}")]
pub struct RangeError {
    /// Start of the offending range.
    pub start: u64,
    /// Its length.
    pub length: u64,
    /// What was wrong.
    pub problem: &'static str,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// One range.
    pub fn of(start: u64, length: u64) -> Self {
        let mut set = Self::new();
        if length > 0 {
            set.link(start, start + length);
        }
        set
    }

    /// Sum of the lengths in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// Number of separate ranges.
    pub fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Longest range in bytes.
    pub fn largest(&self) -> u64 {
        self.by_size.last().map_or(0, |&(size, _)| size)
    }

    /// `(start, length)` in order of position.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(&start, &end)| (start, end - start))
    }

    fn link(&mut self, start: u64, end: u64) {
        debug_assert!(start < end && self.is_apart(start, end));
        self.by_start.insert(start, end);
        self.by_size.insert((end - start, start));
        self.total += end - start;
    }

    /// Whether nothing in the set touches `start..end`.
    fn is_apart(&self, start: u64, end: u64) -> bool {
        self.by_start.range(..=end).next_back().is_none_or(|(_, &before)| before < start)
    }

    fn unlink(&mut self, start: u64, end: u64) {
        self.by_start.remove(&start);
        self.by_size.remove(&(end - start, start));
        self.total -= end - start;
    }

    /// The range that holds `position`, if any.
    fn around(&self, position: u64) -> Option<(u64, u64)> {
        self.by_start.range(..=position).next_back().map(|(&s, &e)| (s, e)).filter(|&(_, end)| end > position)
    }

    /// Whether all of `start..start+length` is in the set.
    pub fn contains(&self, start: u64, length: u64) -> bool {
        self.around(start).is_some_and(|(_, end)| end >= start + length)
    }

    /// Whether any byte of `start..start+length` is in the set.
    pub fn overlaps(&self, start: u64, length: u64) -> bool {
        self.around(start).is_some() || self.by_start.range(start..start + length).next().is_some()
    }

    /// Adds a range none of which is in the set.
    ///
    /// # Errors
    /// When part of it is there already; the set is unchanged then.
    pub fn add(&mut self, start: u64, length: u64) -> Result<(), RangeError> {
        if length == 0 {
            return Ok(());
        }
        if self.overlaps(start, length) {
            return Err(RangeError { start, length, problem: "is there already" });
        }
        let (mut from, mut to) = (start, start + length);
        if let Some((&before, &end)) = self.by_start.range(..start).next_back()
            && end == start
        {
            self.unlink(before, end);
            from = before;
        }
        if let Some(&end) = self.by_start.get(&to) {
            self.unlink(to, end);
            to = end;
        }
        self.link(from, to);
        Ok(())
    }

    /// Removes a range all of which is in the set.
    ///
    /// # Errors
    /// When part of it is missing; the set is unchanged then.
    pub fn remove(&mut self, start: u64, length: u64) -> Result<(), RangeError> {
        if length == 0 {
            return Ok(());
        }
        let end = start + length;
        match self.around(start) {
            Some((from, to)) if to >= end => {
                self.unlink(from, to);
                if from < start {
                    self.link(from, start);
                }
                if end < to {
                    self.link(end, to);
                }
                Ok(())
            }
            _ => Err(RangeError { start, length, problem: "is not there" }),
        }
    }

    /// Removes whatever of `start..start+length` is in the set.
    pub fn clear_range(&mut self, start: u64, length: u64) {
        let end = start + length;
        let mut touched: Vec<(u64, u64)> = self.around(start).into_iter().collect();
        touched.extend(self.by_start.range(start + 1..end.max(start + 1)).map(|(&s, &e)| (s, e)));
        touched.dedup();
        for (from, to) in touched {
            self.unlink(from, to);
            if from < start {
                self.link(from, start);
            }
            if to > end {
                self.link(end, to);
            }
        }
    }

    /// The parts of the set's ranges that lie within `start..start+length`, in order.
    pub fn within(&self, start: u64, length: u64) -> Vec<(u64, u64)> {
        let end = start + length;
        let first = self.around(start).into_iter();
        let later = self.by_start.range(start + 1..end.max(start + 1)).map(|(&s, &e)| (s, e));
        first.chain(later).map(|(from, to)| (from.max(start), to.min(end) - from.max(start))).collect()
    }

    /// Moves everything out, leaving the set empty.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// The first place at or after `cursor` where `length` bytes fit, else the smallest range that fits.
    pub fn find(&self, cursor: u64, length: u64) -> Option<u64> {
        if self.largest() < length {
            return None;
        }
        if let Some((_, end)) = self.around(cursor)
            && end - cursor >= length
        {
            return Some(cursor);
        }
        // Looking ahead a little keeps writes in ascending order; a long search through crumbs costs more than it
        // saves.
        self.by_start
            .range(cursor..)
            .take(64)
            .find(|&(&start, &end)| end - start >= length)
            .map(|(&start, _)| start)
            .or_else(|| self.by_size.range((length, 0)..).next().map(|&(_, start)| start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_merge_and_removal_splits() {
        let mut set = RangeSet::new();
        set.add(0, 10).unwrap();
        set.add(20, 10).unwrap();
        set.add(10, 10).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 30)]);
        set.remove(5, 5).unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 5), (10, 20)]);
        assert_eq!(set.total(), 25);
        assert_eq!(set.largest(), 20);
    }

    #[test]
    fn adding_twice_and_removing_what_is_missing_are_errors() {
        let mut set = RangeSet::of(100, 100);
        assert!(set.add(150, 10).is_err());
        assert!(set.add(90, 20).is_err());
        assert!(set.add(50, 300).is_err());
        assert!(set.remove(90, 20).is_err());
        assert!(set.remove(190, 20).is_err());
        assert_eq!(set.total(), 100);
    }

    #[test]
    fn clearing_a_range_removes_exactly_it() {
        let mut set = RangeSet::new();
        for i in 0..10 {
            set.add(i * 10, 5).unwrap();
        }
        set.clear_range(12, 40);
        assert!(!set.overlaps(12, 40));
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 5), (10, 2), (52, 3), (60, 5), (70, 5), (80, 5), (90, 5)]);
        assert_eq!(set.total(), 30);
    }

    #[test]
    fn a_model_of_single_bytes_agrees() {
        // A linear congruential walk over adds and removes, checked against a bit per byte.
        let (mut set, mut bits, mut state) = (RangeSet::new(), vec![false; 512], 12345u64);
        for _ in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let start = (state >> 33) % 500;
            let length = 1 + (state >> 50) % 12;
            let range = start as usize..(start + length) as usize;
            if (state >> 20) & 1 == 0 {
                let free = bits[range.clone()].iter().all(|b| !b);
                assert_eq!(set.add(start, length).is_ok(), free);
                if free {
                    bits[range].fill(true);
                }
            } else {
                let full = bits[range.clone()].iter().all(|&b| b);
                assert_eq!(set.remove(start, length).is_ok(), full);
                if full {
                    bits[range].fill(false);
                }
            }
        }
        assert_eq!(set.total(), bits.iter().filter(|&&b| b).count() as u64);
        let sizes: u64 = set.by_size.iter().map(|(size, _)| size).sum();
        assert_eq!(sizes, set.total());
    }
}
