//! What all operations on one pool share: its blocks, its MOS, its data sets, its configuration, and the queue of
//! changes for the sync loop.
//!
//! Invariants:
//! - the MOS changes only in the sync loop: an operation hands it a task (`dsl_sync_task`), done once the data sets of
//!   a group are written, and waits for the group;
//! - a task checks everything before it changes anything, so that a refused task leaves no trace;
//! - `tree` mirrors the MOS's directories as of the last finished task.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use platter_device::{BlockDevice, Cutoff};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ObjsetParams, RedundantMetadata, Tx, TxgGate, UserAccounting, WriteProperties};
use platter_ondisk::types::{checksum, compression};
use platter_ondisk::{ObjectId, Txg, Uberblock};
use platter_vdev::MissingRanges;
use platter_zio::Store;
use platter_zio::{Phase, SpaceAccounting};
use tokio::sync::oneshot;

use crate::accounting::Accounting;
use crate::config::PoolConfig;
use crate::dataset::{Dataset, Origin};
use crate::dir::Dir;
use crate::environment::Environment;
use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::freeing;
use crate::labels::LabelTarget;
use crate::origin::MosAccess;
use crate::pool_locks::Locked;
use crate::scrub::ScrubState;
use crate::spares::Spares;
use crate::txgs::TxgHistory;
use crate::version::PoolVersion;

/// Data sets and directories by name and object.
#[derive(Default)]
pub struct Tree {
    /// Every visible file system or volume by full name (the pool's own name first).
    pub datasets: BTreeMap<String, Arc<Dataset>>,
    /// `$MOS`.
    pub mos_dir: Option<Arc<Dir>>,
    /// `$FREE`.
    pub free_dir: Option<Arc<Dir>>,
    /// `$LEAK`, once something was leaked.
    pub leak_dir: Option<Arc<Dir>>,
    /// The root directory.
    pub root_dir: Option<Arc<Dir>>,
    /// The snapshot that new data sets descend from.
    pub origin: Option<Origin>,
    /// Every data set object that is a snapshot: needed for scrubbing what only snapshots hold.
    pub snapshots: Vec<ObjectId>,
}

/// Objects of the MOS that the pool keeps at hand.
#[derive(Clone, Copy, Debug, Default)]
pub struct MosObjects {
    /// The configuration nvlist.
    pub config: ObjectId,
    /// The deferred-free list.
    pub deferred: ObjectId,
    /// The history, once there is one.
    pub history: ObjectId,
    /// The shared empty bpobj, while in use.
    pub empty_bpobj: ObjectId,
    /// Pool properties, once one was set.
    pub properties: ObjectId,
    /// The queue of object sets to be freed, while there are any.
    pub bptree: ObjectId,
    /// The list of blocks to be freed, while there are any.
    pub frees: ObjectId,
}

/// One change to be made in the sync loop.
pub struct Task {
    run: Box<dyn FnOnce(Arc<Core>, Txg) -> BoxFuture<'static, ()> + Send>,
}

impl Task {
    /// Makes the change in group `txg`.
    pub async fn run(self, core: Arc<Core>, txg: Txg) {
        (self.run)(core, txg).await;
    }
}

