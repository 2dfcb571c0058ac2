//! `zfs promote`: a clone and the data set that it was made of change places (`dsl_dataset_promote_check`,
//! `dsl_dataset_promote_sync`, `module/zfs/dsl_dataset.c`).
//!
//! ```text
//!   before ─── shared … origin ─┬─ oldnext … origin's head           before ─── shared … origin ─┬─ tail … clone
//!                               └─ tail …… clone                                                 └─ oldnext … old head
//! ```
//! Everything up to the origin, with its name and its clones, becomes the clone's; the other one is a clone of it then.
//! No block is born or dies, and no deadlist changes: what is on them is booked on the other directory.
//!
//! Invariants:
//! - what moves is what the shared snapshots alone gave birth to and still hold: the sum of both directories stays;
//! - of both, what snapshots use is what is on the deadlists of their chain and was born after their origin.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};
use platter_ondisk::dsl::{DD_FLAG_USED_BREAKDOWN, DslDatasetPhys, dataset_flags};
use platter_ondisk::{ObjectId, Txg};
use platter_zio::ZioError;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::used_space::{SpaceChange, UsedKind, difference, reserved_delta};
use crate::{
    bookmark_space, bookmarks, deadlist, deadlist_merge, encryption, history, limits, livelist, origin,
    snapshots_changed, space,
};

/// Longest full name (`ZFS_MAX_DATASET_NAME_LEN`, with its final zero).
const NAME_SIZE: usize = 256;
const ALL: Txg = Txg(u64::MAX);

/// A head or a snapshot of a chain.
struct Link {
    object: ObjectId,
    phys: DslDatasetPhys,
}

/// A snapshot that moves.
struct Moving {
    object: ObjectId,
    name: String,
}

/// A promotion that is possible.
struct Plan {
    clone: Arc<Dataset>,
    old: Arc<Dataset>,
    /// The newest first, which is the origin.
    moving: Vec<Moving>,
    /// What comes after the origin in the clone's chain.
    tail: ObjectId,
    /// The snapshot that all of it descends from.
    root: ObjectId,
    /// What becomes the clone's directory's.
    space: SpaceChange,
    /// What snapshots will use of the clone's directory, and of the other one.
    by_snapshots: (u64, u64),
    /// What the origin will have alone.
    unique: u64,
}

/// The chain from `newest` back to the snapshot before which it ends, which is not in it.
async fn chain(dsl: &DslPool, newest: ObjectId, end: ObjectId) -> Result<Vec<Link>> {
    let (mut links, mut at, mut newer): (Vec<Link>, _, _) = (Vec::new(), newest, ALL);
    while at != end {
        let phys = SnapshotBonus::load(&dsl.mos, at).await?.phys;
        let taken = if phys.next_snap_obj.is_some() { phys.creation_txg } else { ALL };
        let leads_on = phys.prev_snap_obj.is_some() || !end.is_some();
        if !leads_on || taken > newer || phys.prev_snap_txg >= taken {
            let what = format!("object {at}: the chain of snapshots does not lead to its origin");
            return Err(ZioError::corrupt("snapshot", what).into());
        }
        newer = phys.prev_snap_txg;
        let before = phys.prev_snap_obj;
        links.push(Link { object: at, phys });
        at = before;
    }
    Ok(links)
}

/// What of the deadlists of a chain was born after group `after`.
async fn on_deadlists(dsl: &DslPool, links: &[Link], after: Txg) -> Result<u64> {
    let mut bytes = 0u64;
    for link in links {
        let list = link.phys.deadlist_obj;
        let space = deadlist_merge::space_between(&dsl.mos, &dsl.store, list, after, ALL).await?;
        bytes = bytes.saturating_add_signed(space.used);
    }
    Ok(bytes)
}

/// What a snapshot or a head references.
fn referenced(phys: &DslDatasetPhys) -> SpaceChange {
    SpaceChange {
        used: difference(phys.referenced_bytes, 0),
        compressed: difference(phys.compressed_bytes, 0),
        uncompressed: difference(phys.uncompressed_bytes, 0),
    }
}

