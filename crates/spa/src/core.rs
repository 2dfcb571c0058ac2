//! What all operations on one pool share: its data sets, its configuration, its devices, and what it is doing.
//!
//! The MOS changes only in the sync loop: an operation hands it a task, and waits for the group.
//!
//! Invariant: the configuration in memory names the devices that are open, but for one that is just joining or leaving.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use platter_device::{BlockDevice, Cutoff, DeviceSource};
use platter_dmu::Tx;
use platter_dsl::error::Result;
use platter_dsl::pool::DslPool;
use platter_dsl::stored_property::StoredProperty;
use platter_ondisk::rebuild::RebuildPhys;
use platter_ondisk::{ObjectId, Uberblock};
use platter_vdev::MissingRanges;
use platter_zio::Phase;

use crate::cache_list::Caches;
use crate::config::{PoolConfig, VdevConfig};
use crate::environment::Environment;
use crate::error_scrub_state::ErrorScrub;
use crate::free_state::{Kind, Work, Works};
use crate::labels::LabelTarget;
use crate::locked::Locked;
use crate::new_damage::NewDamage;
use crate::rebuild_state::Rebuilds;
use crate::scan_state::ScanState;
use crate::spare_list::Spares;
use crate::txgs::TxgHistory;
use crate::vdev_zaps;

/// What a pool that is opened brings with it; a new one has none of it.
#[derive(Default)]
pub struct Stored {
    /// Pool properties as stored, by name.
    pub pool_properties: BTreeMap<String, StoredProperty>,
    /// The newest uberblock on disk.
    pub uberblock: Uberblock,
    /// Objects with lost blocks: (data set object, object).
    pub damaged: BTreeSet<(ObjectId, ObjectId)>,
    /// Scrub or resilver.
    pub scan: ScanState,
    /// The groups each leaf missed, as they are on disk, by leaf guid.
    pub missing: BTreeMap<u64, MissingRanges>,
    /// Hot spares.
    pub spares: Spares,
    /// Cache devices.
    pub caches: Caches,
    /// Properties of vdevs.
    pub vdev_properties: vdev_zaps::Stored,
    /// Trims and the like that somebody asked for, by the leaf's ZAP.
    pub works: BTreeMap<(ObjectId, Kind), Work>,
    /// Sequential reconstructions, by the top-level vdev's number.
    pub rebuilds: BTreeMap<u64, RebuildPhys>,
}

/// A pool's devices as they were opened.
pub struct OpenDevices {
    /// Devices of all leaves that could be opened, by leaf guid, for labels.
    pub leaves: BTreeMap<u64, Arc<dyn BlockDevice>>,
    /// Before every device that the pool has opened or will open.
    pub cutoff: Arc<Cutoff>,
    /// Who opens devices for pools that are not this one.
    pub source: Arc<dyn DeviceSource>,
    /// Who opens its cache devices.
    pub cache_source: Arc<dyn DeviceSource>,
}

impl OpenDevices {
    /// None yet. From now on `environment` opens devices behind a cutoff of this pool's own.
    pub fn none(environment: &mut Environment) -> Self {
        let (source, cutoff) = (environment.devices.clone(), Arc::new(Cutoff::default()));
        environment.devices = cutoff.around(source.clone());
        let cache_source = cutoff.for_what_can_be_missed().around(source.clone());
        Self { leaves: BTreeMap::new(), cutoff, source, cache_source }
    }
}

