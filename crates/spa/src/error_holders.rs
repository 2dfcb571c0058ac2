//! Who has a block that a list of errors names: the file systems, snapshots and clones that share it, as far as it was
//! neither freed nor written over since (`process_error_block`, `module/zfs/spa_errlog.c`).
//!
//! Invariants:
//! - a block that cannot be looked for counts as lost where it was found: the list is rather too long;
//! - only blocks with a birth are looked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::{BlockStore, Bookmark, ZioError};

use crate::core::Core;
use crate::error_heads::LostBlock;
use crate::family;
use crate::lost::{Blocks, InDataset};
use crate::object_path::{self, LOG_LEVEL, ObjectPath};
use crate::scan_order;

/// Most looks at an object in one data set or snapshot for one list. More are listed unseen: a list that is too long
/// has nobody trust what is lost.
const LOOKS_MAX: usize = 100_000;
/// Most that are listed unseen.
const UNSEEN_MAX: usize = 100_000;

/// How much may still be looked at, and listed unseen.
struct Budget {
    looks: usize,
    unseen: usize,
}

impl Budget {
    const fn new() -> Self {
        Self { looks: LOOKS_MAX, unseen: UNSEEN_MAX }
    }
}

/// What is looked for: blocks of one object.
struct Wanted<'a> {
    object: ObjectId,
    blocks: &'a Blocks,
}

impl<'a> Wanted<'a> {
    fn new(object: ObjectId, blocks: &'a Blocks) -> Self {
        assert!(blocks.iter().all(|(_, _, birth)| birth.0 > 0), "of what has no birth nobody can tell who has it");
        Self { object, blocks }
    }

    /// Since when one of them can have been there.
    fn born(&self) -> Txg {
        self.blocks.iter().map(|(_, _, birth)| *birth).min().expect("some are looked for")
    }

    /// Whether an interior block of the object may lead to one of them.
    fn may_be_below(&self, bookmark: Bookmark, bp: &BlkPtr) -> bool {
        let newest = bp.birth().max(bp.physical_birth());
        let shift = (bp.lsize() / BLKPTR_SIZE as u64).max(1).ilog2();
        // In blocks of level 0.
        let place = |level: i8, blkid: u64| u128::from(blkid).checked_shl(shift * level as u32).unwrap_or(u128::MAX);
        let (begin, end) =
            (place(bookmark.level, bookmark.blkid), place(bookmark.level, bookmark.blkid.saturating_add(1)));
        self.blocks.iter().any(|&(level, blkid, birth)| {
            birth <= newest && (0..bookmark.level).contains(&level) && (begin..end).contains(&place(level, blkid))
        })
    }
}

/// Finds out what has these blocks still, and notes it as damaged.
pub async fn note(core: &Arc<Core>, lost: Vec<LostBlock>) {
    let mut budget = Budget::new();
    let mut damaged = BTreeSet::new();
    let mut born: BTreeMap<InDataset, Blocks> = BTreeMap::new();
    for LostBlock { head, object, level, blkid, birth } in lost {
        match birth.0 {
            0 => drop(damaged.insert((head, object))),
            _ => drop(born.entry((head, object)).or_default().insert((level, blkid, birth))),
        }
    }
    for ((head, object), blocks) in born {
        let found = holders(core, head, &Wanted::new(object, &blocks), &mut budget, &|| false).await;
        damaged.extend(found.unwrap_or_else(|| vec![head]).into_iter().map(|objset| (objset, object)));
    }
    core.damaged.lock().extend(damaged);
}

