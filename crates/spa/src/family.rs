//! Data sets that share blocks: those that descend from each other by snapshots and clones.

use std::sync::Arc;

use platter_dmu::Result;
use platter_dsl::dataset::Dataset;
use platter_dsl::snapshot::SnapshotBonus;
use platter_ondisk::{ObjectId, Txg};

use crate::core::Core;

/// Most generations of clones, and snapshots of one data set: there are no more objects in a MOS that is sane.
const MEMBERS_MAX: usize = 1 << 20;

fn in_dir(core: &Core, dir: ObjectId) -> Option<Arc<Dataset>> {
    core.dsl.tree.read().dataset_in(dir).map(|(_, dataset)| dataset)
}

/// The oldest of the heads that may have what was born in a group: that from which those descend that head `head` comes
/// from (`find_top_affected_fs`, `module/zfs/spa_errlog.c`). `None` when there is no such head.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn oldest(core: &Core, head: ObjectId, birth: Txg) -> Result<Option<Arc<Dataset>>> {
    let found = core.dsl.tree.read().datasets.values().find(|dataset| dataset.object == head).cloned();
    let Some(mut oldest) = found else { return Ok(None) };
    for _ in 0..MEMBERS_MAX {
        let origin = oldest.dir.phys.lock().origin_obj;
        if !origin.is_some() || core.dsl.tree.read().is_own_origin(origin) {
            break;
        }
        let origin = SnapshotBonus::load(&core.dsl.mos, origin).await?;
        match in_dir(core, origin.phys.dir_obj) {
            Some(parent) if birth <= origin.phys.creation_txg => oldest = parent,
            _ => break,
        }
    }
    Ok(Some(oldest))
}

/// The snapshots of a data set itself that were taken since a group, the newest first.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn snapshots_since(core: &Core, dataset: &Dataset, birth: Txg) -> Result<Vec<ObjectId>> {
    let (mut next, dir) = (dataset.phys.lock().prev_snap_obj, dataset.dir.object);
    let mut found = Vec::new();
    while next.is_some() && found.len() < MEMBERS_MAX {
        let snapshot = SnapshotBonus::load(&core.dsl.mos, next).await?.phys;
        if snapshot.creation_txg < birth || snapshot.dir_obj != dir {
            break;
        }
        found.push(next);
        next = snapshot.prev_snap_obj;
    }
    Ok(found)
}

/// The clones of these snapshots.
pub fn clones_of(core: &Core, snapshots: &[ObjectId]) -> Vec<Arc<Dataset>> {
    let tree = core.dsl.tree.read();
    tree.datasets.values().filter(|clone| snapshots.contains(&clone.dir.phys.lock().origin_obj)).cloned().collect()
}

/// Whether there is such an object set.
pub fn is_there(core: &Core, objset: ObjectId) -> bool {
    let tree = core.dsl.tree.read();
    objset.0 == 0
        || tree.datasets.values().any(|dataset| dataset.object == objset)
        || tree.snapshots.iter().any(|snapshot| snapshot.object == objset)
}

/// The head that an object set is, or that a snapshot is of; `None` when that is gone.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn head_of(core: &Core, objset: ObjectId) -> Result<Option<ObjectId>> {
    let is_snapshot = core.dsl.tree.read().snapshots.iter().any(|snapshot| snapshot.object == objset);
    Ok(match is_snapshot {
        true => in_dir(core, SnapshotBonus::load(&core.dsl.mos, objset).await?.phys.dir_obj).map(|head| head.object),
        false => Some(objset),
    })
}

/// All others, heads and snapshots, that may share blocks with an object set; `None` when it is not there.
///
/// # Errors
/// Damage in the MOS, unreadable blocks.
pub async fn relatives(core: &Core, objset: ObjectId) -> Result<Option<Vec<ObjectId>>> {
    if objset.0 == 0 {
        return Ok(Some(Vec::new()));
    }
    let Some(head) = head_of(core, objset).await? else { return Ok(None) };
    let Some(oldest) = oldest(core, head, Txg(0)).await? else { return Ok(None) };
    let (mut next, mut found) = (vec![oldest], Vec::new());
    while let Some(dataset) = next.pop() {
        let snapshots = snapshots_since(core, &dataset, Txg(0)).await?;
        next.extend(clones_of(core, &snapshots));
        found.push(dataset.object);
        found.extend(snapshots);
        if found.len() > MEMBERS_MAX {
            break;
        }
    }
    found.retain(|member| *member != objset);
    Ok(Some(found))
}
