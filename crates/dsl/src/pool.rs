//! What operations on data sets need of their pool (`dsl_pool_t`, `include/sys/dsl_pool.h`): its blocks, its MOS, its
//! data sets, and the queue of changes for the sync loop.
//!
//! Invariants:
//! - the MOS changes only in the sync loop: an operation hands it a task, and waits for the group;
//! - what a task may be refused for is checked without a transaction, so that a refused task leaves no trace;
//! - `tree` mirrors the MOS's directories as of the last finished task.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::FutureExt;
use parking_lot::{Mutex, RwLock};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ObjsetParams, Tx, TxgGate, WriteProperties};
use platter_ondisk::{ObjectId, Txg};
use platter_zio::{Phase, SpaceAccounting, Store, ZioError};
use tokio::sync::oneshot;

use crate::accounting::Accounting;
use crate::claimed_log::ClaimedLog;
use crate::dataset::Dataset;
use crate::environment::{FilesystemMaker, Randomness};
use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::in_use::InUse;
use crate::mos_access::{MosAccess, MosObjects};
use crate::tasks::{Moment, Task, Tasks};
use crate::tree::Tree;
use crate::unreadable::Unreadable;
use crate::version::PoolVersion;
use platter_hooks::WallClock;

/// What the pool above its data sets hears of them.
pub trait PoolListener: Send + Sync + 'static {
    /// An internal event was added to the history: its name, and what it says.
    fn history_event(&self, name: &str, text: &str);

    /// A data set or snapshot is being destroyed, in the syncing group; its number may be given to another one.
    fn destroyed(&self, objset: ObjectId);

    /// The pool was stopped because of a bug: whatever still works for it is to end.
    fn stopped(&self);
}

/// Where data sets get what is not in the pool.
#[derive(Clone)]
pub struct Surroundings {
    /// Time of day.
    pub clock: Arc<dyn WallClock>,
    /// Fills new file systems.
    pub maker: Arc<dyn FilesystemMaker>,
    /// Source of guids and salts.
    pub random: Randomness,
    /// This host's name, written to the history.
    pub hostname: String,
    /// Blocks of destroyed object sets that one transaction group frees at most (`zfs_async_block_max_blocks`).
    pub frees_per_group: u64,
    /// A clone's list of births goes on in a new one after so many (`zfs_livelist_max_entries`).
    pub livelist_births: u64,
    /// A clone's livelist is given up when it shares no more than this with its origin, in hundredths of what it
    /// references (`zfs_livelist_min_percent_shared`).
    pub livelist_shared: u64,
}

/// What a pool is opened with, from the floor below and from its MOS.
pub struct DslPoolParts {
    /// The pool's name, which is that of its root data set.
    pub name: String,
    /// Time, randomness.
    pub surroundings: Surroundings,
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
    /// Well-known objects.
    pub objects: MosObjects,
    /// Data sets.
    pub tree: Tree,
    /// The pool's version.
    pub version: PoolVersion,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Mount points are below this.
    pub altroot: Option<PathBuf>,
    /// Logs that a crash left.
    pub claims: Vec<ClaimedLog>,
}

/// A pool as its data sets see it.
pub struct DslPool {
    name: String,
    /// Time, randomness.
    pub surroundings: Surroundings,
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
    /// Data sets.
    pub tree: RwLock<Tree>,
    /// Well-known objects.
    pub objects: Mutex<MosObjects>,
    /// Changes waiting for the sync loop.
    pub tasks: Tasks,
    /// Whether a task changed properties: object sets follow when its group is on disk.
    pub properties_changed: AtomicBool,
    /// Whether what the pool says of itself outside the data sets (configuration, labels) is to be written again.
    pub config_dirty: AtomicBool,
    /// Whether nothing may be written.
    pub read_only: bool,
    /// Mount points are below this.
    pub altroot: Option<PathBuf>,
    /// What freeing in the background could not read.
    pub unreadable: Mutex<Option<Unreadable>>,
    /// Logs that a crash left, until the first group says that they are claimed.
    pub claims: Mutex<Vec<ClaimedLog>>,
    /// Snapshots that are being sent.
    pub in_use: InUse,
    version: AtomicU64,
    listener: std::sync::OnceLock<Box<dyn PoolListener>>,
}

impl DslPool {
    /// A pool that was just made or opened.
    pub fn new(parts: DslPoolParts) -> Arc<Self> {
        let DslPoolParts { name, surroundings, store, gate, mos, mos_accounting, directory, features, .. } = parts;
        Arc::new(Self {
            name,
            surroundings,
            store,
            gate,
            mos,
            mos_accounting,
            directory,
            features,
            tree: RwLock::new(parts.tree),
            objects: Mutex::new(parts.objects),
            tasks: Tasks::default(),
            properties_changed: AtomicBool::new(false),
            config_dirty: AtomicBool::new(!parts.read_only),
            read_only: parts.read_only,
            altroot: parts.altroot,
            unreadable: Mutex::default(),
            claims: Mutex::new(parts.claims),
            in_use: InUse::default(),
            version: AtomicU64::new(parts.version.0),
            listener: std::sync::OnceLock::new(),
        })
    }

