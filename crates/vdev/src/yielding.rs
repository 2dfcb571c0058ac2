//! When work in the background (scrubs, resilvers) makes way for work that somebody waits for (`vdev_queue_class_max`
//! with `zfs_vdev_nia_credit` and `zfs_vdev_nia_delay`, `module/zfs/vdev_queue.c`).
//!
//! A disk that turns serves what lies near its head first: a few sequential transfers in its queue, each followed by
//! the next, make a random read wait for as long as they come. So while others work with a device, one transfer of the
//! background goes to it after so many of theirs, and those that may go together when they have let go of it for a
//! moment. That are few: whoever reads from one side of a mirror and then from the other one leaves each alone for that
//! long, and comes back.
//!
//! Invariants:
//! - what waits goes in the end: after so many transfers of others ([`OWED`], or as [`set_owed`] says), or when there
//!   were none for [`CALM_MAX`];
//! - while others work with a device at most one transfer of the background is added to it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Transfers of others that end before one of the background goes: with a random read each they keep three quarters of
/// what a disk can do.
pub(crate) const OWED: u32 = 4;
/// Most that can be set: what waits is to go on within seconds.
const OWED_MAX: u32 = 1000;
static OWED_SET: AtomicU32 = AtomicU32::new(OWED);
/// How long nobody else may have used a device before the background has it to itself: so many times as long as a
/// transfer takes, at most this long.
const CALM_TIMES: u32 = 2;
pub(crate) const CALM_MAX: Duration = Duration::from_millis(25);
/// A transfer counts for one in so many in what one takes of late.
const SMOOTHING: u32 = 8;

/// Sets how many transfers that somebody waits for end before one of a scrub or resilver goes while both use a device:
/// 4 unless it is set, 1000 at most. With 0 it waits for none of them, and still has one with the device at a time. It
/// counts for devices that are opened afterwards, in this process.
pub fn set_owed(transfers: u32) {
    OWED_SET.store(transfers.min(OWED_MAX), Ordering::Relaxed);
}

/// Who uses a device.
pub(crate) struct Yielding {
    /// How many of others end before one of the background goes.
    ratio: u32,
    /// Transfers with the device that somebody waits for.
    others: usize,
    /// How many of others have still to end before one of the background goes.
    owed: u32,
    /// When the last one of others began or ended.
    last: Option<Instant>,
    /// How long one of others takes of late.
    typical: Duration,
    /// Whether somebody will look again when it is calm.
    pub(crate) is_watched: bool,
}

impl Default for Yielding {
    fn default() -> Self {
        let (ratio, typical) = (OWED_SET.load(Ordering::Relaxed), Duration::ZERO);
        assert!(ratio <= OWED_MAX, "what waits goes in the end");
        Self { ratio, others: 0, owed: 0, last: None, typical, is_watched: false }
    }
}

impl Yielding {
    /// One that somebody waits for goes to the device.
    pub(crate) fn other_begins(&mut self, now: Instant) {
        self.others += 1;
        self.last = Some(now);
    }

    /// One of these has ended, after so long.
    pub(crate) fn other_ends(&mut self, now: Instant, took: Duration) {
        self.typical = (self.typical * (SMOOTHING - 1) + took.min(2 * CALM_MAX)) / SMOOTHING;
        self.others = self.others.checked_sub(1).expect("it has begun");
        self.owed = self.owed.saturating_sub(1);
        self.last = Some(now);
    }

    /// Whether others use the device at this moment.
    pub(crate) fn has_others(&self) -> bool {
        self.others > 0
    }

    /// Whether nobody else uses the device.
    fn is_calm(&self, now: Instant) -> bool {
        self.others == 0 && self.last.is_none_or(|last| now.duration_since(last) >= self.calm())
    }

    fn calm(&self) -> Duration {
        (self.typical * CALM_TIMES).min(CALM_MAX)
    }

    /// How long to wait before looking again.
    pub(crate) fn until_calm(&self, now: Instant) -> Duration {
        let calm = self.calm();
        self.last.map_or(calm, |last| calm.saturating_sub(now.duration_since(last))).max(Duration::from_millis(1))
    }

    /// How many of the background may be with the device, of at most `active_max`.
    pub(crate) fn limit(&self, now: Instant, active_max: usize) -> usize {
        match (self.is_calm(now), self.owed) {
            (true, _) => active_max,
            (false, 0) => 1,
            (false, _) => 0,
        }
    }

    /// One of the background goes.
    pub(crate) fn background_begins(&mut self, now: Instant) {
        assert!(self.limit(now, 1) > 0, "it makes way while others are owed their turn");
        self.owed = if self.is_calm(now) { 0 } else { self.ratio };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_waits_for_as_many_as_is_set() {
        for ratio in [0, 1, 9] {
            let (mut yielding, now) = (Yielding { ratio, ..Yielding::default() }, Instant::now());
            yielding.other_begins(now);
            yielding.background_begins(now);
            for _ in 0..ratio {
                assert_eq!(yielding.limit(now, 3), 0, "of {ratio}");
                yielding.other_ends(now, CALM_MAX);
                yielding.other_begins(now);
            }
            assert_eq!(yielding.limit(now, 3), 1, "one at a time, of {ratio}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_goes_after_some_of_others_and_more_when_it_is_calm() {
        let mut yielding = Yielding::default();
        let now = Instant::now();
        assert_eq!(yielding.limit(now, 3), 3);
        yielding.other_begins(now);
        assert_eq!(yielding.limit(now, 3), 1);
        yielding.background_begins(now);
        for _ in 0..OWED {
            assert_eq!(yielding.limit(now, 3), 0);
            yielding.other_ends(now, 2 * CALM_MAX);
            yielding.other_begins(now);
        }
        assert_eq!(yielding.limit(now, 3), 1);
        for _ in 0..20 {
            yielding.other_ends(now, 2 * CALM_MAX);
            yielding.other_begins(now);
        }
        yielding.other_ends(now, 2 * CALM_MAX);
        assert_eq!(yielding.limit(now, 3), 1, "they may come again at once");
        let later = now + CALM_MAX;
        assert_eq!(yielding.limit(later, 3), 3);
        yielding.background_begins(later);
        assert_eq!(yielding.limit(later, 3), 3);
        assert_eq!(yielding.until_calm(later), Duration::from_millis(1));
        yielding.other_begins(later);
        assert_eq!(yielding.limit(later + CALM_MAX, 3), 1, "a slow one is one, too");
        assert_eq!(yielding.until_calm(later), CALM_MAX);
        for _ in 0..20 {
            yielding.other_ends(later, Duration::ZERO);
            yielding.other_begins(later);
        }
        yielding.other_ends(later, Duration::ZERO);
        assert!(yielding.until_calm(later) < CALM_MAX / 4, "a fast device is calm sooner");
    }
}