/// A pool's shared state.
pub struct Core {
    /// Clock, randomness, limits.
    pub environment: Environment,
    /// Its data sets and what they are made of.
    pub dsl: Arc<DslPool>,
    /// Configuration; its vdev tree is the root.
    pub config: RwLock<PoolConfig>,
    /// Pool properties as stored, by name.
    pub pool_properties: RwLock<BTreeMap<String, StoredProperty>>,
    /// The newest uberblock on disk.
    pub uberblock: Mutex<Uberblock>,
    /// Whether somebody else had the pool open for writing when this opened it for reading: the blocks that its
    /// uberblock leads to may have been used for others since.
    pub is_borrowed: AtomicBool,
    /// Devices that did not answer when it was imported, and were passed over: they may be its own.
    pub silent: Mutex<Vec<PathBuf>>,
    /// Leaves that were another pool's when it was imported.
    pub elsewhere: Mutex<BTreeSet<u64>>,
    /// Objects with lost blocks: (data set object, object).
    pub damaged: Mutex<BTreeSet<(ObjectId, ObjectId)>>,
    /// What of it is not on disk.
    pub new_damage: NewDamage,
    /// Scrub or resilver.
    pub scan: Mutex<ScanState>,
    /// A scrub of what is known to be damaged.
    pub error_scrub: Mutex<ErrorScrub>,
    /// The groups each leaf missed, as they are on disk, by leaf guid.
    pub stored_missing: Mutex<BTreeMap<u64, MissingRanges>>,
    /// Log space maps.
    pub logs: Mutex<crate::logs::Logs>,
    /// Set before the pool is left: the next group flushes every log space map.
    pub flush_logs: AtomicBool,
    /// Set when the sync loop shall end.
    pub stopping: AtomicBool,
    /// Somebody may have changed the pool's state: see `pool_events::watch`.
    pub health_wanted: Arc<tokio::sync::Notify>,
    /// Devices of all leaves that could be opened, by leaf guid, for labels.
    pub leaf_devices: Mutex<BTreeMap<u64, Arc<dyn BlockDevice>>>,
    /// Before every device that the pool has opened or will open.
    pub cutoff: Arc<Cutoff>,
    /// Who opens devices for pools that are not this one.
    pub source: Arc<dyn DeviceSource>,
    /// Who opens its cache devices: nobody waits for these, and what hangs there is nobody's concern, but they are
    /// written under the pool's lease and left with its devices.
    pub cache_source: Arc<dyn DeviceSource>,
    /// Keeps the pool this host's until its own heartbeat does.
    pub multihost_claim: Mutex<Option<crate::claim::Claim>>,
    /// Keep other daemons of this machine away from the pool.
    pub locked: Mutex<Locked>,
    /// What the latest groups did.
    pub txgs: TxgHistory,
    /// Hot spares.
    pub spares: Spares,
    /// Cache devices.
    pub caches: Caches,
    /// Properties of vdevs.
    pub vdev_properties: Mutex<vdev_zaps::Stored>,
    /// Work on what is free of the leaves.
    pub works: Works,
    /// Sequential reconstructions.
    pub rebuilds: Rebuilds,
    /// Held by whoever changes the pool's devices: one change at a time.
    pub changing: tokio::sync::Mutex<()>,
    /// Held while a device is opened again, and never while a group is waited for.
    pub opening: tokio::sync::Mutex<()>,
}

impl Core {
    /// Whether the pool is being left or was given up: nothing that it would do by itself is done any more.
    pub fn is_over(&self) -> bool {
        matches!(self.dsl.store.suspension().phase(), Phase::Stopped(_))
            || self.dsl.gate.suspended().is_some()
            || self.stopping.load(Ordering::Acquire)
    }

    /// A pool that was just made or opened, before anything works for it.
    pub fn new(
        environment: Environment,
        dsl: Arc<DslPool>,
        config: PoolConfig,
        devices: OpenDevices,
        stored: Stored,
    ) -> Arc<Self> {
        let known: BTreeSet<u64> = config.vdev_tree.leaves().iter().map(|leaf| leaf.guid.0).collect();
        assert!(devices.leaves.keys().all(|guid| known.contains(guid)), "a device is open that is none of the pool's");
        let opened = stored.uberblock.txg;
        let rebuilds = Rebuilds::after(stored.rebuilds, &stored.scan.phys, stored.scan.last_scrubbed);
        Arc::new(Self {
            environment,
            dsl,
            config: RwLock::new(config),
            pool_properties: RwLock::new(stored.pool_properties),
            uberblock: Mutex::new(stored.uberblock),
            is_borrowed: AtomicBool::new(false),
            silent: Mutex::default(),
            elsewhere: Mutex::default(),
            damaged: Mutex::new(stored.damaged),
            new_damage: NewDamage::default(),
            scan: Mutex::new(stored.scan),
            error_scrub: Mutex::default(),
            stored_missing: Mutex::new(stored.missing),
            logs: Mutex::default(),
            flush_logs: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            health_wanted: Arc::default(),
            leaf_devices: Mutex::new(devices.leaves),
            cutoff: devices.cutoff,
            source: devices.source,
            cache_source: devices.cache_source,
            multihost_claim: Mutex::default(),
            locked: Mutex::default(),
            txgs: TxgHistory::default(),
            spares: stored.spares,
            caches: stored.caches,
            vdev_properties: Mutex::new(stored.vdev_properties),
            works: Works::new(stored.works, opened),
            rebuilds,
            changing: tokio::sync::Mutex::default(),
            opening: tokio::sync::Mutex::default(),
        })
    }