    /// Sets who hears of what happens to the data sets. Once.
    ///
    /// # Panics
    /// Somebody was set before.
    pub fn set_listener(&self, listener: Box<dyn PoolListener>) {
        assert!(self.listener.set(listener).is_ok(), "one listener for each pool");
    }

    /// Who hears of what happens to the data sets.
    pub fn listener(&self) -> Option<&dyn PoolListener> {
        self.listener.get().map(|listener| &**listener)
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Seconds since the epoch.
    pub fn now(&self) -> u64 {
        self.surroundings.clock.now().0
    }

    /// A salt or guid.
    pub fn random(&self) -> u64 {
        self.surroundings.random.number()
    }

    /// The pool's version.
    pub fn version(&self) -> PoolVersion {
        PoolVersion(self.version.load(Ordering::Acquire))
    }

    /// The pool was brought to `version`.
    pub fn set_version(&self, version: PoolVersion) {
        let before = self.version.swap(version.0, Ordering::AcqRel);
        assert!(before <= version.0, "a pool's version never falls: {before} to {version}");
    }

    /// The data set called `name`.
    ///
    /// # Errors
    /// It does not exist.
    pub fn find(&self, name: &str) -> Result<Arc<Dataset>> {
        let tree = self.tree.read();
        tree.datasets.get(name).cloned().ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))
    }

    /// What the structures of this pool's object sets may be.
    pub fn format(&self) -> platter_dmu::Format {
        crate::mos_properties::format(self.version(), &self.features)
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

    /// Runs `change` in the sync loop, once the group's data sets are written, and waits until its group is on stable
    /// storage.
    ///
    /// # Errors
    /// What `change` says; [`PoolError::Suspended`] when the pool is suspended. A change that was under way then is
    /// made when the pool is resumed.
    pub async fn task<T, F, Fut>(self: &Arc<Self>, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Arc<Self>, Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let dsl = self.clone();
        self.task_at(Moment::Ordinary, move |tx| change(dsl, tx)).await
    }

    /// As [`task`](Self::task), for a change that may be refused: `check` says why in the group in which it would be
    /// made, before anything of it is, or hands what it found to `change`. It is given no transaction, so it cannot
    /// change anything (`dsl_sync_task`'s check and sync functions, `module/zfs/dsl_synctask.c`). Damage that ends
    /// `change` itself half-way stops the pool before its group is written: on disk nothing of it was done.
    ///
    /// # Errors
    /// As [`task`](Self::task); what `check` says.
    pub async fn checked_task<P, T, C, CheckFut, F, Fut>(self: &Arc<Self>, check: C, change: F) -> Result<T>
    where
        P: Send + 'static,
        T: Send + 'static,
        C: FnOnce(Arc<Self>) -> CheckFut + Send + 'static,
        CheckFut: Future<Output = Result<P>> + Send + 'static,
        F: FnOnce(Arc<Self>, Tx, P) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.checked_task_in_group(async move |dsl, _| check(dsl).await, change).await
    }

    /// As [`checked_task`](Self::checked_task), for a check that has to know in which group it is.
    ///
    /// # Errors
    /// As [`checked_task`](Self::checked_task).
    pub async fn checked_task_in_group<P, T, C, CheckFut, F, Fut>(self: &Arc<Self>, check: C, change: F) -> Result<T>
    where
        P: Send + 'static,
        T: Send + 'static,
        C: FnOnce(Arc<Self>, Txg) -> CheckFut + Send + 'static,
        CheckFut: Future<Output = Result<P>> + Send + 'static,
        F: FnOnce(Arc<Self>, Tx, P) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        let dsl = self.clone();
        self.run_task(Moment::Ordinary, async move |tx| match check(dsl.clone(), tx.txg()).await {
            Err(refused) => (Err(refused), Ok(())),
            Ok(found) => {
                let result = change(dsl, tx, found).await;
                // What was checked fails only where something is damaged, and nobody knows how far it came.
                let kept = match &result {
                    Err(PoolError::Engine(error)) => {
                        Err(ZioError::corrupt("change", format!("it was made in part, then came: {error}")))
                    }
                    _ => Ok(()),
                };
                (result, kept)
            }
        })
        .await
    }

    /// As [`task`](Self::task), for a change that is made at a `moment` of its choice.
    ///
    /// # Errors
    /// As [`task`](Self::task).
    pub async fn task_at<T, F, Fut>(&self, moment: Moment, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T>> + Send + 'static,
    {
        self.run_task(moment, async move |tx| (change(tx).await, Ok(()))).await
    }

    /// Has the sync loop make `change` in the open group or a later one, in the order in which such changes are handed
    /// in, and waits for nothing (`dsl_sync_task_nowait`): a crash may lose it, and so may the pool's suspension. What
    /// fails is told to `failed`; its group is kept.
    ///
    /// # Errors
    /// The pool is read-only or stopped.
    pub fn task_without_waiting<F, Fut>(&self, change: F, failed: impl FnOnce(PoolError) + Send + 'static) -> Result<()>
    where
        F: FnOnce(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        self.check_writable()?;
        let run = move |txg: Txg| {
            async move {
                if let Err(error) = change(Tx::syncing(txg)).await {
                    failed(error);
                }
                Ok(())
            }
            .boxed()
        };
        self.hand_in(Task::new(Moment::Ordinary, self.gate.open_txg(), run));
        Ok(())
    }

    fn hand_in(&self, task: Task) {
        self.tasks.push(task);
        // The sync loop ends with the pool's suspension: what is handed in after that nobody would ever take up.
        if self.gate.suspended().is_some() {
            self.tasks.clear();
        }
    }

    /// Has the sync loop make `change`, which says what came of it, and whether its group may be kept.
    async fn run_task<T, F, Fut>(&self, moment: Moment, change: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(Tx) -> Fut + Send + 'static,
        Fut: Future<Output = (Result<T>, platter_dmu::Result<()>)> + Send + 'static,
    {
        self.check_writable()?;
        let (sender, receiver) = oneshot::channel();
        let run = move |txg: Txg| {
            async move {
                let (result, kept) = change(Tx::syncing(txg)).await;
                let _ = sender.send((txg, result));
                kept
            }
            .boxed()
        };
        let gate = self.gate.clone();
        let open = gate.open_txg();
        self.hand_in(Task::new(moment, open, run));
        // Asking for the open group makes the loop start; the task runs in that group or a later one. A loop that has
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
        let (txg, result) = outcome.ok_or_else(|| self.begun())?;
        let written = self.wait_synced(txg).await;
        let done = result?;
        written?;
        Ok(done)
    }

    /// Waits until everything so far is on stable storage.
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn sync(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        self.check_running()?;
        self.wait_synced(self.gate.open_txg()).await
    }

    /// Waits until group `txg` is on stable storage.
    ///
    /// # Errors
    /// [`PoolError::Suspended`] when the pool is suspended, so that a command ends; what it has begun goes on with
    /// the pool.
    pub async fn wait_synced(&self, txg: Txg) -> Result<()> {
        tokio::select! {
            biased;
            synced = self.gate.wait_synced(txg) => Ok(synced?),
            () = self.store.suspension().halted() => Err(self.begun()),
        }
    }

    /// Does what reads the pool, as long as that does not mean waiting for devices.
    ///
    /// # Errors
    /// [`PoolError::Suspended`] when the pool is suspended and not everything is in memory.
    pub async fn unless_suspended<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            biased;
            outcome = work => outcome,
            () = self.store.suspension().halted() => Err(self.suspended()),
        }
    }

    /// # Errors
    /// [`PoolError::Unavailable`] when the pool is read-only, [`PoolError::Suspended`] when it is suspended or stopped.
    pub fn check_writable(&self) -> Result<()> {
        match self.read_only {
            true => Err(PoolError::Unavailable("pool is read-only".into())),
            false => self.check_running(),
        }
    }

    /// # Errors
    /// [`PoolError::Suspended`] when the pool is suspended or stopped.
    pub fn check_running(&self) -> Result<()> {
        match self.store.suspension().phase() {
            Phase::Running => Ok(()),
            _ => Err(self.suspended()),
        }
    }

    /// What is said of a change that was handed in before the pool was suspended.
    fn begun(&self) -> PoolError {
        PoolError::Suspended { pool: self.name.clone(), is_begun: true }
    }

    /// The refusal of what needs the devices of a suspended pool.
    pub fn suspended(&self) -> PoolError {
        PoolError::Suspended { pool: self.name.clone(), is_begun: false }
    }

    /// Nothing is written any more, and whoever waits for it is told why.
    pub fn halt_for_good(&self, reason: &str) {
        self.gate.suspend(reason.to_owned());
        self.store.suspension().stop(reason);
        self.tasks.clear();
    }

    /// Has the pool write its configuration again.
    pub fn dirty_config(&self) {
        self.config_dirty.store(true, Ordering::Relaxed);
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
}

/// Space kept back so that deletion always works (`spa_get_slop_space`): 1/32, at most 128 GiB, at least 128 MiB but
/// not more than half the pool.
pub fn slop(size: u64) -> u64 {
    (size >> 5).min(128 << 30).max((size >> 1).min(128 << 20))
}
