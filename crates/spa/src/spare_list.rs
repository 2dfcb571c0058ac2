//! The list of a pool's hot spares, in memory.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_device::DeviceSource;
use platter_ondisk::{Guid, ObjectId};
use tokio::sync::Notify;

use crate::config::VdevConfig;
use crate::vdev_names::is_called;

/// How it is with a spare that this pool does not use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody uses it. Its size, bytes.
    Available(u64),
    /// It stands in for a device of the pool of this name.
    Elsewhere(String),
    /// Why it cannot be used.
    Unusable(String),
}

/// A spare.
#[derive(Clone, Debug)]
pub struct Spare {
    /// Its configuration.
    pub config: VdevConfig,
    /// As last seen.
    pub standing: Standing,
}

/// The spares of a pool.
#[derive(Default)]
pub struct Spares {
    /// The list's object in the MOS, once there is one.
    pub object: Mutex<ObjectId>,
    /// All of them.
    pub list: Mutex<Vec<Spare>>,
    /// Told when there are others, or one became free.
    pub changed: Arc<Notify>,
}

impl Spares {
    /// These, of which nothing is known yet.
    pub fn new(object: ObjectId, configs: Vec<VdevConfig>) -> Self {
        let spares = Self { object: Mutex::new(object), ..Self::default() };
        spares.extend(configs);
        spares
    }

    /// Adds some, of which nothing is known yet.
    pub fn extend(&self, configs: Vec<VdevConfig>) {
        let unseen = || Standing::Unusable("it was not looked at yet".into());
        self.list.lock().extend(configs.into_iter().map(|config| Spare { config, standing: unseen() }));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.lock().is_empty()
    }

    /// The configurations of all.
    pub fn configs(&self) -> Vec<VdevConfig> {
        self.list.lock().iter().map(|spare| spare.config.clone()).collect()
    }

    /// How it is with the spare of this guid.
    pub fn set_standing(&self, guid: Guid, standing: Standing) {
        if let Some(spare) = self.list.lock().iter_mut().find(|spare| spare.config.guid == guid) {
            spare.standing = standing;
        }
    }

    /// The spare that a command means.
    pub fn find(&self, devices: &dyn DeviceSource, name: &str) -> Option<VdevConfig> {
        self.configs().into_iter().find(|spare| is_called(spare, devices, name))
    }

    /// Whether a spare has this guid.
    pub fn is_listed(&self, guid: Guid) -> bool {
        self.list.lock().iter().any(|spare| spare.config.guid == guid)
    }
}
