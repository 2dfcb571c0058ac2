//! Changes of a pool's devices and identity while it runs: add, online, offline, reopen, reguid, upgrade
//! (`module/zfs/vdev.c`, `spa_vdev_add` and `spa_change_guid` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - the configuration, the allocator and the table of vdevs change in the sync loop only, in one group;
//! - no change may leave a pool that cannot be read: a device goes offline only when the others have everything, or
//!   when it is a log's and nothing is in that any more;
//! - one change runs at a time, be it a command's or the pool's own ([`takeover`](crate::takeover)).

use std::sync::Arc;

use futures::future::join_all;
use platter_device::OpenOptions;
use platter_dmu::Tx;
use platter_vdev::{AllocationClass, Condition, TopVdev, VdevAux, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::exchange::Joining;
use crate::new_devices;
use crate::place::{self, PlacedLeaf};
use crate::plan;
use crate::plan::Planned;
use crate::pool_events;
use crate::rebuild::{self, Giving};
use crate::vdev_names::vdev_name;
use crate::verdicts::Why;
use crate::{
    cache_devices, caches, dtl, exchange, expansion, free_commands, labels, locked, open_vdevs, removal, spare_looks,
    spares, upgrade, verdict_flags, verdicts,
};
use platter_api::report::VdevReport;
use platter_api::request::{Changed, PoolChange, VdevRequest};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::stored_property::StoredProperty;

/// Makes one change.
///
/// # Errors
/// Why it was refused, or what failed.
pub async fn run(core: &Arc<Core>, change: PoolChange) -> Result<Changed> {
    if core.dsl.read_only {
        return Err(PoolError::Unavailable("pool is read-only".into()));
    }
    let _one = core.changing.lock().await;
    match change {
        PoolChange::Add { vdevs, force, ashift, any_ashift, dry_run } => {
            let layout = add(core, &vdevs, force, ashift, any_ashift, dry_run).await?;
            Ok(Changed { layout, ..Changed::default() })
        }
        PoolChange::Online { device, expand } => online(core, &device, expand).await,
        PoolChange::Offline { device, temporary } => {
            offline(core, &device, temporary).await?;
            free_commands::settle(core).await;
            Ok(Changed::default())
        }
        PoolChange::Judge { device, cause } => verdicts::carry_out(core, &device, Why::Errors(cause)).await,
        PoolChange::Fault { device, temporary } => {
            if let Some(cache) = core.caches.find(&*core.environment.devices, &device).await {
                return cache_devices::fault(core, cache, temporary).await;
            }
            let changed = verdicts::carry_out(core, &device, Why::Somebody { temporary }).await;
            free_commands::settle(core).await;
            changed
        }
        PoolChange::Attach { device, new, replaces, force, ashift, sequential } => {
            let how = if sequential { Giving::Sequentially } else { Giving::ByBlock };
            let joining = Joining { device, new, replaces, force, ashift, how };
            exchange::attach(core, joining).await.map(|()| Changed::default())
        }
        PoolChange::Detach { device } => exchange::detach(core, &device).await.map(|()| Changed::default()),
        PoolChange::Remove { device } => removal::remove(core, &device).await.map(|()| Changed::default()),
        PoolChange::Reguid { guid } => reguid(core, guid).await.map(|()| Changed::default()),
        PoolChange::Upgrade { features } => upgrade::run(core, features).await,
        PoolChange::Free { work, devices } => free_commands::run(core, work, &devices).await,
        PoolChange::Reopen => {
            reopen(core).await;
            Ok(Changed::default())
        }
    }
}

async fn online(core: &Arc<Core>, name: &str, expand: bool) -> Result<Changed> {
    if let Some(cache) = core.caches.find(&*core.environment.devices, name).await {
        if expand {
            return Err(PoolError::Unsupported("cannot expand cache devices".into()));
        }
        return cache_devices::online(core, cache).await;
    }
    let mut place = place::find(core, name).await?;
    let clear = |vdev: &mut VdevConfig| {
        (vdev.offline, vdev.offline_for_now, vdev.removed) = (false, false, false);
        verdict_flags::acquit(vdev);
    };
    verdicts::acquit(core, &mut place);
    clear(&mut place.config);
    // Until it is on disk that it is not offline, a crash would lose what was put there.
    let waits = place.top.class() == AllocationClass::Log && !place.top.condition().is_usable();
    if waits {
        removal::set_passive(core, place.top.id() as u32, true);
    }
    // One that comes back has its spare go; beside one that is there a spare stays that somebody put there.
    if !place.leaf.is_usable() {
        place.leaf.clear_errors();
        place.open(core).await;
    } else {
        if matches!(place.leaf.condition().aux, VdevAux::ErrorExceeded | VdevAux::External) {
            place.leaf.clear_errors();
        }
    }
    let grows = expand || expansion::is_automatic(core);
    if grows {
        // Also of the others, as `vdev_online` opens the whole vdev again: what they have more may wait for this one.
        join_all(place.top.leaves().iter().map(|leaf| leaf.look_at_size())).await;
    }
    let (guid, top) = (place.config.guid, place.top.clone());
    let event = format!("vdev={guid}");
    let condition = place.leaf.condition();
    // What cannot be opened is not "faulted" to the command, whatever the reason: `clear` does not help.
    let state = if condition.state == VdevState::CantOpen { "UNAVAIL" } else { condition.name() };
    let (state, reason) = (state.to_owned(), condition.detail.filter(|_| !place.leaf.is_usable()));
    core.task(async move |core, tx| {
        place::change_config(&core, &place, clear);
        core.event("sysevent.fs.zfs.vdev_online", vec![("vdev_guid", place.config.guid.0.into())]);
        history::append_event(&core.dsl, &tx, "vdev online", &event).await?;
        Ok(())
    })
    .await?;
    if waits {
        removal::set_passive(core, top.id() as u32, false);
    }
    if grows {
        expansion::expand(core, &top).await?;
    }
    rebuild::resume(core);
    free_commands::resume(core);
    Ok(Changed { state: Some(state), reason, ..Changed::default() })
}

async fn offline(core: &Arc<Core>, name: &str, temporary: bool) -> Result<()> {
    if let Some(cache) = core.caches.find(&*core.environment.devices, name).await {
        return cache_devices::offline(core, cache, temporary).await;
    }
    let place = place::find(core, name).await?;
    if place.config.offline || (temporary && place.config.offline_for_now) {
        return Ok(());
    }
    if place.top.class() == AllocationClass::Log && !place.top.can_do_without(&place.leaf) {
        return offline_log(core, place, temporary).await;
    }
    let check = async move |_: Arc<Core>| match place.top.can_do_without(&place.leaf) {
        true => Ok(place),
        false => Err(PoolError::Busy("no valid replicas".into())),
    };
    core.checked_task(check, async move |core, tx, place| take_offline(&core, &tx, &place, temporary).await).await
}

/// The last device of a log goes when nothing is there that a crash would need (`vdev_offline_locked`).
async fn offline_log(core: &Arc<Core>, place: PlacedLeaf, temporary: bool) -> Result<()> {
    let number = place.top.id() as u32;
    removal::set_passive(core, number, true);
    let gone = async {
        removal::empty(core, number).await?;
        let check = async move |core: Arc<Core>| removal::check_unneeded(&core, number).await.map(|()| place);
        core.checked_task(check, async move |core, tx, place| take_offline(&core, &tx, &place, temporary).await).await
    };
    let gone = gone.await;
    // Where no device is, nothing is put either way.
    removal::set_passive(core, number, false);
    gone
}

async fn take_offline(core: &Arc<Core>, tx: &Tx, place: &PlacedLeaf, temporary: bool) -> Result<()> {
    place.let_go(core, Condition::new(VdevState::Offline, VdevAux::None));
    // It misses this very group already.
    dtl::note_absent(core, tx.txg());
    place::change_config(core, place, |vdev| {
        (vdev.offline, vdev.offline_for_now) = (!temporary, temporary);
    });
    let event = format!("vdev={}", place.config.guid);
    history::append_event(&core.dsl, tx, "vdev offline", &event).await?;
    Ok(())
}

async fn reopen(core: &Arc<Core>) {
    for place in place::leaves(core) {
        place.top.check_present();
        if !place.leaf.is_usable() && !place.config.offline && !place.config.offline_for_now && !place.config.faulted {
            place.open(core).await;
        }
        place.leaf.look_at_size().await;
    }
    cache_devices::reopen_all(core).await;
    // Labels at the end of what has grown are where the end is now.
    core.dsl.dirty_config();
    expansion::expand_all(core).await;
    rebuild::resume(core);
    free_commands::resume(core);
}

async fn reguid(core: &Arc<Core>, guid: Option<u64>) -> Result<()> {
    if guid == Some(0) {
        return Err(PoolError::invalid("invalid GUID: 0"));
    }
    let check = async move |core: Arc<Core>| {
        if place::leaves(&core).iter().any(|place| !place.leaf.is_usable()) {
            return Err(PoolError::Unavailable("one or more devices is currently unavailable".into()));
        }
        let new = platter_ondisk::Guid(guid.unwrap_or_else(|| core.random()));
        let mut taken = false;
        core.config.read().vdev_tree.walk(&mut |vdev| taken |= vdev.guid == new);
        if taken {
            return Err(PoolError::Exists(format!("guid {new} is in use in this pool")));
        }
        // Labels with either guid may be on disk until this group is.
        core.locked.lock().add(&core.environment, new)?;
        Ok(new)
    };
    core.checked_task(check, async move |core, tx, new| {
        let old = {
            let mut config = core.config.write();
            let old = std::mem::replace(&mut config.guid, new);
            config.vdev_tree.guid = new;
            old
        };
        core.dsl.dirty_config();
        core.event("sysevent.fs.zfs.pool_reguid", Vec::new());
        history::append_event(&core.dsl, &tx, "guid change", &format!("old={old} new={new}")).await?;
        Ok(())
    })
    .await?;
    core.locked.lock().keep_only(core.config.read().guid);
    let guid = core.config.read().guid;
    core.dsl.store.state().l2arc.set_pool(guid);
    Ok(())
}

/// What the new vdevs look like, and behind them the cache devices and the spares, below a vdev for each kind; their
/// root has no name.
pub fn show(tops: &[VdevConfig], caches: &[VdevConfig], spares: &[VdevConfig]) -> VdevReport {
    fn report(vdev: &VdevConfig) -> VdevReport {
        let path = vdev.path.as_ref().map(std::path::PathBuf::from);
        let name = vdev_name(vdev, "", path.as_ref());
        VdevReport {
            // The plan shows types without numbers.
            name: if vdev.is_leaf() { name } else { name.rsplit_once('-').map_or(name.clone(), |(k, _)| k.to_owned()) },
            kind: vdev.kind.clone(),
            is_log: vdev.is_log,
            path: vdev.path.clone(),
            children: vdev.children.iter().map(report).collect(),
            ..VdevReport::default()
        }
    }
    let below = |name: &str, vdevs: &[VdevConfig]| VdevReport {
        name: name.into(),
        kind: if name.is_empty() { "root".into() } else { name.into() },
        children: vdevs.iter().map(report).collect(),
        ..VdevReport::default()
    };
    let mut root = below("", tops);
    root.children.extend((!caches.is_empty()).then(|| below("cache", caches)));
    root.children.extend((!spares.is_empty()).then(|| below("spares", spares)));
    root
}

async fn add(
    core: &Arc<Core>,
    vdevs: &[VdevRequest],
    force: bool,
    ashift: u64,
    any_ashift: bool,
    dry_run: bool,
) -> Result<Option<VdevReport>> {
    if vdevs.is_empty() {
        return Err(PoolError::Devices(
            "invalid vdev specification: at least one toplevel vdev must be specified".into(),
        ));
    }
    let (first, version) = (core.config.read().vdev_tree.children.len(), core.dsl.version());
    let planned = plan::plan_vdevs(&core.environment, vdevs, first as u64, version, force).await?;
    let Planned { tops: children, spares: new_spares, caches: new_caches, devices: mut new_devices } = planned;
    spares::check_new(core, &new_spares)?;
    let added: Vec<_> = new_spares.iter().map(|spare| spare.guid).collect();
    if dry_run {
        return Ok(Some(show(&children, &new_caches, &new_spares)));
    }
    let ashift = match (ashift, core.pool_properties.read().get("ashift")) {
        (0, Some(StoredProperty::Number(stored))) => *stored,
        (ashift, _) => ashift,
    };
    let mut root = VdevConfig { kind: "root".into(), children, ..VdevConfig::default() };
    if !any_ashift {
        check_ashift(core, vdevs, ashift).await?;
    }
    let prepare = async {
        let new_spares = spares::prepare(&core.environment, new_spares, &mut new_devices).await?;
        let new_caches = caches::prepare(&core.environment, new_caches, &mut new_devices, (version, ashift)).await?;
        let opened = new_devices::open(&core.environment, &mut root, new_devices, ashift).await?;
        let devices = open_vdevs::leaf_devices(&opened);
        labels::wipe(&new_devices::label_targets(&root, &devices)).await.map_err(PoolError::Unavailable)?;
        spares::label(&new_spares, version.0).await?;
        Ok((new_spares, new_caches, opened, devices))
    };
    let (new_spares, new_caches, opened, devices) = core.unless_suspended(prepare).await?;
    let check = async move |core: Arc<Core>| {
        if core.config.read().vdev_tree.children.len() != first {
            return Err(PoolError::Busy("the pool's devices changed meanwhile: try again".into()));
        }
        spares::check_prepared(&core, &new_spares)?;
        Ok(new_spares)
    };
    core.checked_task(check, async move |core, tx, new_spares| {
        for (mut top, vdev) in root.children.into_iter().zip(opened.into_iter().flatten()) {
            let leaves = vdev.leaves();
            insert(&core, &tx, &mut top, vdev).await?;
            leaves.iter().for_each(|leaf| pool_events::listen(&core, leaf));
            core.event("sysevent.fs.zfs.vdev_add", vec![("vdev_guid", top.guid.0.into())]);
        }
        core.leaf_devices.lock().extend(devices);
        core.dsl.dirty_config();
        spares::add(&core, &tx, new_spares).await?;
        caches::add(&core, &tx, new_caches).await?;
        Ok(())
    })
    .await?;
    cache_devices::open_all(core).await;
    locked::note_leaves(&core.environment, &core.config.read(), &core.beside());
    spare_looks::look_at_these(core, &added).await;
    Ok(None)
}

/// Makes an opened vdev part of the pool, in the syncing group.
async fn insert(core: &Core, tx: &Tx, top: &mut VdevConfig, vdev: Arc<TopVdev>) -> Result<()> {
    top.walk_mut(&mut |v| v.create_txg = tx.txg().0);
    open_vdevs::make_metaslab_array(&core.dsl.mos, tx, top).await?;
    let group = open_vdevs::new_group(top, &vdev).joining();
    let state = core.dsl.store.state();
    vdev.set_cpu(core.dsl.store.cpu().clone());
    if !state.vdevs.push(top.id as usize, vdev) {
        return Err(PoolError::invalid("the pool has as many top-level vdevs as it may have"));
    }
    state.allocator.lock().add_group(group);
    core.config.write().vdev_tree.children.push(top.clone());
    let event = format!("vdev={} type={}", top.guid, top.kind);
    history::append_event(&core.dsl, tx, "vdev add", &event).await?;
    Ok(())
}

/// A pool whose vdevs all have one ashift does not get another by accident (`ZFS_ERR_ASHIFT_MISMATCH`).
async fn check_ashift(core: &Core, vdevs: &[VdevRequest], asked: u64) -> Result<()> {
    let shifts: Vec<u64> =
        core.config.read().vdev_tree.children.iter().map(|top| top.ashift).filter(|a| *a > 0).collect();
    let (Some(&least), Some(&most)) = (shifts.iter().min(), shifts.iter().max()) else { return Ok(()) };
    if least != most {
        return Ok(());
    }
    for vdev in vdevs.iter().filter(|vdev| vdev.is_top()) {
        let mut sectors = Vec::new();
        for path in vdev.leaves() {
            let device = core.environment.devices.open_path(path, OpenOptions::read_only()).await;
            sectors.extend(device.map(|device| device.geometry()).map(|g| (g.logical_ashift(), g.physical_ashift())));
        }
        let best = || u64::from(platter_vdev::geometry::best_ashift(sectors));
        let ashift = if asked == 0 { best() } else { asked };
        if ashift != most {
            return Err(PoolError::NeedsForce {
                reason: format!(
                    "adding devices with different physical sector sizes is not allowed (ashift {ashift}, the pool's \
                     vdevs have {most})"
                ),
                hint: format!("use '-o ashift={most}' to give the new device the same, or '-f' to have both"),
            });
        }
    }
    Ok(())
}
