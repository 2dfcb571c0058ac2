//! A pool of devices that another one gave up for it: loaded as that was in its last group with them, under an identity
//! of its own (`SPA_IMPORT_ASSEMBLE` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - the devices are as they were in that group, all of them, or nothing is written;
//! - nothing of the new pool can be found before its first group is whole on all devices (`platter_device::held`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_device::OpenOptions;
use platter_dmu::Tx;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::{history, mos};
use platter_ondisk::names::pool_directory::L2CACHE;
use platter_ondisk::{Guid, ObjectId, Uberblock};
use platter_vdev::TopVdev;

use crate::config::{PoolConfig, PoolState, VdevConfig};
use crate::core::{Core, OpenDevices};
use crate::environment::Environment;
use crate::import::{self, Found, Opened};
use crate::locked::{self, Locked};
use crate::logs::Logs;
use crate::open_vdevs::FoundDevices;
use crate::split_plan::{self, Division};
use crate::{exchange, labels, multihost, pool_properties, removal, split_pairs};

/// What the new pool is made of.
#[derive(Clone)]
pub struct Parts {
    /// The pool that gave its devices up.
    pub origin: PoolConfig,
    /// The last group that they have.
    pub uberblock: Uberblock,
    /// Where each of them is.
    pub paths: BTreeMap<u64, PathBuf>,
    /// The new pool's name.
    pub name: String,
}

/// A new pool that is not on its devices yet.
pub struct Assembled {
    /// The pool.
    pub core: Arc<Core>,
    division: Division,
    origin: String,
}

/// Somebody may still hold a device that was just closed: what was under way there ends first.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(100);
/// Metaslabs of a log that is left behind; more are damage.
const METASLABS_MAX: u64 = 1 << 18;

/// Loads the new pool. Nothing is written.
///
/// # Errors
/// The devices are not as they should be, or cannot be had; damage, unreadable blocks.
pub async fn assemble(mut environment: Environment, parts: Parts) -> Result<Assembled> {
    let devices = OpenDevices::none(&mut environment);
    devices.cutoff.hold_back(environment.dirty_bytes_max, import::is_label);
    let guid = Guid(environment.random_u64().max(1));
    let mut locked = Locked::default();
    locked.wait_for(&environment, guid).await?;
    let Parts { origin, uberblock, paths, name } = parts;
    let leaving: Vec<Guid> = paths.keys().map(|leaf| Guid(*leaf)).collect();
    let division = split_plan::divide(&origin.vdev_tree, &leaving)?;
    let vdevs = open(&environment, &origin, &uberblock, paths, &division).await?;
    let opened = Opened::new(&environment, vdevs, &uberblock).await?;
    // What the group itself says: the old pool may have changed since.
    let stored = opened.config(&origin).await?;
    let division = split_plan::divide(&stored.vdev_tree, &leaving)?;
    let config = new_config(&environment, &stored, name, guid, &division);
    let features = opened.features(&config).await?;
    let logs = opened.load_space(&config, environment.metaslab_bytes / environment.memory.shares()).await?;
    let is_log_lost = !division.left_tops.is_empty();
    let is_shared = uberblock.is_multihost();
    let found = Found { opened, config, features, uberblock, is_log_lost };
    let core = import::finish(environment, devices, None, found, false, BTreeMap::new()).await?;
    *core.locked.lock() = locked;
    *core.logs.lock() = Logs::found(logs);
    // Its own lists are made when it gets spares or cache devices of its own.
    core.spares.list.lock().clear();
    *core.spares.object.lock() = ObjectId::NONE;
    core.caches.list.lock().clear();
    *core.caches.object.lock() = ObjectId::NONE;
    locked::note_leaves(&core.environment, &core.config.read(), &[]);
    if is_shared {
        let (uberblock, lease) = (core.uberblock.lock().clone(), core.cutoff.lease());
        let targets = core.label_targets();
        let claim = multihost::claim(&core.environment, lease, &targets, &uberblock, &uberblock, None).await?;
        *core.multihost_claim.lock() = Some(claim);
    }
    Ok(Assembled { core, division, origin: origin.name })
}

