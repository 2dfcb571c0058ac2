//! Which child of a RAID-Z group is slower than all others by far, again and again: a pure function of what was
//! measured (`vdev_child_slow_outlier`, `module/zfs/vdev_raidz.c` of OpenZFS 2.4).
//!
//! In each interval the mean latency of each child's reads is compared with a fence far outside of what most of them
//! have (Tukey's, with a factor of 50). Who is beyond it is noted, the more so the further; who was noted often enough
//! is found. What is noted fades, so that children that are slow in turn are nobody.
//!
//! Invariants:
//! - nobody is found while a child is not healthy, or while as many sit out as there is parity;
//! - nobody is found in an interval in which some child was not read.

use platter_ondisk::Guid;

use crate::histograms::LATENCY_BUCKETS;

/// With fewer children nothing is to be said of one of them (`LAT_CHILDREN_MIN`).
pub(crate) const CHILDREN_MIN: usize = 5;
/// Who was noted more often than this is found (`LAT_OUTLIER_LIMIT`).
const NOTES_MAX: u64 = 20;
/// How many times the distance between the quartiles the fence lies beyond the third one
/// (`vdev_raidz_outlier_insensitivity`).
const INSENSITIVITY: u64 = 50;

/// What is seen of a child.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Which it is: the guids of its leaves, as another device has other latencies.
    pub(crate) leaves: Vec<Guid>,
    /// How many of its reads so far took so long; the buckets are those of [`crate::histograms`].
    pub(crate) reads: [u64; LATENCY_BUCKETS],
    /// Whether it sits out of reads.
    pub(crate) sits: bool,
    /// Whether it is there and as it should be.
    pub(crate) is_healthy: bool,
}

/// A child as of the look before, and how often it was noted.
#[derive(Debug)]
struct Known {
    leaves: Vec<Guid>,
    reads: [u64; LATENCY_BUCKETS],
    notes: u64,
}

/// What is remembered of a group's children.
#[derive(Debug, Default)]
pub(crate) struct Outliers {
    children: Vec<Known>,
    /// Notes of all children since they faded last.
    notes: u64,
}

impl Outliers {
    /// Looks at the children after another interval. Returns the index of the one that is found.
    pub(crate) fn look(&mut self, seen: &[Seen], parity: usize) -> Option<usize> {
        let means = self.means(seen);
        let sitting = seen.iter().filter(|child| child.sits).count();
        let may_be_found = seen.len() >= CHILDREN_MIN
            && sitting < parity
            && seen.iter().all(|child| child.is_healthy)
            && means.iter().zip(seen).all(|(mean, child)| *mean > 0 || child.sits);
        if !may_be_found {
            return None;
        }
        let (slowest, &most) = means.iter().enumerate().max_by_key(|(index, mean)| (**mean, usize::MAX - index))?;
        let weight = weight(&means, most).filter(|_| !seen[slowest].sits)?;
        assert!(seen.iter().all(|child| child.is_healthy) && !seen[slowest].sits, "one that can be done without");
        self.note(slowest, weight).then_some(slowest)
    }

    /// Each child's mean latency since the last look, nanoseconds; 0 for one that was not read, or is new.
    fn means(&mut self, seen: &[Seen]) -> Vec<u64> {
        let is_known = self.children.iter().map(|child| &child.leaves).eq(seen.iter().map(|child| &child.leaves));
        if !is_known {
            let known = |child: &Seen| Known { leaves: child.leaves.clone(), reads: child.reads, notes: 0 };
            *self = Self { children: seen.iter().map(known).collect(), notes: 0 };
        }
        let pairs = self.children.iter_mut().zip(seen);
        pairs.map(|(known, child)| mean(&std::mem::replace(&mut known.reads, child.reads), &child.reads)).collect()
    }

    /// Notes a child that was beyond the fence; whether it is found now.
    fn note(&mut self, child: usize, weight: u64) -> bool {
        self.notes += weight;
        if self.notes >= self.children.len() as u64 {
            self.children.iter_mut().for_each(|known| known.notes = known.notes.saturating_sub(2));
            self.notes = 0;
        }
        self.children[child].notes += weight;
        let is_found = self.children[child].notes > NOTES_MAX;
        if is_found {
            self.children.iter_mut().for_each(|known| known.notes = 0);
        }
        is_found
    }
}

/// The mean of what was counted between two looks; each counts as the least value of its bucket.
fn mean(before: &[u64; LATENCY_BUCKETS], now: &[u64; LATENCY_BUCKETS]) -> u64 {
    let counts = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
    let (sum, count) = counts.enumerate().fold((0u64, 0u64), |(sum, total), (bucket, count)| {
        (sum.saturating_add(count.saturating_mul(1 << bucket)), total + count)
    });
    sum.checked_div(count).unwrap_or(0)
}

/// The median of sorted values; there is at least one.
fn median(values: &[u64]) -> u64 {
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2 } else { values[middle] }
}

