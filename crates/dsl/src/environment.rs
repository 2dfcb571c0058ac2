//! What the engine is given instead of taking it from the machine: wall-clock time, randomness, identity, limits.

use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_device::DeviceSource;
use platter_dmu::{Objset, Tx};
use platter_hooks::Cpu;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::events::Events;
use crate::memory::MemoryBudget;
use crate::pool_locks::PoolLocks;

/// The time of day, for timestamps that end on disk.
pub trait WallClock: Send + Sync + std::fmt::Debug + 'static {
    /// Seconds and nanoseconds since the epoch.
    fn now(&self) -> (u64, u32);
}

/// Fills a new file system's object set; the layer above (`zpl`) knows how.
pub trait FilesystemMaker: Send + Sync + 'static {
    /// Writes master node, unlinked set and root directory within `tx` (`zfs_create_fs`).
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>>;
}

/// What a file system is made with and keeps for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilesystemOptions {
    /// ZPL version.
    pub version: u64,
    /// Names must be UTF-8 (`utf8only`).
    pub utf8_only: bool,
    /// `normalization` as stored (`u8_textprep` flags; 0: none).
    pub normalization: u64,
    /// `casesensitivity` as stored (0: sensitive, 1: insensitive, 2: mixed).
    pub case_sensitivity: u64,
}

impl Default for FilesystemOptions {
    fn default() -> Self {
        Self { version: 5, utf8_only: false, normalization: 0, case_sensitivity: 0 }
    }
}

/// Which host this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId {
    /// As in labels (`gethostid`).
    pub id: u64,
    /// Whether nobody chose the id: it was made up from the machine. A copy of a machine makes up the same, so
    /// `multihost`, which tells hosts apart by it, needs a chosen one.
    pub is_derived: bool,
}

/// Tells which host this is: asked each time, since somebody may choose an id while pools are open
/// (`zone_get_hostid`, `module/os/linux/spl/spl-generic.c`).
pub trait HostIdentity: Send + Sync {
    /// The host's id as of now.
    fn hostid(&self) -> HostId;
}

/// One that never changes.
impl HostIdentity for HostId {
    fn hostid(&self) -> HostId {
        *self
    }
}

/// What to do where [`HostId::is_derived`] and a pool has `multihost`, in OpenZFS's words.
pub const CHOOSE_HOSTID: &str = "Set a unique system hostid with the zgenhostid(8) command.";

/// The engine's surroundings, shared by all pools of one daemon.
#[derive(Clone)]
pub struct Environment {
    /// Time of day.
    pub clock: Arc<dyn WallClock>,
    /// Fills new file systems.
    pub maker: Arc<dyn FilesystemMaker>,
    /// Source of guids and salts.
    pub random: Arc<Mutex<ChaCha20Rng>>,
    /// This host's name, written to labels and history.
    pub hostname: String,
    /// This host's id, written to labels.
    pub host: Arc<dyn HostIdentity>,
    /// Who is told about heavy computation: nobody, unless time is simulated.
    pub cpu: Cpu,
    /// Bytes of block cache for all pools together.
    pub cache_bytes: u64,
    /// Dirty bytes that all pools together may hold before writers wait.
    pub dirty_bytes_max: u64,
    /// Bytes that the free ranges of all pools' metaslabs together may take in memory; what is being allocated from
    /// is there in any case.
    pub metaslab_bytes: u64,
    /// How these are shared.
    pub memory: Arc<MemoryBudget>,
    /// Finds and opens the devices.
    pub devices: Arc<dyn DeviceSource>,
    /// Keeps other daemons of this machine from writing to the same pools.
    pub pool_locks: Arc<dyn PoolLocks>,
    /// Milliseconds between two writes that show that a pool with `multihost` is in use (`zfs_multihost_interval`).
    pub multihost_interval_ms: u32,
    /// What happened lately, to all pools.
    pub events: Arc<Events>,
    /// Blocks of destroyed object sets that one transaction group frees at most (`zfs_async_block_max_blocks`).
    pub frees_per_group: u64,
    /// Longest time between two transaction groups, in seconds (`zfs_txg_timeout`).
    pub txg_timeout_seconds: u64,
}

impl Environment {
    /// A usual `frees_per_group`: it keeps a group's list of frees below 10 MB.
    pub const FREES_PER_GROUP: u64 = 100_000;

    /// A generator for `random` from a seed.
    pub fn seeded(seed: [u8; 32]) -> Arc<Mutex<ChaCha20Rng>> {
        Arc::new(Mutex::new(ChaCha20Rng::from_seed(seed)))
    }

    /// This host's id as of now.
    pub fn hostid(&self) -> u64 {
        self.host.hostid().id
    }

    /// A random nonzero number, for guids and salts.
    pub fn random_u64(&self) -> u64 {
        loop {
            let n = self.random.lock().next_u64();
            if n != 0 {
                return n;
            }
        }
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}
