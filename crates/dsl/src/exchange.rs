//! Devices that join a vdev, leave it, or take another one's place while the pool is in use: attach, detach, replace
//! (`spa_vdev_attach`, `spa_vdev_detach` and `spa_vdev_resilver_done` in `module/zfs/spa.c`, `vdev_add_parent` and
//! `vdev_remove_parent` in `module/zfs/vdev.c`).
//!
//! Invariants:
//! - a device that joins lacks every group up to the last one that may be open: its list says so on disk with the very
//!   group in which it joins;
//! - a device leaves only when the others have everything, and nobody uses it any more when its labels are wiped;
//! - configuration and arrangement of the leaves change in the sync loop only, in one group.

use std::path::PathBuf;
use std::sync::Arc;

use platter_device::Presence;
use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_ondisk::names::config::RESILVER_TXG;
use platter_ondisk::{Guid, ObjectId, Txg};
use platter_vdev::{Arrangement, Condition, Leaf, TopVdev, VdevAux, VdevState};

use crate::change::{self, Place};
use crate::config::VdevConfig;
use crate::core::Core;
use crate::error::{PoolError, Result};
use crate::labels::LabelTarget;
use crate::request::VdevRequest;
use crate::{create, dtl, events, history, labels, mos, open_vdevs, scrub};

/// Groups that may be open or closing besides the one that is being written (`TXG_CONCURRENT_STATES`).
const GROUPS_UNDER_WAY: u64 = 3;
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
}

/// Lets a device join a mirror, or a single device, or take another one's place.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn attach(core: &Arc<Core>, joining: Joining) -> Result<()> {
    let place = change::find(core, &joining.device)?;
    check_place(core, &place, joining.replaces)?;
    let new = open_new(core, &place, &joining).await?;
    let last = core
        .task(async move |core, tx| {
            // It may have left, or been given another parent, since it was looked at.
            let place = change::find(&core, &place.config.guid.to_string())?;
            check_place(&core, &place, joining.replaces)?;
            join(&core, &tx, &place, new, joining.replaces).await
        })
        .await?;
    // What was written before all groups that it lacks are on disk would have to be looked at once more.
    while core.uberblock.lock().txg < last {
        core.force_group().await?;
    }
    scrub::resume(core);
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

/// A top-level vdev's configuration.
fn top_of(tree: &mut VdevConfig, id: u64) -> Result<&mut VdevConfig> {
    tree.children.iter_mut().find(|top| top.id == id).ok_or_else(no_such_device)
}

