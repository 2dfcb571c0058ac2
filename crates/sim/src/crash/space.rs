//! Whether every block that a file system, snapshot or clone leads to is in use, and whether the pool counts them
//! right: what each has alone, what is held by snapshots, what is written since. A block that was freed although
//! somebody needs it reads well until its place is taken; a deadlist that lost a block shows only when its snapshot
//! goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::bpobj::Bpobj;
use platter_dmu::traverse::{Visit, Visitor, visit};
use platter_dmu::{Bookmark, Objset, ZioError};
use platter_dsl::dataset::Dataset;
use platter_dsl::snapshot::SnapshotBonus;
use platter_dsl::{accounting, deadlist, effects};
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_spa::Pool;
use platter_zio::BlockStore;

use super::model::FILESYSTEM;

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The object sets of all snapshots, and of all file systems below the root but the one that is worked on, by full
/// name, for reading.
///
/// # Errors
/// What could not be read.
pub async fn others(pool: &Arc<Pool>) -> Result<Vec<(String, Arc<Objset>)>, String> {
    let (dsl, mut found) = (pool.dsl(), Vec::new());
    for report in dsl.snapshots(None).await.map_err(text)? {
        let os = dsl.open_snapshot(&report.name).await.map_err(|error| format!("{}: {error}", report.name))?;
        found.push((report.name, os));
    }
    let heads = dsl.tree.read().datasets.clone();
    for (name, head) in heads.into_iter().filter(|(name, _)| name.contains('/') && name != FILESYSTEM) {
        let properties = effects::write_properties(dsl, &head.dir);
        let params = dsl.objset_params(head.object, head.accounting.clone(), properties, true);
        let root = head.phys.lock().bp;
        found.push((name.clone(), Objset::open(params, root).await.map_err(|error| format!("{name}: {error}"))?));
    }
    Ok(found)
}

/// What a block takes, and when it was born.
#[derive(Clone, Copy)]
struct Block {
    size: u64,
    born: Txg,
}

/// Blocks by place.
type Blocks = BTreeMap<(u32, u64), Block>;

/// Collects the blocks of a tree, all of which must be in use.
struct Walk<'a> {
    pool: &'a Pool,
    found: Mutex<Blocks>,
    wrong: Mutex<Option<String>>,
}

impl Visitor for Walk<'_> {
    fn block<'a>(&'a self, at: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if bp.is_hole() || bp.is_embedded() {
                return Visit::Continue;
            }
            let store = &self.pool.dsl().store;
            if !store.is_allocated(bp).await {
                self.wrong.lock().get_or_insert_with(|| format!("{at}: its block is free"));
            }
            let space = accounting::space(store.dsize(bp), bp).used;
            let block = Block { size: u64::try_from(space).unwrap_or(0), born: bp.birth() };
            self.found.lock().insert((bp.dva(0).vdev, bp.dva(0).offset), block);
            Visit::Continue
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, at: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        self.wrong.lock().get_or_insert_with(|| format!("{at}: {error}"));
        async { Visit::Continue }.boxed()
    }
}

async fn blocks(pool: &Arc<Pool>, object: ObjectId, root: &BlkPtr) -> Result<Blocks, String> {
    if root.is_hole() {
        return Ok(Blocks::new());
    }
    let walk = Walk { pool, found: Mutex::default(), wrong: Mutex::default() };
    let store: Arc<dyn BlockStore> = Arc::new(pool.dsl().store.clone());
    visit(&store, object, root, None, &walk).await.map_err(text)?;
    match walk.wrong.into_inner() {
        Some(wrong) => Err(wrong),
        None => Ok(walk.found.into_inner()),
    }
}

/// A data set or snapshot with its blocks.
struct Link {
    phys: DslDatasetPhys,
    blocks: Blocks,
}

/// What `blocks` has and none of the others.
fn alone(blocks: &Blocks, others: &[&Blocks]) -> u64 {
    blocks
        .iter()
        .filter(|(place, _)| others.iter().all(|other| !other.contains_key(place)))
        .map(|(_, block)| block.size)
        .sum()
}

fn same(name: &str, what: &str, counted: u64, found: u64) -> Result<(), String> {
    match counted == found {
        true => Ok(()),
        false => Err(format!("{name}: {what} is {counted}, where {found} bytes are found")),
    }
}

