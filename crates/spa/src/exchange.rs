//! Devices that join a vdev, leave it, or take another one's place while the pool is in use: attach, detach, replace
//! (`spa_vdev_attach`, `spa_vdev_detach` and `spa_vdev_resilver_done` in `module/zfs/spa.c`, `vdev_add_parent` and
//! `vdev_remove_parent` in `module/zfs/vdev.c`).
//!
//! Invariants:
//! - a device that joins lacks every group up to the last one that may be open: its list says so on disk with the very
//!   group in which it joins;
//! - a device leaves only when the others have everything, and nobody uses it any more when its labels are wiped, or
//!   say that it is a free spare again;
//! - configuration and arrangement of the leaves change in the sync loop only, in one group.

use platter_ondisk::features::Feature;
use std::path::PathBuf;
use std::sync::Arc;

use platter_device::{BlockDevice, Geometry, Presence};
use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_ondisk::names::config::{IS_SPARE, REBUILD_TXG, RESILVER_TXG, UNSPARE};
use platter_ondisk::{Guid, ObjectId, Txg};
use platter_vdev::geometry::best_ashift;
use platter_vdev::{AllocationClass, Arrangement, Condition, Leaf, TopVdev, VdevAux, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::labels::LabelTarget;
use crate::new_devices;
use crate::open_vdevs::NewDevices;
use crate::place::{self, PlacedLeaf};
use crate::plan;
use crate::plan::Planned;
use crate::pool_events;
use crate::rebuild::{self, Giving};
use crate::spare_flags;
use crate::verdict_flags::is_judged;
use crate::{dtl, expansion, labels, open_vdevs, spares};
use platter_api::request::VdevRequest;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::{history, mos};

/// What a device that joins is to the one that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beside {
    /// Another side of a mirror.
    Mirror,
    /// It takes the other one's place as soon as it has everything.
    Replacing,
    /// It stands in for the other one.
    Spare,
}

impl Beside {
    /// The vdev that has both below it.
    fn parent(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Replacing => "replacing",
            Self::Spare => "spare",
        }
    }
}

/// What the configuration says of a device that joined, as long as it lacks something.
const JOINED: [&str; 2] = [RESILVER_TXG, REBUILD_TXG];

/// Nested vdevs whose leaves stand for one device.
const STANDING_FOR_ONE: [&str; 2] = ["replacing", "spare"];

/// What is to be done with a new device.
#[derive(Clone, Debug)]
pub struct Joining {
    /// The device that is there: name, path or guid.
    pub device: String,
    /// The new one.
    pub new: PathBuf,
    /// Whether it takes the other one's place as soon as it has everything.
    pub replaces: bool,
    /// Whether a device that seems to be in use is taken.
    pub force: bool,
    /// log2 of the sector size to be used; 0: the vdev's.
    pub ashift: u64,
    /// How it gets what the others have.
    pub how: Giving,
}

/// Lets a device join a mirror, or a single device, or take another one's place.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn attach(core: &Arc<Core>, mut joining: Joining) -> Result<()> {
    let place = place::find(core, &joining.device).await?;
    if joining.ashift == 0 {
        joining.ashift = ashift_for(core, &place);
    }
    let spare = core.spares.find(&*core.environment.devices, &joining.new.display().to_string()).await;
    let beside = match (&spare, joining.replaces) {
        (None, false) => Beside::Mirror,
        (None, true) => Beside::Replacing,
        (Some(_), true) => Beside::Spare,
        (Some(_), false) => {
            let (path, name) = (joining.new.display(), core.name());
            return Err(PoolError::Busy(format!("{path} is reserved as a hot spare for pool '{name}'")));
        }
    };
    let (how, replaces) = (joining.how, joining.replaces);
    how.check(core, &place.top, replaces)?;
    check_place(core, &place, beside)?;
    if spare.is_some() && place.top.class() == AllocationClass::Log {
        return Err(PoolError::invalid("cannot replace a log with a spare"));
    }
    let opened = async {
        match spare {
            None => open_new(core, &place, &joining).await,
            Some(spare) => open_spare(core, &place, &spare, joining.ashift).await,
        }
    };
    let new = core.unless_suspended(opened).await?;
    let last = core
        .checked_task(
            async move |core| {
                // It may have left, or been given another parent, since it was looked at.
                let place = place::with_guid(&core, place.config.guid)?;
                how.check(&core, &place.top, replaces)?;
                check_place(&core, &place, beside)?;
                // Nobody asked for it: what is back meanwhile needs no other device.
                if how == Giving::Later && place.leaf.is_usable() && !is_judged(&place.config) {
                    return Err(PoolError::Busy("it is in use again".into()));
                }
                Ok(place)
            },
            async move |core, tx, place| join(&core, &tx, &place, new, (beside, how)).await,
        )
        .await?;
    // What was written before all groups that it lacks are on disk would have to be looked at once more.
    while core.uberblock.lock().txg < last {
        core.pass_group().await?;
    }
    // A scan that begins before the last labels are written looks at one group less.
    core.dsl.wait_synced(last).await?;
    rebuild::resume(core);
    Ok(())
}

