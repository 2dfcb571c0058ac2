//! `zpool remove` (`module/zfs/vdev_removal.c`): hot spares, cache devices and separate intent log
//! devices.
//!
//! A log holds nothing for long: what is committed there is in the pool with its group. So nothing is moved; no more is
//! put there, the chains that lie there begin anew elsewhere, and when all of it is free the vdev leaves.
//!
//! Invariants:
//! - a vdev leaves in a group in which nothing is allocated on it and nothing of it is at rest, or in which nothing
//!   leads to what is left there;
//! - it leaves only while nothing more is put there;
//! - its number stays: block pointers name vdevs by number, so a hole is left there.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::{history, intent, mos};
use platter_ondisk::ObjectId;
use platter_ondisk::features::Feature;
use platter_ondisk::names::vdev_top_zap::MS_UNFLUSHED_PHYS_TXGS;
use platter_ondisk::rebuild::RebuildState;
use platter_vdev::{Condition, VdevAux, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::{cache_devices, exchange, labels, locked, place, rebuild_store, spares};

/// Groups after which what was freed in the first of them is free for others, with some to spare.
const GROUPS: usize = 8;

/// Removes the device that a command means.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn remove(core: &Arc<Core>, name: &str) -> Result<()> {
    if let Some(spare) = core.spares.find(&*core.environment.devices, name).await {
        return spares::remove(core, &spare).await;
    }
    if let Some(cache) = core.caches.find(&*core.environment.devices, name).await {
        return cache_devices::remove(core, cache).await;
    }
    let vdev = match place::interior(core, name) {
        Some(vdev) => vdev,
        None => place::find(core, name).await?.config,
    };
    let top = core.config.read().vdev_tree.children.iter().find(|top| top.guid == vdev.guid).cloned();
    match top {
        Some(top) if top.is_log => remove_log(core, top).await,
        _ => Err(PoolError::Unsupported(
            "this version removes hot spares, cache devices and logs only; a device of a mirror leaves it with 'zpool \
             detach'"
                .into(),
        )),
    }
}

/// `spa_vdev_remove_log`.
async fn remove_log(core: &Arc<Core>, top: VdevConfig) -> Result<()> {
    let (guid, number) = (top.guid, top.id as u32);
    let devices: Vec<_> = {
        let all = core.leaf_devices.lock();
        top.leaves().iter().filter_map(|leaf| all.get(&leaf.guid.0).cloned()).collect()
    };
    set_passive(core, number, true);
    let removed = async {
        empty(core, number).await?;
        let check = async move |core: Arc<Core>| {
            let top = core.config.read().vdev_tree.children.iter().find(|top| top.guid == guid).cloned();
            check_unneeded(&core, number).await?;
            top.ok_or_else(busy)
        };
        core.checked_task(check, async move |core, tx, top| take_out(&core, &tx, &top).await).await
    };
    if let Err(error) = removed.await {
        set_passive(core, number, false);
        return Err(error);
    }
    locked::note_leaves(&core.environment, &core.config.read(), &core.beside());
    for device in devices {
        if let Err(error) = labels::clear(&*device).await {
            tracing::warn!(pool = core.name(), %error, "the labels of a device of log {guid}, which has left, stay");
        }
    }
    Ok(())
}

fn busy() -> PoolError {
    PoolError::Busy(
        "device is busy: it has logs of file systems that wait to be replayed\nMount them ('zfs mount -a') and try \
         again."
            .into(),
    )
}

/// Whether nothing more is put on a log.
pub fn set_passive(core: &Core, vdev: u32, is_passive: bool) {
    let mut allocator = core.dsl.store.state().allocator.lock();
    if let Some(group) = allocator.groups_mut().iter_mut().find(|group| group.vdev == vdev) {
        group.is_passive = is_passive;
    }
}

/// Whether a log that was [emptied](empty) can be done without, in the syncing group.
///
/// # Errors
/// It has logs of file systems that wait to be replayed.
pub async fn check_unneeded(core: &Core, vdev: u32) -> Result<()> {
    if is_empty(core, vdev) || !intent::any_waits(&core.dsl).await { Ok(()) } else { Err(busy()) }
}

fn is_empty(core: &Core, vdev: u32) -> bool {
    core.dsl.store.state().allocator.lock().group(vdev).is_some_and(|group| group.is_empty())
}

/// Has the next commit of every log begin another chain, where blocks may be put then.
///
/// # Errors
/// The pool stopped.
pub async fn begin_logs_anew(core: &Arc<Core>) -> Result<()> {
    let datasets: Vec<_> = core.dsl.tree.read().datasets.values().cloned().collect();
    for dataset in datasets {
        let zil = dataset.zil.lock().clone();
        if let Some(zil) = zil {
            zil.begin_anew().await?;
        }
    }
    Ok(())
}

/// Has every log begin anew elsewhere, and waits until what this one had is free and has rested. It is passive.
///
/// # Errors
/// It has logs of file systems that are not mounted.
pub async fn empty(core: &Arc<Core>, vdev: u32) -> Result<()> {
    begin_logs_anew(core).await?;
    for _ in 0..GROUPS {
        core.force_group().await?;
        if is_empty(core, vdev) {
            return Ok(());
        }
    }
    // Of a log that was gone nobody could read where all of it was: what is left there leads nowhere.
    check_unneeded(core, vdev).await
}

