//! Until when devices may be written: a pool that other hosts could take is this host's only for so long after it last
//! showed that it uses it.
//!
//! What follows from it:
//! - the time is looked at where a write begins, and once more where it is handed to the kernel: one that waited in a
//!   queue while the whole process stood still is not handed in any more;
//! - a lease that was never limited costs one load for each write.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// As a time: always open.
const ALWAYS: u64 = u64::MAX;

/// See the module text.
#[derive(Debug)]
pub struct Lease {
    origin: Instant,
    /// Nanoseconds after `origin` at which it ends.
    until: AtomicU64,
}

impl Default for Lease {
    /// One without an end, until [`renew`](Self::renew) is called.
    fn default() -> Self {
        Self { origin: Instant::now(), until: AtomicU64::new(ALWAYS) }
    }
}

impl Lease {
    /// It ends `limit` after `from`.
    pub fn renew(&self, from: Instant, limit: Duration) {
        let until = (from + limit).saturating_duration_since(self.origin).as_nanos();
        // However long it is, it is none without an end.
        let until = u64::try_from(until).unwrap_or(u64::MAX).min(ALWAYS - 1);
        self.until.store(until, Ordering::Release);
    }

    /// It has no end from now on: nobody else uses the devices.
    pub fn remove(&self) {
        self.until.store(ALWAYS, Ordering::Release);
    }

    /// Whether it ends by itself.
    pub fn is_timed(&self) -> bool {
        self.until.load(Ordering::Acquire) != ALWAYS
    }

    /// Whether the devices may be written at this moment.
    pub fn holds(&self) -> bool {
        let until = self.until.load(Ordering::Acquire);
        until == ALWAYS || self.origin.elapsed().as_nanos() < u128::from(until)
    }
}

/// What became of a write that was to be handed to the kernel after its lease had ended.
#[derive(Debug, thiserror::Error)]
#[error("it came too late to be written")]
pub(crate) struct TooLate;
