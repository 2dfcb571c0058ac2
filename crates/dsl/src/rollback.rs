//! `zfs rollback` to the latest snapshot (`dsl_dataset_rollback_check`, `dsl_dataset_rollback_sync`,
//! `dsl_dataset_clone_swap_sync_impl`, `module/zfs/dsl_dataset.c`): the head gets the snapshot's root, and what was
//! born since is freed in the background. What had died since is alive again, so the deadlist is empty.
//!
//! Invariants:
//! - the head is closed, and nothing of the group was written to it;
//! - what is freed was born after the snapshot, and is booked on `$FREE` in the group in which it leaves the directory.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectType, Txg};

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::take_snapshot::must_wait;
use crate::used_space::{SpaceChange, UsedKind, difference};
use crate::{
    bookmark_space, bookmarks, deadlist, deadlist_merge, empty_bpobj, freeing, history, intent, livelist,
    named_snapshot, redacted, space, zapify,
};

/// A rollback that is possible.
struct Plan {
    head: Arc<Dataset>,
    target: SnapshotBonus,
}

/// Whether `dataset` can be rolled back to its snapshot called `name`, but for being in use.
async fn target(dsl: &DslPool, dataset: &str, name: &str) -> Result<Plan> {
    let head = dsl.find(dataset)?;
    let full_name = format!("{dataset}@{name}");
    let Some(found) = named_snapshot::find(dsl, &full_name).await? else {
        return Err(PoolError::NotFound(format!("'{full_name}' is not found among snapshots of '{dataset}'")));
    };
    let (previous, refquota) = (head.phys.lock().prev_snap_obj, head.dir.local_number("refquota"));
    if previous != found.object {
        return Err(PoolError::Exists(format!("there is a snapshot or bookmark more recent than '{full_name}'")));
    }
    let target = SnapshotBonus::load(&dsl.mos, found.object).await?;
    if refquota != 0 && target.phys.referenced_bytes > refquota {
        return Err(PoolError::invalid("out of space"));
    }
    // For a while the space of both is in use.
    let again = head.dir.local_number("refreservation").min(head.phys.lock().unique_bytes);
    if again > 0 && again > space::available_in(dsl, &head.dir) {
        return Err(PoolError::invalid("out of space"));
    }
    let list = head.phys.lock().deadlist_obj;
    deadlist::space_used(&dsl.mos, list).await?;
    Ok(Plan { head, target })
}

