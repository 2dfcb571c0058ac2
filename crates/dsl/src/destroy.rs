//! `zfs destroy` of a file system without snapshots (`dsl_destroy_head_sync_impl`, `module/zfs/dsl_destroy.c`).
//!
//! Invariants:
//! - every block born in the data set is freed exactly once: in the background, where the pool has the feature for it.
//!   What a clone has of its origin stays, and what its deadlist names is the origin's;
//! - nothing of the data set stays in the MOS;
//! - the space leaves its directory in the same group, and those above when it is freed.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx};
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::ZioError;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{self, PoolError};
use crate::named_snapshot::{self, NamedSnapshot};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::used_space::{SpaceChange, UsedKind, difference};
use crate::{
    bookmarks, delegation, destroy_snapshot, freeing, history, holds, intent, limits, livelist, origin, zapify,
};

/// Whether all that [`destroy`] removes can be found, so that damage is known of before anything is removed, and nobody
/// reads the [`waiting_origin`] that goes with it (`dsl_destroy_head_check_impl`, `module/zfs/dsl_destroy.c`).
///
/// # Errors
/// [`PoolError::Busy`]; damage in the MOS.
pub async fn check(dsl: &DslPool, dataset: &Dataset) -> error::Result<()> {
    let mut objects = of_head(dataset).to_vec();
    objects.extend(of_dir(dsl, &dataset.dir).await?);
    objects.retain(|object| object.is_some());
    for (index, &object) in objects.iter().enumerate() {
        if objects[..index].contains(&object) {
            return Err(ZioError::corrupt("data set", format!("it has object {object} twice")).into());
        }
        dsl.mos.dnode(object).await?;
    }
    if let Some(origin) = waiting_origin(dsl, dataset).await? {
        if dsl.in_use.has(origin.object) {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        destroy_snapshot::check(dsl, &origin).await?;
    }
    let previous = dataset.phys.lock().prev_snap_obj;
    if previous.is_some() {
        let phys = SnapshotBonus::load(&dsl.mos, previous).await?.phys;
        for object in [phys.dir_obj, phys.next_clones_obj].into_iter().filter(|object| object.is_some()) {
            dsl.mos.dnode(object).await?;
        }
    }
    intent::check_free(dsl, dataset).await?;
    let deadlist = dataset.phys.lock().deadlist_obj;
    crate::deadlist::space_used(&dsl.mos, deadlist).await?;
    if let Some(parent) = dataset.dir.parent() {
        let children = parent.phys.lock().child_dir_zapobj;
        let entry = Zap::open(&dsl.mos, children).await?.get(dataset.dir.name().as_bytes()).await?;
        entry.ok_or_else(|| ZioError::corrupt("directory", "its parent does not know it"))?;
    }
    Ok(())
}

/// The objects that a head data set consists of, but for its deadlist; some may be none.
fn of_head(dataset: &Dataset) -> [ObjectId; 4] {
    let phys = dataset.phys.lock();
    [phys.snapnames_zapobj, phys.props_obj, phys.userrefs_obj, dataset.object]
}

/// The objects that a directory consists of; some may be none.
async fn of_dir(dsl: &DslPool, dir: &Dir) -> Result<Vec<ObjectId>> {
    let mut objects = delegation::objects(&dsl.mos, dir).await?;
    let phys = dir.phys.lock();
    objects.extend([phys.props_zapobj, phys.child_dir_zapobj, phys.deleg_zapobj, phys.clones, dir.object]);
    Ok(objects)
}

/// Destroys `dataset`, called `name`, which is closed and has neither snapshots nor children. Within a task.
///
/// # Errors
/// Device errors, damage in the MOS. Damage in the data set itself leaks what lies below it, with a warning.
pub async fn destroy(dsl: &Arc<DslPool>, tx: &Tx, name: &str, dataset: &Arc<Dataset>) -> Result<()> {
    let origin = waiting_origin(dsl, dataset).await?;
    remove_head(dsl, tx, dataset).await?;
    remove_dir(dsl, tx, &dataset.dir).await?;
    dsl.tree.write().datasets.remove(name);
    if let Some(listener) = dsl.listener() {
        listener.destroyed(dataset.object);
    }
    dsl.dirty_config();
    history::append_event(dsl, tx, "destroy", &format!("{name} ({})", dataset.object)).await?;
    match origin {
        Some(origin) => destroy_snapshot::destroy(dsl, tx, &origin).await,
        None => Ok(()),
    }
}

/// The directory in memory of the snapshot `origin`; none for the pool's own.
async fn origin_dir(dsl: &DslPool, origin: ObjectId) -> Result<Option<Arc<Dir>>> {
    if dsl.tree.read().is_own_origin(origin) {
        return Ok(None);
    }
    let place = SnapshotBonus::load(&dsl.mos, origin).await?.phys.dir_obj;
    Ok(dsl.tree.read().dataset_in(place).map(|(_, dataset)| dataset.dir.clone()))
}

/// The origin of clone `dataset`, when that is its last clone and waits to be destroyed with it.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn waiting_origin(dsl: &DslPool, dataset: &Dataset) -> Result<Option<NamedSnapshot>> {
    let origin = dataset.dir.phys.lock().origin_obj;
    if !origin.is_some() || dsl.tree.read().is_own_origin(origin) {
        return Ok(None);
    }
    let phys = SnapshotBonus::load(&dsl.mos, origin).await?.phys;
    let is_deferred = phys.flags & dataset_flags::DEFER_DESTROY != 0;
    if !is_deferred || phys.num_children != 2 || holds::count(&dsl.mos, phys.userrefs_obj).await? > 0 {
        return Ok(None);
    }
    named_snapshot::by_object(dsl, origin).await
}