    /// Seconds since the epoch.
    pub fn now(&self) -> u64 {
        self.dsl.now()
    }

    /// A salt or guid.
    pub fn random(&self) -> u64 {
        self.dsl.random()
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        self.dsl.name()
    }

    /// Runs `change` in the sync loop, once the group's data sets are written, and waits until its group is on stable
    /// storage.
    ///
    /// # Errors
    /// As [`DslPool::task`].
    pub async fn task<T, F, Fut>(self: &Arc<Self>, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Self>, Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let core = self.clone();
        self.dsl.task(move |_, tx| change(core, tx)).await
    }

    /// As [`task`](Self::task), for a change that `check` may refuse; see [`DslPool::checked_task`].
    ///
    /// # Errors
    /// As [`DslPool::checked_task`].
    pub async fn checked_task<P, T, C, CheckFut, F, Fut>(self: &Arc<Self>, check: C, change: F) -> Result<T>
    where
        P: Send + 'static,
        T: Send + 'static,
        C: FnOnce(Arc<Self>) -> CheckFut + Send + 'static,
        CheckFut: Future<Output = Result<P>> + Send + 'static,
        F: FnOnce(Arc<Self>, Tx, P) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let (to_check, core) = (self.clone(), self.clone());
        let check = move |_: Arc<DslPool>| check(to_check);
        self.dsl.checked_task(check, move |_, tx, found| change(core, tx, found)).await
    }

    /// Does what a change needs done to devices that are not the pool's yet, unless I/O does not go on: a write to one
    /// of them that waited for that would come to a device at which nobody has looked for hours.
    ///
    /// # Errors
    /// What `work` says; the pool is suspended, or was before it was done.
    pub async fn unless_suspended<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let suspension = self.dsl.store.suspension();
        tokio::select! {
            biased;
            () = suspension.halted() => Err(self.dsl.suspended()),
            done = work => done,
        }
    }

    /// The devices beside the tree of vdevs: hot spares and cache devices.
    pub fn beside(&self) -> Vec<VdevConfig> {
        self.spares.configs().into_iter().chain(self.caches.configs()).collect()
    }

    /// Everything that can be labelled: opened leaves with their place in the tree.
    pub fn label_targets(&self) -> Vec<LabelTarget> {
        let config = self.config.read();
        let devices = self.leaf_devices.lock();
        let mut targets = Vec::new();
        for (top, vdev) in config.vdev_tree.children.iter().enumerate() {
            for leaf in vdev.leaves() {
                if let Some(device) = devices.get(&leaf.guid.0) {
                    let ashift = vdev.ashift as u32;
                    targets.push(LabelTarget { device: device.clone(), guid: leaf.guid, top, ashift });
                }
            }
        }
        targets
    }

    /// Has the next group written, with nothing in it that would not be there otherwise: its number is on the devices
    /// then.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn pass_group(self: &Arc<Self>) -> Result<()> {
        self.task(async |_, _| Ok(())).await
    }

    /// Has the next group written with the configuration, also in the labels.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn force_group(self: &Arc<Self>) -> Result<()> {
        let dirty = async |core: Arc<Self>, _: Tx| {
            core.dsl.dirty_config();
            Ok(())
        };
        self.task(dirty).await
    }
}
