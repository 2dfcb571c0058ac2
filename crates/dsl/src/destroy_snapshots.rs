//! `zfs destroy` of snapshots: those that are there, all or none (`dsl_destroy_snapshots_nvl`,
//! `module/zfs/dsl_destroy.c`), and what that would free (`dsl_dataset_space_wouldfree`, `module/zfs/dsl_dataset.c`).
//!
//! Invariants:
//! - whether they can be destroyed is asked of all before one is; then they go in parts, so that no group has to take
//!   all of ten thousand;
//! - what has clones or is held stays, or with `defer` is marked to go with the last of those.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::{ObjectId, Txg};

use crate::destroy_snapshot;
use crate::error::{PoolError, Result};
use crate::named_snapshot::{NamedSnapshot, find, in_order};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::take_snapshot::{Refusals, Verdict};
use crate::{deadlist_merge, history, holds};

/// How many are destroyed in one group.
const PART: usize = 64;

/// What becomes of a snapshot.
enum Fate {
    Destroyed(NamedSnapshot),
    /// Marked.
    Deferred(NamedSnapshot),
}

/// What becomes of a snapshot that is to be destroyed.
async fn fate(dsl: &DslPool, doomed: NamedSnapshot, defer: bool) -> Result<Fate> {
    let phys = SnapshotBonus::load(&dsl.mos, doomed.object).await?.phys;
    let held = holds::count(&dsl.mos, phys.userrefs_obj).await? > 0;
    let cloned = phys.num_children > 1;
    if dsl.in_use.has(doomed.object) {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    if defer && (held || cloned) {
        if !dsl.version().has_holds() {
            return Err(PoolError::Unsupported("pool must be upgraded".into()));
        }
        return Ok(Fate::Deferred(doomed));
    }
    if held {
        let name = &doomed.full_name;
        let reason = format!("it's being held. Run 'zfs holds -r {name}' to see holders.");
        return Err(PoolError::Busy(reason));
    }
    if cloned {
        return Err(PoolError::Busy("snapshot is cloned".into()));
    }
    destroy_snapshot::check(dsl, &doomed).await?;
    Ok(Fate::Destroyed(doomed))
}

/// What becomes of these; the ones that are not there are nobody's concern.
async fn check(dsl: &DslPool, names: &[String], defer: bool) -> Result<Verdict<Vec<Fate>>> {
    let (mut fates, mut refusals, mut seen) = (Vec::new(), Refusals::new(), BTreeSet::new());
    for full_name in names {
        let found = match find(dsl, full_name).await? {
            Some(found) if seen.insert(found.object) => found,
            _ => continue,
        };
        match fate(dsl, found, defer).await {
            Ok(fate) => fates.push(fate),
            Err(error @ PoolError::Engine(_)) => return Err(error),
            Err(error) => refusals.push((full_name.clone(), error)),
        }
    }
    Ok(if refusals.is_empty() { Verdict::Fine(fates) } else { Verdict::Refused(refusals) })
}

/// Marks a snapshot to go with its last clone and tag. Within a task.
///
/// # Errors
/// Device errors, damage.
pub(crate) async fn defer(dsl: &Arc<DslPool>, tx: &Tx, doomed: &NamedSnapshot) -> Result<()> {
    let mut bonus = SnapshotBonus::load(&dsl.mos, doomed.object).await?;
    bonus.phys.flags |= dataset_flags::DEFER_DESTROY;
    bonus.store(tx)?;
    let text = format!("{} ({})", doomed.full_name, doomed.object);
    Ok(history::append_event(dsl, tx, "defer_destroy", &text).await?)
}

/// Does it. Within a task.
async fn carry_out(dsl: &Arc<DslPool>, tx: &Tx, fates: &[Fate]) -> Result<()> {
    for fate in fates {
        match fate {
            Fate::Destroyed(doomed) => destroy_snapshot::destroy(dsl, tx, doomed).await?,
            Fate::Deferred(doomed) => defer(dsl, tx, doomed).await?,
        }
    }
    Ok(())
}

/// Bytes that would be freed if these snapshots of `head`, oldest first and one after the other, were destroyed.
async fn range_frees(dsl: &DslPool, first: &SnapshotBonus, last: &SnapshotBonus) -> Result<u64> {
    let (mut at, end, mut bytes) = (last.phys.next_snap_obj, first.snapshot().object, 0u64);
    let mut newer = Txg(u64::MAX);
    while at != end && at.is_some() {
        let head = dsl.tree.read().datasets.values().find(|dataset| dataset.object == at).cloned();
        let phys = match head {
            Some(head) => head.phys.lock().clone(),
            None => SnapshotBonus::load(&dsl.mos, at).await?.phys,
        };
        if phys.prev_snap_txg >= newer {
            return Err(platter_zio::ZioError::corrupt("snapshot", "the chain of snapshots turns back").into());
        }
        newer = phys.prev_snap_txg;
        let after = first.phys.prev_snap_txg;
        let list = phys.deadlist_obj;
        let space = deadlist_merge::space_between(&dsl.mos, &dsl.store, list, after, Txg(u64::MAX)).await?;
        bytes = bytes.saturating_add_signed(space.used);
        at = phys.prev_snap_obj;
    }
    Ok(bytes)
}

impl DslPool {
    /// `zfs destroy` of these snapshots, by full name, all or none; with `defer` those that have clones or are held
    /// are marked to go later. Returned are the names that stand in the way, with the reasons.
    ///
    /// # Errors
    /// The pool is read-only or stopped; damage.
    pub async fn destroy_snapshots(self: &Arc<Self>, names: &[String], defer: bool) -> Result<Refusals> {
        if names.len() > PART
            && let Verdict::Refused(refusals) = check(self, names, defer).await?
        {
            return Ok(refusals);
        }
        for part in names.chunks(PART) {
            assert!(part.len() <= PART, "no group has to take all");
            let part = part.to_vec();
            let check = async move |dsl: Arc<Self>| check(&dsl, &part, defer).await;
            let destroy = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<Fate>>| match verdict {
                Verdict::Fine(fates) => carry_out(&dsl, &tx, &fates).await.map(|()| Refusals::new()),
                Verdict::Refused(refusals) => Ok(refusals),
                Verdict::Later => Ok(Refusals::new()),
            };
            let refusals = self.checked_task(check, destroy).await?;
            if !refusals.is_empty() {
                return Ok(refusals);
            }
        }
        Ok(Refusals::new())
    }

    /// Bytes that destroying these snapshots would free: what several of them have together alone is counted for those
    /// that come one after the other (`destroy_print_snapshots`, `cmd/zfs/zfs_main.c`).
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn snapshots_would_free(&self, names: &[String]) -> Result<u64> {
        let mut heads: Vec<&str> = names.iter().filter_map(|name| Some(name.split_once('@')?.0)).collect();
        heads.sort_unstable();
        heads.dedup();
        let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let mut bytes = 0u64;
        for head_name in heads {
            let Ok(head) = self.find(head_name) else { continue };
            let mut range: Option<(SnapshotBonus, ObjectId)> = None;
            for (name, bonus) in in_order(self, &head).await? {
                let object = bonus.snapshot().object;
                if wanted.contains(format!("{head_name}@{name}").as_str()) {
                    range = Some(match range.take() {
                        Some((first, _)) => (first, object),
                        None => (bonus, object),
                    });
                } else if let Some((first, last)) = range.take() {
                    let last = SnapshotBonus::load(&self.mos, last).await?;
                    bytes = bytes.saturating_add(range_frees(self, &first, &last).await?);
                }
            }
            if let Some((first, last)) = range {
                let last = SnapshotBonus::load(&self.mos, last).await?;
                bytes = bytes.saturating_add(range_frees(self, &first, &last).await?);
            }
        }
        Ok(bytes)
    }
}
