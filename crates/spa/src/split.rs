//! `zpool split`: one side of each mirror becomes a pool of its own (`spa_vdev_split_mirror`, `module/zfs/spa.c`).
//!
//! The order, and what a crash leaves after each step:
//! 1. everything is on disk, and separate logs are empty: the pool as it was;
//! 2. in one group of the pool the sides that leave are closed, and its configuration lists them. They have the group
//!    before that one, whole: they come back when the pool is opened;
//! 3. of that group the new pool is loaded, and its first group is written to them: they come back until its first
//!    uberblock is there, and leave from then on;
//! 4. they leave the old pool: both pools are whole;
//! 5. the new pool is exported.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_api::names;
use platter_api::splits::{SplitOff, SplitRequest};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::stored_property::StoredProperty;
use platter_ondisk::Guid;
use platter_vdev::{Condition, VdevAux, VdevState};

use crate::assemble::{self, Parts};
use crate::config::VdevConfig;
use crate::core::Core;
use crate::environment::Environment;
use crate::place::{self, PlacedLeaf};
use crate::pool::Pool;
use crate::vdev_names::called;
use crate::{dtl, free_commands, multihost, pool_properties, removal, split_off, split_pairs, split_plan};

/// In OpenZFS's words (`libzfs_error_description`).
const INVALID: &str = "invalid argument for this pool operation";
const BUSY: &str = "pool is busy";

impl Pool {
    /// Makes a pool of one side of each mirror. It is exported then.
    ///
    /// # Errors
    /// In OpenZFS's words, why not.
    pub async fn split(&self, request: SplitRequest) -> Result<SplitOff> {
        let core = &self.core;
        if core.dsl.read_only {
            return Err(PoolError::Unavailable("pool is read-only".into()));
        }
        let properties = properties(core, &request)?;
        names::check_pool(&request.new_name)?;
        let _one = core.changing.lock().await;
        let named = named(core, &request.devices).await;
        let chosen = split_plan::choose(&core.config.read().vdev_tree, &named)?;
        let layout = split_plan::layout(&request.new_name, &chosen);
        if request.dry_run {
            return Ok(SplitOff { layout, guid: 0 });
        }
        core.dsl.check_running()?;
        let leaving = leaves(core, &chosen)?;
        let logs = logs(core);
        logs.iter().for_each(|log| removal::set_passive(core, *log, true));
        let parts = self.give_up(&request.new_name, &logs, leaving).await;
        logs.iter().for_each(|log| removal::set_passive(core, *log, false));
        let guid = self.make(parts?, properties).await?;
        Ok(SplitOff { layout, guid: guid.0 })
    }

    /// Closes the devices that leave, when all that was done before the command is on them.
    async fn give_up(&self, name: &str, logs: &[u32], leaving: Vec<u64>) -> Result<Parts> {
        let core = &self.core;
        for log in logs {
            removal::empty(core, *log).await.map_err(|_| PoolError::Busy(BUSY.into()))?;
        }
        // What they write of their own accord must be over before anybody else writes there.
        free_commands::halt(core).await;
        // Log space maps name separate logs, which the new pool does not have: none may be left of them.
        core.flush_logs.store(!logs.is_empty(), Ordering::Release);
        let closed = async {
            self.sync().await?;
            if !logs.is_empty() {
                self.force_group().await?;
                self.force_group().await?;
            }
            close(core, name.to_owned(), leaving).await
        };
        let closed = closed.await;
        core.flush_logs.store(false, Ordering::Release);
        free_commands::stay(core);
        free_commands::resume(core);
        closed
    }

    /// Makes the new pool, after which the devices leave for good; or has them come back.
    async fn make(&self, parts: Parts, properties: BTreeMap<String, StoredProperty>) -> Result<Guid> {
        let core = &self.core;
        let made = begin(core, parts, properties).await;
        // Each device says whose it is, also when something failed.
        let settled = match &made {
            Ok(_) => split_off::complete(core).await,
            Err(_) => split_off::settle(core).await,
        };
        let new = made?;
        let guid = Guid(new.guid());
        let exported = new.export().await;
        settled?;
        exported?;
        Ok(guid)
    }
}

