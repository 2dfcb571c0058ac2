//! The hot spares of a pool: devices that are ready to stand in for one that fails (`spa_load_spares`,
//! `spa_sync_aux_dev` and `spa_vdev_remove` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - the list in the MOS has all of them, also those in use; a spare in use is a leaf of the vdev tree with the same
//!   guid, flag `is_spare` and a label like any other device's;
//! - several pools may list one spare. Its label decides who has it, read through a handle that keeps others away;
//! - a spare that is not in use is not open: other pools may take it.

use std::path::PathBuf;
use std::sync::Arc;

use platter_device::{BlockDevice, DeviceError, OpenOptions};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_nvlist::NvList;
use platter_ondisk::Guid;
use platter_ondisk::names::config::{IS_SPARE, SPARES};
use platter_ondisk::names::pool_directory;

use crate::aux_list::{self, AuxList};
use crate::config::VdevConfig;
use crate::core::Core;
use crate::environment::Environment;
use crate::open_vdevs::NewDevices;
use crate::spare_flags::set_flag;
use crate::spare_label::{self, Found};
use crate::spare_list::{Spare, Spares, Standing};
use crate::spare_looks::{is_in_use, standing};
use crate::{identity, locked, new_devices, vdev_names};
use platter_api::report::VdevReport;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;

/// Where the list is.
const LIST: AuxList = AuxList { name: pool_directory::SPARES, key: SPARES, what: "spares", called: "list of spares" };

/// Reads the list. Damage to it costs the spares, not the pool.
pub async fn load(os: &Arc<Objset>, directory: &Zap, pool: &str) -> Spares {
    let (object, configs) = aux_list::load(os, directory, &LIST, pool).await;
    Spares::new(object, configs)
}

fn entry(config: &VdevConfig) -> NvList {
    let mut entry = aux_list::entry(config);
    for (name, value) in config.other.iter().filter(|(name, _)| *name != IS_SPARE) {
        entry.add(name, value.clone());
    }
    entry.add_u64(IS_SPARE, 1);
    entry
}

/// Writes the list, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Core, tx: &Tx) -> Result<()> {
    let entries = core.spares.configs().iter().map(entry).collect();
    aux_list::store(core, tx, &LIST, &core.spares.object, entries).await?;
    core.spares.changed.notify_waiters();
    Ok(())
}

/// A device that is to become a spare.
pub struct Prepared {
    config: VdevConfig,
    device: Arc<dyn BlockDevice>,
}

/// Opens planned spares, whole disks partitioned unless they are spares of another pool already.
///
/// # Errors
/// The first device that cannot be had.
pub async fn prepare(
    environment: &Environment,
    planned: Vec<VdevConfig>,
    devices: &mut NewDevices,
) -> Result<Vec<Prepared>> {
    let mut prepared = Vec::new();
    for mut config in planned {
        let path = PathBuf::from(config.path.clone().unwrap_or_default());
        let Some(mut device) = devices.0.remove(&config.guid.0) else { continue };
        let known = spare_label::search(&device).await.filter(|(label, _)| label.guid == config.guid);
        if let (Some((_, true)), Some(1)) = (known, config.whole_disk) {
            // The partition is there already, and it is what the other pools know.
            drop(device);
            let busy = |error: DeviceError| PoolError::Busy(error.to_string());
            device = environment.devices.open_vdev(&path, true, OpenOptions::exclusive()).await.map_err(busy)?;
            if spare_label::read(&*device).await != Some(config.guid) {
                return Err(PoolError::Busy(format!("{} changed meanwhile: try again", path.display())));
            }
            config.path = device.path().map(|path| path.display().to_string()).or(config.path);
            prepared.push(Prepared { config, device });
            continue;
        }
        let own = NewDevices([(config.guid.0, device)].into());
        let (config, device) = open_alone(environment, config, own, 0).await?;
        prepared.push(Prepared { config, device });
    }
    Ok(prepared)
}

/// Opens one device as if it were a vdev of its own, to see that it could be.
///
/// # Errors
/// Why it cannot be had.
pub async fn open_alone(
    environment: &Environment,
    config: VdevConfig,
    devices: NewDevices,
    ashift: u64,
) -> Result<(VdevConfig, Arc<dyn BlockDevice>)> {
    let children = vec![VdevConfig { id: 0, ..config }];
    let mut root = VdevConfig { kind: "root".into(), children, ..VdevConfig::default() };
    let opened = new_devices::open(environment, &mut root, devices, ashift).await?;
    let device = opened.into_iter().flatten().next().and_then(|vdev| vdev.leaves()[0].device());
    let (Some(device), Some(mut config)) = (device, root.children.pop()) else {
        return Err(PoolError::Busy("the new device could not be opened".into()));
    };
    (config.ashift, config.asize, config.metaslab_shift, config.create_txg) = (0, 0, 0, 0);
    Ok((config, device))
}

