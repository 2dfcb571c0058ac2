//! The locks of one pool.
//!
//! Invariant: a pool that is open for writing has the lock of every guid that its labels on disk may have, from before
//! its devices are opened until after they are closed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use platter_dsl::error::{PoolError, Result};
use platter_ondisk::Guid;

use crate::config::{PoolConfig, VdevConfig};
use crate::environment::Environment;
use crate::pool_locks::{PoolLock, Refusal};

/// A process that is just ending still holds what it held.
const ATTEMPTS: usize = 6;
const PAUSE: Duration = Duration::from_millis(50);

/// Tells the devices of a pool that this configuration describes, and those `beside` its tree.
pub fn note_leaves(environment: &Environment, config: &PoolConfig, beside: &[VdevConfig]) {
    let leaves = config.vdev_tree.leaves().into_iter().chain(beside).map(|leaf| leaf.guid.0).collect();
    environment.pool_locks.note_leaves(config.guid, &config.name, leaves);
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
        assert!(self.0.contains_key(&pool.0), "pool {pool} is open for writing, and its guid is not locked");
        self.0.retain(|guid, _| *guid == pool.0);
    }

    /// Gives everything back.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