/// The vdev right above the one with this guid.
fn parent_of(vdev: &VdevConfig, guid: Guid) -> Option<&VdevConfig> {
    match vdev.children.iter().any(|child| child.guid == guid) {
        true => Some(vdev),
        false => vdev.children.iter().find_map(|child| parent_of(child, guid)),
    }
}

fn contains(vdev: &VdevConfig, guid: Guid) -> bool {
    vdev.guid == guid || parent_of(vdev, guid).is_some()
}

fn no_such_device() -> PoolError {
    PoolError::NotFound("no such device in pool".into())
}

/// A copy of a top-level vdev's configuration.
fn top_as_it_is(core: &Core, id: u64) -> Result<VdevConfig> {
    core.config.read().vdev_tree.children.iter().find(|top| top.id == id).cloned().ok_or_else(no_such_device)
}

/// A top-level vdev's configuration.
fn top_of(tree: &mut VdevConfig, id: u64) -> Result<&mut VdevConfig> {
    tree.children.iter_mut().find(|top| top.id == id).ok_or_else(no_such_device)
}

fn check_place(core: &Core, place: &PlacedLeaf, beside: Beside) -> Result<()> {
    let config = core.config.read();
    let parent = parent_of(&config.vdev_tree, place.config.guid).ok_or_else(no_such_device)?;
    let replaces = beside != Beside::Mirror;
    match parent.kind.as_str() {
        // A spare takes the place of a spare that failed, and another device that of the one that failed first.
        "spare" if replaces && spare_flags::is_spare(&place.config) == (beside == Beside::Spare) => Ok(()),
        kind if replaces && STANDING_FOR_ONE.contains(&kind) => {
            Err(PoolError::invalid("already in replacing/spare config; wait for completion or use 'zpool detach'"))
        }
        "root" | "mirror" => Ok(()),
        "raidz" if replaces => Ok(()),
        kind if replaces => {
            Err(PoolError::Unsupported(format!("this version cannot replace a device of a {kind} vdev")))
        }
        _ => Err(PoolError::invalid("can only attach to mirrors and top-level disks")),
    }
}

/// A device that is ready to join.
struct New {
    config: VdevConfig,
    leaf: Arc<Leaf>,
    target: LabelTarget,
}

/// Checks, opens and wipes the new device. What it held is lost then, whatever comes after.
async fn open_new(core: &Arc<Core>, place: &PlacedLeaf, joining: &Joining) -> Result<New> {
    let (id, top_ashift) = (place.top.id(), u64::from(place.top.ashift()));
    if joining.ashift > top_ashift {
        return Err(other_sectors(top_ashift));
    }
    // Another file may be at that path by now.
    let presence = place.leaf.device().map(|device| device.presence());
    let is_there = presence.is_some_and(|presence| presence == Presence::Present);
    if place.leaf.is_usable() && is_there && place.leaf.path().as_ref() == Some(&joining.new) {
        return Err(PoolError::Busy(format!("{} is part of active pool '{}'", joining.new.display(), core.name())));
    }
    // Of one that is not used any more the old handle would keep the device from being opened again.
    if !place.leaf.is_usable() && place.leaf.path().as_ref() == Some(&joining.new) {
        place.let_go(core, place.leaf.condition());
    }
    let request = [VdevRequest::Leaf(joining.new.clone())];
    let planned = plan::plan_vdevs(&core.environment, &request, 0, core.dsl.version(), joining.force).await?;
    let Planned { tops: children, devices, .. } = planned;
    let mut root = VdevConfig { kind: "root".into(), children, ..VdevConfig::default() };
    // Whether its sectors fit is asked first: 0 is what the device says.
    let asked = if joining.ashift == 0 { 0 } else { top_ashift };
    let opened = new_devices::open(&core.environment, &mut root, devices, asked).await?;
    let (Some(vdev), Some(mut config)) = (opened.into_iter().flatten().next(), root.children.pop()) else {
        return Err(PoolError::Busy("the new device could not be opened".into()));
    };
    if u64::from(vdev.ashift()) > top_ashift {
        return Err(other_sectors(top_ashift));
    }
    let leaf = vdev.leaves()[0].clone();
    check_size(&leaf, place)?;
    let device = leaf.device().ok_or_else(|| PoolError::Busy("the new device has gone".into()))?;
    let target = LabelTarget { device, guid: config.guid, top: id as usize, ashift: top_ashift as u32 };
    labels::wipe(std::slice::from_ref(&target)).await.map_err(PoolError::Unavailable)?;
    // These are a top-level vdev's.
    (config.ashift, config.asize, config.metaslab_shift) = (0, 0, 0);
    config.create_txg = place.config.create_txg;
    Ok(New { config, leaf, target })
}