/// Makes a hole of an empty top-level vdev, in the syncing group (`vdev_remove_make_hole_and_free`).
async fn take_out(core: &Arc<Core>, tx: &Tx, top: &VdevConfig) -> Result<()> {
    let state = core.dsl.store.state();
    let leaves = state.vdevs.get(top.id as usize).and_then(Option::as_ref).map(|vdev| vdev.leaves());
    assert!(top.is_log, "blocks of data sets may be on vdev {}", top.id);
    rebuild_store::end(core, tx, top.id, RebuildState::Canceled).await?;
    let group = {
        let mut allocator = state.allocator.lock();
        // Of a command that has ended this may still come, when a suspended pool is resumed: commits go there again.
        if !allocator.group(top.id as u32).is_some_and(|group| group.is_passive) {
            return Err(PoolError::Unavailable("the removal was called off".into()));
        }
        allocator.remove_group(top.id as u32)
    };
    state.vdevs.remove(top.id as usize);
    core.vdev_properties.lock().remove(&top.top_zap);
    {
        let mut config = core.config.write();
        let slot = config.vdev_tree.children.iter_mut().find(|other| other.guid == top.guid);
        *slot.expect("it was just found") = VdevConfig::hole(top.id);
    }
    core.dsl.dirty_config();
    debug_assert!(state.vdevs.get(top.id as usize).is_some_and(Option::is_none), "a hole is left in the numbering");
    let maps = group.metaslabs().iter().map(|metaslab| metaslab.space_map).filter(|map| map.is_some());
    free_objects(core, tx, top, maps.collect()).await?;
    core.rebuilds.known.lock().remove(&top.id);
    for leaf in top.leaves() {
        core.leaf_devices.lock().remove(&leaf.guid.0);
        core.stored_missing.lock().remove(&leaf.guid.0);
    }
    for leaf in leaves.into_iter().flatten() {
        leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
    }
    core.event("sysevent.fs.zfs.vdev_remove_dev", vec![("vdev_guid", top.guid.0.into())]);
    let path = top.path.as_deref().unwrap_or("-");
    history::append_event(&core.dsl, tx, "vdev remove", &format!("{} vdev {} (log) {path}", core.name(), top.id))
        .await?;
    Ok(())
}

/// Frees what only a top-level vdev that has left needed, in the syncing group: the space `maps` of its metaslabs among
/// it.
///
/// # Errors
/// Damage, unreadable blocks, device errors.
pub async fn free_objects(core: &Arc<Core>, tx: &Tx, top: &VdevConfig, maps: Vec<ObjectId>) -> Result<()> {
    for map in maps {
        core.dsl.mos.free_object(tx, map).await?;
        core.dsl.features.adjust(tx, Feature::SpacemapHistogram, -1).await?;
    }
    if top.metaslab_array.is_some() {
        core.dsl.mos.free_object(tx, top.metaslab_array).await?;
    }
    free_top_zap(core, tx, top.top_zap).await?;
    for leaf in top.leaves() {
        exchange::free_objects(core, tx, leaf).await?;
    }
    Ok(())
}

/// Frees a top-level vdev's ZAP, with what only that leads to.
async fn free_top_zap(core: &Arc<Core>, tx: &Tx, top_zap: ObjectId) -> Result<()> {
    if !top_zap.is_some() {
        return Ok(());
    }
    let zap = Zap::open(&core.dsl.mos, top_zap).await?;
    if let Some(unflushed) = zap.get_u64(MS_UNFLUSHED_PHYS_TXGS.as_bytes()).await? {
        core.dsl.mos.free_object(tx, ObjectId(unflushed)).await?;
    }
    if let Some(map) = core.dsl.directory.get_u64(mos::VDEV_ZAP_MAP.as_bytes()).await? {
        Zap::open(&core.dsl.mos, ObjectId(map)).await?.remove_int(tx, top_zap.0).await?;
    }
    core.dsl.mos.free_object(tx, top_zap).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use platter_api::request::{CreateRequest, PoolChange, VdevRequest};

    use super::*;
    use crate::Pool;
    use crate::test_environment::environment;

    /// The command ended with the pool's suspension, and commits went to the log again: when the pool was resumed, the
    /// task that still waited took the log out with what was committed there.
    #[tokio::test]
    async fn a_removal_that_was_called_off_takes_nothing_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let paths = ["d0", "d1"].map(|name| folder.path().join(name));
        for path in &paths {
            std::fs::File::create(path).and_then(|file| file.set_len(128 << 20)).expect("a file");
        }
        let [data, log] = paths;
        let vdevs = vec![VdevRequest::Leaf(data), VdevRequest::Log(vec![log.clone()])];
        let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
        let pool = Pool::create(environment(1), request).await.expect("created");
        let top = pool.core.config.read().vdev_tree.children[1].clone();
        let late = async move |core: Arc<Core>, tx: Tx, ()| take_out(&core, &tx, &top).await;
        let outcome = pool.core.checked_task(async |_| Ok(()), late).await;
        assert!(outcome.is_err_and(|error| error.to_string().contains("called off")));
        assert!(pool.core.dsl.store.state().vdevs.get(1).is_some_and(Option::is_some), "it stays");
        let change = PoolChange::Remove { device: log.display().to_string() };
        pool.change(change).await.expect("removed");
        assert!(pool.core.dsl.store.state().vdevs.get(1).is_some_and(Option::is_none), "now it leaves");
        pool.export().await.expect("exported");
    }
}