/// How much it says that a child has the greatest mean of these; none when that is within the fence.
fn weight(means: &[u64], most: u64) -> Option<u64> {
    let mut sorted = means.to_vec();
    sorted.sort_unstable();
    let half = sorted.len() / 2;
    let (first, third) = (median(&sorted[..half]), median(&sorted[sorted.len() - half..]));
    // Of few values that are close together none is far out.
    let range = (third - first).max(first / 4).max(1);
    let fence = third.saturating_add(range.saturating_mul(INSENSITIVITY));
    (most > fence).then(|| ((most - fence) / range).clamp(1, NOTES_MAX / 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: usize = 20;
    const SLOW: usize = 30;

    /// Children that are read ten times in each interval, with a latency of 2^bucket.
    struct Group {
        outliers: Outliers,
        seen: Vec<Seen>,
        parity: usize,
    }

    impl Group {
        fn new(width: u64, parity: usize) -> Self {
            let child = |guid| Seen {
                leaves: vec![Guid(guid + 1)],
                reads: [0; LATENCY_BUCKETS],
                sits: false,
                is_healthy: true,
            };
            let mut group = Self { outliers: Outliers::default(), seen: (0..width).map(child).collect(), parity };
            assert_eq!(group.outliers.look(&group.seen, parity), None, "the first look has nothing to compare with");
            group
        }

        /// The interval, counted from 1, in which somebody is found, and whom.
        fn found_within(&mut self, intervals: usize, bucket: impl Fn(usize, usize) -> usize) -> Option<(usize, usize)> {
            (1..=intervals).find_map(|interval| {
                for (index, child) in self.seen.iter_mut().enumerate().filter(|(_, child)| !child.sits) {
                    child.reads[bucket(interval, index)] += 10;
                }
                self.outliers.look(&self.seen, self.parity).map(|found| (interval, found))
            })
        }
    }

    #[test]
    fn the_fence_lies_far_beyond_the_quartiles() {
        assert_eq!((median(&[1, 3]), median(&[1, 3, 9])), (2, 3));
        // Quartiles 100 and 120: the distance counts as 25 at least, and the fence is at 120 + 50 * 25.
        assert_eq!(weight(&[100, 100, 110, 120, 1370], 1370), None);
        let [q1, q3] = [median(&[100, 100]), median(&[120, 5000])];
        assert_eq!((q1, q3), (100, 2560));
        let six = |most| weight(&[100, 100, 100, 120, 120, most], most);
        assert_eq!((six(1370), six(1371), six(1420), six(1_000_000)), (None, Some(1), Some(2), Some(5)));
        assert_eq!(weight(&[0; 6], 0), None);
        assert_eq!(weight(&[1, 1, 1, 1, 1, u64::MAX], u64::MAX), Some(5));
    }

    #[test]
    fn one_that_is_slow_again_and_again_is_found() {
        let mut group = Group::new(7, 2);
        let slow = |_: usize, index| if index == 3 { SLOW } else { FAST };
        // Five notes in each interval, two of which fade in every second one: 5, 8, 13, 16, 21.
        assert_eq!(group.found_within(100, slow), Some((5, 3)));
        group.seen[3].sits = true;
        assert_eq!(group.found_within(100, slow), None);
        // Another one may sit beside it, as long as there is parity for both.
        let other = |_: usize, index| if index == 5 { SLOW } else { FAST };
        let second = group.found_within(100, other);
        assert_eq!(second.map(|(_, index)| index), Some(5));
        group.seen[5].sits = true;
        assert_eq!(group.found_within(100, |_, index| if index == 0 { SLOW } else { FAST }), None);
    }

    #[test]
    fn nobody_is_found_who_is_slow_in_turn_or_no_slower_by_far() {
        let mut group = Group::new(7, 1);
        assert_eq!(
            group.found_within(700, |interval, index| if interval % 7 == index { FAST + 7 } else { FAST }),
            None
        );
        assert_eq!(group.found_within(700, |_, index| if index == 2 { FAST + 3 } else { FAST }), None);
    }

    #[test]
    fn nobody_is_found_of_few_or_while_one_was_not_read_or_is_not_healthy() {
        let slow = |_: usize, index| if index == 1 { SLOW } else { FAST };
        assert_eq!(Group::new(4, 1).found_within(100, slow), None);
        let mut degraded = Group::new(7, 2);
        degraded.seen[6].is_healthy = false;
        assert_eq!(degraded.found_within(100, slow), None);
        degraded.seen[6].is_healthy = true;
        assert!(degraded.found_within(100, slow).is_some());
        let mut idle = Group::new(7, 2);
        for _ in 0..100 {
            for (index, child) in idle.seen.iter_mut().enumerate().filter(|(index, _)| *index != 4) {
                child.reads[slow(0, index)] += 10;
            }
            assert_eq!(idle.outliers.look(&idle.seen, 2), None);
        }
    }

    #[test]
    fn another_device_in_a_child_s_place_begins_anew() {
        let mut group = Group::new(7, 1);
        let slow = |_: usize, index| if index == 1 { SLOW } else { FAST };
        assert_eq!(group.found_within(4, slow), None);
        group.seen[1].leaves = vec![Guid(99)];
        group.seen[1].reads = [0; LATENCY_BUCKETS];
        assert_eq!(group.found_within(5, slow), None, "one look to know it, and four");
        assert_eq!(group.found_within(1, slow), Some((1, 1)));
    }
}