/// Opens a spare that is to stand in for the device at `place`.
async fn open_spare(core: &Arc<Core>, place: &PlacedLeaf, spare: &VdevConfig, asked: u64) -> Result<New> {
    let (id, ashift) = (place.top.id(), place.top.ashift());
    if asked > u64::from(ashift) {
        return Err(other_sectors(ashift.into()));
    }
    let fits = |device: &dyn BlockDevice| match least_ashift(device.geometry(), asked) > u64::from(ashift) {
        true => Err(other_sectors(ashift.into())),
        false => Ok(()),
    };
    let (mut config, device) = spares::take(core, spare, u64::from(ashift), fits).await?;
    let opener = NewDevices([(config.guid.0, device.clone())].into());
    let leaf = Leaf::open(&open_vdevs::spec(&config), &opener, true, 0).await;
    check_size(&leaf, place)?;
    let target = LabelTarget { device, guid: config.guid, top: id as usize, ashift: u32::from(ashift) };
    config.create_txg = place.config.create_txg;
    Ok(New { config, leaf, target })
}

/// The ashift that somebody has said the pool's devices are to have, where the vdev has no smaller one
/// (`zpool_do_attach_or_replace`, `cmd/zpool/zpool_main.c`; `zfs_retire` passes it on, too).
fn ashift_for(core: &Core, place: &PlacedLeaf) -> u64 {
    match core.pool_properties.read().get("ashift") {
        Some(StoredProperty::Number(stored)) if *stored <= u64::from(place.top.ashift()) => *stored,
        _ => 0,
    }
}

/// The ashift that a device's sectors need: what it would like, or what it must have when one was `asked` for.
fn least_ashift(geometry: Geometry, asked: u64) -> u64 {
    let (logical, physical) = (geometry.logical_ashift(), geometry.physical_ashift());
    match asked {
        0 => best_ashift([(logical, physical)]).into(),
        asked => asked.max(logical.into()),
    }
}

fn check_size(leaf: &Leaf, place: &PlacedLeaf) -> Result<()> {
    let (has, needs) = (leaf.asize(), place.top.least_leaf_asize());
    if has < needs {
        return Err(PoolError::invalid(format!(
            "device is too small: {has} bytes can be used of it, and the vdev needs {needs}"
        )));
    }
    Ok(())
}

fn other_sectors(ashift: u64) -> PoolError {
    PoolError::invalid(format!(
        "new device has a different optimal sector size; use the option '-o ashift={ashift}' to override the optimal \
         size"
    ))
}

