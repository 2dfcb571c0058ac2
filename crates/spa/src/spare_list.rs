//! The list of a pool's hot spares, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_device::DeviceSource;
use platter_hooks::Watch;
use platter_ondisk::{Guid, ObjectId};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::VdevConfig;
use crate::vdev_names::called;

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
    /// Whether there was anything at its path then; `None` when that is not known.
    pub was_there: Option<bool>,
}

/// What a look at a spare showed.
#[derive(Clone, Debug)]
pub struct Looked {
    /// Whether there is anything at its path; `None` when there was no answer.
    pub is_there: Option<bool>,
    /// How it is with it.
    pub standing: Standing,
    /// Whether its label is still that of a device of this pool.
    pub has_left: bool,
}

/// The looks at spares that are under way: since when, and where their ends are told.
pub type Looks = BTreeMap<u64, (Instant, Arc<Watch<Option<Looked>>>)>;

/// The spares of a pool.
#[derive(Default)]
pub struct Spares {
    /// The list's object in the MOS, once there is one.
    pub object: Mutex<ObjectId>,
    /// All of them.
    pub list: Mutex<Vec<Spare>>,
    /// The looks at them that are under way, by guid.
    pub looks: Arc<Mutex<Looks>>,
    /// Devices, by guid, from which somebody took a spare that could be used, and whether they could be used then. None
    /// stands in for them by itself until they are in order or in a worse state, or the pool is opened again.
    pub declined: Mutex<BTreeMap<u64, bool>>,
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
        let spare = |config| Spare { config, standing: unseen(), was_there: None };
        self.list.lock().extend(configs.into_iter().map(spare));
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

    /// Notes what a look at the spare of this guid showed.
    pub fn note(&self, guid: Guid, looked: Looked) {
        if let Some(spare) = self.list.lock().iter_mut().find(|spare| spare.config.guid == guid) {
            (spare.standing, spare.was_there) = (looked.standing, looked.is_there);
        }
    }

    /// The spare that a command means.
    pub async fn find(&self, devices: &dyn DeviceSource, name: &str) -> Option<VdevConfig> {
        let configs = self.configs();
        let called = called(&configs.iter().collect::<Vec<_>>(), devices, name).await;
        configs.into_iter().find(|spare| called.contains(&spare.guid))
    }

    /// Whether a spare has this guid.
    pub fn is_listed(&self, guid: Guid) -> bool {
        self.list.lock().iter().any(|spare| spare.config.guid == guid)
    }
}