fn check_place(core: &Core, place: &Place, replaces: bool) -> Result<()> {
    let config = core.config.read();
    let parent = parent_of(&config.vdev_tree, place.config.guid).ok_or_else(no_such_device)?;
    match parent.kind.as_str() {
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
async fn open_new(core: &Arc<Core>, place: &Place, joining: &Joining) -> Result<New> {
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
    let request = [VdevRequest::Leaf(joining.new.clone())];
    let planned = create::plan_vdevs(&core.environment, &request, 0, core.version(), joining.force).await?;
    let (children, devices) = planned;
    let mut root = VdevConfig { kind: "root".into(), children, ..VdevConfig::default() };
    // Whether its sectors fit is asked first: 0 is what the device says.
    let asked = if joining.ashift == 0 { 0 } else { top_ashift };
    let opened = create::open(&core.environment, &mut root, devices, asked).await?;
    let (Some(vdev), Some(mut config)) = (opened.into_iter().flatten().next(), root.children.pop()) else {
        return Err(PoolError::Busy("the new device could not be opened".into()));
    };
    if u64::from(vdev.ashift()) > top_ashift {
        return Err(other_sectors(top_ashift));
    }
    let leaf = vdev.leaves()[0].clone();
    if leaf.asize() < place.top.least_leaf_asize() {
        return Err(PoolError::invalid(format!(
            "device is too small: {} bytes can be used of it, and the vdev needs {}",
            leaf.asize(),
            place.top.least_leaf_asize()
        )));
    }
    let device = leaf.device().ok_or_else(|| PoolError::Busy("the new device has gone".into()))?;
    let target = LabelTarget { device, guid: config.guid, top: id as usize, ashift: top_ashift as u32 };
    labels::wipe(std::slice::from_ref(&target)).await.map_err(PoolError::Unavailable)?;
    // These are a top-level vdev's.
    (config.ashift, config.asize, config.metaslab_shift) = (0, 0, 0);
    config.create_txg = place.config.create_txg;
    Ok(New { config, leaf, target })
}

fn other_sectors(ashift: u64) -> PoolError {
    PoolError::invalid(format!(
        "new device has a different optimal sector size; use the option '-o ashift={ashift}' to override the optimal \
         size"
    ))
}

/// Makes the device part of the pool, in the syncing group. Returns the last group that it lacks.
async fn join(core: &Arc<Core>, tx: &Tx, place: &Place, new: New, replaces: bool) -> Result<Txg> {
    let New { config: mut joined, leaf, target } = new;
    let last = core.gate.open_txg().plus(GROUPS_UNDER_WAY);
    leaf.note_lacking(Txg(1), last);
    joined.other.add_u64(RESILVER_TXG, last.0);
    let path = joined.path.clone().unwrap_or_default();
    let mut tree = core.config.read().vdev_tree.clone();
    let top = top_of(&mut tree, place.top.id())?;
    put_beside(top, place.config.guid, joined.clone(), replaces, Guid(core.random().max(1)));
    exchange(&place.top, top, std::slice::from_ref(&leaf)).await?;
    core.config.write().vdev_tree = tree;
    core.leaf_devices.lock().insert(joined.guid.0, target.device);
    events::listen(core, &leaf);
    core.event("sysevent.fs.zfs.vdev_attach", vec![("vdev_guid", joined.guid.0.into())]);
    core.dirty_config();
    let old_path = place.config.path.as_deref().unwrap_or("a device");
    let event = match replaces {
        true => format!("replace vdev={path} for vdev={old_path}"),
        false => format!("attach vdev={path} to vdev={old_path}"),
    };
    history::append_event(core, tx, "vdev attach", &event).await?;
    Ok(last)
}

/// What the path of a device becomes when another one at the same path takes its place.
fn old_path(path: &str) -> String {
    format!("{path}/old")
}

/// Puts a leaf beside another one below `vdev`, in a new parent where there is none that fits.
fn put_beside(vdev: &mut VdevConfig, old: Guid, mut new: VdevConfig, replaces: bool, parent: Guid) {
    if vdev.guid == old {
        let kind = if replaces { "replacing" } else { "mirror" };
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
            top_zap: std::mem::take(&mut child.top_zap),
            create_txg: child.create_txg,
            ..VdevConfig::default()
        };
        if replaces && child.path == new.path {
            // Two devices cannot have one path; the old one is not opened by it any more (`spa_vdev_attach`).
            child.path = child.path.as_deref().map(old_path);
        }
        (child.id, new.id) = (0, 1);
        vdev.children = vec![child, new];
        return;
    }
    let Some(index) = vdev.children.iter().position(|child| contains(child, old)) else { return };
    if vdev.children[index].guid == old && vdev.kind == "mirror" && !replaces {
        new.id = vdev.children.len() as u64;
        vdev.children.push(new);
    } else {
        put_beside(&mut vdev.children[index], old, new, replaces, parent);
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
    let guid = change::find(core, device)?.config.guid;
    leave(core, guid, false).await
}

/// Makes a leaf leave the pool. With `replaced` only if another one has taken its place.
async fn leave(core: &Arc<Core>, guid: Guid, replaced: bool) -> Result<()> {
    let device = core
        .task(async move |core, tx| {
            let place = change::find(&core, &guid.to_string())?;
            if replaced && !old_ones(&core).contains(&guid) {
                return Err(PoolError::Busy("no valid replicas".into()));
            }
            let device = place.leaf.device();
            part(&core, &tx, &place).await?;
            Ok(device)
        })
        .await?;
    if let Some(device) = device
        && let Err(error) = labels::clear(&*device).await
    {
        tracing::warn!(pool = core.name(), %error, "the labels of device {guid}, which has left, stay");
    }
    Ok(())
}

async fn part(core: &Arc<Core>, tx: &Tx, place: &Place) -> Result<()> {
    let (guid, top) = (place.config.guid, &place.top);
    let mut tree = core.config.read().vdev_tree.clone();
    let config = top_of(&mut tree, top.id())?;
    let before = config.clone();
    if !take_out(config, guid) {
        return Err(PoolError::invalid("only applicable to mirror and replacing vdevs"));
    }
    if !top.can_do_without(&place.leaf) {
        return Err(PoolError::Busy("no valid replicas".into()));
    }
    // What takes a top-level vdev's place has its guid from now on: otherwise old labels of the device that left would
    // tell of another top-level vdev instead of an older state of this one (`vdev_remove_parent`).
    if !config.is_leaf() {
        config.guid = before.guid;
    }
    exchange(top, config, &[]).await?;
    if !top.has_everything() {
        // A write that was under way reached this device alone.
        place.leaf.note_lacking(tx.txg(), core.gate.open_txg().plus(GROUPS_UNDER_WAY));
        exchange(top, &before, std::slice::from_ref(&place.leaf)).await?;
        return Err(PoolError::Busy("no valid replicas".into()));
    }
    if config.guid != before.guid {
        // The only leaf that is left.
        let old = std::mem::replace(&mut config.guid, before.guid);
        top.leaves().iter().for_each(|leaf| leaf.set_guid(before.guid));
        let device = core.leaf_devices.lock().remove(&old.0);
        core.leaf_devices.lock().extend(device.map(|device| (before.guid.0, device)));
        let stored = core.stored_missing.lock().remove(&old.0);
        core.stored_missing.lock().extend(stored.map(|ranges| (before.guid.0, ranges)));
    }
    core.config.write().vdev_tree = tree;
    core.dirty_config();
    place.leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
    core.leaf_devices.lock().remove(&guid.0);
    core.stored_missing.lock().remove(&guid.0);
    free_objects(core, tx, &place.config).await?;
    core.event("sysevent.fs.zfs.vdev_remove", vec![("vdev_guid", guid.0.into())]);
    let path = place.config.path.as_deref().unwrap_or("a device");
    history::append_event(core, tx, "detach", &format!("vdev={path}")).await?;
    Ok(())
}

/// Takes a leaf out of a mirror or out of what stands for one device. A parent that has only one child left gives its
/// place to it. `false` when the leaf is the only one of its kind.
fn take_out(vdev: &mut VdevConfig, guid: Guid) -> bool {
    let Some(index) = vdev.children.iter().position(|child| contains(child, guid)) else { return false };
    if vdev.children[index].guid != guid {
        return take_out(&mut vdev.children[index], guid);
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
        child.top_zap = vdev.top_zap;
        if gone.path.as_deref().map(old_path) == child.path {
            // What was to take its place did not.
            child.path = gone.path;
        }
        *vdev = child;
    }
    true
}

/// The objects that only a device that has left needed.
async fn free_objects(core: &Arc<Core>, tx: &Tx, config: &VdevConfig) -> Result<()> {
    if config.dtl.is_some() {
        core.mos.free_object(tx, config.dtl).await?;
        core.features.adjust(tx, "com.delphix:spacemap_histogram", -1).await?;
    }
    if config.leaf_zap.is_some()
        && let Some(map) = core.directory.get_u64(mos::VDEV_ZAP_MAP.as_bytes()).await?
    {
        let map = Zap::open(&core.mos, ObjectId(map)).await?;
        map.remove_int(tx, config.leaf_zap.0).await?;
        core.mos.free_object(tx, config.leaf_zap).await?;
    }
    Ok(())
}

/// The devices whose places others have taken that have everything now, as far as they can be done without.
fn old_ones(core: &Core) -> Vec<Guid> {
    let places = change::leaves(core);
    let place = |config: &VdevConfig| places.iter().find(|place| place.config.guid == config.guid);
    let mut old = Vec::new();
    core.config.read().vdev_tree.walk(&mut |vdev| {
        if vdev.kind == "replacing"
            && let [first @ .., last] = vdev.children.as_slice()
            && place(last).is_some_and(|new| new.leaf.is_complete())
        {
            let leaving = first.iter().filter_map(place).filter(|old| old.top.can_do_without(&old.leaf));
            old.extend(leaving.map(|old| old.config.guid));
        }
    });
    old
}

/// After each group: devices that have everything do not say any more that they are behind, and whether there is one
/// that has taken another one's place, which is to [leave](settle) now.
pub fn look(core: &Core) -> bool {
    if core.read_only {
        return false;
    }
    note_complete(core);
    let mut is_replacing = false;
    core.config.read().vdev_tree.walk(&mut |vdev| is_replacing |= vdev.kind == "replacing");
    is_replacing && !old_ones(core).is_empty()
}

/// Lets all devices leave whose places others have taken.
pub async fn settle(core: Arc<Core>) {
    for guid in old_ones(&core) {
        if let Err(error) = leave(&core, guid, true).await {
            tracing::info!(pool = core.name(), %error, "device {guid}, which was replaced, stays for now");
        }
    }
}

fn note_complete(core: &Core) {
    let mut behind = Vec::new();
    core.config
        .read()
        .vdev_tree
        .walk(&mut |vdev| behind.extend(vdev.other.contains(RESILVER_TXG).then_some(vdev.guid)));
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
            vdev.other.remove(RESILVER_TXG);
        }
    });
    core.dirty_config();
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
        put_beside(&mut top, Guid(10), leaf(0, 11), false, Guid(99));
        assert_eq!((top.kind.as_str(), top.guid, top.ashift, top.asize), ("mirror", Guid(99), 12, 1 << 30));
        assert_eq!(top.children.iter().map(|child| (child.id, child.guid.0)).collect::<Vec<_>>(), [(0, 10), (1, 11)]);
        assert_eq!((top.children[0].ashift, top.children[0].asize), (0, 0));
        put_beside(&mut top, Guid(10), leaf(0, 12), false, Guid(98));
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
        put_beside(&mut top, Guid(11), VdevConfig { path: Some("/d11".into()), ..leaf(0, 20) }, true, Guid(99));
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

    #[test]
    fn a_path_that_only_looks_like_a_replaced_ones_stays() {
        let mut top = VdevConfig { path: Some("/disks/old".into()), ..leaf(0, 10) };
        put_beside(&mut top, Guid(10), leaf(0, 11), false, Guid(99));
        assert!(take_out(&mut top, Guid(11)));
        assert_eq!(top.path.as_deref(), Some("/disks/old"));
    }
}