/// Makes the device part of the pool, in the syncing group. Returns the last group that it lacks.
async fn join(core: &Arc<Core>, tx: &Tx, place: &PlacedLeaf, new: New, (beside, how): (Beside, Giving)) -> Result<Txg> {
    let New { config: mut joined, leaf, target } = new;
    // No other group is opened before this one is on disk, and what is written at once is of the open one.
    let last = core.dsl.gate.open_txg();
    leaf.note_lacking(Txg(1), last);
    match how {
        Giving::Sequentially => joined.other.add_u64(REBUILD_TXG, tx.txg().0),
        Giving::ByBlock | Giving::Later => joined.other.add_u64(RESILVER_TXG, last.0),
    };
    let path = joined.path.clone().unwrap_or_default();
    let parent = Guid(core.random().max(1));
    let may_come_back = !place.leaf.is_usable();
    let arrange = |top: &mut VdevConfig, is_wanted_back: bool| {
        put_beside(top, place.config.guid, joined.clone(), beside, parent);
        if beside == Beside::Spare && is_wanted_back {
            // Should it come back, the spare is free again.
            top.walk_mut(&mut |vdev| {
                if vdev.guid == place.config.guid && !spare_flags::is_spare(vdev) {
                    spare_flags::set_flag(vdev, UNSPARE, true);
                }
            });
        }
    };
    let mut arranged = top_as_it_is(core, place.top.id())?;
    arrange(&mut arranged, may_come_back);
    exchange(&place.top, &arranged, std::slice::from_ref(&leaf)).await?;
    assert!(core.dsl.gate.open_txg() <= last, "a group that the device lacks is not on its list");
    {
        // What was written there meanwhile, a path or an acquittal, stays.
        let mut stored = core.config.write();
        let top = top_of(&mut stored.vdev_tree, place.top.id())?;
        let is_acquitted = top.leaves().into_iter().any(|leaf| leaf.guid == place.config.guid && !is_judged(leaf));
        arrange(top, may_come_back || is_judged(&place.config) && is_acquitted);
        assert!(contains(top, joined.guid), "vdevs are arranged by one task at a time");
    }
    core.leaf_devices.lock().insert(joined.guid.0, target.device);
    pool_events::listen(core, &leaf);
    let class = match beside {
        Beside::Spare => "sysevent.fs.zfs.vdev_spare",
        Beside::Mirror | Beside::Replacing => "sysevent.fs.zfs.vdev_attach",
    };
    core.event(class, vec![("vdev_guid", joined.guid.0.into()), ("vdev_path", path.clone().into())]);
    core.dsl.dirty_config();
    let old_path = place.config.path.as_deref().unwrap_or("a device");
    let event = match beside {
        Beside::Spare => format!("spare in vdev={path} for vdev={old_path}"),
        Beside::Replacing => format!("replace vdev={path} for vdev={old_path}"),
        Beside::Mirror => format!("attach vdev={path} to vdev={old_path}"),
    };
    history::append_event(&core.dsl, tx, "vdev attach", &event).await?;
    if how == Giving::Sequentially {
        rebuild::begin(core, tx, place.top.id(), last).await?;
    }
    Ok(last)
}

/// What the path of a device becomes when another one at the same path takes its place.
fn old_path(path: &str) -> String {
    format!("{path}/old")
}

/// Puts a leaf beside another one below `vdev`, in a new parent where there is none that fits.
fn put_beside(vdev: &mut VdevConfig, old: Guid, mut new: VdevConfig, beside: Beside, parent: Guid) {
    let kind = beside.parent();
    if vdev.guid == old {
        let mut child = std::mem::take(vdev);
        *vdev = VdevConfig {
            kind: kind.into(),
            id: child.id,
            guid: parent,
            metaslab_array: std::mem::take(&mut child.metaslab_array),
            metaslab_shift: std::mem::take(&mut child.metaslab_shift),
            ashift: std::mem::take(&mut child.ashift),
            asize: std::mem::take(&mut child.asize),
            is_log: std::mem::take(&mut child.is_log),
            non_allocating: std::mem::take(&mut child.non_allocating),
            top_zap: std::mem::take(&mut child.top_zap),
            create_txg: child.create_txg,
            ..VdevConfig::default()
        };
        if beside != Beside::Mirror && child.path == new.path {
            // Two devices cannot have one path; the old one is not opened by it any more (`spa_vdev_attach`).
            child.path = child.path.as_deref().map(old_path);
        }
        (child.id, new.id) = (0, 1);
        vdev.children = vec![child, new];
        return;
    }
    let Some(index) = vdev.children.iter().position(|child| contains(child, old)) else { return };
    if vdev.children[index].guid == old && vdev.kind == kind && beside != Beside::Replacing {
        new.id = vdev.children.len() as u64;
        vdev.children.push(new);
    } else {
        put_beside(&mut vdev.children[index], old, new, beside, parent);
    }
}

