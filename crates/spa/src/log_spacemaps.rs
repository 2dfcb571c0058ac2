//! Log space maps (`module/zfs/spa_log_spacemap.c`): each group's allocations and frees go to one log for the whole
//! pool instead of to every metaslab's own map; a few metaslabs are flushed in each group, oldest first, and logs that
//! only hold what was flushed are freed.
//!
//! Invariants:
//! - a metaslab's ranges are its own map plus the entries of all logs whose group is not before its `unflushed_txg`;
//! - a flush in group T writes what groups before T logged; T's own changes are in T's log;
//! - the `unflushed_txg` of every metaslab that was ever logged names a log that exists: OpenZFS refuses a pool where
//!   it does not (`spa_ld_log_sm_metadata`). So one without unflushed changes takes its turn like others, although
//!   nothing is written to its map;
//! - at most [`LOGS_MAX`] logs or so exist, so that an import reads little;
//! - logs that another program (or an earlier run) left are this pool's own from its import on.

use platter_dmu::zap::Zap;
use platter_dmu::{NewDnode, Result, Tx};
use platter_ondisk::features::Feature;
use platter_ondisk::names::vdev_top_zap::MS_UNFLUSHED_PHYS_TXGS;
use platter_ondisk::spacemap::MapType;
use platter_ondisk::{ObjectId, ObjectType, Sectors, Txg};
use platter_zio::RangeSet;

use crate::core::Core;
use crate::space_maps::{self, MapFormat, Tail, VdevMaps};
use platter_dsl::mos;

/// The feature's name on disk.
const FEATURE: Feature = Feature::LogSpacemap;
const HISTOGRAM_FEATURE: Feature = Feature::SpacemapHistogram;
/// Block size of a log (`zfs_log_sm_blksz`).
const LOG_BLOCK_SIZE: u32 = 128 << 10;
/// Block size of the list of unflushed groups (`SPA_OLD_MAXBLOCKSIZE`).
const UNFLUSHED_BLOCK_SIZE: u32 = 128 << 10;
/// About how many logs are kept.
const LOGS_MAX: usize = 32;

/// Whether this pool logs.
pub fn is_enabled(core: &Core) -> bool {
    core.dsl.features.is_enabled(FEATURE)
}

async fn zap(core: &Core, tx: &Tx) -> Result<Zap> {
    if let Some(object) = core.dsl.directory.get_u64(mos::LOG_SPACEMAP_ZAP.as_bytes()).await? {
        return Zap::open(&core.dsl.mos, ObjectId(object)).await;
    }
    let object = mos::create_zap(&core.dsl.mos, tx, ObjectType::OTN_ZAP_METADATA, core.random()).await?;
    core.dsl.directory.put_u64(tx, mos::LOG_SPACEMAP_ZAP.as_bytes(), object.0).await?;
    core.dsl.features.adjust(tx, FEATURE, 1).await?;
    Zap::open(&core.dsl.mos, object).await
}

/// Writes into a vdev's list the groups since which these metaslabs are only logged.
async fn store_unflushed(core: &Core, tx: &Tx, vdev: u32, indices: &[u64]) -> Result<()> {
    if indices.is_empty() {
        return Ok(());
    }
    let top_zap = {
        let config = core.config.read();
        config.vdev_tree.children.iter().find(|top| top.id == u64::from(vdev)).map(|top| top.top_zap)
    };
    let Some(top_zap) = top_zap.filter(|zap| zap.is_some()) else { return Ok(()) };
    let top_zap = Zap::open(&core.dsl.mos, top_zap).await?;
    let dnode = match top_zap.get_u64(MS_UNFLUSHED_PHYS_TXGS.as_bytes()).await? {
        Some(object) => core.dsl.mos.dnode(ObjectId(object)).await?,
        None => {
            let new = NewDnode::plain(ObjectType::OTN_UINT64_METADATA, UNFLUSHED_BLOCK_SIZE);
            let dnode = core.dsl.mos.allocate(tx, new).await?;
            top_zap.put_u64(tx, MS_UNFLUSHED_PHYS_TXGS.as_bytes(), dnode.object().0).await?;
            dnode
        }
    };
    for &index in indices {
        dnode.write(tx, index * 8, &tx.txg().0.to_le_bytes()).await?;
    }
    Ok(())
}

async fn free_log(core: &Core, tx: &Tx, zap: &Zap, txg: Txg, log: ObjectId) -> Result<()> {
    core.dsl.mos.free_object(tx, log).await?;
    core.dsl.features.adjust(tx, HISTOGRAM_FEATURE, -1).await?;
    zap.remove_int(tx, txg.0).await?;
    Ok(())
}