/// A pool's shared state.
pub struct Core {
    /// Clock, randomness, limits.
    pub environment: Environment,
    /// Blocks.
    pub store: Store,
    /// Transaction groups.
    pub gate: Arc<TxgGate>,
    /// The meta object set.
    pub mos: Arc<Objset>,
    /// Its space, to be booked on `$MOS`.
    pub mos_accounting: Arc<Accounting>,
    /// The pool directory.
    pub directory: Zap,
    /// Feature flags.
    pub features: Features,
    /// Configuration; its vdev tree is the root.
    pub config: RwLock<PoolConfig>,
    /// Whether the configuration changed since it was last written.
    pub config_dirty: AtomicBool,
    /// Data sets.
    pub tree: RwLock<Tree>,
    /// Well-known objects.
    pub objects: Mutex<MosObjects>,
    /// Pool properties as stored, by name.
    pub pool_properties: RwLock<BTreeMap<String, crate::dir::StoredProperty>>,
    /// The newest uberblock on disk.
    pub uberblock: Mutex<Uberblock>,
    /// Changes waiting for the sync loop.
    pub tasks: Mutex<Vec<Task>>,
    /// Whether a task changed properties: object sets follow when its group is on disk.
    pub properties_changed: AtomicBool,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Whether somebody else had the pool open for writing when this opened it for reading: the blocks that its
    /// uberblock leads to may have been used for others since.
    pub is_borrowed: AtomicBool,
    /// Mount points are below this.
    pub altroot: Option<PathBuf>,
    /// Objects with lost blocks: (data set object, object).
    pub damaged: Mutex<BTreeSet<(u64, u64)>>,
    /// Scrub.
    pub scrub: Mutex<ScrubState>,
    /// The groups each leaf missed, as they are on disk, by leaf guid.
    pub stored_missing: Mutex<BTreeMap<u64, MissingRanges>>,
    /// Log space maps.
    pub logs: Mutex<crate::log_spacemaps::Logs>,
    /// What freeing in the background could not read.
    pub unreadable: Mutex<Option<freeing::Unreadable>>,
    /// Logs that a crash left, until the first group says that they are claimed.
    pub claims: Mutex<Vec<crate::intent::ClaimedLog>>,
    /// Set before the pool is left: the next group flushes every log space map.
    pub flush_logs: AtomicBool,
    /// Set when the sync loop shall end.
    pub stopping: AtomicBool,
    /// Somebody may have changed the pool's state: see `events::watch`.
    pub health_wanted: Arc<tokio::sync::Notify>,
    /// Devices of all leaves that could be opened, by leaf guid, for labels.
    pub leaf_devices: Mutex<BTreeMap<u64, Arc<dyn BlockDevice>>>,
    /// Before every device that the pool has opened or will open.
    pub cutoff: Arc<Cutoff>,
    /// Keeps the pool this host's until its own heartbeat does.
    pub multihost_claim: Mutex<Option<crate::multihost::Claim>>,
    /// Keep other daemons of this machine away from the pool.
    pub locked: Mutex<Locked>,
    /// What the latest groups did.
    pub txgs: TxgHistory,
    /// Hot spares.
    pub spares: Spares,
    /// Held by whoever changes the pool's devices: one change at a time.
    pub changing: tokio::sync::Mutex<()>,
}

impl Core {
    /// Seconds since the epoch.
    pub fn now(&self) -> u64 {
        self.environment.clock.now().0
    }

    /// A salt or guid.
    pub fn random(&self) -> u64 {
        self.environment.random_u64()
    }

    /// The pool's version.
    pub fn version(&self) -> PoolVersion {
        PoolVersion(self.config.read().version)
    }

    /// What the structures of this pool's object sets may be.
    pub fn format(&self) -> platter_dmu::Format {
        format(self.version(), &self.features)
    }