/// Arranges the leaves of a top-level vdev, and those that join, as its configuration has them.
async fn exchange(top: &TopVdev, config: &VdevConfig, joining: &[Arc<Leaf>]) -> Result<()> {
    let known: Vec<Arc<Leaf>> = top.leaves().iter().chain(joining).cloned().collect();
    let below = |vdev: &VdevConfig| -> Vec<Arc<Leaf>> {
        let leaf = |config: &&VdevConfig| known.iter().find(|leaf| leaf.guid() == config.guid).cloned();
        vdev.leaves().iter().filter_map(leaf).collect()
    };
    let spec = open_vdevs::spec(config);
    let children = if spec.kind.is_leaf() { vec![below(config)] } else { config.children.iter().map(below).collect() };
    let new = Arrangement { guid: config.guid, kind: spec.kind, children };
    top.exchange(new).await.map_err(|error| PoolError::invalid(error.to_string()))
}

/// `zpool detach`: a device leaves its mirror, or does not take (or lose) the place of another one.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn detach(core: &Arc<Core>, device: &str) -> Result<()> {
    let place = place::find(core, device).await?;
    let guid = place.config.guid;
    // One that has failed itself is no loss: another one may follow.
    let helped = if place.leaf.is_usable() { helped_by_spare(core, guid) } else { Vec::new() };
    leave(core, guid, false).await?;
    core.spares.declined.lock().extend(helped);
    Ok(())
}

/// The devices that are not in order and for which this spare stands in, and whether they can be used.
fn helped_by_spare(core: &Core, spare: Guid) -> Vec<(u64, bool)> {
    let mut beside = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| {
        if vdev.kind == "spare" && vdev.children.iter().skip(1).any(|child| child.guid == spare) {
            beside.extend(vdev.leaves().iter().map(|leaf| leaf.guid).filter(|guid| *guid != spare));
        }
    });
    let places = place::leaves_of(core, |leaf| beside.contains(&leaf.guid));
    let states = places.iter().map(|place| (place, place.leaf.is_usable()));
    let bad = states.filter(|(place, is_usable)| !is_usable || is_judged(&place.config));
    bad.map(|(place, is_usable)| (place.config.guid.0, is_usable)).collect()
}

/// Makes a leaf leave the pool. With `replaced` only if another one has taken its place.
async fn leave(core: &Arc<Core>, guid: Guid, replaced: bool) -> Result<()> {
    let device = core
        .checked_task(
            async move |core| {
                let place = place::with_guid(&core, guid)?;
                if replaced && !old_ones(&core).contains(&guid) {
                    return Err(PoolError::Busy("no valid replicas".into()));
                }
                Ok(place)
            },
            async move |core, tx, place| {
                let device = place.leaf.device();
                part(&core, &tx, &place, Parting::Free).await?;
                Ok(device)
            },
        )
        .await?;
    if let Some(device) = device {
        if core.spares.is_listed(guid) {
            spares::give_back(core, guid, &*device).await;
        } else if let Err(error) = labels::clear(&*device).await {
            tracing::warn!(pool = core.name(), %error, "the labels of device {guid}, which has left, stay");
        }
    }
    Ok(())
}

/// Why a leaf leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// It can be done without.
    Free,
    /// It is another pool's already, whatever the others lack.
    SplitOff,
}

