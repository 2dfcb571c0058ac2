//! How long transfers took and how large they were, for `zpool iostat -lqrw` (`vdev_stat_ex_t` in
//! `include/sys/fs/zfs.h`, `vdev_stat_update` in `module/zfs/vdev.c`).
//!
//! Invariant: bucket `b` counts values from `2^b` up to, but not including, `2^(b+1)`; the first one also 0, the last
//! one everything above.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::priority::{Direction, PerClass, Priority};

/// Buckets of a latency histogram, in nanoseconds (`VDEV_L_HISTO_BUCKETS`).
pub const LATENCY_BUCKETS: usize = 37;
/// Buckets of a histogram of sizes, in bytes (`VDEV_RQ_HISTO_BUCKETS`).
pub const SIZE_BUCKETS: usize = 25;
/// A transfer that takes longer counts as slow (`zio_slow_io_ms`).
pub const SLOW: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Histogram<const BUCKETS: usize>([AtomicU64; BUCKETS]);

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    fn note(&self, value: u64) {
        let bucket = (value.checked_ilog2().unwrap_or(0) as usize).min(BUCKETS - 1);
        debug_assert!(value.max(1) >> bucket == 1 || bucket == BUCKETS - 1, "{value} is not of bucket {bucket}");
        self.0[bucket].fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn total(&self) -> u64 {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The histograms of a leaf; they outlive the device's being opened anew.
#[derive(Debug, Default)]
pub struct Histograms {
    total: [Histogram<LATENCY_BUCKETS>; 2],
    device: [Histogram<LATENCY_BUCKETS>; 2],
    queue: PerClass<Histogram<LATENCY_BUCKETS>>,
    individual: PerClass<Histogram<SIZE_BUCKETS>>,
    aggregated: PerClass<Histogram<SIZE_BUCKETS>>,
    slow: AtomicU64,
}

/// All histograms at one moment. Index 0 is reads and 1 writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramsSnapshot {
    /// Nanoseconds in queue and device together.
    pub total: [Vec<u64>; 2],
    /// Nanoseconds in the device.
    pub device: [Vec<u64>; 2],
    /// Nanoseconds in the queue, by class.
    pub queue: PerClass<Vec<u64>>,
    /// Bytes of transfers that travelled alone, by class.
    pub individual: PerClass<Vec<u64>>,
    /// Bytes of transfers that were joined from several, by class.
    pub aggregated: PerClass<Vec<u64>>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Histograms {
    /// Counts one waiter's transfer.
    pub(crate) fn note_latency(&self, class: Priority, direction: Direction, queued: Duration, in_device: Duration) {
        self.queue[class].note(nanoseconds(queued));
        self.device[direction as usize].note(nanoseconds(in_device));
        self.total[direction as usize].note(nanoseconds(queued + in_device));
        if in_device > SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a trim: how long it waited. It is nobody's read or write.
    pub(crate) fn note_trim(&self, queued: Duration, in_device: Duration) {
        self.queue[Priority::Trim].note(nanoseconds(queued));
        if in_device > SLOW {
            self.slow.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts what went to the device in one piece.
    pub(crate) fn note_size(&self, class: Priority, bytes: u64, is_joined: bool) {
        if is_joined { &self.aggregated[class] } else { &self.individual[class] }.note(bytes);
    }

    /// Adds how many reads took so long in the device, by bucket.
    pub(crate) fn add_reads(&self, counts: &mut [u64; LATENCY_BUCKETS]) {
        let reads = &self.device[Direction::Read as usize].0;
        counts.iter_mut().zip(reads).for_each(|(count, read)| *count += read.load(Ordering::Relaxed));
    }

    /// Counts that the device was slow in another way than by one transfer.
    pub(crate) fn note_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads and writes that went to the device, those of a scrub aside.
    pub fn transfers(&self) -> [u64; 2] {
        let mut transfers = [0; 2];
        for class in Priority::ALL {
            if let Some(direction) = class.rules().counts_as {
                transfers[direction as usize] += self.individual[class].total() + self.aggregated[class].total();
            }
        }
        transfers
    }

    /// Transfers that took longer than [`SLOW`], and times that the device sat out, since the last clear.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }

    /// Forgets slow transfers (`zpool clear`).
    pub fn clear_slow(&self) {
        self.slow.store(0, Ordering::Relaxed);
    }

    /// The histograms now.
    pub fn snapshot(&self) -> HistogramsSnapshot {
        HistogramsSnapshot {
            total: self.total.each_ref().map(Histogram::snapshot),
            device: self.device.each_ref().map(Histogram::snapshot),
            queue: self.queue.each_ref().map(Histogram::snapshot),
            individual: self.individual.each_ref().map(Histogram::snapshot),
            aggregated: self.aggregated.each_ref().map(Histogram::snapshot),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_of_their_highest_bit() {
        let histogram = Histogram::<4>::default();
        for value in [0, 1, 2, 3, 4, 7, 8, 1000] {
            histogram.note(value);
        }
        assert_eq!(histogram.snapshot(), [2, 2, 2, 2]);
    }

    #[test]
    fn a_transfer_of_more_than_thirty_seconds_is_slow() {
        let histograms = Histograms::default();
        histograms.note_latency(Priority::SyncRead, Direction::Read, Duration::from_secs(60), SLOW);
        assert_eq!(histograms.slow(), 0);
        histograms.note_latency(Priority::SyncRead, Direction::Read, Duration::ZERO, SLOW + Duration::from_nanos(1));
        assert_eq!(histograms.slow(), 1);
        histograms.clear_slow();
        assert_eq!((histograms.slow(), histograms.snapshot().total[0].iter().sum::<u64>()), (0, 2));
    }
}
