//! How many free runs of which size a metaslab has, as the header of its space map says (`smp_histogram`,
//! `include/sys/space_map.h`): what is known of free space whose ranges are not in memory.
//!
//! Invariants:
//! - what a disk says is believed only when the runs are not longer together than the space they lie in
//!   ([`Histogram::checked`]). Runs that are freed are added to that, and none is taken away: it is a guess from then
//!   on;
//! - what a [`Sum`] has of a metaslab is what was last added for it.

use platter_ondisk::spacemap::{self, SPACE_MAP_HISTOGRAM_SIZE};

/// Sizes of runs, as powers of two bytes.
const ORDERS: usize = 64;

/// Free runs by size: bucket `i` counts those of `2^i` to `2^(i+1)` units of `2^shift` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// log2 of the unit in bytes.
    pub shift: u32,
    /// As on disk.
    pub buckets: [u64; SPACE_MAP_HISTOGRAM_SIZE],
}

impl Histogram {
    /// The histogram of these runs, in bytes each.
    pub fn of(runs: impl IntoIterator<Item = u64>, shift: u32) -> Self {
        debug_assert!((shift as usize) < ORDERS, "a unit of 2^{shift} bytes");
        Self { shift, buckets: spacemap::histogram(runs.into_iter().map(|length| length >> shift)) }
    }

    /// What a header of a disk says of `size` bytes; `None` when it counts more than there can be.
    pub fn checked(buckets: [u64; SPACE_MAP_HISTOGRAM_SIZE], shift: u32, size: u64) -> Option<Self> {
        let histogram = Self { shift, buckets };
        (histogram.bytes() <= u128::from(size)).then_some(histogram)
    }

    /// Counts one more run, in bytes.
    pub fn add(&mut self, length: u64) {
        for (bucket, count) in self.buckets.iter_mut().zip(Self::of([length], self.shift).buckets) {
            *bucket = bucket.saturating_add(count);
        }
    }

    fn bytes(&self) -> u128 {
        (0u32..).zip(self.buckets).map(|(order, count)| u128::from(count) << (order + self.shift)).sum()
    }

    /// Runs, about: one that is longer than the last bucket reaches counts as several.
    pub fn runs(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, &count| sum.saturating_add(count))
    }

    /// All runs are shorter than so many bytes; 0 without any.
    pub fn end(&self) -> u64 {
        match self.buckets.iter().rposition(|&count| count > 0) {
            // Longer runs are counted there, too.
            Some(last) if last + 1 == SPACE_MAP_HISTOGRAM_SIZE => u64::MAX,
            Some(last) => 1u64.checked_shl(last as u32 + 1 + self.shift).unwrap_or(u64::MAX),
            None => 0,
        }
    }

    /// Whether one of the runs is certainly `length` bytes long.
    pub fn promises(&self, length: u64) -> bool {
        let last = self.buckets.iter().rposition(|&count| count > 0);
        last.is_some_and(|last| 1u64.checked_shl(last as u32 + self.shift).is_some_and(|size| size >= length))
    }
}

/// The runs of many metaslabs together.
#[derive(Clone, Debug)]
pub(crate) struct Sum {
    runs: [u64; ORDERS],
}

impl Default for Sum {
    fn default() -> Self {
        Self { runs: [0; ORDERS] }
    }
}

impl Sum {
    /// Takes back what `old` added, and adds `new`.
    pub(crate) fn replace(&mut self, old: Option<&Histogram>, new: Option<&Histogram>) {
        for (histogram, adds) in [(old, false), (new, true)] {
            let Some(histogram) = histogram else { continue };
            for (order, &count) in histogram.buckets.iter().enumerate() {
                let runs = &mut self.runs[(order + histogram.shift as usize).min(ORDERS - 1)];
                // A checked histogram counts less than 2^64 runs.
                let changed = if adds { runs.checked_add(count) } else { runs.checked_sub(count) };
                *runs = changed.expect("what was added is taken back as it was");
            }
        }
    }

    /// Fragmentation in percent: how far the free space is from being in long runs. The table follows the meaning of
    /// `zfs_frag_table` (a run of 512 bytes counts 100, 16 MiB and more 0). `None` when nothing is known.
    pub(crate) fn fragmentation(&self) -> Option<u64> {
        const TABLE: [u64; 16] = [100, 100, 98, 95, 90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 5, 0];
        let (mut total, mut weighted) = (0u128, 0u128);
        for (order, &runs) in self.runs.iter().enumerate() {
            let bytes = u128::from(runs) << order;
            total += bytes;
            weighted += bytes * u128::from(TABLE[order.saturating_sub(9).min(15)]);
        }
        weighted.checked_div(total).map(|percent| percent as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_bounds_the_longest_run() {
        let histogram = Histogram::of([512, 4096 + 512, 512], 9);
        assert_eq!((histogram.runs(), histogram.end()), (3, 8192));
        assert!(histogram.promises(4096) && !histogram.promises(4608));
        assert_eq!(Histogram::of([], 9).end(), 0);
    }

    /// A header of a disk may say anything; sums of such numbers must not overflow.
    #[test]
    fn more_runs_than_there_is_room_for_are_not_believed() {
        let mut buckets = [0; SPACE_MAP_HISTOGRAM_SIZE];
        buckets[1] = 8;
        assert!(Histogram::checked(buckets, 9, 8192).is_some());
        assert!(Histogram::checked(buckets, 9, 8191).is_none());
        assert!(Histogram::checked([u64::MAX; SPACE_MAP_HISTOGRAM_SIZE], 16, u64::MAX).is_none());
    }

    #[test]
    fn a_sum_follows_its_parts() {
        let (crumbs, whole) = (Histogram::of([512; 8], 9), Histogram::of([1 << 24], 9));
        let mut sum = Sum::default();
        assert_eq!(sum.fragmentation(), None);
        sum.replace(None, Some(&crumbs));
        assert_eq!(sum.fragmentation(), Some(100));
        sum.replace(Some(&crumbs), Some(&whole));
        assert_eq!(sum.fragmentation(), Some(0));
    }
}