/// Makes a leaf leave, in the syncing group.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn part(core: &Arc<Core>, tx: &Tx, place: &PlacedLeaf, why: Parting) -> Result<()> {
    let (guid, top) = (place.config.guid, &place.top);
    let before = top_as_it_is(core, top.id())?;
    let mut config = before.clone();
    if is_one_of_several(&config, guid) {
        return Err(PoolError::Busy("several spares stand in for it: use 'zpool detach' for all but one first".into()));
    }
    if !take_out(&mut config, guid) {
        return Err(PoolError::invalid("only applicable to mirror and replacing vdevs"));
    }
    if why == Parting::Free && !top.can_do_without(&place.leaf) {
        return Err(PoolError::Busy("no valid replicas".into()));
    }
    // What takes a top-level vdev's place has its guid from now on: otherwise old labels of the device that left would
    // tell of another top-level vdev instead of an older state of this one (`vdev_remove_parent`).
    if !config.is_leaf() {
        config.guid = before.guid;
    }
    exchange(top, &config, &[]).await?;
    if why == Parting::Free && !top.has_everything() {
        // A write that was under way reached this device alone.
        place.leaf.note_lacking(tx.txg(), core.dsl.gate.open_txg());
        exchange(top, &before, std::slice::from_ref(&place.leaf)).await?;
        return Err(PoolError::Busy("no valid replicas".into()));
    }
    if config.guid != before.guid {
        // The only leaf that is left.
        let old = config.guid;
        top.leaves().iter().for_each(|leaf| leaf.set_guid(before.guid));
        let device = core.leaf_devices.lock().remove(&old.0);
        core.leaf_devices.lock().extend(device.map(|device| (before.guid.0, device)));
        let stored = core.stored_missing.lock().remove(&old.0);
        core.stored_missing.lock().extend(stored.map(|ranges| (before.guid.0, ranges)));
    }
    let stays = {
        let mut stored = core.config.write();
        // What was written there meanwhile, a path or an acquittal, stays.
        let config = top_of(&mut stored.vdev_tree, top.id())?;
        assert!(take_out(config, guid), "vdevs are arranged by one task at a time");
        let stays = permanent(config);
        config.guid = before.guid;
        stays
    };
    core.dsl.dirty_config();
    if let Some(spare) = stays {
        spares::forget(core, spare);
        spares::store(core, tx).await?;
    }
    rebuild::end_unneeded(core, tx, top).await?;
    place.leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
    core.leaf_devices.lock().remove(&guid.0);
    core.stored_missing.lock().remove(&guid.0);
    free_objects(core, tx, &place.config).await?;
    if why == Parting::Free {
        core.event("sysevent.fs.zfs.vdev_remove", vec![("vdev_guid", guid.0.into())]);
    }
    let path = place.config.path.as_deref().unwrap_or("a device");
    history::append_event(&core.dsl, tx, "detach", &format!("vdev={path}")).await?;
    Ok(())
}

/// Whether this is the device for which more than one spare stands in.
fn is_one_of_several(vdev: &VdevConfig, guid: Guid) -> bool {
    parent_of(vdev, guid)
        .is_some_and(|parent| parent.kind == "spare" && parent.children.len() > 2 && parent.children[0].guid == guid)
}

/// A spare that is a device like any other from now on, as the one for which it stood in has left. Its flag is removed.
fn permanent(config: &mut VdevConfig) -> Option<Guid> {
    fn walk(vdev: &mut VdevConfig, below_spare: bool, found: &mut Option<Guid>) {
        if vdev.is_leaf() && !below_spare && spare_flags::is_spare(vdev) {
            spare_flags::set_flag(vdev, IS_SPARE, false);
            *found = Some(vdev.guid);
        }
        let below = vdev.kind == "spare" || (below_spare && vdev.kind == "replacing");
        vdev.children.iter_mut().for_each(|child| walk(child, below, found));
    }
    let mut found = None;
    walk(config, false, &mut found);
    found
}

/// Takes a leaf out of a mirror or out of what stands for one device. A parent that has only one child left gives its
/// place to it. `false` when the leaf is the only one of its kind.
fn take_out(vdev: &mut VdevConfig, guid: Guid) -> bool {
    let Some(index) = vdev.children.iter().position(|child| contains(child, guid)) else { return false };
    if vdev.children[index].guid != guid {
        let child = &mut vdev.children[index];
        let was_replaced = child.kind == "replacing" && child.children.first().is_some_and(|old| old.guid == guid);
        let done = take_out(child, guid);
        if vdev.kind == "spare" && index == 0 && was_replaced && vdev.children[0].is_leaf() {
            // What the spare stood in for is there again, as another device.
            spare_flags::set_flag(&mut vdev.children[0], UNSPARE, true);
        }
        return done;
    }
    if vdev.kind != "mirror" && !STANDING_FOR_ONE.contains(&vdev.kind.as_str()) {
        return false;
    }
    let gone = vdev.children.remove(index);
    (0..).zip(&mut vdev.children).for_each(|(id, child)| child.id = id);
    if vdev.children.len() == 1 {
        let mut child = vdev.children.remove(0);
        child.id = vdev.id;
        (child.metaslab_array, child.metaslab_shift) = (vdev.metaslab_array, vdev.metaslab_shift);
        (child.ashift, child.asize, child.is_log) = (vdev.ashift, vdev.asize, vdev.is_log);
        (child.top_zap, child.non_allocating) = (vdev.top_zap, vdev.non_allocating);
        if vdev.kind == "spare" {
            spare_flags::set_flag(&mut child, UNSPARE, false);
        }
        if gone.path.as_deref().map(old_path) == child.path {
            // What was to take its place did not.
            child.path = gone.path;
        }
        *vdev = child;
    }
    true
}

