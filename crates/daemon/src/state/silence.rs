//! Devices that do not answer. Whoever waits for one of them hangs, and is told why and what to do: in `zpool status`,
//! in the log, and at the command that waits.
//!
//! When a device counts as silent the pool says ([`platter_spa::Pool::silent_device`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use platter_spa::Idleness;

use super::Daemon;

/// How often devices are looked at.
const LOOK: Duration = Duration::from_secs(2);

/// What is known of each pool's devices.
type Seen = BTreeMap<String, Idleness>;

/// What is said of a pool that waits for a device.
pub(super) fn advice(pool: &str) -> String {
    format!("Wait for it, or give up what is not on disk yet with 'zpool export -f {pool}'.")
}

/// Looks at the devices of all pools for as long as the daemon lives.
async fn watch(daemon: Weak<Daemon>) {
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
        let pools = self.handles();
        let mut silent = BTreeMap::new();
        let mut now = Seen::new();
        for (pool, handle) in pools {
            let mut of_pool = seen.remove(&pool).unwrap_or_default();
            if let Some(device) = handle.silent_device(&mut of_pool, LOOK) {
                silent.insert(pool.clone(), device);
            }
            now.insert(pool, of_pool);
        }
        *seen = now;
        let before = std::mem::replace(&mut *self.silent.write(), silent.clone());
        for (pool, device) in silent.iter().filter(|(pool, _)| !before.contains_key(*pool)) {
            tracing::warn!(pool, "{device} does not answer; {}", advice(pool));
            let text = format!("{device} does not answer; what needs it waits");
            self.tell_of_pool(pool, "ereport.fs.zfs.deadman", text, advice(pool));
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
