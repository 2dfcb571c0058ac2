//! `zfs destroy` of a file system without snapshots (`dsl_destroy_head_sync_impl`, `module/zfs/dsl_destroy.c`).
//!
//! Invariants: every block born in the data set is freed exactly once; nothing of it stays in the MOS; the space leaves
//! its directory and all above in the same group.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit};
use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::types::object_type;
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::{BlockStore, Bookmark, SpaceMet};

use crate::core::Core;
use crate::dataset::Dataset;
use crate::dir::{Dir, SpaceChange, UsedKind, difference};
use crate::{history, intent, limits, origin, zapify};

/// Collects every block that only the destroyed data set references.
struct Collect<'a> {
    store: &'a dyn BlockStore,
    after: Txg,
    found: Mutex<Vec<BlkPtr>>,
    damage: Mutex<Option<ZioError>>,
    /// Deflated bytes that were in use before, and what was found of them: each block is there once.
    in_use: u64,
    met: SpaceMet,
}

impl Collect<'_> {
    /// Whether there can be another such block.
    fn takes(&self, bp: &BlkPtr) -> bool {
        let is_data = bp.level() == 0 && bp.object_type() != object_type::DNODE;
        // Data that is deduplicated is there several times, and takes a little of what compresses well each time.
        let bytes = if bp.is_dedup() && is_data { 1 } else { self.store.dsize(bp) };
        bp.is_embedded() || self.met.add(bytes, || self.in_use)
    }
}

impl Visitor for Collect<'_> {
    fn block<'a>(&'a self, _bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if bp.birth() <= self.after {
                return Visit::Skip;
            }
            if !self.takes(bp) {
                let what = "its blocks take more space than the pool has in use";
                self.damage.lock().get_or_insert_with(|| ZioError::corrupt("block tree", what));
                return Visit::Stop;
            }
            if !bp.is_embedded() {
                self.found.lock().push(*bp);
            }
            Visit::Continue
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, _bookmark: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        async move {
            self.damage.lock().get_or_insert_with(|| error.clone());
            Visit::Continue
        }
        .boxed()
    }
}

/// Destroys `dataset`, called `name`, which is closed and has neither snapshots nor children. Within a task.
///
/// # Errors
/// Device errors, damage in the MOS. Damage in the data set itself leaks what lies below it, with a warning.
pub async fn destroy(core: &Arc<Core>, tx: &Tx, name: &str, dataset: &Arc<Dataset>) -> Result<()> {
    remove_head(core, tx, name, dataset).await?;
    remove_dir(core, tx, &dataset.dir).await?;
    core.tree.write().datasets.remove(name);
    core.dirty_config();
    history::append_event(core, tx, "destroy", &format!("{name} ({})", dataset.object)).await
}

/// Frees the blocks and the objects of head data set `dataset`, called `name`, and gives back its space.
///
/// # Errors
/// As [`destroy`].
pub async fn remove_head(core: &Arc<Core>, tx: &Tx, name: &str, dataset: &Arc<Dataset>) -> Result<()> {
    let phys = dataset.phys.lock().clone();
    let store: Arc<dyn BlockStore> = Arc::new(core.store.clone());
    let collect = Collect {
        store: &*store,
        after: phys.prev_snap_txg,
        found: Mutex::default(),
        damage: Mutex::default(),
        in_use: store.space_used(),
        met: SpaceMet::exact(),
    };
    if !phys.bp.is_hole() {
        // What its log frees is in use until then, and none of it is found again.
        intent::free(core, tx, dataset).await?;
        if visit(&store, dataset.object, &phys.bp, None, &collect).await? == WalkEnd::Stopped {
            // Some of these are there twice, and nobody knows which are true.
            collect.found.lock().clear();
        }
    }
    if let Some(error) = collect.damage.lock().take() {
        tracing::warn!(dataset = name, %error, "some space of the destroyed data set cannot be found and is leaked");
    }
    for bp in collect.found.lock().drain(..) {
        core.store.free(tx.txg(), &bp);
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
    for changed in changed.iter().filter(|changed| changed.object != dir.object) {
        changed.store(&core.mos, tx).await?;
    }
    zapify::deactivate_all(core, tx, dataset).await?;
    origin::free_deadlist(&core.access(), tx, phys.deadlist_obj).await?;
    let origin = core.tree.read().origin.clone();
    if let Some(origin) = origin.filter(|o| o.snapshot == phys.prev_snap_obj) {
        origin::detach(&core.mos, tx, &origin, dataset.object).await?;
    }
    for object in [phys.snapnames_zapobj, phys.props_obj, phys.userrefs_obj, dataset.object] {
        if object.is_some() {
            core.mos.free_object(tx, object).await?;
        }
    }
    Ok(())
}

/// Removes directory `dir`, which has no head data set any more, from its parent and from the MOS.
///
/// # Errors
/// Device errors, damage in the MOS.
pub async fn remove_dir(core: &Arc<Core>, tx: &Tx, dir: &Arc<Dir>) -> Result<()> {
    if let Some(parent) = dir.parent().filter(|_| dir.counts.lock().is_some()) {
        limits::adjust(core, tx, &parent, -1, 0).await?;
    }
    let objects = {
        let phys = dir.phys.lock();
        [phys.props_zapobj, phys.child_dir_zapobj, phys.deleg_zapobj, phys.clones, dir.object]
    };
    if core.mos.dnode(dir.object).await?.info().object_type == object_type::OTN_ZAP_METADATA {
        core.features.adjust(tx, zapify::EXTENSIBLE_DATASET, -1).await?;
    }
    if let Some(parent) = dir.parent() {
        let children = parent.phys.lock().child_dir_zapobj;
        Zap::open(&core.mos, children).await?.remove(tx, dir.name().as_bytes()).await?;
    }
    for object in objects {
        if object.is_some() {
            core.mos.free_object(tx, object).await?;
        }
    }
    Ok(())
}
