//! The cache devices (L2ARC) of a pool as it is configured: their list in the MOS, and how they come
//! (`spa_load_l2cache` and `spa_sync_aux_dev` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - a cache device is one pool's alone, and holds nothing that the pool's devices do not have: whatever becomes of it,
//!   the pool is as whole as it was;
//! - its label says which device it is, and what is there is used only when that is what the list says.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Tx};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::version::PoolVersion;
use platter_nvlist::NvList;
use platter_ondisk::names::config::{ASHIFT, FAULTED, L2CACHE, OFFLINE};
use platter_ondisk::names::pool_directory;
use platter_vdev::geometry::best_ashift;

use crate::aux_list::{self, AuxList};
use crate::cache_list::Caches;
use crate::config::VdevConfig;
use crate::core::Core;
use crate::environment::Environment;
use crate::open_vdevs::NewDevices;
use crate::{cache_label, spares};

/// Where the list is.
const LIST: AuxList =
    AuxList { name: pool_directory::L2CACHE, key: L2CACHE, what: "cache devices", called: "list of cache devices" };
/// The first version with cache devices (`SPA_VERSION_L2CACHE`).
const VERSION_LEAST: u64 = 10;

/// Reads the list. Damage to it costs the cache devices, not the pool.
pub async fn load(os: &Arc<Objset>, directory: &Zap, pool: &str) -> Caches {
    let (object, configs) = aux_list::load(os, directory, &LIST, pool).await;
    Caches::new(object, configs)
}

/// A device as it stands in the list (`vdev_config_generate` with `VDEV_CONFIG_L2CACHE`).
fn entry(config: &VdevConfig) -> NvList {
    let mut entry = aux_list::entry(config);
    let own = [ASHIFT, OFFLINE, FAULTED];
    for (name, value) in config.other.iter().filter(|(name, _)| !own.contains(name)) {
        entry.add(name, value.clone());
    }
    entry.add_u64(ASHIFT, config.ashift);
    for (name, _) in [(OFFLINE, config.offline), (FAULTED, config.faulted)].into_iter().filter(|(_, set)| *set) {
        entry.add_u64(name, 1);
    }
    entry
}

/// Writes the list, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Core, tx: &Tx) -> Result<()> {
    let entries = core.caches.configs().iter().map(entry).collect();
    aux_list::store(core, tx, &LIST, &core.caches.object, entries).await
}

/// Opens planned cache devices, whole disks partitioned, and labels them. None is in any list yet.
///
/// # Errors
/// The pool's version has none; the first device that cannot be had or written.
pub async fn prepare(
    environment: &Environment,
    planned: Vec<VdevConfig>,
    devices: &mut NewDevices,
    (version, ashift): (PoolVersion, u64),
) -> Result<Vec<VdevConfig>> {
    if !planned.is_empty() && version.0 < VERSION_LEAST {
        return Err(PoolError::Unsupported(format!("pool version {version} has no cache devices")));
    }
    let mut prepared = Vec::new();
    for config in planned {
        let Some(device) = devices.0.remove(&config.guid.0) else { continue };
        let own = NewDevices([(config.guid.0, device)].into());
        let (config, device) = spares::open_alone(environment, config, own, ashift).await?;
        let geometry = device.geometry();
        let best = u64::from(best_ashift([(geometry.logical_ashift(), geometry.physical_ashift())]));
        let ashift = if ashift == 0 { best } else { ashift.max(u64::from(geometry.logical_ashift())) };
        let config = VdevConfig { ashift, ..config };
        let written = cache_label::write(&*device, version.0, &config).await;
        written.map_err(|error| PoolError::Unavailable(error.to_string()))?;
        prepared.push(config);
    }
    Ok(prepared)
}

