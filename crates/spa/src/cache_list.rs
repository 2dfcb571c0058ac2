//! The list of a pool's cache devices, in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_device::DeviceSource;
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::Leaf;
use platter_zio::CacheDevice;

use crate::config::VdevConfig;
use crate::vdev_names::called;

/// A cache device.
#[derive(Clone)]
pub struct Cache {
    /// Its configuration.
    pub config: VdevConfig,
    /// Its leaf, once somebody tried to open it.
    pub leaf: Option<Arc<Leaf>>,
    /// What is written there and read from there, while it is open.
    pub device: Option<Arc<CacheDevice>>,
}

/// The cache devices of a pool.
#[derive(Default)]
pub struct Caches {
    /// The list's object in the MOS, once there is one.
    pub object: Mutex<ObjectId>,
    /// All of them.
    pub list: Mutex<Vec<Cache>>,
}

impl Caches {
    /// These, of which none is open.
    pub fn new(object: ObjectId, configs: Vec<VdevConfig>) -> Self {
        let caches = Self { object: Mutex::new(object), ..Self::default() };
        caches.extend(configs);
        caches
    }

    /// Adds some, which are not open.
    pub fn extend(&self, configs: Vec<VdevConfig>) {
        self.list.lock().extend(configs.into_iter().map(|config| Cache { config, leaf: None, device: None }));
    }

    /// The configurations of all.
    pub fn configs(&self) -> Vec<VdevConfig> {
        self.list.lock().iter().map(|cache| cache.config.clone()).collect()
    }

    /// The one of this guid.
    pub fn get(&self, guid: Guid) -> Option<Cache> {
        self.list.lock().iter().find(|cache| cache.config.guid == guid).cloned()
    }

    /// Changes the one of this guid; whether it is there.
    pub fn change(&self, guid: Guid, change: impl FnOnce(&mut Cache)) -> bool {
        self.list.lock().iter_mut().find(|cache| cache.config.guid == guid).map(change).is_some()
    }

    /// The one that a command means.
    pub async fn find(&self, devices: &dyn DeviceSource, name: &str) -> Option<Guid> {
        let configs = self.configs();
        let called = called(&configs.iter().collect::<Vec<_>>(), devices, name).await;
        configs.into_iter().map(|cache| cache.guid).find(|guid| called.contains(guid))
    }
}
