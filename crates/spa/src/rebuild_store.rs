//! What is on disk of a sequential reconstruction: its state in the top-level vdev's ZAP, and the feature that counts
//! those under way (`module/zfs/vdev_rebuild.c`).
//!
//! Invariants:
//! - the state changes in the sync loop only, in memory and on disk in one group, and the feature's count with it;
//! - a device is taken off the list of those that lack something only when the reconstruction came to its end without
//!   an error.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Objset, Result, Tx};
use platter_dsl::history;
use platter_ondisk::features::Feature;
use platter_ondisk::names::vdev_top_zap::VDEV_REBUILD_PHYS;
use platter_ondisk::rebuild::{RebuildPhys, RebuildState};
use platter_ondisk::{ObjectId, Txg};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::rebuild_state::Rebuild;

/// What the top-level vdevs' ZAPs tell, by the vdevs' numbers. What cannot be read is not gone on with.
pub async fn load(os: &Arc<Objset>, root: &VdevConfig, pool: &str) -> BTreeMap<u64, RebuildPhys> {
    let mut all = BTreeMap::new();
    for top in root.children.iter().filter(|top| top.top_zap.is_some()) {
        match load_one(os, top.top_zap).await {
            Ok(Some(phys)) => _ = all.insert(top.id, phys),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(pool, %error, "whether vdev {} was sequentially resilvered is not known", top.id);
            }
        }
    }
    all
}

async fn load_one(os: &Arc<Objset>, zap: ObjectId) -> Result<Option<RebuildPhys>> {
    let stored = Zap::open(os, zap).await?.get(VDEV_REBUILD_PHYS.as_bytes()).await?;
    Ok(stored.filter(|value| value.integer_size == 8).and_then(|value| RebuildPhys::decode(&value.integers)))
}

/// The configuration of a top-level vdev.
fn top_of(core: &Core, top: u64) -> Option<VdevConfig> {
    core.config.read().vdev_tree.children.iter().find(|config| config.id == top).cloned()
}

/// Writes down the state of a top-level vdev's reconstruction, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Core, tx: &Tx, top: u64, phys: &RebuildPhys) -> Result<()> {
    let Some(config) = top_of(core, top).filter(|config| config.top_zap.is_some()) else { return Ok(()) };
    let value = ZapValue { integer_size: 8, integers: phys.encode().to_vec() };
    Zap::open(&core.dsl.mos, config.top_zap).await?.put(tx, VDEV_REBUILD_PHYS.as_bytes(), &value).await
}

/// Tells the history what became of it.
async fn tell(core: &Core, tx: &Tx, top: u64, what: &str) -> Result<()> {
    let guid = top_of(core, top).map_or(0, |config| config.guid.0);
    history::append_event(&core.dsl, tx, "rebuild", &format!("vdev_id={top} vdev_guid={guid} {what}")).await
}

/// Tells who listens that it began, or is over.
fn post(core: &Core, top: u64, class: &str) {
    let guid = top_of(core, top).map_or(0, |config| config.guid.0);
    core.event(class, vec![("vdev_guid", guid.into()), ("resilver_type", "sequential".into())]);
}

/// Begins it in the syncing group, in which a device joins a top-level vdev that lacks all groups up to `last`. One
/// that is under way begins anew (`vdev_rebuild`).
///
/// # Errors
/// Out of space, device errors.
pub async fn begin(core: &Core, tx: &Tx, top: u64, last: Txg) -> Result<()> {
    let before = core.rebuilds.known.lock().get(&top).map(|rebuild| rebuild.phys.clone());
    let under_way = before.filter(|phys| phys.state == RebuildState::Active);
    let phys = RebuildPhys {
        state: RebuildState::Active,
        // As OpenZFS tells them from the list of the device: the group before the first, and the one after the last.
        min_txg: Txg(0),
        max_txg: last.plus(1),
        start_time: under_way.as_ref().map_or_else(|| core.now(), |phys| phys.start_time),
        ..RebuildPhys::default()
    };
    // Whoever works on it finds that it is not his any more.
    core.rebuilds.known.lock().insert(top, Rebuild::stored(phys.clone()));
    store(core, tx, top, &phys).await?;
    if under_way.is_some() {
        return tell(core, tx, top, "reset").await;
    }
    core.dsl.features.adjust(tx, Feature::DeviceRebuild, 1).await?;
    tell(core, tx, top, "started").await?;
    post(core, top, "sysevent.fs.zfs.resilver_start");
    Ok(())
}

/// Ends it in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn end(core: &Core, tx: &Tx, top: u64, to: RebuildState) -> Result<()> {
    assert!(matches!(to, RebuildState::Canceled | RebuildState::Complete), "it ends");
    let phys = {
        let mut known = core.rebuilds.known.lock();
        let Some(rebuild) = known.get_mut(&top).filter(|rebuild| rebuild.is_active()) else { return Ok(()) };
        rebuild.note_time();
        (rebuild.phys.state, rebuild.phys.end_time) = (to, core.now());
        rebuild.phys.clone()
    };
    store(core, tx, top, &phys).await?;
    core.dsl.features.adjust(tx, Feature::DeviceRebuild, -1).await?;
    tell(core, tx, top, if to == RebuildState::Complete { "complete" } else { "canceled" }).await?;
    post(core, top, "sysevent.fs.zfs.resilver_finish");
    Ok(())
}

/// Forgets those that are over, when a resilver of the whole pool begins, whose end is told from then on
/// (`vdev_rebuild_clear_sync`). Those that a scrub has still to verify are kept: nothing else tells of that after the
/// next import.
///
/// # Errors
/// Out of space, device errors.
pub async fn forget_ended(core: &Core, tx: &Tx) -> Result<()> {
    let ended: Vec<u64> = {
        let known = core.rebuilds.known.lock();
        let is_over = |rebuild: &Rebuild| rebuild.phys.state != RebuildState::None && !rebuild.is_active();
        let is_unverified = core.rebuilds.unverified.load(Ordering::Acquire);
        let is_kept = |rebuild: &Rebuild| is_unverified && rebuild.phys.state == RebuildState::Complete;
        known.iter().filter(|(_, rebuild)| is_over(rebuild) && !is_kept(rebuild)).map(|(top, _)| *top).collect()
    };
    for top in ended {
        core.rebuilds.known.lock().remove(&top);
        store(core, tx, top, &RebuildPhys::default()).await?;
    }
    Ok(())
}
