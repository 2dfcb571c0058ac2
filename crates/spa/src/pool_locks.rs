//! One writer for each pool of a machine, by the pool's guid. The devices have locks of their own, but a file may have
//! two faces that share none: on an overlay and below it.
//!
//! Invariant: a pool that is open for writing has the lock of every guid that its labels on disk may have, from before
//! its devices are opened until after they are closed.

use std::any::Any;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use platter_ondisk::Guid;

use crate::config::{PoolConfig, VdevConfig};
use crate::environment::Environment;
use platter_dsl::error::{PoolError, Result};

/// A process that is just ending still holds what it held.
const ATTEMPTS: usize = 6;
const PAUSE: Duration = Duration::from_millis(50);

/// A lock; given back when it is dropped.
pub struct PoolLock(Box<dyn Any + Send + Sync>);

impl PoolLock {
    /// One that lasts as long as `held`.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl std::fmt::Debug for PoolLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PoolLock({:?})", (*self.0).type_id())
    }
}

/// Why a lock cannot be had, for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Who has it.
    Held(String),
    /// Who is in the way without having it.
    Obstructed(String),
}

/// Keeps the daemons of a machine apart.
pub trait PoolLocks: Send + Sync + std::fmt::Debug + 'static {
    /// Takes the lock of a pool.
    ///
    /// # Errors
    /// Who has it, or does not let it be taken.
    fn lock(&self, pool: Guid) -> std::result::Result<PoolLock, Refusal>;

    /// Who has it, for a person.
    fn holder(&self, pool: Guid) -> Option<String>;

    /// Tells the devices of a pool that is open here, spares among them, by their guids: when it is opened, and before
    /// the first label of one that is added is written. Before that each leaf may be one of them.
    fn note_leaves(&self, pool: Guid, leaves: BTreeSet<u64>);

    /// Who has the pool open that this leaf is or may be a device of. That it is none any more is known of pools that
    /// are open here.
    fn holder_of_leaf(&self, pool: Guid, leaf: Option<Guid>) -> Option<String>;

    /// Whether another pool than this one, of those that are or were open here, has a device of this guid.
    fn is_listed_elsewhere(&self, leaf: Guid, pool: Guid) -> bool;
}

/// Tells the devices of a pool that this configuration describes, and its spares.
pub fn note_leaves(environment: &Environment, config: &PoolConfig, spares: &[VdevConfig]) {
    let leaves = config.vdev_tree.leaves().into_iter().chain(spares).map(|leaf| leaf.guid.0).collect();
    environment.pool_locks.note_leaves(config.guid, leaves);
}

/// A machine on which there is nobody else.
#[derive(Clone, Copy, Debug, Default)]
pub struct NobodyElse;

impl PoolLocks for NobodyElse {
    fn lock(&self, _pool: Guid) -> std::result::Result<PoolLock, Refusal> {
        Ok(PoolLock::new(()))
    }

    fn holder(&self, _pool: Guid) -> Option<String> {
        None
    }

    fn note_leaves(&self, _pool: Guid, _leaves: BTreeSet<u64>) {}

    fn holder_of_leaf(&self, _pool: Guid, _leaf: Option<Guid>) -> Option<String> {
        None
    }

    fn is_listed_elsewhere(&self, _leaf: Guid, _pool: Guid) -> bool {
        false
    }
}

/// The locks of one open pool: one, and a second while its guid changes.
#[derive(Debug, Default)]
pub struct Locked(BTreeMap<u64, PoolLock>);

impl Locked {
    /// Takes the lock of `pool` too, unless it is here already.
    ///
    /// # Errors
    /// [`PoolError::Busy`] with who has it.
    pub fn add(&mut self, environment: &Environment, pool: Guid) -> Result<()> {
        if let Entry::Vacant(place) = self.0.entry(pool.0) {
            place.insert(environment.pool_locks.lock(pool).map_err(|refusal| {
                PoolError::Busy(match refusal {
                    Refusal::Held(holder) => format!(
                        "pool {pool} is in use: {holder} has it open for writing on this host\nExport it there first. \
                         A copy of a pool is the same pool to all who look at it, until 'zpool reguid' makes it \
                         another."
                    ),
                    Refusal::Obstructed(by) => format!(
                        "pool {pool} cannot be locked on this host: other users have taken all names of its lock: \
                         {by}\nNobody has it open. End these processes, then try again."
                    ),
                })
            })?);
        }
        Ok(())
    }

    /// As [`add`](Self::add), with some patience.
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub async fn wait_for(&mut self, environment: &Environment, pool: Guid) -> Result<()> {
        for _ in 1..ATTEMPTS {
            if self.add(environment, pool).is_ok() {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.add(environment, pool)
    }

    /// Gives back all but that of `pool`.
    pub fn keep_only(&mut self, pool: Guid) {
        self.0.retain(|guid, _| *guid == pool.0);
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
