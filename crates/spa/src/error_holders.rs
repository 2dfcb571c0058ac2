//! Who has a block that a list of errors names: the file systems, snapshots and clones that share it, as far as it was
//! neither freed nor written over since (`process_error_block`, `module/zfs/spa_errlog.c`).
//!
//! Invariant: a block that cannot be looked for counts as lost where it was found: the list is rather too long.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::changes::SPILL_BLOCK;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_ondisk::{BlkPtr, ObjectId};
use platter_zio::{BlockStore, Bookmark, ZioError};

use crate::core::Core;
use crate::error_heads::LostBlock;
use crate::family;
use crate::lost::FoundLost;
use crate::object_path::{self, ObjectPath};
use crate::scan_order;
use crate::scan_walk::LOG_LEVEL;

/// Most blocks that are looked for in data sets when a pool is imported; of more the heads are listed unseen.
const LOOKS_MAX: usize = 10_000;

/// Finds out what has these blocks still, and notes it as damaged.
pub async fn note(core: &Arc<Core>, lost: Vec<LostBlock>) {
    let mut looks = LOOKS_MAX;
    let mut damaged = BTreeSet::new();
    for block in lost {
        let may_look = looks > 0;
        let found = match block.birth.0 {
            0 => None,
            _ => holders(core, &block, &mut looks).await,
        };
        let found = found.unwrap_or_else(|| vec![block.head]);
        assert!(may_look || found == [block.head], "what is not looked for is listed where it was found");
        damaged.extend(found.into_iter().map(|objset| (objset, block.object)));
    }
    core.damaged.lock().extend(damaged);
}

/// Notes what else lost these blocks, since it shares them: file systems, snapshots and clones. What cannot be looked
/// for now, a scrub or whoever reads it there finds.
pub async fn spread(core: &Arc<Core>, lost: Vec<FoundLost>, note: impl Fn(ObjectId, ObjectId)) {
    let mut looks = LOOKS_MAX;
    for FoundLost { bookmark, birth } in lost {
        let Bookmark { objset, object, level, blkid } = bookmark;
        if objset.0 == 0 || birth.0 == 0 || core.is_over() {
            continue;
        }
        let Ok(Some(head)) = family::head_of(core, objset).await else { continue };
        let block = LostBlock { head, object, level, blkid, birth };
        let found = holders(core, &block, &mut looks).await.unwrap_or_default();
        found.into_iter().for_each(|holder| note(holder, object));
    }
}

/// The data sets and snapshots that have a block (`process_error_block`); `None` when that cannot be found out.
async fn holders(core: &Arc<Core>, block: &LostBlock, looks: &mut usize) -> Option<Vec<ObjectId>> {
    let mut found = Vec::new();
    let oldest = family::oldest(core, block.head, block.birth).await.ok().flatten()?;
    let mut next = vec![oldest];
    while let Some(dataset) = next.pop() {
        let snapshots = family::snapshots_since(core, &dataset, block.birth).await.ok()?;
        let mut holding = Vec::new();
        for objset in std::iter::once(dataset.object).chain(snapshots) {
            if *looks == 0 {
                return None;
            }
            *looks -= 1;
            if has(core, objset, block).await {
                holding.push(objset);
            }
        }
        next.extend(family::clones_of(core, &holding));
        found.append(&mut holding);
    }
    Some(found)
}

/// Whether an object set has a block still, or that cannot be found out.
async fn has(core: &Arc<Core>, objset: ObjectId, block: &LostBlock) -> bool {
    let root = match scan_order::root_of_any(core, objset).await {
        Ok(Some(root)) => root,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
    let look = Look { block, path: ObjectPath::to(block.object), found: Mutex::new(false) };
    let walked = visit(&store, objset, &root, just_before(block, objset), &look).await;
    walked.is_err() || look.found.into_inner()
}

/// A walk that leads to one block.
struct Look<'a> {
    block: &'a LostBlock,
    path: ObjectPath,
    found: Mutex<bool>,
}

impl Visitor for Look<'_> {
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        let LostBlock { object, level, blkid, birth, .. } = *self.block;
        let leads = self.path.comes(bookmark);
        let visit = match () {
            () if (bookmark.object, bookmark.level, bookmark.blkid) == (object, level, blkid) => {
                *self.found.lock() = bp.physical_birth() == birth;
                Visit::Stop
            }
            () if bookmark.level <= LOG_LEVEL => Visit::Skip,
            () if bookmark.object == object && (0..=level).contains(&bookmark.level) => Visit::Skip,
            () if bookmark.object == object || leads => Visit::Continue,
            () if bookmark.object < object || object.0 == 0 => Visit::Skip,
            () => Visit::Stop,
        };
        async move { visit }.boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, _bp: &'a BlkPtr, _error: &'a ZioError) -> BoxFuture<'a, Visit> {
        // It may be below.
        let leads_there = self.path.is_part(bookmark);
        *self.found.lock() |= leads_there;
        async move { if leads_there { Visit::Stop } else { Visit::Continue } }.boxed()
    }
}

/// After what a walk of an object set has to begin to come to a block soon.
fn just_before(block: &LostBlock, objset: ObjectId) -> Option<Bookmark> {
    match (block.level, block.blkid) {
        (0, blkid @ 1..SPILL_BLOCK) if block.object.0 > 1 => {
            Some(Bookmark { objset, object: block.object, level: 0, blkid: blkid - 1 })
        }
        _ => object_path::before(objset, block.object),
    }
}