/// First pass: flushes the metaslabs that have waited longest (all of them with `all`), and frees logs that hold
/// nothing unflushed any more.
///
/// # Errors
/// Out of space, device errors.
pub async fn flush(core: &Core, tx: &Tx, all: bool) -> Result<()> {
    let txg = tx.txg();
    let mut waiting: Vec<(Txg, u32, u64)> = {
        let allocator = core.dsl.store.state().allocator.lock();
        let metaslabs = allocator.groups().iter().flat_map(|g| g.metaslabs().iter().map(move |m| (g.vdev, m)));
        metaslabs
            .filter(|(_, m)| m.unflushed_txg.0 != 0 && m.unflushed_txg < txg)
            .map(|(vdev, m)| (m.unflushed_txg, vdev, m.index))
            .collect()
    };
    waiting.sort_unstable();
    let count = if all { waiting.len() } else { waiting.len().div_ceil(LOGS_MAX) };
    let maps = space_maps::vdev_maps(core);
    for maps in &maps {
        let chosen = waiting.iter().take(count).filter(|&&(_, vdev, _)| vdev == maps.vdev);
        let indices: Vec<u64> = chosen.map(|&(_, _, index)| index).collect();
        for &index in &indices {
            let created = space_maps::flush(&core.dsl.mos, &core.dsl.store, tx, maps, index).await?;
            if created > 0 {
                core.dsl.features.adjust(tx, HISTOGRAM_FEATURE, created as i64).await?;
            }
        }
        store_unflushed(core, tx, maps.vdev, &indices).await?;
    }
    let oldest = waiting.get(count).map_or(txg, |&(oldest, ..)| oldest);
    let done: Vec<(Txg, ObjectId)> = core.logs.lock().by_txg.range(..oldest).map(|(&txg, &log)| (txg, log)).collect();
    if done.is_empty() {
        return Ok(());
    }
    assert_unneeded(core, oldest);
    let zap = zap(core, tx).await?;
    for (old, log) in done {
        free_log(core, tx, &zap, old, log).await?;
        core.logs.lock().by_txg.remove(&old);
    }
    Ok(())
}

/// No metaslab counts logs from before group `oldest`.
fn assert_unneeded(core: &Core, oldest: Txg) {
    let allocator = core.dsl.store.state().allocator.lock();
    let mut metaslabs = allocator.groups().iter().flat_map(|group| group.metaslabs());
    let is_needed = metaslabs.any(|metaslab| metaslab.unflushed_txg.0 != 0 && metaslab.unflushed_txg < oldest);
    assert!(!is_needed, "a log from before group {oldest} is about to be freed, and has what no map has");
}

/// Every pass: writes what the metaslabs changed to the group's log.
///
/// # Errors
/// Out of space, device errors.
pub async fn append(core: &Core, tx: &Tx, pass: u32) -> Result<()> {
    let mut changes: Vec<(VdevMaps, u64, RangeSet, RangeSet)> = Vec::new();
    let mut fresh: Vec<(VdevMaps, u64, bool)> = Vec::new();
    {
        let maps = space_maps::vdev_maps(core);
        let mut allocator = core.dsl.store.state().allocator.lock();
        for group in allocator.groups_mut() {
            let Some(maps) = maps.iter().find(|m| m.vdev == group.vdev) else { continue };
            group.change_active(|metaslab| {
                if !metaslab.is_dirty() {
                    return;
                }
                let (allocated, freed) = metaslab.take_changes();
                metaslab.note_logged(&allocated, &freed);
                if metaslab.unflushed_txg.0 == 0 {
                    metaslab.unflushed_txg = tx.txg();
                    fresh.push((*maps, metaslab.index, metaslab.space_map.is_some()));
                }
                changes.push((*maps, metaslab.index, allocated, freed));
            });
        }
    }
    if changes.is_empty() {
        return Ok(());
    }
    for (maps, index, has_map) in fresh {
        if !has_map {
            space_maps::create_for(&core.dsl.mos, &core.dsl.store, tx, &maps, index).await?;
            core.dsl.features.adjust(tx, HISTOGRAM_FEATURE, 1).await?;
        }
        store_unflushed(core, tx, maps.vdev, &[index]).await?;
    }
    let (object, at) = current_log(core, tx).await?;
    let total = |set: &dyn Fn(&(VdevMaps, u64, RangeSet, RangeSet)) -> u64| changes.iter().map(set).sum::<u64>() as i64;
    let change = total(&|c| c.2.total()) - total(&|c| c.3.total());
    let allocated = space_maps::header(&core.dsl.mos, object).await?.allocated.saturating_add(change);
    let tail = Tail { object, at, allocated, histogram: None };
    let end = space_maps::append(&core.dsl.mos, tx, MapFormat::of(&core.dsl.features), tail, |writer| {
        // Offsets and runs in a log are sectors, whatever the vdevs' are.
        for kind in [MapType::Alloc, MapType::Free] {
            writer.debug(kind, u64::from(pass), tx.txg().0);
            for (maps, _, allocated, freed) in &changes {
                let set = if kind == MapType::Alloc { allocated } else { freed };
                for (start, size) in set.iter() {
                    writer.segment(kind, Some(maps.vdev), Sectors::of(start).0, Sectors::of(size).0);
                }
            }
        }
    })
    .await?;
    core.logs.lock().current = Some((tx.txg(), end));
    Ok(())
}

/// The syncing group's log and its length, made when there is none yet.
async fn current_log(core: &Core, tx: &Tx) -> Result<(ObjectId, u64)> {
    let txg = tx.txg();
    {
        let logs = core.logs.lock();
        if let (Some((of, length)), Some(&object)) = (logs.current, logs.by_txg.get(&txg))
            && of == txg
        {
            return Ok((object, length));
        }
    }
    let object = space_maps::create(&core.dsl.mos, tx, MapFormat::of(&core.dsl.features), LOG_BLOCK_SIZE).await?;
    core.dsl.features.adjust(tx, HISTOGRAM_FEATURE, 1).await?;
    zap(core, tx).await?.put_int(tx, txg.0, object.0).await?;
    let mut logs = core.logs.lock();
    logs.by_txg.insert(txg, object);
    logs.current = Some((txg, 0));
    Ok((object, 0))
}
