//! Freeing in the background what was destroyed: object sets in the pool's bptree, and block pointers in its list of
//! frees, which a destroyed snapshot leaves, and a clone (`dsl_process_async_destroys` in `module/zfs/dsl_scan.c`).
//!
//! A group frees as much as `TIME` and the environment allow, and notes in the same group where the next one goes on:
//! after a crash or an import freeing continues there, in OpenZFS too. Space that is still to be freed is booked on
//! `$FREE`, what cannot be found any more on `$LEAK`.
//!
//! Invariants:
//! - a block is freed in the group that takes it out of what is still to be freed, and never twice;
//! - a block is freed after everything below it, so that the rest is reached from the root;
//! - memory is that of one group's frees, whatever was destroyed.

use platter_ondisk::features::Feature;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::bpobj::Bpobj;
use platter_dmu::bptree::Bptree;
use platter_dmu::traverse::{Visit, Visitor, visit_upwards};
use platter_dmu::{Bookmark, Objset, Result, Tx, ZioError};
use platter_hooks::Canary;
use platter_ondisk::blkptr::BLKPTR_SIZE;
use platter_ondisk::dnode::DNODES_PER_BLOCK;
use platter_ondisk::dsl::{Bookmark as StoredBookmark, BptreeEntryPhys};
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_zio::BlockStore;
use platter_zio::may_fail;
use tokio::time::Instant;

use crate::accounting;
use crate::dir::{Dir, LEAK_DIR};
use crate::mos;
use crate::pool::DslPool;
use crate::unreadable::{TRY_AGAIN, Unreadable};
use crate::used_space::{SpaceChange, UsedKind};

/// The feature that a pool needs for it.
pub const FEATURE: Feature = Feature::AsyncDestroy;
/// How long one group frees at most (`zfs_free_min_time_ms`).
const TIME: Duration = Duration::from_secs(1);
/// What blocks of destroyed object sets are called by (`ZB_DESTROYED_OBJSET`).
const DESTROYED: ObjectId = ObjectId(u64::MAX);
const META: ObjectId = ObjectId(0);
/// Pointers taken from the list of frees at a time.
const LIST_PART: u64 = 1024;

/// Whether something can be freed now.
pub fn has_work(dsl: &DslPool) -> bool {
    is_active(dsl) && dsl.unreadable.lock().is_none_or(|block| block.last.elapsed() >= TRY_AGAIN)
}

/// Whether anything is left to be freed.
pub fn is_active(dsl: &DslPool) -> bool {
    let objects = dsl.objects.lock();
    let has_any = objects.bptree.is_some() || objects.frees.is_some() || objects.deleted_clones.is_some();
    !dsl.read_only && has_any
}

/// The list of frees, when it has any; otherwise [`ObjectId::NONE`].
///
/// # Errors
/// It is damaged.
pub async fn nonempty_list(mos: &Arc<Objset>, object: ObjectId) -> Result<ObjectId> {
    let is_empty = !object.is_some() || Bpobj::open(mos, object).await?.is_empty()?;
    Ok(if is_empty { ObjectId::NONE } else { object })
}

/// Bytes still to be freed, and bytes that no destroy found (pool properties `freeing` and `leaked`).
pub fn space(dsl: &DslPool) -> (u64, u64) {
    let tree = dsl.tree.read();
    let used = |dir: &Option<Arc<Dir>>| dir.as_ref().map_or(0, |dir| dir.phys.lock().used_bytes);
    (used(&tree.free_dir), used(&tree.leak_dir))
}