/// Names of the snapshots that move, and whether the clone can have them.
async fn names(dsl: &DslPool, clone: (&str, &Dataset), old: &Dataset, shared: &[Link]) -> Result<Vec<Moving>> {
    let all = old.snapshot_names(&dsl.mos).await?;
    let names: BTreeMap<ObjectId, String> = all.into_iter().map(|(name, object)| (object, name)).collect();
    let (mut moving, mut conflict) = (Vec::new(), None);
    for link in shared {
        let Some(name) = names.get(&link.object).cloned() else {
            return Err(ZioError::corrupt("snapshot", format!("object {}: it has no name", link.object)).into());
        };
        if clone.0.len() + 1 + name.len() >= NAME_SIZE {
            return Err(PoolError::invalid("dataset name is too long"));
        }
        if conflict.is_none() && clone.1.snapshot(&dsl.mos, &name).await?.is_some() {
            conflict = Some(name.clone());
        }
        moving.push(Moving { object: link.object, name });
    }
    let Some(name) = conflict else { return Ok(moving) };
    let origin = match named_snapshot::by_object(dsl, moving[0].object).await? {
        Some(origin) => origin.full_name,
        None => moving[0].name.clone(),
    };
    Err(PoolError::Exists(format!("conflicting snapshot '{name}' from parent '{origin}'")))
}

/// The directories from `dir` up to the root, itself first.
fn upwards(dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
    let mut all = vec![dir.clone()];
    while let Some(parent) = all.last().and_then(|dir| dir.parent()) {
        all.push(parent);
    }
    all
}

/// Whether there is room in the clone's directory, by space and by number (`dsl_dir_transfer_possible`).
fn check_room(dsl: &DslPool, old: &Arc<Dir>, new: &Arc<Dir>, bytes: u64, snapshots: u64) -> Result<()> {
    let (old, targets) = (upwards(old), upwards(new));
    let common = targets.iter().find(|dir| old.iter().any(|other| other.object == dir.object));
    let common = common.ok_or_else(|| PoolError::invalid("the two are not in one pool"))?.object;
    let mut lost = difference(0, bytes);
    for dir in old.iter().take_while(|dir| dir.object != common) {
        let phys = dir.phys.lock();
        lost = reserved_delta(phys.reserved, phys.used_bytes, lost);
    }
    if space::available_after_moving(dsl, new, common, lost.unsigned_abs()) < bytes {
        return Err(PoolError::invalid("out of space"));
    }
    targets
        .iter()
        .take_while(|dir| dir.object != common)
        .try_for_each(|dir| limits::check_snapshots(dsl, dir, snapshots))
}

/// The clone, the data set that it was made of, and the number of its origin.
async fn pair(dsl: &DslPool, name: &str) -> Result<(Arc<Dataset>, Arc<Dataset>, ObjectId)> {
    let clone = dsl.find(name)?;
    let origin = clone.dir.phys.lock().origin_obj;
    if !origin.is_some() || dsl.tree.read().is_own_origin(origin) {
        return Err(PoolError::invalid("not a cloned filesystem"));
    }
    if clone.phys.lock().flags & dataset_flags::NOPROMOTE != 0 {
        return Err(PoolError::invalid("something is being received into it"));
    }
    let place = SnapshotBonus::load(&dsl.mos, origin).await?.phys.dir_obj;
    let old = dsl.tree.read().dataset_in(place).map(|(_, dataset)| dataset);
    let old = old.ok_or_else(|| ZioError::corrupt("snapshot", format!("object {origin}: it is nobody's")))?;
    if old.object == clone.object {
        return Err(ZioError::corrupt("snapshot", format!("object {origin}: it is its own clone's")).into());
    }
    for dir in [&clone.dir, &old.dir] {
        if encryption::of(&dsl.mos, dir).await?.is_some() {
            return Err(PoolError::Unsupported("it is encrypted, and this version does not encrypt yet".into()));
        }
    }
    Ok((clone, old, origin))
}

/// Whether the clone called `name` can be promoted.
async fn plan(dsl: &DslPool, name: &str) -> Result<Plan> {
    let (clone, old, origin) = pair(dsl, name).await?;
    let root = old.dir.phys.lock().origin_obj;
    let shared = chain(dsl, origin, root).await?;
    let own = chain(dsl, clone.object, origin).await?;
    let others = chain(dsl, old.object, origin).await?;
    let (Some(first), Some(tail)) = (shared.first(), own.last()) else {
        return Err(ZioError::corrupt("snapshot", format!("object {origin}: its chain is empty")).into());
    };
    let moving = names(dsl, (name, &clone), &old, &shared).await?;

    // What was born along the chain: what the last one references and all that died before.
    let mut space = referenced(&first.phys);
    for link in &shared {
        let list = link.phys.deadlist_obj;
        space += deadlist_merge::space_between(&dsl.mos, &dsl.store, list, Txg(0), ALL).await?;
    }
    let mut root_txg = Txg(0);
    if root.is_some() {
        let before = SnapshotBonus::load(&dsl.mos, root).await?.phys;
        space -= referenced(&before);
        root_txg = before.creation_txg;
    }
    let bytes = u64::try_from(space.used).unwrap_or(0);
    check_room(dsl, &old.dir, &clone.dir, bytes, moving.len() as u64)?;

    let has_breakdown = |dataset: &Dataset| dataset.dir.phys.lock().flags & DD_FLAG_USED_BREAKDOWN != 0;
    let mut by_snapshots = (0, 0);
    if has_breakdown(&clone) {
        by_snapshots.0 = on_deadlists(dsl, &shared, root_txg).await? + on_deadlists(dsl, &own, root_txg).await?;
    }
    if has_breakdown(&old) {
        by_snapshots.1 = on_deadlists(dsl, &others, first.phys.creation_txg).await?;
    }
    let list = tail.phys.deadlist_obj;
    let alone = deadlist_merge::space_between(&dsl.mos, &dsl.store, list, first.phys.prev_snap_txg, ALL).await?;
    let unique = u64::try_from(alone.used).unwrap_or(0);
    let tail = tail.object;
    let plan = Plan { clone, old, moving, tail, root, space, by_snapshots, unique };
    check_found(dsl, &plan).await?;
    Ok(plan)
}

