//! Taking over a pool whose recent allocations are in log space maps (`module/zfs/spa_log_spacemap.c`): everything is
//! flushed into the metaslabs' own maps, as an export by OpenZFS does, and the logs are freed.
//!
//! Invariant: afterwards the feature stays active with no log, which is a state every implementation accepts.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx};
use platter_ondisk::ObjectId;
use platter_ondisk::names::vdev_top_zap::MS_UNFLUSHED_PHYS_TXGS;

use crate::core::Core;
use crate::mos;
use crate::space_maps::{self, VdevMaps};

/// Flushes and frees every log.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn take_over(core: &Arc<Core>, tx: &Tx) -> Result<()> {
    let Some(object) = core.directory.get_u64(mos::LOG_SPACEMAP_ZAP.as_bytes()).await? else { return Ok(()) };
    let zap = Zap::open(&core.mos, ObjectId(object)).await?;
    let logs = mos::int_entries(&zap).await?;
    if logs.is_empty() {
        return Ok(());
    }
    let tops = core.config.read().vdev_tree.children.clone();
    for top in tops.iter().filter(|top| top.metaslab_array.is_some()) {
        let maps = VdevMaps { vdev: top.id as u32, array: top.metaslab_array, ashift: top.ashift as u32 };
        let created = space_maps::rewrite_all(&core.mos, &core.store, tx, &maps).await?;
        core.features.adjust(tx, "com.delphix:spacemap_histogram", created as i64).await?;
        let unflushed = Zap::open(&core.mos, top.top_zap).await?.get_u64(MS_UNFLUSHED_PHYS_TXGS.as_bytes()).await?;
        if let Some(unflushed) = unflushed {
            let count = top.asize >> top.metaslab_shift;
            let bytes: Vec<u8> = std::iter::repeat_n(tx.txg().0.to_le_bytes(), count as usize).flatten().collect();
            core.mos.dnode(ObjectId(unflushed)).await?.write(tx, 0, &bytes).await?;
        }
    }
    for (txg, log) in logs {
        core.mos.free_object(tx, ObjectId(log)).await?;
        core.features.adjust(tx, "com.delphix:spacemap_histogram", -1).await?;
        zap.remove(tx, format!("{txg:x}").as_bytes()).await?;
    }
    Ok(())
}