/// Checks everything; nothing is being written or freed.
///
/// # Errors
/// What is wrong.
pub async fn check(pool: &Arc<Pool>) -> Result<(), String> {
    pool.sync().await.map_err(text)?;
    let heads = pool.dsl().tree.read().datasets.clone();
    for (name, head) in heads {
        let (dsl, phys) = (pool.dsl(), head.phys.lock().clone());
        let dir = head.dir.phys.lock().clone();
        let own = blocks(pool, head.object, &phys.bp).await;
        let own = Link { phys, blocks: own.map_err(|error| format!("{name}: {error}"))? };
        // From the head back to what it is a clone of, which ends the chain.
        let (mut chain, mut at) = (vec![own], ObjectId::NONE);
        while at != dir.origin_obj && chain[chain.len() - 1].phys.prev_snap_obj.is_some() {
            at = chain[chain.len() - 1].phys.prev_snap_obj;
            let phys = SnapshotBonus::load(&dsl.mos, at).await.map_err(text)?.phys;
            let found =
                blocks(pool, at, &phys.bp).await.map_err(|error| format!("snapshot {at} of {name}: {error}"))?;
            chain.push(Link { phys, blocks: found });
        }
        check_chain(pool, &name, &chain).await?;
        check_bookmarks(pool, &name, &chain[0].blocks).await?;
        check_livelist(pool, &name, &head, &chain[0].blocks).await?;
        let (origin, own) = (&chain[chain.len() - 1].blocks, &chain[0].blocks);
        let mut held = Blocks::new();
        chain[1..].iter().for_each(|link| held.extend(&link.blocks));
        same(&name, "usedbysnapshots", dir.used_breakdown.snapshots, alone(&held, &[own, origin]))?;
        if dir.origin_obj.is_some() {
            same(&name, "usedbydataset", dir.used_breakdown.head, alone(own, &[origin]))?;
        }
    }
    Ok(())
}

/// The counters of a head and its snapshots, and of what they are a clone of the last in the chain.
async fn check_chain(pool: &Arc<Pool>, name: &str, chain: &[Link]) -> Result<(), String> {
    for (at, link) in chain.iter().enumerate().take(chain.len() - 1) {
        let before = &chain[at + 1];
        let next = at.checked_sub(1).map(|at| &chain[at].blocks);
        let others: Vec<&Blocks> = std::iter::once(&before.blocks).chain(next).collect();
        let name = format!("number {at} from the head of {name}");
        same(&name, "referenced", link.phys.referenced_bytes, link.blocks.values().map(|block| block.size).sum())?;
        same(&name, "unique", link.phys.unique_bytes, alone(&link.blocks, &others))?;
        let dead = deadlist::space_used(&pool.dsl().mos, link.phys.deadlist_obj).await.map_err(text)?;
        same(&name, "its deadlist", dead, alone(&before.blocks, &[&link.blocks]))?;
    }
    Ok(())
}

/// What lives on a clone's livelist is what it has and was born after its origin.
async fn check_livelist(pool: &Arc<Pool>, name: &str, head: &Dataset, own: &Blocks) -> Result<(), String> {
    let Some(list) = head.accounting.livelist() else { return Ok(()) };
    let (mos, mut live) = (&pool.dsl().mos, BTreeSet::new());
    for (_, part) in deadlist::keys(mos, list.object).await.map_err(text)? {
        let part = Bpobj::open(mos, part).await.map_err(text)?.live().await.map_err(text)?;
        live.extend(part.iter().map(|bp| (bp.dva(0).vdev, bp.dva(0).offset)));
    }
    let has: BTreeSet<_> = own.iter().filter(|(_, block)| block.born > list.origin).map(|(&place, _)| place).collect();
    match live.symmetric_difference(&has).next() {
        None => Ok(()),
        Some(place) => Err(format!(
            "{name}: its livelist has {} blocks, the clone {} of its own; only one of them has that at {place:?}",
            live.len(),
            has.len()
        )),
    }
}

/// What a head, which has these blocks, has written since each of its bookmarks.
async fn check_bookmarks(pool: &Arc<Pool>, name: &str, own: &Blocks) -> Result<(), String> {
    let dsl = pool.dsl();
    for bookmark in dsl.bookmarks(name).await.map_err(text)? {
        let full_name = format!("{name}#{}", bookmark.name);
        let told = dsl.written_since(name, std::slice::from_ref(&full_name)).await.map_err(text)?;
        let told = told.first().copied().flatten().ok_or_else(|| format!("{full_name}: it is not before its head"))?;
        let later = own.values().filter(|block| block.born > bookmark.phys.creation_txg);
        same(&full_name, "written since", told, later.map(|block| block.size).sum())?;
    }
    Ok(())
}
