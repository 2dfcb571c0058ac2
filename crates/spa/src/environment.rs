//! What the engine is given instead of taking it from the machine: wall-clock time, randomness, identity, limits.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_device::DeviceSource;
use platter_dsl::environment::{FilesystemMaker, Randomness};
use platter_dsl::pool::Surroundings;
use platter_hooks::{Cpu, WallClock};

use crate::events::Events;
use crate::memory::{MemoryBudget, MemoryLimits};
use crate::pool_locks::PoolLocks;

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
    pub random: Randomness,
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
    /// Devices of any pool with which nothing is to be done but what a command says, by guid.
    pub held: Arc<Mutex<BTreeSet<u64>>>,
    /// Blocks of destroyed object sets that one transaction group frees at most (`zfs_async_block_max_blocks`).
    pub frees_per_group: u64,
    /// A clone's list of births goes on in a new one after so many (`zfs_livelist_max_entries`).
    pub livelist_births: u64,
    /// How long one slice of a scan may keep freed space from being used.
    pub scan_slice: Duration,
    /// Bytes for each device of the pool that a scan gathers before it looks at them the first time.
    pub scan_round: u64,
    /// A clone's livelist is given up when it shares no more than this with its origin, in hundredths of what it
    /// references (`zfs_livelist_min_percent_shared`).
    pub livelist_shared: u64,
    /// Longest time between two transaction groups, in seconds (`zfs_txg_timeout`).
    pub txg_timeout_seconds: u64,
    /// How devices are told what is free.
    pub trim: TrimLimits,
}

/// How devices are told what is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimLimits {
    /// Most bytes at a time (`zfs_trim_extent_bytes_max`).
    pub extent_bytes_max: u64,
    /// Runs of fewer bytes are left out (`zfs_trim_extent_bytes_min`).
    pub extent_bytes_min: u64,
    /// One of so many metaslabs has its turn each time with property `autotrim` (`zfs_trim_txg_batch`).
    pub txg_batch: usize,
}

impl TrimLimits {
    /// OpenZFS's.
    pub const USUAL: Self = Self { extent_bytes_max: 128 << 20, extent_bytes_min: 32 << 10, txg_batch: 32 };
}

impl Environment {
    /// A usual `scan_slice`: long enough for disks to join neighbours, short enough for who waits for freed space.
    pub const SCAN_SLICE: Duration = Duration::from_secs(2);
    /// A usual `scan_round`: a slow disk has passed over so much within a minute.
    pub const SCAN_ROUND: u64 = 512 << 20;
    /// A usual `frees_per_group`: it keeps a group's list of frees below 10 MB.
    pub const FREES_PER_GROUP: u64 = 100_000;
    /// OpenZFS's `livelist_births`: what lives on one list fits into memory.
    pub const LIVELIST_BIRTHS: u64 = 500_000;
    /// OpenZFS's `livelist_shared`: what shares less is destroyed as fast by a walk.
    pub const LIVELIST_SHARED: u64 = 75;

    /// This host's id as of now.
    pub fn hostid(&self) -> u64 {
        self.host.hostid().id
    }

    /// A random nonzero number, for guids and salts.
    pub fn random_u64(&self) -> u64 {
        self.random.number()
    }

    /// What all pools may take together.
    pub fn memory_limits(&self) -> MemoryLimits {
        MemoryLimits {
            cache_bytes: self.cache_bytes,
            dirty_bytes: self.dirty_bytes_max,
            metaslab_bytes: self.metaslab_bytes,
        }
    }

    /// What of it data sets need.
    pub fn for_data_sets(&self) -> Surroundings {
        Surroundings {
            clock: self.clock.clone(),
            maker: self.maker.clone(),
            random: self.random.clone(),
            hostname: self.hostname.clone(),
            frees_per_group: self.frees_per_group,
            livelist_births: self.livelist_births,
            livelist_shared: self.livelist_shared,
        }
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("hostname", &self.hostname).finish_non_exhaustive()
    }
}