/// Frees the blocks and the objects of head data set `dataset`, and gives back its space.
///
/// # Errors
/// As [`destroy`].
pub async fn remove_head(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>) -> Result<()> {
    assert!(dataset.open_objset().is_none(), "what is destroyed is closed: nothing may be written to it any more");
    assert!(dataset.accounting.is_empty(), "what is booked later would be booked on nothing");
    let phys = dataset.phys.lock().clone();
    if !phys.bp.is_hole() {
        // It is not part of what the root leads to.
        intent::free(dsl, tx, dataset).await?;
    }

    // Reservations end first, so that all that is left is what it really uses.
    let dir = dataset.dir.clone();
    let mut changed = Vec::new();
    let refreservation = dir.local_number("refreservation").saturating_sub(phys.unique_bytes);
    if refreservation > 0 {
        let used = difference(0, refreservation);
        changed = dir.diduse(UsedKind::Refreservation, SpaceChange { used, ..SpaceChange::default() });
    }
    changed.extend(dir.set_reservation(0));
    let gone = SpaceChange::minus_all(&dir.phys.lock());
    changed.extend(dir.diduse(UsedKind::Head, gone));
    // Its own directory too, although it goes: where damage ends this half-way, disk and memory still say the same.
    for changed in &changed {
        changed.store(&dsl.mos, tx).await?;
    }
    let is_listed = livelist::hand_over(dsl, tx, dataset, gone).await?;
    if !phys.bp.is_hole() && !is_listed {
        match dsl.features.is_enabled(freeing::FEATURE) {
            true => freeing::enqueue(dsl, tx, &phys.bp, phys.prev_snap_txg, gone).await?,
            false => freeing::at_once(dsl, tx, &phys.bp, phys.prev_snap_txg).await?,
        }
    }
    bookmarks::remove_all(dsl, tx, dataset).await?;
    zapify::deactivate_all(dsl, tx, dataset).await?;
    crate::empty_bpobj::free_deadlist(&dsl.access(), tx, phys.deadlist_obj).await?;
    if phys.prev_snap_obj.is_some() {
        let origin = origin_dir(dsl, phys.prev_snap_obj).await?;
        origin::detach(&dsl.mos, tx, phys.prev_snap_obj, origin.as_ref(), dataset.object).await?;
    }
    for object in of_head(dataset) {
        if object.is_some() {
            dsl.mos.free_object(tx, object).await?;
        }
    }
    Ok(())
}

/// Removes directory `dir`, which has no head data set any more, from its parent and from the MOS.
///
/// # Errors
/// Device errors, damage in the MOS.
pub async fn remove_dir(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>) -> Result<()> {
    if let Some(parent) = dir.parent().filter(|_| dir.counts.lock().is_some()) {
        limits::adjust(dsl, tx, &parent, -1, 0).await?;
    }
    let objects = of_dir(dsl, dir).await?;
    if dsl.mos.dnode(dir.object).await?.info().object_type == ObjectType::OTN_ZAP_METADATA {
        dsl.features.adjust(tx, zapify::EXTENSIBLE_DATASET, -1).await?;
    }
    if let Some(parent) = dir.parent() {
        let children = parent.phys.lock().child_dir_zapobj;
        Zap::open(&dsl.mos, children).await?.remove(tx, dir.name().as_bytes()).await?;
    }
    for object in objects {
        if object.is_some() {
            dsl.mos.free_object(tx, object).await?;
        }
    }
    Ok(())
}