/// Writes the spares' labels.
///
/// # Errors
/// The first device that refuses.
pub async fn label(prepared: &[Prepared], version: u64) -> Result<()> {
    for spare in prepared {
        let written = spare_label::write(&*spare.device, version, spare.config.guid).await;
        written.map_err(|error| PoolError::Unavailable(error.to_string()))?;
    }
    Ok(())
}

/// Refuses what is a spare of this pool already.
///
/// # Errors
/// The first of them.
pub fn check_new(core: &Core, planned: &[VdevConfig]) -> Result<()> {
    let known = core.spares.configs();
    match planned.iter().find(|new| known.iter().any(|known| known.guid == new.guid)) {
        Some(twice) => {
            let path = twice.path.as_deref().unwrap_or_default();
            Err(PoolError::Exists(format!("{path} is reserved as a hot spare for pool '{}'", core.name())))
        }
        None => Ok(()),
    }
}

/// As [`check_new`], of spares that are prepared.
///
/// # Errors
/// The first of them.
pub fn check_prepared(core: &Core, prepared: &[Prepared]) -> Result<()> {
    check_new(core, &prepared.iter().map(|spare| spare.config.clone()).collect::<Vec<_>>())
}

/// Adds labelled spares to the list, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn add(core: &Core, tx: &Tx, prepared: Vec<Prepared>) -> Result<()> {
    if prepared.is_empty() {
        return Ok(());
    }
    let configs: Vec<VdevConfig> = prepared.into_iter().map(|spare| spare.config).collect();
    check_new(core, &configs)?;
    for config in &configs {
        core.event("sysevent.fs.zfs.vdev_add", vec![("vdev_guid", config.guid.0.into())]);
        if tx.txg() != platter_dsl::dataset::TXG_INITIAL {
            let event = format!("vdev={} type=spare", config.guid);
            history::append_event(&core.dsl, tx, "vdev add", &event).await?;
        }
    }
    core.spares.extend(configs);
    store(core, tx).await
}

/// `zpool remove` of a spare. It is struck off the list, and its label stays: other pools, of which nobody here may
/// know, may count on it (`spa_vdev_remove`, `module/zfs/spa.c`).
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn remove(core: &Arc<Core>, config: &VdevConfig) -> Result<()> {
    let (guid, path) = (config.guid, config.path.clone().unwrap_or_default());
    let check = async move |core: Arc<Core>| match is_in_use(&core, guid) {
        true => Err(PoolError::Busy(format!(
            "{path} is in use: it stands in for another device\nuse 'zpool detach' to have it back"
        ))),
        false => Ok(()),
    };
    core.checked_task(check, async move |core, tx, ()| {
        forget(&core, guid);
        core.event("sysevent.fs.zfs.vdev_remove_aux", vec![("vdev_guid", guid.0.into())]);
        history::append_event(&core.dsl, &tx, "vdev remove", &format!("vdev={guid} type=spare")).await?;
        store(&core, &tx).await
    })
    .await
}

/// The pool is destroyed: has the labels of spares say so that no other pool lists which is or was open here. They
/// would be taken for reserved for good (OpenZFS looks for a pool with such a spare each time). Who imports the pool
/// all the same has them again.
pub async fn release_all(core: &Core) {
    let pool = core.config.read().guid;
    let is_ours = |spare: &VdevConfig| !core.environment.pool_locks.is_listed_elsewhere(spare.guid, pool);
    for spare in core.spares.configs().into_iter().filter(|spare| is_ours(spare) && !is_in_use(core, spare.guid)) {
        let why = match open(core, &spare, OpenOptions::exclusive()).await {
            // What is at its path by now may be anything, or stand in for a device of a pool that is not open here.
            Ok((_, Found::Taken(pool))) => format!("it is in use by pool '{pool}'"),
            Ok((_, Found::Stranger(why))) => why,
            Ok((device, Found::Idle | Found::Left | Found::Freed | Found::Released)) => {
                match spare_label::release(&*device, core.dsl.version().0, spare.guid).await {
                    Ok(()) => continue,
                    Err(error) => error.to_string(),
                }
            }
            Err(error) => error.to_string(),
        };
        tracing::warn!(pool = core.name(), why, "what is at the path of spare {} stays as it is", spare.guid);
    }
}