/// Closes the devices that leave, in one group that says so.
async fn close(core: &Arc<Core>, name: String, leaving: Vec<u64>) -> Result<Parts> {
    let check = async move |core: Arc<Core>| {
        let guids = leaving.iter().filter(|guid| **guid != 0);
        let places = guids.map(|guid| place::with_guid(&core, Guid(*guid))).collect::<Result<Vec<_>>>()?;
        places.iter().try_for_each(|place| check_leaf(&core, place))?;
        Ok((leaving, places))
    };
    core.checked_task(check, async move |core, tx, (leaving, places)| {
        let uberblock = core.uberblock.lock().clone();
        let origin = core.config.read().clone();
        let mut paths = BTreeMap::new();
        for place in &places {
            paths.insert(place.config.guid.0, PathBuf::from(place.config.path.clone().unwrap_or_default()));
            place.let_go(&core, Condition::new(VdevState::Offline, VdevAux::None));
            place::change_config(&core, place, |vdev| vdev.offline = true);
        }
        for place in &places {
            // Waits until nobody writes there any more.
            let arrangement = place.top.arrangement();
            place.top.exchange(arrangement).await.map_err(|error| PoolError::invalid(error.to_string()))?;
        }
        // They miss this very group already.
        dtl::note_absent(&core, tx.txg());
        split_pairs::set_leaving(&mut core.config.write(), leaving);
        core.dsl.dirty_config();
        Ok(Parts { origin, uberblock, paths, name })
    })
    .await
}

/// Brings the new pool to its devices.
async fn begin(core: &Core, parts: Parts, properties: BTreeMap<String, StoredProperty>) -> Result<Arc<Pool>> {
    // What the old pool has before its devices is not the new one's.
    let environment = Environment { devices: core.source.clone(), ..core.environment.clone() };
    let assembled = assemble::assemble(environment, parts).await?;
    let pool = Pool::start(assembled.core.clone());
    if let Err(error) = assemble::first_group(&assembled, properties).await {
        pool.end_after_failure().await;
        return Err(error);
    }
    pool.core.cutoff.let_through();
    Ok(pool)
}

/// The properties that the new pool gets.
fn properties(core: &Core, request: &SplitRequest) -> Result<BTreeMap<String, StoredProperty>> {
    let mut properties = BTreeMap::new();
    for (name, value) in &request.properties {
        if name == "readonly" {
            return Err(PoolError::invalid("property readonly can only be set at import time"));
        }
        multihost::check_property(&core.environment, name, value)?;
        properties.insert(name.clone(), pool_properties::parse(name, value)?);
    }
    Ok(properties)
}

/// The leaves that each of these paths means.
async fn named(core: &Core, devices: &[PathBuf]) -> Vec<Vec<Guid>> {
    let tree = core.config.read().vdev_tree.clone();
    let leaves = tree.leaves();
    let mut named = Vec::new();
    for device in devices {
        named.push(called(&leaves, &*core.environment.devices, &device.display().to_string()).await);
    }
    named
}

/// The guid of what leaves each top-level vdev, 0 where nothing does, as far as it may leave now.
fn leaves(core: &Core, chosen: &[Option<VdevConfig>]) -> Result<Vec<u64>> {
    let mut list = Vec::new();
    for vdev in chosen {
        let Some(vdev) = vdev else {
            list.push(0);
            continue;
        };
        if !vdev.is_leaf() {
            // What stands in, or is being replaced.
            return Err(PoolError::invalid(INVALID));
        }
        check_leaf(core, &place::with_guid(core, vdev.guid)?)?;
        list.push(vdev.guid.0);
    }
    Ok(list)
}

/// Whether a leaf may leave.
fn check_leaf(core: &Core, place: &PlacedLeaf) -> Result<()> {
    let is_side = core.config.read().vdev_tree.children.iter().any(|top| {
        top.kind == "mirror" && top.children.iter().any(|child| child.guid == place.config.guid && child.is_leaf())
    });
    if !is_side || !place.leaf.is_writable() || place.leaf.condition().state != VdevState::Healthy {
        return Err(PoolError::invalid(INVALID));
    }
    match place.leaf.is_complete() && place.top.can_do_without(&place.leaf) {
        true => Ok(()),
        false => Err(PoolError::Busy(BUSY.into())),
    }
}

/// The numbers of the separate logs.
fn logs(core: &Core) -> Vec<u32> {
    core.config.read().vdev_tree.children.iter().filter(|top| top.is_log).map(|top| top.id as u32).collect()
}
