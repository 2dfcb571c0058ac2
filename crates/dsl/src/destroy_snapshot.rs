//! Destroying snapshots (`dsl_destroy_snapshot_check_impl`, `dsl_destroy_snapshot_sync_impl`,
//! `module/zfs/dsl_destroy.c`).
//!
//! ```text
//!       previous ──── doomed ──── next ──── after next
//!                  (deadlist)  (deadlist)  (deadlist)
//! ```
//! What only the doomed one has was born after the previous one and died before the next one: it is on the next one's
//! deadlist, in the entries from the doomed one's `prev_snap_txg` on. That is freed, in the background; what is left of
//! the two deadlists becomes the next one's.
//!
//! Invariants:
//! - what is freed is on no other snapshot's deadlist, and is booked on `$FREE` in the group in which it leaves its
//!   directory;
//! - each neighbour's `unique_bytes` grows by exactly what only it shared with the doomed one;
//! - no deadlist keeps an entry that begins where no snapshot is, and no bookmark that follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx, ZioError};
use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, ObjectType};
use platter_zio::BlockStore;

use crate::accounting;
use crate::dataset::Dataset;
use crate::named_snapshot::NamedSnapshot;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::used_space::{SpaceChange, UsedKind, difference};
use crate::zapify::EXTENSIBLE_DATASET;
use crate::{
    bookmark_space, clone_keys, deadlist, deadlist_merge, empty_bpobj, freeing, history, limits, snapshots_changed,
};

/// What comes after a snapshot.
enum Next {
    Snapshot(Box<SnapshotBonus>),
    Head(Arc<Dataset>),
}

impl Next {
    async fn find(dsl: &DslPool, object: ObjectId) -> Result<Self> {
        let head = dsl.tree.read().datasets.values().find(|dataset| dataset.object == object).cloned();
        match head {
            Some(head) => Ok(Self::Head(head)),
            None => Ok(Self::Snapshot(Box::new(SnapshotBonus::load(&dsl.mos, object).await?))),
        }
    }

    fn phys(&self) -> DslDatasetPhys {
        match self {
            Self::Snapshot(bonus) => bonus.phys.clone(),
            Self::Head(head) => head.phys.lock().clone(),
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut DslDatasetPhys)) {
        match self {
            Self::Snapshot(bonus) => change(&mut bonus.phys),
            Self::Head(head) => change(&mut head.phys.lock()),
        }
    }

    async fn store(&self, dsl: &DslPool, tx: &Tx) -> Result<()> {
        match self {
            Self::Snapshot(bonus) => bonus.store(tx),
            Self::Head(head) => head.store(&dsl.mos, tx).await,
        }
    }
}

/// Whether all that [`destroy`] changes can be found, so that damage is known of before anything changes.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn check(dsl: &DslPool, doomed: &NamedSnapshot) -> Result<()> {
    let damaged = |what: &str| ZioError::corrupt("snapshot", format!("object {}: {what}", doomed.object));
    let phys = SnapshotBonus::load(&dsl.mos, doomed.object).await?.phys;
    let next = Next::find(dsl, phys.next_snap_obj).await?.phys();
    if next.prev_snap_obj != doomed.object {
        return Err(damaged("what comes after it does not come after it"));
    }
    let mut lists = vec![phys.deadlist_obj, next.deadlist_obj];
    if next.next_snap_obj.is_some() {
        lists.push(Next::find(dsl, next.next_snap_obj).await?.phys().deadlist_obj);
    }
    if phys.prev_snap_obj.is_some() {
        SnapshotBonus::load(&dsl.mos, phys.prev_snap_obj).await?;
    }
    let distinct: BTreeSet<ObjectId> = lists.iter().copied().collect();
    if distinct.len() != lists.len() {
        return Err(damaged("it shares its deadlist with another"));
    }
    for list in lists {
        deadlist::space_used(&dsl.mos, list).await?;
        // Most entries name the same list, the empty one.
        let named: BTreeSet<ObjectId> =
            deadlist::keys(&dsl.mos, list).await?.into_iter().map(|(_, object)| object).collect();
        for object in named {
            Bpobj::open(&dsl.mos, object).await?.totals().await?;
        }
    }
    for object in [phys.next_clones_obj, phys.props_obj, phys.userrefs_obj].into_iter().filter(|o| o.is_some()) {
        dsl.mos.dnode(object).await?;
    }
    Ok(())
}

