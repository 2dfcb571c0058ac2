//! Where the devices of open pools are: paths as links lead elsewhere when a disk is plugged in again, and devices join
//! and leave pools with commands and without.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use platter_device::DeviceSource;

use super::{Daemon, Entry};
use crate::engine::PoolHandle;

/// For how long a path is looked at.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// How often it is asked whether pools have other devices.
const FOLLOW: Duration = Duration::from_secs(1);

/// Follows the devices of all pools for as long as the daemon lives, so that the next one finds them where they are.
async fn watch(daemon: Weak<Daemon>) {
    loop {
        tokio::time::sleep(FOLLOW).await;
        let Some(daemon) = daemon.upgrade() else { return };
        daemon.follow_all_devices().await;
    }
}

impl Daemon {
    /// Follows devices from now on.
    pub fn watch_places(self: &Arc<Self>) {
        tokio::spawn(watch(Arc::downgrade(self)));
    }

    /// Where these paths lead: to themselves where nothing is, or nothing answers in time.
    pub(super) async fn all_real(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        let led = self.leading(&paths).await;
        led.into_iter().zip(paths).map(|(led, path)| led.unwrap_or(path)).collect()
    }

    /// Where these paths lead, when something is there and answers in time.
    async fn leading(&self, paths: &[PathBuf]) -> Vec<Option<PathBuf>> {
        let looks = paths.iter().map(|path| async move {
            let seen = tokio::time::timeout(LOOK_MAX, self.paths.look(path)).await;
            seen.ok().and_then(|seen| seen.real)
        });
        join_all(looks).await
    }

    /// As [`Self::all_real`], to be compared with where the devices of open pools are: that is looked at anew of each
    /// pool that had one there.
    pub(super) async fn leading_among_devices(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        self.follow_all_devices().await;
        let led = self.all_real(paths).await;
        let has_one = |entry: &Entry| led.iter().any(|place| entry.real_devices.contains(place));
        for (name, pool) in self.handles() {
            let is_concerned = self.pools.read().get(&name).is_some_and(has_one);
            if is_concerned {
                self.look_where_devices_are(&name, &pool).await;
            }
        }
        led
    }

    async fn follow_all_devices(&self) {
        for (name, pool) in self.handles() {
            self.follow_devices(&name, &pool).await;
        }
    }

    /// Remembers where a pool's devices are now, when it has others or its guid has changed.
    pub(super) async fn follow_devices(&self, name: &str, pool: &Arc<dyn PoolHandle>) {
        let (guid, devices) = (pool.guid().to_string(), pool.device_paths());
        let is_known = |entry: &Entry| entry.remembered.guid == guid && entry.remembered.devices == devices;
        if self.pools.read().get(name).is_none_or(is_known) {
            return;
        }
        self.look_where_devices_are(name, pool).await;
        // Logged: the next daemon looks beside the places that it knows.
        let _ = self.remember();
    }

    async fn look_where_devices_are(&self, name: &str, pool: &Arc<dyn PoolHandle>) {
        let devices = pool.device_paths();
        let led = self.leading(&devices).await;
        let mut pools = self.pools.write();
        // Another pool may have that name by now. Whoever looked at the devices that this one has now saw more.
        let is_this = |entry: &&mut Entry| Arc::ptr_eq(&entry.pool, pool) && pool.device_paths() == devices;
        let Some(entry) = pools.get_mut(name).filter(is_this) else { return };
        // What does not answer now is where it was.
        let place = |(device, led): (&PathBuf, Option<PathBuf>)| {
            led.or_else(|| entry.led.get(device).cloned()).unwrap_or_else(|| device.clone())
        };
        let real_devices: Vec<PathBuf> = devices.iter().zip(led).map(place).collect();
        entry.led = devices.iter().cloned().zip(real_devices.iter().cloned()).collect();
        let guid = pool.guid().to_string();
        (entry.remembered.guid, entry.remembered.devices, entry.real_devices) = (guid, devices, real_devices);
    }
}
