//! What a pool that was found says of itself, before anybody imports it.

use std::time::Duration;

use parking_lot::Mutex;
use platter_device::OpenOptions;
use platter_dsl::error::{PoolError, Result};
use platter_ondisk::Txg;

use crate::absent_logs;
use crate::discover::Candidate;
use crate::environment::Environment;
use crate::import::{adopt_paths, open_as_stored};
use crate::open_vdevs::FoundDevices;
use crate::writable::{check_features, special, unwritable_entry, unwritable_features};

/// How long a listing waits for one pool's devices.
const LOOKING: Duration = Duration::from_secs(10);

/// What a pool's own metadata says of whether it can be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Nobody looked, or not enough was there to look: labels, or who has it, decide already.
    Unseen,
    /// Nothing against it.
    Writable,
    /// It can be read only, for these features or other things.
    ReadOnly(Vec<String>),
    /// What these devices of separate logs may have is not there.
    LogsLost(Vec<String>),
    /// It cannot be opened, with what is missing and what its own metadata says is not to be used.
    Missing,
    /// It cannot be opened.
    Damaged(String),
    /// Another host is writing it (`multihost`).
    InUse,
}

/// What a pool that was found says of itself, for a listing. If it can be opened, its vdev tree is the pool's own from
/// then on: labels do not know which device is offline, nor what a vdev was of which no device is there.
pub async fn look_inside(environment: &Environment, candidate: &mut Candidate) -> Metadata {
    let is_complete = candidate.is_complete_enough();
    let is_something_away = candidate.absent(&candidate.config.vdev_tree) > 0;
    match tokio::time::timeout(LOOKING, look(environment, candidate)).await {
        Ok(Ok(metadata)) => metadata,
        // One may be offline, and another one missing.
        Ok(Err(PoolError::Engine(_) | PoolError::Unavailable(_))) if is_complete && is_something_away => {
            Metadata::Missing
        }
        Ok(Err(error @ (PoolError::Engine(_) | PoolError::Unavailable(_)))) if is_complete => {
            Metadata::Damaged(error.to_string())
        }
        // An import tells the reason.
        Ok(Err(_)) | Err(_) => Metadata::Unseen,
    }
}

/// Reads a few blocks and writes nothing.
///
/// # Errors
/// The pool cannot be opened for reading either.
async fn look(environment: &Environment, candidate: &mut Candidate) -> Result<Metadata> {
    let uberblock =
        candidate.uberblock.as_ref().ok_or_else(|| PoolError::Unavailable("it has no valid uberblock".into()))?;
    let opener = FoundDevices {
        pool: candidate.config.guid,
        newest: Txg(u64::MAX),
        paths: candidate.paths.clone(),
        silent: candidate.silent.clone(),
        devices: environment.devices.clone(),
        options: OpenOptions::read_only(),
        reached: Mutex::default(),
    };
    let mut labelled = candidate.config.clone();
    adopt_paths(&mut labelled.vdev_tree, &candidate.paths);
    let (opened, config) = open_as_stored(environment, &labelled, &opener, &candidate.paths, uberblock, true).await?;
    let features = opened.features(&config).await?;
    check_features(&features, &config, true)?;
    // The labels only name the features without which it cannot be read.
    let mut obstacles = unwritable_features(&features);
    obstacles.extend(special(&config).map(|top| format!("an allocation class (vdev {})", top.id)));
    // What a feature stands for is said once.
    if obstacles.is_empty() {
        obstacles.extend(unwritable_entry(&opened.directory).await?.map(str::to_owned));
    }
    let lost_logs = absent_logs::names(&opened.vdevs, &opened.mos, &config.vdev_tree, uberblock.txg).await?;
    candidate.config.vdev_tree = config.vdev_tree;
    candidate.is_looked_into = true;
    Ok(match (obstacles.is_empty(), lost_logs.is_empty()) {
        (false, _) => Metadata::ReadOnly(obstacles),
        (true, false) => Metadata::LogsLost(lost_logs),
        (true, true) => Metadata::Writable,
    })
}