/// Destroys a snapshot that has no clone and is held by nobody. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn destroy(dsl: &Arc<DslPool>, tx: &Tx, doomed: &NamedSnapshot) -> Result<()> {
    let object = doomed.object;
    let bonus = SnapshotBonus::load(&dsl.mos, object).await?;
    let phys = bonus.phys.clone();
    assert!(phys.num_children <= 1, "clones of a snapshot need it");
    history::append_event(dsl, tx, "destroy", &format!("{} ({object})", doomed.full_name)).await?;
    take_back_features(dsl, tx, object).await?;

    let mut previous = match phys.prev_snap_obj.is_some() {
        true => Some(SnapshotBonus::load(&dsl.mos, phys.prev_snap_obj).await?),
        false => None,
    };
    if let Some(previous) = &mut previous {
        unlink_before(dsl, tx, previous, object, phys.next_snap_obj).await?;
    }
    // Of a clone's first one, the snapshot before it has another next one, whose deadlist decides what only it has.
    let before = previous.filter(|previous| previous.phys.next_snap_obj == phys.next_snap_obj);
    let mut next = Next::find(dsl, phys.next_snap_obj).await?;
    let unique_before = next.phys().unique_bytes;
    next.change(|next| {
        next.prev_snap_obj = phys.prev_snap_obj;
        next.prev_snap_txg = phys.prev_snap_txg;
    });
    let is_marked = bookmark_space::outlive(dsl, tx, &doomed.head, &phys, next.phys().deadlist_obj).await?;
    merge_deadlists(dsl, tx, doomed, &phys, before, &mut next).await?;
    if !is_marked {
        clone_keys::remove(dsl, tx, phys.dir_obj, phys.creation_txg).await?;
    }
    match &next {
        Next::Snapshot(_) => {
            let space = shared_with_next(dsl, &phys, &next.phys()).await?;
            next.change(|next| next.unique_bytes = next.unique_bytes.saturating_add_signed(space.used));
            if !is_marked {
                let list = doomed.head.phys.lock().deadlist_obj;
                deadlist_merge::remove_key(&dsl.access(), tx, list, phys.creation_txg).await?;
            }
        }
        Next::Head(head) => {
            head.book_by_history();
            recount_head(dsl, tx, head, unique_before).await?;
        }
    }
    next.store(dsl, tx).await?;
    remove(dsl, tx, doomed, &phys).await
}

/// Takes it out of its data set's names, and its objects out of the MOS.
async fn remove(dsl: &Arc<DslPool>, tx: &Tx, doomed: &NamedSnapshot, phys: &DslDatasetPhys) -> Result<()> {
    let names = doomed.head.phys.lock().snapnames_zapobj;
    Zap::open(&dsl.mos, names).await?.remove(tx, doomed.name.as_bytes()).await?;
    limits::adjust(dsl, tx, &doomed.head.dir, 0, -1).await?;
    snapshots_changed::note(dsl, tx, &doomed.head.dir).await?;
    for object in [phys.next_clones_obj, phys.props_obj, phys.userrefs_obj, doomed.object] {
        if object.is_some() {
            dsl.mos.free_object(tx, object).await?;
        }
    }
    dsl.tree.write().snapshots.retain(|snapshot| snapshot.object != doomed.object);
    if let Some(listener) = dsl.listener() {
        listener.destroyed(doomed.object);
    }
    Ok(())
}

/// What its object set needed of the pool, it needs no more.
async fn take_back_features(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId) -> Result<()> {
    let dnode = dsl.mos.dnode(object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(());
    }
    for entry in Zap::from_dnode(dnode).all().await? {
        let feature = Feature::by_guid(&String::from_utf8_lossy(&entry.name));
        if let Some(feature) = feature.filter(|feature| feature.info().per_dataset) {
            dsl.features.adjust(tx, feature, -1).await?;
        }
    }
    dsl.features.adjust(tx, EXTENSIBLE_DATASET, -1).await?;
    dsl.dirty_config();
    Ok(())
}

/// Lets what comes after `object` come after the snapshot before it.
async fn unlink_before(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    previous: &mut SnapshotBonus,
    object: ObjectId,
    next: ObjectId,
) -> Result<()> {
    if previous.phys.next_snap_obj == object {
        previous.phys.next_snap_obj = next;
        return previous.store(tx);
    }
    if previous.phys.next_clones_obj.is_some() {
        let clones = Zap::open(&dsl.mos, previous.phys.next_clones_obj).await?;
        clones.remove_int(tx, object.0).await?;
        clones.add_int(tx, next.0).await?;
    }
    Ok(())
}

