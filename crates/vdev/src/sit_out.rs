//! Devices that sit out of reads: a RAID-Z group rebuilds from parity what a device much slower than its siblings would
//! have been asked for (`vdev_sit_out_reads` and `vdev_raidz_sit_child`, `module/zfs/vdev_raidz.c` of OpenZFS 2.4).
//!
//! Sitting out is a wish, not a state of the vdev: whether a read does without a device is decided for each read
//! (`raidz_attempt`), and it never does when the device is needed.
//!
//! Nothing of it is stored: when a pool is opened nobody sits. It ends by itself, unless it was wished for by hand, and
//! with the leaf's errors being cleared.
//!
//! Invariant: what each read looks at says the same as what is behind the lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// For how long a device sits that was found to be slow (`vdev_read_sit_out_secs`).
pub const SIT_OUT: Duration = Duration::from_secs(600);
/// How often it is looked who is slow (`vdev_raidz_outlier_check_interval_ms`).
pub const INTERVAL: Duration = Duration::from_secs(1);

/// Until when a device sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Then it is read again.
    Time(Instant),
    /// Somebody says that it is over.
    Told,
}

/// Whether a leaf sits out.
#[derive(Debug, Default)]
pub(crate) struct SitOut {
    /// Whether there is anything in `until`: what each read looks at.
    is_set: AtomicBool,
    until: Mutex<Option<Until>>,
}

impl SitOut {
    /// From now on it sits so long, or not at all.
    pub(crate) fn set(&self, until: Option<Until>) {
        let mut current = self.until.lock();
        assert_eq!(current.is_some(), self.is_set.load(Ordering::Relaxed), "both say whether it sits");
        *current = until;
        self.is_set.store(until.is_some(), Ordering::Relaxed);
    }

    /// Whether it sits now.
    pub(crate) fn is_on(&self) -> bool {
        if !self.is_set.load(Ordering::Relaxed) {
            return false;
        }
        let mut until = self.until.lock();
        let is_over = matches!(*until, Some(Until::Time(end)) if end <= Instant::now());
        if is_over {
            *until = None;
            self.is_set.store(false, Ordering::Relaxed);
        }
        until.is_some()
    }
}