/// The objects that only a device that has left needed.
pub async fn free_objects(core: &Arc<Core>, tx: &Tx, config: &VdevConfig) -> Result<()> {
    if config.dtl.is_some() {
        core.dsl.mos.free_object(tx, config.dtl).await?;
        core.dsl.features.adjust(tx, Feature::SpacemapHistogram, -1).await?;
    }
    if config.leaf_zap.is_some()
        && let Some(map) = core.dsl.directory.get_u64(mos::VDEV_ZAP_MAP.as_bytes()).await?
    {
        let map = Zap::open(&core.dsl.mos, ObjectId(map)).await?;
        map.remove_int(tx, config.leaf_zap.0).await?;
        core.dsl.mos.free_object(tx, config.leaf_zap).await?;
        core.works.known.lock().retain(|(zap, _), _| *zap != config.leaf_zap);
        core.vdev_properties.lock().remove(&config.leaf_zap);
    }
    Ok(())
}

/// The devices whose places others have taken that have everything now, as far as they can be done without.
fn old_ones(core: &Core) -> Vec<Guid> {
    let places = place::leaves(core);
    let place = |config: &VdevConfig| places.iter().find(|place| place.config.guid == config.guid);
    let mut old = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| {
        if vdev.kind == "replacing"
            && let [first @ .., last] = vdev.children.as_slice()
            && place(last).is_some_and(|new| new.leaf.is_complete() && !core.rebuilds.is_unverified(new.top.id()))
        {
            let leaving = first.iter().filter_map(place).filter(|old| old.top.can_do_without(&old.leaf));
            old.extend(leaving.map(|old| old.config.guid));
        }
        let free = free_spares(vdev, &place).into_iter();
        let free = free.filter(|spare| !core.rebuilds.is_unverified(spare.top.id()));
        old.extend(free.map(|spare| spare.config.guid));
    });
    old
}

/// The spares that are not needed any more: what they stood in for is there again, or another one does it.
fn free_spares<'a>(vdev: &VdevConfig, place: &impl Fn(&VdevConfig) -> Option<&'a PlacedLeaf>) -> Vec<&'a PlacedLeaf> {
    let (Some(first), Some(last)) = (vdev.children.first(), vdev.children.last()) else { return Vec::new() };
    let is_complete = |leaf: &VdevConfig| place(leaf).is_some_and(|place| place.leaf.is_complete());
    let several = vdev.children.len() > 2 && is_complete(last);
    let free = match () {
        () if vdev.kind != "spare" => &[],
        () if spare_flags::is_wanted_back(first) && is_complete(first) => &vdev.children[1..],
        () if several => &vdev.children[1..vdev.children.len() - 1],
        () => &[],
    };
    let free = free.iter().filter(|leaf| spare_flags::is_spare(leaf)).filter_map(place);
    free.filter(|spare| spare.top.can_do_without(&spare.leaf)).collect()
}

/// After each group: devices that have everything do not say any more that they are behind, and whether there is one
/// that has taken another one's place, which is to [leave](settle) now.
pub fn look(core: &Core) -> bool {
    if core.dsl.read_only {
        return false;
    }
    note_complete(core);
    let mut is_replacing = false;
    core.config.read().vdev_tree.walk(&mut |vdev| is_replacing |= STANDING_FOR_ONE.contains(&&*vdev.kind));
    is_replacing && !old_ones(core).is_empty()
}

/// Lets all devices leave whose places others have taken.
pub async fn settle(core: Arc<Core>) {
    for guid in old_ones(&core) {
        if let Err(error) = leave(&core, guid, true).await {
            tracing::info!(pool = core.name(), %error, "device {guid}, which was replaced, stays for now");
        }
    }
    expansion::expand_all(&core).await;
}