/// Finds out what else lost these blocks, since it shares them: file systems, snapshots and clones. `note` hears of
/// each object with the one that it was found in. It ends early when `is_over`: what is left then is returned.
pub async fn spread(
    core: &Arc<Core>,
    mut lost: BTreeMap<InDataset, Blocks>,
    is_over: impl Fn() -> bool + Sync,
    note: impl Fn(InDataset, InDataset),
) -> BTreeMap<InDataset, Blocks> {
    let mut budget = Budget::new();
    while let Some(((objset, object), mut blocks)) = lost.pop_first() {
        blocks.retain(|(_, _, birth)| birth.0 > 0);
        if objset.0 == 0 || blocks.is_empty() {
            continue;
        }
        let Ok(Some(head)) = family::head_of(core, objset).await else { continue };
        let found = holders(core, head, &Wanted::new(object, &blocks), &mut budget, &is_over).await;
        found.unwrap_or_default().into_iter().for_each(|holder| note((holder, object), (objset, object)));
        if is_over() {
            lost.insert((objset, object), blocks);
            break;
        }
    }
    lost
}

/// The data sets and snapshots that have one of these blocks (`process_error_block`), of those that come from where
/// head `head` comes from; `None` when that cannot be found out.
async fn holders(
    core: &Arc<Core>,
    head: ObjectId,
    wanted: &Wanted<'_>,
    budget: &mut Budget,
    is_over: &(impl Fn() -> bool + Sync),
) -> Option<Vec<ObjectId>> {
    let mut found = Vec::new();
    let born = wanted.born();
    let oldest = family::oldest(core, head, born).await.ok().flatten()?;
    let mut next = vec![oldest];
    while let Some(dataset) = next.pop() {
        let snapshots = family::snapshots_since(core, &dataset, born).await.ok()?;
        let mut holding = Vec::new();
        for objset in std::iter::once(dataset.object).chain(snapshots) {
            if is_over() {
                return Some(found);
            }
            let is_holder = if budget.looks > 0 {
                budget.looks -= 1;
                has(core, objset, wanted).await
            } else {
                let is_listed = budget.unseen > 0;
                budget.unseen = budget.unseen.saturating_sub(1);
                is_listed
            };
            if is_holder {
                holding.push(objset);
            }
        }
        next.extend(family::clones_of(core, &holding));
        found.append(&mut holding);
    }
    Some(found)
}

/// Whether an object set has one of these blocks still, or that cannot be found out.
async fn has(core: &Arc<Core>, objset: ObjectId, wanted: &Wanted<'_>) -> bool {
    let root = match scan_order::root_of_any(core, objset).await {
        Ok(Some(root)) => root,
        Ok(None) => return false,
        Err(_) => return true,
    };
    let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
    let look = Look { wanted, path: ObjectPath::to(wanted.object), found: Mutex::new(false) };
    let walked = visit(&store, objset, &root, object_path::before(objset, wanted.object), &look).await;
    walked.is_err() || look.found.into_inner()
}

/// A walk that leads to blocks of one object.
struct Look<'a> {
    wanted: &'a Wanted<'a>,
    path: ObjectPath,
    found: Mutex<bool>,
}

impl Visitor for Look<'_> {
    fn reads_ahead(&self, bookmark: Bookmark, bp: &BlkPtr) -> bool {
        match bookmark.object == self.wanted.object {
            true => self.wanted.may_be_below(bookmark, bp),
            false => self.path.may_lead(bookmark),
        }
    }

    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        let Bookmark { object, level, blkid, .. } = bookmark;
        let wanted = self.wanted.object;
        let leads = self.path.comes(bookmark);
        let is_it = object == wanted && self.wanted.blocks.contains(&(level, blkid, bp.physical_birth()));
        let visit = match () {
            () if is_it => {
                *self.found.lock() = true;
                Visit::Stop
            }
            () if level <= LOG_LEVEL => Visit::Skip,
            () if object == wanted && level == 0 => Visit::Skip,
            () if object == wanted && level > 0 => match self.wanted.may_be_below(bookmark, bp) {
                true => Visit::Continue,
                false => Visit::Skip,
            },
            () if object == wanted || leads => Visit::Continue,
            () if object < wanted || wanted.0 == 0 => Visit::Skip,
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
