//! Devices that do not answer. Whoever waits for one of them hangs, and is told why and what to do: in `zpool status`,
//! in the log, and at the command that waits.
//!
//! Invariant: a device is silent when it has had transfers under way for [`SILENT`] and ended none. A slow one ends
//! some.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Daemon;

/// How often devices are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long a device may end nothing: as long as one that is left by force.
const SILENT: Duration = Duration::from_secs(8);

/// What is known of one device: transfers that it has ended, and for how long it has ended no more.
type Seen = BTreeMap<(String, String), (u64, Duration)>;

/// What is said of a pool that waits for a device.
pub(super) fn advice(pool: &str) -> String {
    format!("Wait for it, or give up what is not on disk yet with 'zpool export -f {pool}'.")
}

/// Looks at the devices of all pools for as long as the daemon lives.
pub(super) async fn watch(daemon: Weak<Daemon>) {
    let mut seen = Seen::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(daemon) = daemon.upgrade() else { return };
        daemon.look(&mut seen);
    }
}

impl Daemon {
    /// Watches devices from now on.
    pub fn watch_devices(self: &Arc<Self>) {
        tokio::spawn(watch(Arc::downgrade(self)));
    }

    /// Looks once.
    fn look(&self, seen: &mut Seen) {
        let pools: Vec<_> = self.pools.read().iter().map(|(name, entry)| (name.clone(), entry.pool.clone())).collect();
        let mut now = Seen::new();
        for (pool, handle) in pools {
            for (device, ended) in handle.busy_devices() {
                let key = (pool.clone(), device);
                let idle = match seen.get(&key) {
                    Some((before, idle)) if *before == ended => *idle + LOOK,
                    _ => Duration::ZERO,
                };
                now.insert(key, (ended, idle));
            }
        }
        let silent: BTreeMap<String, String> = now
            .iter()
            .filter(|(_, (_, idle))| *idle >= SILENT)
            .map(|((pool, device), _)| (pool.clone(), device.clone()))
            .collect();
        *seen = now;
        let before = std::mem::replace(&mut *self.silent.write(), silent.clone());
        for (pool, device) in silent.iter().filter(|(pool, _)| !before.contains_key(*pool)) {
            tracing::warn!(pool, "{device} does not answer; {}", advice(pool));
        }
        for pool in before.keys().filter(|pool| !silent.contains_key(*pool)) {
            tracing::info!(pool, "its devices answer again");
        }
    }

    /// The device of a pool that does not answer.
    pub(super) fn silent_device(&self, pool: &str) -> Option<String> {
        self.silent.read().get(pool).cloned()
    }
}