/// Adds labelled devices to the list, in the syncing group. They are opened afterwards.
///
/// # Errors
/// Out of space, device errors.
pub async fn add(core: &Core, tx: &Tx, configs: Vec<VdevConfig>) -> Result<()> {
    if configs.is_empty() {
        return Ok(());
    }
    for config in &configs {
        assert!(core.caches.get(config.guid).is_none(), "a device joins once");
        core.event("sysevent.fs.zfs.vdev_add", vec![("vdev_guid", config.guid.0.into())]);
        if tx.txg() != platter_dsl::dataset::TXG_INITIAL {
            let event = format!("vdev={} type=l2cache", config.guid);
            history::append_event(&core.dsl, tx, "vdev add", &event).await?;
        }
    }
    core.caches.extend(configs);
    store(core, tx).await
}

#[cfg(test)]
mod tests {
    use platter_api::report::Detail;
    use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};

    use platter_device::OpenOptions;
    use platter_ondisk::Guid;

    use super::*;
    use crate::Pool;
    use crate::test_environment::environment;
    use crate::verdict_flags::{Judge, Judged, judge};

    #[test]
    fn what_is_stored_of_a_device_reads_back() {
        let mut config = VdevConfig {
            kind: "disk".into(),
            guid: Guid(77),
            path: Some("/dev/nvme0n1p1".into()),
            whole_disk: Some(1),
            ashift: 12,
            offline: true,
            ..VdevConfig::default()
        };
        config.other.add_str("devid", "nvme-x");
        assert_eq!(VdevConfig::parse(&entry(&config)), Ok(config.clone()));
        judge(&mut config, Judged::Faulted, Judge::Somebody);
        assert_eq!(VdevConfig::parse(&entry(&config)), Ok(config.clone()));
        // A verdict for now is not for the next import.
        judge(&mut config, Judged::Faulted, Judge::SomebodyForNow);
        assert!(!VdevConfig::parse(&entry(&config)).expect("it is one").faulted);
    }

    /// Under another guid, and when it is moved with the pool's other devices.
    #[tokio::test]
    async fn a_cache_device_stays_the_pools_whatever_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let make = |name: &str, size: u64| {
            let path = folder.path().join(name);
            std::fs::File::create(&path).and_then(|file| file.set_len(size)).expect("a file");
            path
        };
        let (data, cache) = (make("d0", 128 << 20), make("c0", 2 << 30));
        let vdevs = vec![VdevRequest::Leaf(data), VdevRequest::Cache(vec![cache.clone()])];
        let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
        let pool = Pool::create(environment(3), request).await.expect("created");
        let caches = async |pool: &Arc<Pool>| pool.report(Detail::default()).await.expect("a report").caches;
        // What a device has from before is read behind everybody's back; so long it has no size.
        for _ in 0..1000 {
            if caches(&pool).await.first().is_some_and(|shown| shown.size > 0) {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let [shown] = &caches(&pool).await[..] else { panic!("it is shown") };
        assert_eq!((&*shown.state, shown.size > 1 << 30, shown.is_cache), ("ONLINE", true, true));
        pool.change(PoolChange::Reguid { guid: Some(99) }).await.expect("another guid");
        let device = pool.core.caches.list.lock()[0].device.clone().expect("it is open");
        pool.export().await.expect("exported");
        assert!(device.has_left() && caches(&pool).await[0].state == "UNAVAIL", "nothing of it is open any more");

        let other = tempfile::tempdir().expect("a folder");
        for name in ["d0", "c0"] {
            std::fs::rename(folder.path().join(name), other.path().join(name)).expect("moved");
        }
        let search = vec![other.path().to_owned()];
        let request = ImportRequest { pool: "tank".into(), search, ..ImportRequest::default() };
        let pool = Pool::import(environment(3), request).await.expect("imported");
        let [shown] = &caches(&pool).await[..] else { panic!("it is shown") };
        assert_eq!(shown.path.as_deref(), other.path().join("c0").to_str());
        assert_eq!(shown.state, "ONLINE");
        // Whoever imports what was destroyed has it again; nobody else minds its label.
        pool.destroy().await.expect("destroyed");
        let left = environment(3).devices.open_path(&other.path().join("c0"), OpenOptions::read_only()).await;
        assert!(cache_label::read(&*left.expect("it is there")).await.is_some());
    }
}