/// Opens the devices, each as it was in the group that the pool begins with.
async fn open(
    environment: &Environment,
    origin: &PoolConfig,
    uberblock: &Uberblock,
    paths: BTreeMap<u64, PathBuf>,
    division: &Division,
) -> Result<Vec<Option<Arc<TopVdev>>>> {
    let mut root = VdevConfig { kind: "root".into(), children: division.tops.clone(), ..VdevConfig::default() };
    root.walk_mut(&mut |vdev| vdev.offline = false);
    let opener = FoundDevices {
        pool: origin.guid,
        newest: uberblock.txg,
        paths,
        silent: Vec::new(),
        devices: environment.devices.clone(),
        options: OpenOptions::exclusive(),
        reached: Mutex::default(),
    };
    let mut attempt = 1;
    let vdevs = loop {
        match import::open_usable(&root, &opener, true).await {
            Ok(vdevs) => break vdevs,
            Err(error) if attempt == ATTEMPTS => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        attempt += 1;
    };
    let reached = opener.reached.into_inner();
    for leaf in root.leaves() {
        let last = reached.get(&leaf.guid.0).map(|reached| reached.last);
        if last != Some(uberblock.txg) {
            let path = leaf.path.as_deref().unwrap_or("a device");
            let text = format!("{path} does not have the pool's last group, {}", uberblock.txg);
            return Err(PoolError::Unavailable(text));
        }
    }
    assert_eq!(reached.len(), root.leaves().len(), "a device was opened that is not the new pool's");
    Ok(vdevs)
}

/// The new pool's configuration: the old one's, but for who it is and what it is made of.
fn new_config(
    environment: &Environment,
    stored: &PoolConfig,
    name: String,
    guid: Guid,
    division: &Division,
) -> PoolConfig {
    let mut config = PoolConfig {
        name,
        guid,
        state: PoolState::Active,
        stored_name: None,
        hostid: Some(environment.hostid()),
        hostname: Some(environment.hostname.clone()),
        ..stored.clone()
    };
    config.vdev_tree.guid = guid;
    config.vdev_tree.children.clone_from(&division.tops);
    config.vdev_tree.walk_mut(&mut |vdev| vdev.offline = false);
    split_pairs::set_origin(&mut config, stored.guid);
    config
}

/// Brings the new pool's first group to its devices, without what only the others needed: it is there then.
///
/// # Errors
/// Devices that do not take it. What there is of it then, the devices say.
pub async fn first_group(assembled: &Assembled, properties: BTreeMap<String, StoredProperty>) -> Result<()> {
    let Assembled { core, division, origin } = assembled;
    let (left, left_tops, origin) = (division.left.clone(), division.left_tops.clone(), origin.clone());
    core.task(async move |core, tx| {
        let changed = async {
            for leaf in &left {
                exchange::free_objects(&core, &tx, leaf).await?;
            }
            for top in &left_tops {
                removal::free_objects(&core, &tx, top, maps_of(&core, top).await?).await?;
            }
            for list in [mos::SPARES, L2CACHE] {
                forget_list(&core, &tx, list).await?;
            }
            for (name, value) in properties {
                pool_properties::store(&core, &tx, &name, value).await?;
            }
            core.dsl.dirty_config();
            history::append_event(&core.dsl, &tx, "split", &format!("from pool {origin}")).await?;
            Ok(())
        };
        let changed: Result<()> = changed.await;
        if let Err(error) = &changed {
            // The group has changed already, and must not be finished.
            core.dsl.halt_for_good(&error.to_string());
            core.cutoff.fall("the split failed");
        }
        changed
    })
    .await?;
    check(core).await
}

/// The space maps of a vdev that is not open.
async fn maps_of(core: &Core, top: &VdevConfig) -> Result<Vec<ObjectId>> {
    if !top.metaslab_array.is_some() || top.metaslab_shift == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0u8; (top.asize >> top.metaslab_shift).min(METASLABS_MAX) as usize * 8];
    core.dsl.mos.dnode(top.metaslab_array).await?.read(0, &mut bytes).await?;
    let maps = bytes.chunks_exact(8).map(|map| ObjectId(u64::from_le_bytes(map.try_into().expect("eight bytes"))));
    Ok(maps.filter(|map| map.is_some()).collect())
}

/// Takes a list of devices out of the MOS.
async fn forget_list(core: &Core, tx: &Tx, name: &str) -> Result<()> {
    let Some(object) = core.dsl.directory.get_u64(name.as_bytes()).await? else { return Ok(()) };
    core.dsl.directory.remove(tx, name.as_bytes()).await?;
    core.dsl.mos.free_object(tx, ObjectId(object)).await?;
    Ok(())
}

/// That every device has the group and the labels of the new pool: it cannot be opened without one of them.
async fn check(core: &Core) -> Result<()> {
    let (guid, written) = (core.config.read().guid, core.uberblock.lock().txg);
    let devices = core.leaf_devices.lock().clone();
    for device in devices.values() {
        let found = labels::read(&**device).await.map_err(PoolError::Unavailable)?;
        if found.pool() != guid || found.reached() < written {
            let text = format!("{} did not take the labels of the new pool", device.name());
            return Err(PoolError::Unavailable(text));
        }
    }
    Ok(())
}
