//! Who has a block that a list of errors names: the file systems, snapshots and clones that share it, as far as it was
//! neither freed nor written over since (`process_error_block`, `module/zfs/spa_errlog.c`).
//!
//! Invariant: a block that cannot be looked for counts as lost where it was found: the list is rather too long.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::changes::SPILL_BLOCK;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_dsl::dataset::Dataset;
use platter_dsl::snapshot::SnapshotBonus;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::{BlockStore, Bookmark, ZioError};

use crate::core::Core;
use crate::error_heads::LostBlock;
use crate::scan_order;
use crate::scan_walk::LOG_LEVEL;

/// Most blocks that are looked for in data sets when a pool is imported; of more the heads are listed unseen.
const LOOKS_MAX: usize = 10_000;
/// Most data sets that descend from each other.
const GENERATIONS_MAX: usize = 10_000;

/// Finds out what has these blocks still, and notes it as damaged.
pub async fn note(core: &Arc<Core>, lost: Vec<LostBlock>) {
    let mut looks = LOOKS_MAX;
    let mut damaged = BTreeSet::new();
    for block in lost {
        let found = match block.birth.0 {
            0 => vec![block.head],
            _ => holders(core, &block, &mut looks).await,
        };
        damaged.extend(found.into_iter().map(|objset| (objset, block.object)));
    }
    core.damaged.lock().extend(damaged);
}

/// The data sets and snapshots that have a block (`process_error_block`).
async fn holders(core: &Arc<Core>, block: &LostBlock, looks: &mut usize) -> Vec<ObjectId> {
    let mut found = Vec::new();
    let Ok(Some(oldest)) = oldest_with(core, block).await else { return vec![block.head] };
    let mut next = vec![oldest];
    while let Some(dataset) = next.pop() {
        let Ok(snapshots) = snapshots_since(core, &dataset, block.birth).await else { return vec![block.head] };
        let mut holding = Vec::new();
        for objset in std::iter::once(dataset.object).chain(snapshots) {
            if *looks == 0 {
                return vec![block.head];
            }
            *looks -= 1;
            if has(core, objset, block).await {
                holding.push(objset);
            }
        }
        let clones = core.dsl.tree.read().datasets.values().cloned().collect::<Vec<_>>().into_iter();
        next.extend(clones.filter(|clone| holding.contains(&clone.dir.phys.lock().origin_obj)));
        found.append(&mut holding);
    }
    found
}

fn in_dir(core: &Core, dir: ObjectId) -> Option<Arc<Dataset>> {
    core.dsl.tree.read().dataset_in(dir).map(|(_, dataset)| dataset)
}

/// The oldest of the heads that may share a block: that from which those descend where it was found
/// (`find_top_affected_fs`). `None` when there is no such data set.
async fn oldest_with(core: &Core, block: &LostBlock) -> Result<Option<Arc<Dataset>>> {
    let head = core.dsl.tree.read().datasets.values().find(|dataset| dataset.object == block.head).cloned();
    let Some(mut oldest) = head else { return Ok(None) };
    for _ in 0..GENERATIONS_MAX {
        let origin = oldest.dir.phys.lock().origin_obj;
        if !origin.is_some() || core.dsl.tree.read().is_own_origin(origin) {
            break;
        }
        let origin = SnapshotBonus::load(&core.dsl.mos, origin).await?;
        match in_dir(core, origin.phys.dir_obj) {
            Some(parent) if block.birth <= origin.phys.creation_txg => oldest = parent,
            _ => break,
        }
    }
    Ok(Some(oldest))
}

/// The snapshots of a data set itself that were taken since a group.
async fn snapshots_since(core: &Core, dataset: &Dataset, birth: Txg) -> Result<Vec<ObjectId>> {
    let (mut next, dir) = (dataset.phys.lock().prev_snap_obj, dataset.dir.object);
    let mut found = Vec::new();
    while next.is_some() && found.len() < LOOKS_MAX {
        let snapshot = SnapshotBonus::load(&core.dsl.mos, next).await?.phys;
        if snapshot.creation_txg < birth || snapshot.dir_obj != dir {
            break;
        }
        found.push(next);
        next = snapshot.prev_snap_obj;
    }
    Ok(found)
}

/// Whether an object set has a block still, or that cannot be found out.
async fn has(core: &Arc<Core>, objset: ObjectId, block: &LostBlock) -> bool {
    let root = match scan_order::root_of_any(core, objset).await {
        Ok(Some(root)) => root,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
    let look = Look { block, found: Mutex::new(false) };
    let walked = visit(&store, objset, &root, just_before(block, objset), &look).await;
    walked.is_err() || look.found.into_inner()
}

/// A walk that leads to one block.
struct Look<'a> {
    block: &'a LostBlock,
    found: Mutex<bool>,
}

impl Visitor for Look<'_> {
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        let LostBlock { object, level, blkid, birth, .. } = *self.block;
        let is_meta = bookmark.object.0 == 0;
        let visit = match () {
            () if (bookmark.object, bookmark.level, bookmark.blkid) == (object, level, blkid) => {
                *self.found.lock() = bp.physical_birth() == birth;
                Visit::Stop
            }
            () if bookmark.level <= LOG_LEVEL => Visit::Skip,
            () if bookmark.object == object && (0..=level).contains(&bookmark.level) => Visit::Skip,
            () if bookmark.object == object || is_meta => Visit::Continue,
            () if bookmark.object < object || object.0 == 0 => Visit::Skip,
            () => Visit::Stop,
        };
        async move { visit }.boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, _bp: &'a BlkPtr, _error: &'a ZioError) -> BoxFuture<'a, Visit> {
        // It may be below.
        let leads_there = bookmark.object == self.block.object || bookmark.object.0 == 0;
        *self.found.lock() |= leads_there;
        async move { if leads_there { Visit::Stop } else { Visit::Continue } }.boxed()
    }
}

/// After what a walk of an object set has to begin to come to a block soon.
fn just_before(block: &LostBlock, objset: ObjectId) -> Option<Bookmark> {
    let (object, blkid) = match (block.level, block.blkid) {
        (0, 1..SPILL_BLOCK) => (block.object, block.blkid - 1),
        _ => (ObjectId(block.object.0.saturating_sub(1)), SPILL_BLOCK),
    };
    (block.object.0 > 1).then_some(Bookmark { objset, object, level: 0, blkid })
}
