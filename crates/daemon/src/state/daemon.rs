//! What the daemon owns, and what all operations on it share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::RwLock;
use platter_device::SystemDevices;
use platter_dsl::PoolError;

use super::locks::Locks;
use super::mount_table::MountTable;
use super::schedule_notes::Schedules;
use crate::descriptors::Descriptors;
use crate::engine::{Engine, PoolHandle};
use crate::fault_records::FaultRecords;
use crate::home::Home;
use crate::jobs::Jobs;
use crate::machine::now_seconds;
use crate::mounter::{MountedVolumes, Mounter};
use crate::mounts_file::MountsFile;
use crate::notify::Notifier;
use crate::pools_file::RememberedPool;
use crate::running_streams::RunningStreams;
use platter_api::messages::{ErrorBody, ErrorKind};

/// Result of an operation; the error is ready to be shown.
pub type Answer<T> = Result<T, ErrorBody>;

/// A pool that is open.
pub(super) struct Entry {
    pub(super) pool: Arc<dyn PoolHandle>,
    pub(super) opened: Instant,
    pub(super) altroot: Option<PathBuf>,
    pub(super) remembered: RememberedPool,
    /// Where its devices' paths led when they were last looked at (`device_places`): asked each time, a device that
    /// hangs would hold up all pools.
    pub(super) real_devices: Vec<PathBuf>,
    /// The same by the paths that led there.
    pub(super) led: BTreeMap<PathBuf, PathBuf>,
    /// Not opened again at the next start: its name is temporary, or it has `cachefile=none`.
    pub(super) forgettable: bool,
}

impl Entry {
    /// Where its spares are.
    pub(super) fn real_spares(&self) -> Vec<PathBuf> {
        self.where_they_lead(self.pool.spare_paths())
    }

    /// Where those of its spares are that stand in for another device of it.
    pub(super) fn real_spares_at_work(&self) -> Vec<PathBuf> {
        self.where_they_lead(self.pool.spares_at_work())
    }

    fn where_they_lead(&self, paths: Vec<PathBuf>) -> Vec<PathBuf> {
        paths.into_iter().map(|path| self.led.get(&path).cloned().unwrap_or(path)).collect()
    }

    /// What is to be known of it at the next start.
    pub(super) fn to_remember(&self) -> RememberedPool {
        RememberedPool { txg: self.pool.committed().0, ..self.remembered.clone() }
    }
}

/// A mount that shows volumes; locked by who changes it.
pub(super) type SharedVolumes = Arc<tokio::sync::Mutex<Box<dyn MountedVolumes>>>;

/// Everything the daemon owns.
pub struct Daemon {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) mounter: Arc<dyn Mounter>,
    pub(super) home: Home,
    pub(super) started: u64,
    pub(super) pools: RwLock<BTreeMap<String, Entry>>,
    pub(super) unavailable: RwLock<BTreeMap<String, (RememberedPool, String)>>,
    /// The daemon ends.
    pub(super) ending: AtomicBool,
    /// Pools that were closed at the daemon's end, for the next one.
    pub(super) closed: RwLock<BTreeMap<String, RememberedPool>>,
    pub(super) mounts: RwLock<MountTable>,
    /// The mounts that show volumes, by pool.
    pub(super) volumes: RwLock<BTreeMap<String, SharedVolumes>>,
    /// What a daemon that comes after a crash has to take away.
    pub(super) recorded: MountsFile,
    /// Which data sets get snapshots by themselves.
    pub(super) schedules: Schedules,
    /// Pools that wait for a device, with its name.
    pub(super) silent: RwLock<BTreeMap<String, String>>,
    /// Held while `pools.json` is written.
    pub(super) pools_file: parking_lot::Mutex<()>,
    /// What is known of failing devices.
    pub(super) faults: Arc<FaultRecords>,
    /// Who is told of them.
    pub(super) notifier: Notifier,
    pub(super) locks: Locks,
    pub(super) jobs: Jobs,
    /// Standard outputs and inputs of commands.
    pub(super) descriptors: Descriptors,
    pub(super) streams: RunningStreams,
    /// Who looks at paths.
    pub(super) paths: SystemDevices,
}

impl Daemon {
    /// The pools that are open.
    pub(super) fn handles(&self) -> Vec<(String, Arc<dyn PoolHandle>)> {
        self.pools.read().iter().map(|(name, entry)| (name.clone(), entry.pool.clone())).collect()
    }

    /// Where commands hand over their descriptors.
    pub fn descriptors(&self) -> Descriptors {
        self.descriptors.clone()
    }

    /// A daemon without pools.
    pub fn new(engine: Arc<dyn Engine>, mounter: Arc<dyn Mounter>, home: Home) -> Self {
        Self {
            engine,
            mounter,
            started: now_seconds(),
            pools: RwLock::default(),
            unavailable: RwLock::default(),
            ending: AtomicBool::new(false),
            closed: RwLock::default(),
            mounts: RwLock::default(),
            volumes: RwLock::default(),
            recorded: MountsFile::open(&home),
            faults: Arc::new(FaultRecords::open(&home)),
            notifier: Notifier::new(&home).start(),
            home,
            schedules: Schedules::default(),
            silent: RwLock::default(),
            pools_file: parking_lot::Mutex::default(),
            locks: Locks::default(),
            jobs: Jobs::default(),
            descriptors: Descriptors::default(),
            streams: RunningStreams::default(),
            paths: SystemDevices::default(),
        }
    }
}

/// "cannot create 'tank'" and the engine's reason make a complete message.
pub(super) fn failed(what: &str, error: PoolError) -> ErrorBody {
    let body = ErrorBody::of_kind(kind_of(&error), format!("{what}: {error}"));
    match error {
        PoolError::Suspended { pool, .. } => body.hint(what_helps(&pool)),
        _ => body,
    }
}

/// What lets a suspended pool go on, or end.
fn what_helps(pool: &str) -> String {
    format!(
        "bring its devices back and run 'zpool clear {pool}', or give up what is not on disk yet with \
         'zpool export -f {pool}'"
    )
}

/// What kind of failure an error of the engine is for a client.
pub(super) fn kind_of(error: &PoolError) -> ErrorKind {
    match error {
        PoolError::NotFound(_) => ErrorKind::NotFound,
        PoolError::Exists(_) => ErrorKind::Exists,
        PoolError::Busy(_) => ErrorKind::Busy,
        PoolError::NeedsForce { .. } => ErrorKind::NeedsForce,
        PoolError::Unavailable(_) | PoolError::Suspended { .. } => ErrorKind::Unavailable,
        PoolError::Unsupported(_) => ErrorKind::Unsupported,
        PoolError::Invalid(_) | PoolError::Devices(_) | PoolError::Engine(_) => ErrorKind::Failed,
    }
}
