//! Births at which the deadlists of clones part, because of snapshots and bookmarks of what they were cloned from
//! (`dsl_dir_remove_clones_key`, `module/zfs/dsl_destroy.c`).

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::dsl::DslDirPhys;
use platter_ondisk::{ObjectId, Txg};

use crate::deadlist_merge;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;

/// Clones of later snapshots of directory `dir`, and theirs, have an entry for blocks born before and after group
/// `birth`, in which a snapshot was taken that goes (`dsl_dir_remove_clones_key`).
/// Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn remove(dsl: &Arc<DslPool>, tx: &Tx, dir: ObjectId, birth: Txg) -> Result<()> {
    let (mut work, mut seen) = (vec![dir], BTreeSet::from([dir]));
    while let Some(dir) = work.pop() {
        let clones = dir_phys(dsl, dir).await?.clones;
        if !clones.is_some() {
            continue;
        }
        for (_, clone) in Zap::open(&dsl.mos, clones).await?.ints().await? {
            let head = SnapshotBonus::load(&dsl.mos, ObjectId(clone)).await?.phys;
            let origin = dir_phys(dsl, head.dir_obj).await?.origin_obj;
            if !origin.is_some() || !seen.insert(head.dir_obj) {
                continue;
            }
            if SnapshotBonus::load(&dsl.mos, origin).await?.phys.creation_txg > birth {
                deadlist_merge::remove_key(&dsl.access(), tx, head.deadlist_obj, birth).await?;
                work.push(head.dir_obj);
            }
        }
    }
    Ok(())
}

/// A directory's bonus; of those in memory it is the same.
async fn dir_phys(dsl: &DslPool, dir: ObjectId) -> Result<DslDirPhys> {
    let dnode = dsl.mos.dnode(dir).await?;
    DslDirPhys::decode(&dnode.bonus()).map_err(|e| ZioError::corrupt("DSL directory", format!("object {dir}: {e}")))
}