/// Whether all that [`promote`] changes can be found, so that damage is known of before anything changes.
async fn check_found(dsl: &DslPool, plan: &Plan) -> Result<()> {
    for moving in &plan.moving {
        let phys = SnapshotBonus::load(&dsl.mos, moving.object).await?.phys;
        if phys.dir_obj != plan.old.dir.object {
            return Err(ZioError::corrupt("snapshot", format!("object {}: it is another's", moving.object)).into());
        }
        clones_of(dsl, &phys).await?;
    }
    let objects: Vec<ObjectId> = [&plan.clone, &plan.old]
        .into_iter()
        .flat_map(|dataset| [dataset.phys.lock().snapnames_zapobj, dataset.dir.phys.lock().clones])
        .filter(|object| object.is_some())
        .collect();
    for object in objects {
        dsl.mos.dnode(object).await?;
    }
    let list = plan.clone.phys.lock().deadlist_obj;
    deadlist::space_used(&dsl.mos, list).await?;
    Ok(())
}

/// What comes after a snapshot beside the next one, each with the head of its data set.
async fn clones_of(dsl: &DslPool, phys: &DslDatasetPhys) -> platter_dmu::Result<Vec<(ObjectId, ObjectId)>> {
    let mut found = Vec::new();
    if !phys.next_clones_obj.is_some() {
        return Ok(found);
    }
    for (_, next) in Zap::open(&dsl.mos, phys.next_clones_obj).await?.ints().await? {
        let place = SnapshotBonus::load(&dsl.mos, ObjectId(next)).await?.phys.dir_obj;
        let Some((_, head)) = dsl.tree.read().dataset_in(place) else {
            return Err(ZioError::corrupt("snapshot", format!("object {next}: it is nobody's")));
        };
        found.push((ObjectId(next), head.object));
    }
    Ok(found)
}

/// Promotes the clone called `name`. Within a task.
async fn promote(dsl: &Arc<DslPool>, tx: &Tx, name: &str, plan: Plan) -> Result<()> {
    for dataset in [&plan.clone, &plan.old] {
        livelist::give_up(dsl, tx, dataset).await?;
    }
    turn_origin(dsl, tx, &plan).await?;
    move_snapshots(dsl, tx, &plan).await?;
    move_space(dsl, tx, &plan).await?;
    Ok(history::append_event(dsl, tx, "promote", &format!("{name} ({})", plan.clone.object)).await?)
}

/// What came after the origin becomes its clone, and the clone comes after it.
async fn turn_origin(dsl: &Arc<DslPool>, tx: &Tx, plan: &Plan) -> platter_dmu::Result<()> {
    let (clone, old) = (&plan.clone, &plan.old);
    let mut origin = SnapshotBonus::load(&dsl.mos, plan.moving[0].object).await?;
    let was_next = origin.phys.next_snap_obj;
    origin.phys.next_snap_obj = plan.tail;
    origin.phys.unique_bytes = plan.unique;
    if origin.phys.next_clones_obj.is_some() {
        let clones = Zap::open(&dsl.mos, origin.phys.next_clones_obj).await?;
        clones.remove_int(tx, plan.tail.0).await?;
        clones.add_int(tx, was_next.0).await?;
    }
    origin.store(tx)?;
    clone.dir.phys.lock().origin_obj = plan.root;
    old.dir.phys.lock().origin_obj = plan.moving[0].object;
    clone.dir.store(&dsl.mos, tx).await?;
    old.dir.store(&dsl.mos, tx).await?;
    if !dsl.version().has_deadlists() {
        return Ok(());
    }

    let os = &dsl.mos;
    origin::remove_clone(os, tx, (old.dir.object, Some(&old.dir)), clone.object).await?;
    if plan.root.is_some() {
        let above = SnapshotBonus::load(os, plan.root).await?.phys.dir_obj;
        let dir = match dsl.tree.read().is_own_origin(plan.root) {
            true => None,
            false => dsl.tree.read().dataset_in(above).map(|(_, dataset)| dataset.dir.clone()),
        };
        origin::remove_clone(os, tx, (above, dir.as_ref()), old.object).await?;
        origin::add_clone(os, tx, (above, dir.as_ref()), clone.object, dsl.random()).await?;
    }
    origin::add_clone(os, tx, (clone.dir.object, Some(&clone.dir)), old.object, dsl.random()).await
}