fn note_complete(core: &Core) {
    let mut behind = Vec::new();
    core.config
        .read()
        .vdev_tree
        .walk(&mut |vdev| behind.extend(JOINED.iter().any(|mark| vdev.other.contains(mark)).then_some(vdev.guid)));
    if behind.is_empty() {
        return;
    }
    let leaves = dtl::leaves(core);
    behind.retain(|&guid| leaves.iter().any(|leaf| leaf.guid() == guid && leaf.missing().is_empty()));
    if behind.is_empty() {
        return;
    }
    core.config.write().vdev_tree.walk_mut(&mut |vdev| {
        if behind.contains(&vdev.guid) {
            JOINED.iter().for_each(|mark| _ = vdev.other.remove(mark));
        }
    });
    core.dsl.dirty_config();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(id: u64, guid: u64) -> VdevConfig {
        VdevConfig {
            kind: "file".into(),
            id,
            guid: Guid(guid),
            path: Some(format!("/d{guid}")),
            ..VdevConfig::default()
        }
    }

    fn raidz() -> VdevConfig {
        let children = (0..3).map(|id| leaf(id, 10 + id)).collect();
        VdevConfig {
            kind: "raidz".into(),
            nparity: Some(1),
            guid: Guid(1),
            ashift: 12,
            children,
            ..VdevConfig::default()
        }
    }

    #[test]
    fn a_single_device_becomes_a_mirror_and_a_single_one_again() {
        let single = VdevConfig { ashift: 12, asize: 1 << 30, metaslab_shift: 26, create_txg: 4, ..leaf(0, 10) };
        let mut top = single.clone();
        put_beside(&mut top, Guid(10), leaf(0, 11), Beside::Mirror, Guid(99));
        assert_eq!((top.kind.as_str(), top.guid, top.ashift, top.asize), ("mirror", Guid(99), 12, 1 << 30));
        assert_eq!(top.children.iter().map(|child| (child.id, child.guid.0)).collect::<Vec<_>>(), [(0, 10), (1, 11)]);
        assert_eq!((top.children[0].ashift, top.children[0].asize), (0, 0));
        put_beside(&mut top, Guid(10), leaf(0, 12), Beside::Mirror, Guid(98));
        assert_eq!(top.children.len(), 3);
        assert!(take_out(&mut top, Guid(11)));
        assert_eq!(top.children.iter().map(|child| (child.id, child.guid.0)).collect::<Vec<_>>(), [(0, 10), (1, 12)]);
        assert!(take_out(&mut top, Guid(12)));
        assert_eq!(top, single);
        assert!(!take_out(&mut top, Guid(10)), "the last one stays");
    }

    #[test]
    fn a_device_of_a_raidz_is_replaced() {
        let mut top = raidz();
        put_beside(
            &mut top,
            Guid(11),
            VdevConfig { path: Some("/d11".into()), ..leaf(0, 20) },
            Beside::Replacing,
            Guid(99),
        );
        let child = &top.children[1];
        assert_eq!((child.kind.as_str(), child.id, child.guid), ("replacing", 1, Guid(99)));
        assert_eq!(child.children[0].path.as_deref(), Some("/d11/old"));
        let mut back = top.clone();
        assert!(take_out(&mut back, Guid(20)));
        assert_eq!(back, raidz());
        assert!(take_out(&mut top, Guid(11)));
        assert_eq!((top.children[1].guid, top.children[1].id), (Guid(20), 1));
        assert!(!take_out(&mut top, Guid(20)), "a raidz has no device too many");
    }

    /// A spare with larger sectors stood in: the pool could not be opened where those are all that can be written.
    #[test]
    fn what_a_device_would_like_counts_until_less_is_asked_for() {
        let device = |logical_block, physical_block| Geometry { logical_block, physical_block };
        for (device, asked, least) in [
            (device(512, 512), 0, 9),
            (device(512, 4096), 0, 12),
            (device(512, 4096), 9, 9),
            (device(4096, 4096), 0, 12),
            (device(4096, 4096), 9, 12),
        ] {
            assert_eq!(least_ashift(device, asked), least, "{device:?} {asked}");
        }
    }

    #[test]
    fn a_path_that_only_looks_like_a_replaced_ones_stays() {
        let mut top = VdevConfig { path: Some("/disks/old".into()), ..leaf(0, 10) };
        put_beside(&mut top, Guid(10), leaf(0, 11), Beside::Mirror, Guid(99));
        assert!(take_out(&mut top, Guid(11)));
        assert_eq!(top.path.as_deref(), Some("/disks/old"));
    }
}