/// Frees what only the doomed snapshot had, and joins what is left of its deadlist and the next one's. `before` is the
/// snapshot before it, when the doomed one was the next to that.
async fn merge_deadlists(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    doomed: &NamedSnapshot,
    phys: &DslDatasetPhys,
    before: Option<SnapshotBonus>,
    next: &mut Next,
) -> Result<()> {
    let list = next.phys().deadlist_obj;
    let mos = dsl.access();
    if deadlist::is_plain(&dsl.mos, list).await? {
        return free_plain(dsl, tx, doomed, phys, before, next).await;
    }
    if let Some(mut before) = before {
        let (after, until) = (before.phys.prev_snap_txg, phys.prev_snap_txg);
        let more = deadlist_merge::space_between(&dsl.mos, &dsl.store, list, after, until).await?;
        before.phys.unique_bytes = before.phys.unique_bytes.saturating_add_signed(more.used);
        before.store(tx)?;
    }
    let frees = freeing::list(dsl).await?;
    let gone = deadlist_merge::move_newer(&mos, tx, list, phys.prev_snap_txg, frees).await?;
    book_gone(dsl, tx, doomed, gone).await?;
    freeing::list_grew(dsl, tx, frees, gone).await?;
    deadlist_merge::merge(&mos, tx, &dsl.store, list, phys.deadlist_obj).await
}

/// As [`merge_deadlists`], where deadlists are plain lists (`process_old_deadlist`): what is freed is freed in this
/// group, and the rest goes to the doomed one's list, which the next one gets.
async fn free_plain(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    doomed: &NamedSnapshot,
    phys: &DslDatasetPhys,
    mut before: Option<SnapshotBonus>,
    next: &mut Next,
) -> Result<()> {
    let (list, own) = (next.phys().deadlist_obj, phys.deadlist_obj);
    let (mut kept, mut gone, mut more) = (Vec::new(), SpaceChange::default(), 0u64);
    let oldest = before.as_ref().map(|before| before.phys.prev_snap_txg);
    for bp in Bpobj::open(&dsl.mos, list).await?.pointers().await? {
        let space = accounting::space(dsl.store.dsize(&bp), &bp);
        if bp.birth() > phys.prev_snap_txg {
            gone += space;
            dsl.store.free(tx.txg(), &bp);
        } else {
            if oldest.is_some_and(|oldest| bp.birth() > oldest) {
                more = more.saturating_add_signed(space.used);
            }
            kept.push(bp);
        }
    }
    let mos = dsl.access();
    let replaced = deadlist::insert(&dsl.mos, tx, &dsl.store, own, &kept, empty_bpobj::known(&mos)).await?;
    empty_bpobj::give_back(&mos, tx, replaced).await?;
    if let Some(before) = &mut before {
        before.phys.unique_bytes = before.phys.unique_bytes.saturating_add(more);
        before.store(tx)?;
    }
    book_gone(dsl, tx, doomed, gone).await?;
    next.change(|next| next.deadlist_obj = own);
    Bpobj::free(&dsl.mos, tx, list).await
}

/// Takes what was the snapshots' off their directory.
async fn book_gone(dsl: &Arc<DslPool>, tx: &Tx, doomed: &NamedSnapshot, gone: SpaceChange) -> Result<()> {
    for dir in doomed.head.dir.diduse(UsedKind::Snapshots, -gone) {
        dir.store(&dsl.mos, tx).await?;
    }
    Ok(())
}

/// What was shared by the doomed snapshot and the next one alone: it was born between the one before and the doomed
/// one, and died before the one after the next.
async fn shared_with_next(dsl: &DslPool, doomed: &DslDatasetPhys, next: &DslDatasetPhys) -> Result<SpaceChange> {
    let list = Next::find(dsl, next.next_snap_obj).await?.phys().deadlist_obj;
    let (after, until) = (doomed.prev_snap_txg, doomed.creation_txg);
    deadlist_merge::space_between(&dsl.mos, &dsl.store, list, after, until).await
}

/// What the head has alone, anew (`dsl_dataset_recalc_head_uniq`); what it gained, its `refreservation` keeps free no
/// more.
async fn recount_head(dsl: &Arc<DslPool>, tx: &Tx, head: &Arc<Dataset>, before: u64) -> Result<()> {
    let unique = head.written(&dsl.mos).await?;
    {
        let mut phys = head.phys.lock();
        phys.unique_bytes = unique;
        phys.flags |= dataset_flags::UNIQUE_ACCURATE;
    }
    let reserved = head.dir.local_number("refreservation");
    if before >= reserved || unique <= before {
        return Ok(());
    }
    let gained = (unique - before).min(reserved - before);
    let change = SpaceChange { used: difference(0, gained), ..SpaceChange::default() };
    for dir in head.dir.diduse(UsedKind::Refreservation, change) {
        dir.store(&dsl.mos, tx).await?;
    }
    Ok(())
}