/// The shared snapshots become the clone's, with their names and clones.
async fn move_snapshots(dsl: &Arc<DslPool>, tx: &Tx, plan: &Plan) -> platter_dmu::Result<()> {
    let (clone, old) = (&plan.clone, &plan.old);
    let names = |dataset: &Dataset| dataset.phys.lock().snapnames_zapobj;
    let (from, to) = (Zap::open(&dsl.mos, names(old)).await?, Zap::open(&dsl.mos, names(clone)).await?);
    for moving in &plan.moving {
        from.remove(tx, moving.name.as_bytes()).await?;
        to.add(tx, moving.name.as_bytes(), &ZapValue::from_u64(moving.object.0)).await?;
        let mut bonus = SnapshotBonus::load(&dsl.mos, moving.object).await?;
        bonus.phys.dir_obj = clone.dir.object;
        bonus.store(tx)?;
        for (_, head) in clones_of(dsl, &bonus.phys).await? {
            // The old head is where it belongs already.
            if head != old.object && dsl.version().has_deadlists() {
                origin::remove_clone(&dsl.mos, tx, (old.dir.object, Some(&old.dir)), head).await?;
                let place = (clone.dir.object, Some(&clone.dir));
                origin::add_clone(&dsl.mos, tx, place, head, dsl.random()).await?;
            }
        }
    }
    if let Some(origin) = plan.moving.first() {
        let origin = SnapshotBonus::load(&dsl.mos, origin.object).await?.phys;
        bookmarks::move_older(dsl, tx, old, clone, origin.creation_txg).await?;
        bookmark_space::next_changed(dsl, tx, clone, &origin).await?;
    }
    snapshots_changed::note(dsl, tx, &old.dir).await?;
    let count = i64::try_from(plan.moving.len()).unwrap_or(i64::MAX);
    limits::adjust(dsl, tx, &old.dir, 0, -count).await?;
    limits::adjust(dsl, tx, &clone.dir, 0, count).await
}

/// Books what moves on the other directory.
async fn move_space(dsl: &Arc<DslPool>, tx: &Tx, plan: &Plan) -> platter_dmu::Result<()> {
    let by_snapshots = |dir: &Arc<Dir>, after: u64| {
        let before = dir.phys.lock().used_breakdown.snapshots;
        difference(after, before)
    };
    let used = |used: i64| SpaceChange { used, ..SpaceChange::default() };
    for (dir, after, space) in
        [(&plan.clone.dir, plan.by_snapshots.0, plan.space), (&plan.old.dir, plan.by_snapshots.1, -plan.space)]
    {
        let delta = by_snapshots(dir, after);
        let mut changed = dir.diduse(UsedKind::Snapshots, used(delta));
        let rest = SpaceChange { used: space.used.saturating_sub(delta), ..space };
        changed.extend(dir.diduse(UsedKind::Head, rest));
        for dir in changed {
            dir.store(&dsl.mos, tx).await?;
        }
    }
    Ok(())
}

impl DslPool {
    /// Whether a clone could be promoted.
    ///
    /// # Errors
    /// As [`promote_dataset`](Self::promote_dataset).
    pub async fn check_promote(&self, name: &str) -> Result<()> {
        plan(self, name).await.map(drop)
    }

    /// `zfs promote` of the clone called `name`.
    ///
    /// # Errors
    /// It does not exist, or is no clone; it has snapshots of the same names; no space, a limit is reached; the pool is
    /// read-only or stopped; damage.
    pub async fn promote_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let (wanted, name) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| {
            space::check_task(&dsl)?;
            plan(&dsl, &wanted).await
        };
        self.checked_task(check, async move |dsl: Arc<Self>, tx: Tx, plan: Plan| promote(&dsl, &tx, &name, plan).await)
            .await
    }
}