/// Has the object set below `root` freed, as far as it was born after group `after`: `gone` is the space of its blocks,
/// as a loss. Within a task; the pool has the feature.
///
/// # Errors
/// Out of space, device errors.
pub async fn enqueue(dsl: &Arc<DslPool>, tx: &Tx, root: &BlkPtr, after: Txg, gone: SpaceChange) -> Result<()> {
    let known = dsl.objects.lock().bptree;
    let object = if known.is_some() {
        known
    } else {
        let object = Bptree::create(&dsl.mos, tx).await?;
        dsl.directory.put_u64(tx, mos::BPTREE_OBJ.as_bytes(), object.0).await?;
        dsl.features.adjust(tx, FEATURE, 1).await?;
        dsl.objects.lock().bptree = object;
        object
    };
    let mut queue = Bptree::open(&dsl.mos, object).await?;
    let entry = BptreeEntryPhys { bp: *root, birth_txg: after, bookmark: StoredBookmark::default() };
    queue.append(tx, &entry).await?;
    add(&mut queue, -gone);
    queue.store(tx)?;
    book(dsl, tx, -gone).await
}

/// The object of the list of frees, in use or not (`dp_free_bpobj`).
///
/// # Errors
/// The pool has none, as it is too old; damage, unreadable blocks.
pub async fn list(dsl: &DslPool) -> Result<ObjectId> {
    let object = dsl.directory.get_u64(mos::FREE_BPOBJ.as_bytes()).await?;
    object.map(ObjectId).ok_or_else(|| ZioError::corrupt("pool directory", "it has no list of frees".to_owned()))
}

/// Pointers were put on the list of frees, `object`, which take so much. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn list_grew(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId, gone: SpaceChange) -> Result<()> {
    let object = nonempty_list(&dsl.mos, object).await?;
    dsl.objects.lock().frees = object;
    book(dsl, tx, gone).await
}

/// Frees what this group may. Within the first pass of a sync.
///
/// # Errors
/// Device errors, damage of the lists themselves.
pub async fn step(dsl: &Arc<DslPool>, tx: &Tx) -> Result<()> {
    if !has_work(dsl) {
        return Ok(());
    }
    let budget = Budget { blocks: dsl.surroundings.frees_per_group, end: Some(Instant::now() + TIME) };
    assert!(budget.blocks > 0, "a list from which nothing may be taken would be taken for an empty one");
    let mut met = Met::default();
    let (bptree, frees) = {
        let objects = dsl.objects.lock();
        (objects.bptree, objects.frees)
    };
    if frees.is_some() {
        free_list(dsl, tx, frees, &budget, &mut met).await?;
    }
    if bptree.is_some() && !budget.is_spent(&met) {
        free_trees(dsl, tx, bptree, &budget, &mut met).await?;
    }
    tracing::debug!(pool = dsl.name(), blocks = met.blocks, "freed in the background");
    book(dsl, tx, met.freed).await?;
    if !is_active(dsl) {
        settle(dsl, tx).await?;
    }
    Ok(())
}

/// Frees the object set below `root` in this group, as far as it was born after group `after`: of a pool that cannot
/// say on disk where freeing goes on. Within a task.
///
/// # Errors
/// A store that stopped.
pub async fn at_once(dsl: &Arc<DslPool>, tx: &Tx, root: &BlkPtr, after: Txg) -> Result<()> {
    free_tree(dsl, tx, root, after, None, &Budget { blocks: u64::MAX, end: None }, &mut Met::default()).await.map(drop)
}

/// What one group may do.
struct Budget {
    blocks: u64,
    end: Option<Instant>,
}

impl Budget {
    /// At least one block is freed in each group, so that it comes to an end.
    fn is_spent(&self, met: &Met) -> bool {
        met.blocks > 0 && (met.blocks >= self.blocks || self.end.is_some_and(|end| Instant::now() >= end))
    }
}

/// What one group did.
#[derive(Default)]
struct Met {
    blocks: u64,
    /// As a loss.
    freed: SpaceChange,
}

/// Gives back one block, which is in use. One that is not cannot be given back, and nothing that leads to it can be
/// believed.
fn free(dsl: &DslPool, tx: &Tx, bp: &BlkPtr, met: &mut Met) {
    met.blocks += 1;
    met.freed -= accounting::space(dsl.store.dsize(bp), bp);
    dsl.store.free(tx.txg(), bp);
}

