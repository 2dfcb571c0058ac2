//! The surroundings of a simulated engine: devices by name, a clock that stands still, and what fills new file systems.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_device::{BlockDevice, DeviceError, DeviceSource, OpenOptions, PathKind, Seen, Stamp};
use platter_dmu::{Objset, Tx};
use platter_dsl::FilesystemSpace;
use platter_dsl::{FilesystemMaker, FilesystemOptions};
use platter_spa::{Environment, HostId, Pool, TrimLimits};
use platter_zpl::{CreateOptions, MountOptions, SpaceInfo, Zpl};

/// The folder in which all simulated disks lie.
pub const FOLDER: &str = "/sim";

/// Simulated disks by their path.
#[derive(Debug, Default)]
pub struct SimDevices {
    disks: Mutex<BTreeMap<PathBuf, Arc<dyn BlockDevice>>>,
    /// How often one was plugged in there: another one, as far as anybody can tell.
    plugged: Mutex<BTreeMap<PathBuf, u64>>,
}

impl SimDevices {
    /// The path of disk `number`.
    pub fn path(number: usize) -> PathBuf {
        PathBuf::from(format!("{FOLDER}/d{number}"))
    }

    /// Makes a disk appear, or replaces it.
    pub fn insert(&self, number: usize, disk: Arc<dyn BlockDevice>) {
        self.disks.lock().insert(Self::path(number), disk);
        *self.plugged.lock().entry(Self::path(number)).or_default() += 1;
    }

    /// Makes a disk disappear for whoever opens it next.
    pub fn remove(&self, number: usize) {
        self.disks.lock().remove(&Self::path(number));
    }

    /// Makes all disks disappear for whoever opens one next.
    pub fn clear(&self) {
        self.disks.lock().clear();
    }

    /// Whether a disk is there.
    pub fn is_there(&self, number: usize) -> bool {
        self.disks.lock().contains_key(&Self::path(number))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        self.disks.lock().get(path).cloned().ok_or_else(|| DeviceError::Gone {
            device: path.display().to_string(),
            reason: "no such simulated disk".into(),
        })
    }
}

#[async_trait]
impl DeviceSource for SimDevices {
    fn kind(&self, path: &Path) -> PathKind {
        if path == Path::new(FOLDER) {
            return PathKind::Folder;
        }
        match self.disks.lock().get(path) {
            Some(disk) => PathKind::File(disk.size()),
            None => PathKind::Missing("no such simulated disk".into()),
        }
    }

    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        let disks = self.disks.lock();
        disks.keys().filter(|path| path.parent() == Some(folder)).take(limit).cloned().collect()
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.disks.lock().contains_key(path).then(|| path.to_owned())
    }

    async fn look(&self, path: &Path) -> Seen {
        let real = self.canonical(path);
        let stamp = real.as_ref().and_then(|path| self.plugged.lock().get(path).copied()).map(Stamp::of_number);
        Seen { kind: self.kind(path), real, stamp }
    }

    fn is_whole_disk(&self, _path: &Path) -> bool {
        false
    }

    async fn file_systems_below(&self, _path: &Path) -> BTreeSet<String> {
        BTreeSet::new()
    }

    async fn open_path(&self, path: &Path, _options: OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        self.open(path)
    }

    async fn open_vdev(
        &self,
        path: &Path,
        _whole_disk: bool,
        _options: OpenOptions,
    ) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        self.open(path)
    }
}

/// A time of day that does not move: what is compared may not depend on when it was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandingClock;

/// 2023-11-14, in seconds since the epoch.
const NOW: (u64, u32) = (1_700_000_000, 0);

impl platter_hooks::WallClock for StandingClock {
    fn now(&self) -> (u64, u32) {
        NOW
    }
}

/// Fills new file systems, always in the same way.
#[derive(Clone, Copy, Debug)]
pub struct Maker;

impl FilesystemMaker for Maker {
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        async move {
            let options = CreateOptions { version: options.version, salt_seed: 7, ..CreateOptions::default() };
            Zpl::create_filesystem(os, tx, &options).await
        }
        .boxed()
    }
}

/// A host: everything the engine is given, from one seed.
pub fn environment(seed: u64, devices: Arc<SimDevices>, clock: Arc<dyn platter_hooks::WallClock>) -> Environment {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    Environment {
        clock,
        maker: Arc::new(Maker),
        random: platter_dsl::Randomness::seeded(bytes),
        hostname: "simulator".into(),
        host: Arc::new(HostId { id: 0x1234, is_derived: false }),
        cpu: platter_hooks::Cpu::FREE,
        cache_bytes: 16 << 20,
        dirty_bytes_max: 16 << 20,
        // Little, so that free ranges are let go and loaded again all the time.
        metaslab_bytes: 2 << 10,
        devices,
        pool_locks: Arc::new(platter_spa::pool_locks::NobodyElse),
        multihost_interval_ms: 1000,
        events: Arc::default(),
        held: Arc::default(),
        memory: Arc::default(),
        // Few, so that much of what is destroyed takes several groups.
        frees_per_group: 5,
        livelist_births: 8,
        // Short, so that what was found waits while others free it and what comes next takes its space.
        scan_slice: Duration::from_millis(5),
        // Less than the pool holds: a second round comes after it.
        scan_round: 64 << 10,
        livelist_shared: 0,
        txg_timeout_seconds: 5,
        // Small, so that pools of a few megabytes have something to give up, in several pieces.
        trim: TrimLimits { extent_bytes_max: 1 << 20, extent_bytes_min: 4 << 10, txg_batch: 2 },
    }
}

/// What a file system may still take, as its data set says.
struct Space(FilesystemSpace);

impl SpaceInfo for Space {
    fn available(&self) -> u64 {
        self.0.available()
    }

    fn referenced(&self) -> u64 {
        self.0.referenced()
    }

    fn admit(&self, bytes: u64, _waiting: u64) -> platter_zio::Result<bool> {
        self.0.admit(bytes)
    }
}

/// Mounts a file system with its intent log, which is replayed.
///
/// # Errors
/// What was wrong, for a person.
pub async fn mount(pool: &Arc<Pool>, name: &str, clock: Arc<dyn platter_hooks::WallClock>) -> Result<Arc<Zpl>, String> {
    let say = |error: &dyn std::fmt::Display| format!("mounting {name}: {error}");
    let os = pool.dsl().open_filesystem(name).await.map_err(|error| say(&error))?;
    let options = MountOptions {
        log: pool.dsl().intent_log(name).map_err(|error| say(&error))?,
        salt_seed: 11,
        ..MountOptions::default()
    };
    let space = Arc::new(Space(pool.dsl().filesystem_space(name).map_err(|error| say(&error))?));
    Zpl::mount(os, options, clock, space).await.map_err(|error| say(&error))
}