/// As [`target`], in group `txg`; `None` when not in this one.
async fn check(dsl: &DslPool, dataset: &str, name: &str, txg: Txg) -> Result<Option<Plan>> {
    let plan = target(dsl, dataset, name).await?;
    if plan.head.open_objset().is_some() {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    Ok((!must_wait(&plan.head, txg)).then_some(plan))
}

/// Rolls back. Within a task.
async fn rollback(dsl: &Arc<DslPool>, tx: &Tx, dataset: &str, plan: Plan) -> Result<()> {
    let Plan { head, mut target } = plan;
    assert!(!must_wait(&head, tx.txg()), "what the group wrote to the head would be left behind");
    let before = head.phys.lock().clone();
    let root = target.phys.bp;
    if !before.bp.is_hole() {
        // Of a log that a crash left: it is not part of what the root leads to.
        intent::free(dsl, tx, &head).await?;
    }
    livelist::give_up(dsl, tx, &head).await?;
    book(dsl, tx, &head, &before).await?;

    let mos = dsl.access();
    let salt = dsl.random();
    let fresh = deadlist_merge::copy_keys(&mos, tx, before.deadlist_obj, before.prev_snap_obj, salt).await?;
    // What is on the old one the snapshot has, and the head again.
    empty_bpobj::free_deadlist(&mos, tx, before.deadlist_obj).await?;
    follow_features(dsl, tx, &head, &target).await?;
    {
        let mut phys = head.phys.lock();
        phys.bp = root;
        phys.deadlist_obj = fresh;
        phys.referenced_bytes = target.phys.referenced_bytes;
        phys.compressed_bytes = target.phys.compressed_bytes;
        phys.uncompressed_bytes = target.phys.uncompressed_bytes;
        phys.unique_bytes = 0;
        phys.flags = phys.flags & !dataset_flags::INCONSISTENT | dataset_flags::UNIQUE_ACCURATE;
    }
    head.store(&dsl.mos, tx).await?;
    if target.phys.next_snap_obj == head.object {
        target.phys.unique_bytes = 0;
        target.store(tx)?;
    }
    *head.contents.lock() = Contents::Unknown;
    bookmarks::remove_newer(dsl, tx, &head, target.phys.creation_txg).await?;
    bookmark_space::next_changed(dsl, tx, &head, &target.phys).await?;
    intent::forget(dsl, tx, &head).await?;
    let text = format!("{dataset} ({})", head.object);
    Ok(history::append_event(dsl, tx, "rollback", &text).await?)
}

/// What the head has alone goes, and what its snapshots had alone it has, too, again.
async fn book(dsl: &Arc<DslPool>, tx: &Tx, head: &Arc<Dataset>, before: &DslDatasetPhys) -> platter_zio::Result<()> {
    let origin = head.dir.phys.lock().origin_obj;
    let origin_txg = match origin.is_some() {
        true => SnapshotBonus::load(&dsl.mos, origin).await?.phys.creation_txg,
        false => Txg(0),
    };
    let all = Txg(u64::MAX);
    let dead = deadlist_merge::space_between(&dsl.mos, &dsl.store, before.deadlist_obj, Txg(0), all).await?;
    let own = deadlist_merge::space_between(&dsl.mos, &dsl.store, before.deadlist_obj, origin_txg, all).await?;
    let previous = SnapshotBonus::load(&dsl.mos, before.prev_snap_obj).await?.phys;
    let gone = SpaceChange {
        used: difference(previous.referenced_bytes, before.referenced_bytes).saturating_sub(dead.used),
        compressed: difference(previous.compressed_bytes, before.compressed_bytes).saturating_sub(dead.compressed),
        uncompressed: difference(previous.uncompressed_bytes, before.uncompressed_bytes)
            .saturating_sub(dead.uncompressed),
    };
    let again = head.dir.local_number("refreservation").min(before.unique_bytes);
    let reserved = SpaceChange { used: difference(again, 0), ..SpaceChange::default() };
    let mut changed = head.dir.diduse(UsedKind::Refreservation, reserved);
    changed.extend(head.dir.diduse(UsedKind::Head, gone));
    head.dir.transfer(UsedKind::Snapshots, UsedKind::Head, u64::try_from(own.used).unwrap_or(0));
    for dir in changed {
        dir.store(&dsl.mos, tx).await?;
    }
    head.dir.store(&dsl.mos, tx).await?;
    if before.bp.is_hole() {
        return Ok(());
    }
    match dsl.features.is_enabled(freeing::FEATURE) {
        true => freeing::enqueue(dsl, tx, &before.bp, before.prev_snap_txg, gone).await,
        false => freeing::at_once(dsl, tx, &before.bp, before.prev_snap_txg).await,
    }
}

/// The head needs of the pool what its new object set does.
async fn follow_features(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    head: &Arc<Dataset>,
    target: &SnapshotBonus,
) -> platter_zio::Result<()> {
    let dnode = dsl.mos.dnode(target.snapshot().object).await?;
    let mut wanted = BTreeSet::new();
    if dnode.info().object_type == ObjectType::OTN_ZAP_METADATA {
        for entry in Zap::from_dnode(dnode).all().await? {
            let feature = Feature::by_guid(&String::from_utf8_lossy(&entry.name));
            wanted.extend(feature.filter(|feature| feature.info().per_dataset));
        }
    }
    let there = head.features.lock().clone();
    for &feature in there.difference(&wanted) {
        zapify::deactivate(dsl, tx, head, feature).await?;
    }
    for &feature in wanted.difference(&there) {
        zapify::activate(dsl, tx, head, feature).await?;
    }
    redacted::follow(dsl, tx, head, target.snapshot().object).await?;
    Ok(())
}

impl DslPool {
    /// Whether a data set could be rolled back to its snapshot called `name`, but for being in use.
    ///
    /// # Errors
    /// As [`rollback_dataset`](Self::rollback_dataset).
    pub async fn check_rollback(&self, dataset: &str, name: &str) -> Result<()> {
        target(self, dataset, name).await.map(drop)
    }

    /// `zfs rollback` of a closed data set to its snapshot called `name`, which is its latest.
    ///
    /// # Errors
    /// It does not exist; later snapshots; it is open; no space; the pool is read-only or stopped; damage.
    pub async fn rollback_dataset(self: &Arc<Self>, dataset: &str, name: &str) -> Result<()> {
        let head = self.find(dataset)?;
        let _closed = self.try_keep_closed(&head)?;
        self.close_head(&head).await?;
        loop {
            let (given, snapshot, rolled) = (dataset.to_owned(), name.to_owned(), dataset.to_owned());
            let check = async move |dsl: Arc<Self>, txg: Txg| check(&dsl, &given, &snapshot, txg).await;
            let change = async move |dsl: Arc<Self>, tx: Tx, plan: Option<Plan>| match plan {
                Some(plan) => rollback(&dsl, &tx, &rolled, plan).await.map(|()| true),
                None => Ok(false),
            };
            if self.checked_task_in_group(check, change).await? {
                break;
            }
        }
        self.close_head(&head).await
    }
}