    /// What changes of the MOS need at hand.
    pub fn access(&self) -> MosAccess<'_> {
        MosAccess {
            os: &self.mos,
            directory: &self.directory,
            features: &self.features,
            objects: &self.objects,
            version: self.version(),
        }
    }

    /// The pool's name.
    pub fn name(&self) -> String {
        self.config.read().name.clone()
    }

    /// Runs `change` in the sync loop and waits until its group is on stable storage.
    ///
    /// # Errors
    /// What `change` says; [`PoolError::Unavailable`] when the pool is suspended. A change that was under way then is
    /// made when the pool is resumed.
    pub async fn task<T, F, Fut>(self: &Arc<Self>, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Self>, Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        if self.read_only {
            return Err(PoolError::Unavailable("pool is read-only".into()));
        }
        self.check_running()?;
        let (sender, receiver) = oneshot::channel();
        let run = move |core: Arc<Self>, txg: Txg| {
            async move {
                let result = change(core, Tx::syncing(txg)).await;
                let _ = sender.send((txg, result));
            }
            .boxed()
        };
        self.tasks.lock().push(Task { run: Box::new(run) });
        // The sync loop ends with the pool's suspension: what is handed in after that nobody would ever take up.
        if self.gate.suspended().is_some() {
            self.tasks.lock().clear();
        }
        let gate = self.gate.clone();
        let open = gate.open_txg();
        // Asking for the open group makes the loop start; the task runs in the next group it syncs. A loop that has
        // ended (the pool is suspended) takes no task any more, and the gate says so.
        let stopped = async {
            if gate.wait_synced(open).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        let suspension = self.store.suspension();
        let outcome = tokio::select! {
            biased;
            outcome = receiver => outcome.ok(),
            () = stopped => None,
            () = suspension.halted() => None,
        };
        let (txg, result) = outcome.ok_or_else(suspended)?;
        self.wait_synced(txg).await?;
        result
    }

    /// Waits until group `txg` is on stable storage.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`] when the pool is suspended, so that a command ends.
    pub async fn wait_synced(&self, txg: Txg) -> Result<()> {
        tokio::select! {
            biased;
            synced = self.gate.wait_synced(txg) => Ok(synced?),
            () = self.store.suspension().halted() => Err(suspended()),
        }
    }

    /// Does what reads the pool, as long as that does not mean waiting for devices.
    ///
    /// # Errors
    /// [`PoolError::Unavailable`] when the pool is suspended and not everything is in memory.
    pub async fn unless_suspended<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.store.suspension().halted() => Err(suspended()),
        }
    }

    /// # Errors
    /// [`PoolError::Unavailable`] when the pool is suspended or stopped.
    pub fn check_running(&self) -> Result<()> {
        match self.store.suspension().phase() {
            Phase::Running => Ok(()),
            _ => Err(suspended()),
        }
    }

    /// Nothing is written any more, and whoever waits for it is told why.
    pub fn halt_for_good(&self, reason: &str) {
        self.gate.suspend(reason.to_owned());
        self.store.suspension().stop(reason);
        self.tasks.lock().clear();
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

    /// Marks the configuration as changed.
    pub fn dirty_config(&self) {
        self.config_dirty.store(true, Ordering::Relaxed);
    }

    /// Has the next group written also when nothing else is dirty.
    ///
    /// # Errors
    /// As [`Self::task`].
    pub async fn force_group(self: &Arc<Self>) -> Result<()> {
        let dirty = async |core: Arc<Self>, _: Tx| {
            core.dirty_config();
            Ok(())
        };
        self.task(dirty).await
    }

    /// What an object set of this pool is opened with.
    pub fn objset_params(
        &self,
        id: ObjectId,
        accounting: Arc<dyn SpaceAccounting>,
        properties: WriteProperties,
        read_only: bool,
    ) -> ObjsetParams {
        ObjsetParams {
            store: Arc::new(self.store.clone()),
            accounting,
            gate: self.gate.clone(),
            id,
            properties,
            read_only: read_only || self.read_only,
        }
    }

    /// The pool's deflated size without slop, and what of it is used: (usable, allocated).
    pub fn space(&self) -> (u64, u64) {
        let (allocated, size) = self.store.state().allocator.lock().deflated();
        (size - slop(size).min(size), allocated)
    }

    /// Sets how much may still be allocated, by whom.
    pub fn update_available(&self) {
        let (allocated, size, maturing) = {
            let allocator = self.store.state().allocator.lock();
            let (allocated, size) = allocator.deflated();
            (allocated, size, allocator.deferred())
        };
        let maturing =
            if freeing::is_active(self) { maturing.saturating_add(freeing::space(self).0) } else { maturing };
        let slop = slop(size);
        let room = |reserve: u64| size.saturating_sub(reserve).saturating_sub(allocated);
        let (writers, frees, last) = (room(slop), room(slop / 2), room(slop / 4));
        self.gate.set_room(platter_zio::Room { writers, frees, last, maturing });
    }
}

/// The refusal of what needs the devices of a suspended pool.
fn suspended() -> PoolError {
    PoolError::Unavailable("pool I/O is currently suspended".into())
}

/// Space kept back so that deletion always works (`spa_get_slop_space`): 1/32, at most 128 GiB, at least 128 MiB but
/// not more than half the pool.
pub fn slop(size: u64) -> u64 {
    (size >> 5).min(128 << 30).max((size >> 1).min(128 << 20))
}

/// What the structures of object sets may be in a pool of this version with these features.
fn format(version: PoolVersion, features: &Features) -> platter_dmu::Format {
    version.format(features.is_active("org.illumos:lz4_compress"))
}

/// How the MOS of a pool of this version with these features is written.
pub fn mos_properties(version: PoolVersion, features: &Features) -> WriteProperties {
    let format = format(version, features);
    WriteProperties {
        embedded_data: features.is_enabled("com.delphix:embedded_data"),
        compression: format.compression,
        format,
        ..first_mos_properties()
    }
}

/// What the MOS is opened with, before it says what it may hold: nothing is written with these.
pub fn first_mos_properties() -> WriteProperties {
    WriteProperties {
        checksum: checksum::FLETCHER_4,
        compression: compression::LZ4,
        compression_level: 0,
        copies: 3,
        record_size: 128 << 10,
        is_mos: true,
        embedded_data: true,
        dnode_size: 512,
        redundant_metadata: RedundantMetadata::All,
        format: platter_dmu::Format::default(),
        accounting: UserAccounting::default(),
    }
}