/// Frees what is on the list of frees, from its end.
async fn free_list(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId, budget: &Budget, met: &mut Met) -> Result<()> {
    let list = Bpobj::open(&dsl.mos, object).await?;
    while !budget.is_spent(met) {
        let most = LIST_PART.min(budget.blocks - met.blocks);
        let part = list.take_last(tx, most).await?;
        assert!(part.len() as u64 <= most, "what is taken off the list is freed in this group, and fits into it");
        if part.is_empty() {
            dsl.objects.lock().frees = ObjectId::NONE;
            return Ok(());
        }
        for bp in &part {
            if dsl.store.is_allocated(bp).await {
                free(dsl, tx, bp, met);
            } else {
                tracing::warn!(pool = dsl.name(), "{bp:?} was to be freed, but is free already");
            }
        }
    }
    Ok(())
}

/// Frees object sets, the first in the queue first.
async fn free_trees(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId, budget: &Budget, met: &mut Met) -> Result<()> {
    let mut queue = Bptree::open(&dsl.mos, object).await?;
    let before = met.freed;
    while !queue.is_empty() {
        let mut entry = queue.get(queue.phys.begin).await?;
        let next = Some(entry.bookmark).filter(|next| *next != StoredBookmark::default());
        let next = next.map(|at| Bookmark { objset: DESTROYED, object: at.object, level: 0, blkid: at.blkid });
        match free_tree(dsl, tx, &entry.bp, entry.birth_txg, next, budget, met).await? {
            End::WhereItBegan => break,
            End::At(next) => {
                if !Canary::FreeingBegunAnew.sings() {
                    entry.bookmark =
                        StoredBookmark { objset: DESTROYED.0, object: next.object, level: 0, blkid: next.blkid };
                }
                queue.set(tx, queue.phys.begin, &entry).await?;
                break;
            }
            End::Done => queue.remove_first(tx).await?,
        }
    }
    let mut freed = met.freed;
    freed -= before;
    add(&mut queue, freed);
    if !queue.is_empty() {
        return queue.store(tx);
    }
    dsl.directory.remove(tx, mos::BPTREE_OBJ.as_bytes()).await?;
    dsl.mos.free_object(tx, object).await?;
    dsl.features.adjust(tx, FEATURE, -1).await?;
    dsl.objects.lock().bptree = ObjectId::NONE;
    Ok(())
}

/// Frees one object set from block `next` on.
async fn free_tree(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    root: &BlkPtr,
    after: Txg,
    next: Option<Bookmark>,
    budget: &Budget,
    met: &mut Met,
) -> Result<End> {
    let progress = Mutex::new(Progress { met: std::mem::take(met), end: End::Done, damage: None });
    let freeing = Freeing { dsl, tx, after, budget, progress };
    let store: Arc<dyn BlockStore> = Arc::new(dsl.store.clone());
    // A sector that cannot be read is no reason to suspend the pool: what it led to is leaked.
    let end = may_fail(visit_upwards(&store, DESTROYED, root, next, &freeing)).await;
    let progress = freeing.progress.into_inner();
    *met = progress.met;
    if let Some(damage) = progress.damage {
        tracing::warn!(pool = dsl.name(), %damage, "some space of a destroyed data set is leaked");
    }
    end.map(|_| progress.end)
}

/// Adds a change of space to the queue's.
fn add(queue: &mut Bptree, change: SpaceChange) {
    let phys = &mut queue.phys;
    phys.bytes = phys.bytes.saturating_add_signed(change.used);
    phys.comp = phys.comp.saturating_add_signed(change.compressed);
    phys.uncomp = phys.uncomp.saturating_add_signed(change.uncompressed);
}

/// Books a change of space on `$FREE`.
///
/// # Errors
/// Device errors.
pub async fn book(dsl: &DslPool, tx: &Tx, change: SpaceChange) -> Result<()> {
    let Some(dir) = dsl.tree.read().free_dir.clone() else { return Ok(()) };
    if change == SpaceChange::default() {
        return Ok(());
    }
    for dir in dir.diduse(UsedKind::Head, change) {
        dir.store(&dsl.mos, tx).await?;
    }
    Ok(())
}

