//! The power of a machine with all its disks: it fails after so many commands, whichever disk they go to.
//!
//! Invariant: once it has failed, no command reaches any medium and none is answered, until it is switched on again.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// See the module text. Cut each disk's power ([`SimDisk::power_cut`](super::SimDisk::power_cut)) before it is on
/// again.
#[derive(Debug)]
pub struct PowerSupply {
    left: AtomicU64,
    lost: Notify,
}

impl Default for PowerSupply {
    fn default() -> Self {
        Self { left: AtomicU64::new(u64::MAX), lost: Notify::new() }
    }
}

impl PowerSupply {
    /// It fails after `commands` more; `u64::MAX`: never. Switches it on.
    pub fn fails_after(&self, commands: u64) {
        self.left.store(commands, Ordering::SeqCst);
    }

    /// Whether it has failed.
    pub fn is_out(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    /// Waits until it fails.
    pub async fn lost(&self) {
        loop {
            let notified = self.lost.notified();
            if self.is_out() {
                return;
            }
            notified.await;
        }
    }

    /// Whether one more command has power.
    pub(super) fn carries_one_more(&self) -> bool {
        let left = self.left.load(Ordering::SeqCst);
        if left == u64::MAX || left == 0 {
            return left != 0;
        }
        let before = self.left.swap(left - 1, Ordering::SeqCst);
        assert_eq!(before, left, "commands are counted one by one: a simulation has one thread");
        if left == 1 {
            self.lost.notify_waiters();
        }
        left > 1
    }
}