/// Strikes a spare off the list in memory.
pub fn forget(core: &Core, guid: Guid) {
    core.spares.list.lock().retain(|spare| spare.config.guid != guid);
    locked::note_leaves(&core.environment, &core.config.read(), &core.beside());
}

async fn open(
    core: &Core,
    spare: &VdevConfig,
    options: OpenOptions,
) -> std::result::Result<(Arc<dyn BlockDevice>, Found), DeviceError> {
    let path = PathBuf::from(spare.path.clone().unwrap_or_default());
    let pool = core.config.read().guid;
    let (devices, whole_disk) = (&*core.environment.devices, spare.whole_disk == Some(1));
    let opened = spare_label::open(devices, (&path, whole_disk), options, (pool, spare.guid));
    identity::in_time(&path, opened).await
}

/// Opens a spare, to be used: as its label says that it is, and nobody else has it.
///
/// # Errors
/// Why it cannot be had, or does not fit.
pub async fn take(
    core: &Core,
    spare: &VdevConfig,
    ashift: u64,
    fits: impl Fn(&dyn BlockDevice) -> Result<()>,
) -> Result<(VdevConfig, Arc<dyn BlockDevice>)> {
    let path = spare.path.as_deref().unwrap_or_default();
    if is_in_use(core, spare.guid) {
        return Err(PoolError::Busy(format!("{path} is in use already: it stands in for another device")));
    }
    let (device, found) = open(core, spare, OpenOptions::exclusive()).await.map_err(|error| {
        core.spares.set_standing(spare.guid, Standing::Unusable(error.to_string()));
        PoolError::Busy(error.to_string())
    })?;
    core.spares.set_standing(spare.guid, standing(&*device, &found));
    match found {
        Found::Idle | Found::Left | Found::Freed | Found::Released => {}
        Found::Taken(pool) => return Err(PoolError::Busy(format!("{path} is in use by pool '{pool}'"))),
        Found::Stranger(why) => {
            return Err(PoolError::Busy(format!("{path} is not the spare that it was: {why}")));
        }
    }
    fits(&*device)?;
    // What it was partitioned for is done.
    let alone = VdevConfig { whole_disk: spare.whole_disk.map(|_| 0), ..spare.clone() };
    let devices = NewDevices([(spare.guid.0, device)].into());
    let (opened, device) = open_alone(&core.environment, alone, devices, ashift).await?;
    // Nothing of what it may have been before counts: neither an old label nor an uberblock.
    let written = spare_label::write(&*device, core.dsl.version().0, spare.guid).await;
    written.map_err(|error| PoolError::Unavailable(error.to_string()))?;
    let mut config = VdevConfig { whole_disk: spare.whole_disk, ..opened };
    set_flag(&mut config, IS_SPARE, true);
    Ok((config, device))
}

/// The device of a spare that stood in for another one is free again.
pub async fn give_back(core: &Core, guid: Guid, device: &dyn BlockDevice) {
    match spare_label::write(device, core.dsl.version().0, guid).await {
        Ok(()) => core.spares.set_standing(guid, Standing::Available(device.size())),
        // What its label says is seen to be over all the same.
        Err(error) => tracing::warn!(pool = core.name(), %error, "the labels of spare {guid}, which is free, stay"),
    }
    core.spares.changed.notify_waiters();
}

/// What `zpool status` shows of them.
pub fn report(core: &Core) -> Vec<VdevReport> {
    let list = core.spares.list.lock().clone();
    let report = |spare: Spare| {
        let config = spare.config;
        let path = config.path.clone().unwrap_or_default();
        let in_use = is_in_use(core, config.guid);
        let physical_size = match spare.standing {
            Standing::Available(size) => size,
            _ => 0,
        };
        let (state, note) = match spare.standing {
            _ if in_use => ("INUSE", Some("currently in use".to_owned())),
            Standing::Available(_) => ("AVAIL", None),
            Standing::Elsewhere(pool) => ("INUSE", Some(format!("in use by pool '{pool}'"))),
            Standing::Unusable(_) => ("UNAVAIL", Some("cannot open".to_owned())),
        };
        VdevReport {
            name: vdev_names::leaf_name(&config, &path),
            kind: config.kind.clone(),
            guid: config.guid.0,
            path: config.path,
            state: state.into(),
            note,
            physical_size,
            ..VdevReport::default()
        }
    };
    list.into_iter().map(report).collect()
}