/// Everything is freed: what is still booked was not found, and goes from `$FREE` to `$LEAK`.
async fn settle(dsl: &Arc<DslPool>, tx: &Tx) -> Result<()> {
    let Some(free) = dsl.tree.read().free_dir.clone() else { return Ok(()) };
    let lost = SpaceChange::minus_all(&free.phys.lock());
    if lost == SpaceChange::default() {
        return Ok(());
    }
    if lost.used != 0 {
        let (known, root) = {
            let tree = dsl.tree.read();
            (tree.leak_dir.clone(), tree.root_dir.clone())
        };
        let leak = match known {
            Some(leak) => leak,
            None => {
                let (now, salt) = (dsl.now(), || dsl.random());
                let leak = Dir::create(&dsl.mos, &dsl.directory, tx, root, LEAK_DIR, now, salt).await?;
                dsl.tree.write().leak_dir = Some(leak.clone());
                leak
            }
        };
        for dir in leak.diduse(UsedKind::Head, -lost) {
            dir.store(&dsl.mos, tx).await?;
        }
    }
    book(dsl, tx, lost).await
}

/// Where a walk goes on to look at an interior block, or the dnodes in one, once more: the first block of level 0 below
/// it. The head has none.
fn first_below(at: Bookmark, bp: &BlkPtr) -> Option<Bookmark> {
    let level = u32::try_from(at.level).ok()?;
    // Pointers of an indirect block, which is as long as all of its object.
    let shift = level * (bp.lsize().max(BLKPTR_SIZE as u64) / BLKPTR_SIZE as u64).ilog2();
    let block = at.blkid.checked_shl(shift).filter(|block| block >> shift == at.blkid)?;
    let objset = DESTROYED;
    Some(match at.object == META {
        // The block itself would mean that all dnodes in it are done; object 0 is the meta-dnode.
        true => Bookmark { objset, object: ObjectId((block * DNODES_PER_BLOCK as u64).max(1)), level: 0, blkid: 0 },
        false => Bookmark { objset, object: at.object, level: 0, blkid: block },
    })
}

/// Frees the blocks of one object set until the budget is spent.
struct Freeing<'a> {
    dsl: &'a DslPool,
    tx: &'a Tx,
    after: Txg,
    budget: &'a Budget,
    progress: Mutex<Progress>,
}

/// Where freeing of an object set goes on.
enum End {
    /// Nowhere: everything is freed that can be found.
    Done,
    /// At this block of level 0.
    At(Bookmark),
    /// Where it went on this time.
    WhereItBegan,
}

struct Progress {
    met: Met,
    end: End,
    damage: Option<ZioError>,
}

impl Visitor for Freeing<'_> {
    fn enters(&self, bp: &BlkPtr) -> bool {
        bp.birth() > self.after
    }

    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            // A walk can go on at blocks of level 0 only.
            if bookmark.level == 0 && self.budget.is_spent(&self.progress.lock().met) {
                self.progress.lock().end = End::At(bookmark);
                return Visit::Stop;
            }
            if self.dsl.store.is_allocated(bp).await {
                free(self.dsl, self.tx, bp, &mut self.progress.lock().met);
                return Visit::Continue;
            }
            let what = format!("{bookmark}: it is not in use, and what is left of the tree cannot be believed");
            self.progress.lock().damage.get_or_insert_with(|| ZioError::corrupt("block tree", what));
            Visit::Stop
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        let mut progress = self.progress.lock();
        let mut unreadable = self.dsl.unreadable.lock();
        if self.budget.end.is_some() && !Unreadable::note(&mut unreadable, bookmark) {
            progress.end = first_below(bookmark, bp).map_or(End::WhereItBegan, End::At);
            return async { Visit::Stop }.boxed();
        }
        progress.damage.get_or_insert_with(|| error.clone());
        async { Visit::Continue }.boxed()
    }
}
