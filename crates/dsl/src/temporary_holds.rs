//! Snapshots that are there only as long as somebody works with them (`dsl_dataset_snapshot_tmp`,
//! `module/zfs/dsl_dataset.c`), and the holds that keep them (`dsl_pool_clean_tmp_userrefs`,
//! `module/zfs/dsl_pool.c`).
//!
//! The pool has a map of such holds ([`crate::temporary_map`]). Whoever imports the pool next takes them all away:
//! those who set them are gone.
//!
//! Invariant: such a snapshot is taken, held and marked to go with its last hold in one group, so that it never stays,
//! whenever the power fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::{Guid, ObjectId, ObjectType, Txg};
use platter_zio::ZioError;

use crate::error::{PoolError, Result};
use crate::holds::{self, Lifetime};
use crate::named_snapshot::{NamedSnapshot, by_object};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::take_snapshot::{self, Counting, Refusals, Site, Verdict};
use crate::temporary_map::{forget, map, note, parsed};
use crate::{destroy_snapshot, destroy_snapshots};

/// A snapshot that was taken to be dropped.
#[derive(Clone, Debug)]
pub struct TemporarySnapshot {
    object: ObjectId,
    /// Tells it from another that has the number by now; of an entry nobody knows it.
    guid: Option<Guid>,
    tag: String,
}

/// Takes one, which nobody else sees before it is held and marked. Within a task.
async fn take(dsl: &Arc<DslPool>, tx: &Tx, sites: &[Site], tag: &str) -> Result<TemporarySnapshot> {
    take_snapshot::take(dsl, tx, sites, &BTreeMap::new()).await?;
    let object = sites[0].head().phys.lock().prev_snap_obj;
    let guid = SnapshotBonus::load(&dsl.mos, object).await?.phys.guid;
    let made = TemporarySnapshot { object, guid: Some(guid), tag: tag.to_owned() };
    if !dsl.version().has_holds() {
        return Ok(made);
    }
    let snapshot = by_object(dsl, object).await?.ok_or_else(|| PoolError::invalid("the new snapshot has no name"))?;
    let held = [holds::Held { snapshot, before: 0 }];
    holds::hold(dsl, tx, tag, &held, Lifetime::Temporary).await?;
    note(dsl, tx, object, tag).await?;
    destroy_snapshots::defer(dsl, tx, &held[0].snapshot).await?;
    Ok(made)
}

/// What is to be dropped.
enum Dropped {
    /// A hold, and the snapshot with it when nothing else keeps it.
    Hold(holds::Held),
    /// A snapshot of an old pool, which has no holds.
    Snapshot(NamedSnapshot),
    /// Only the entry: what it held is gone.
    Entry,
    /// Nothing: the number is another snapshot's by now.
    Nothing,
}

async fn find(dsl: &DslPool, held: &TemporarySnapshot) -> Result<Dropped> {
    // The number may be nobody's by now, or another's. What cannot be read is still there.
    let is_dataset = match dsl.mos.dnode(held.object).await {
        Ok(dnode) => dnode.info().bonus_type == ObjectType::DSL_DATASET,
        Err(ZioError::NotFound(_)) => false,
        Err(error) => return Err(error.into()),
    };
    let found = if is_dataset { by_object(dsl, held.object).await? } else { None };
    let Some(snapshot) = found else { return Ok(Dropped::Entry) };
    let phys = SnapshotBonus::load(&dsl.mos, snapshot.object).await?.phys;
    if held.guid.is_some_and(|guid| guid != phys.guid) {
        return Ok(Dropped::Nothing);
    }
    let tags = holds::tags(&dsl.mos, phys.userrefs_obj).await?;
    if tags.contains_key(&held.tag) {
        let one = holds::Held { snapshot, before: tags.len() as u64 };
        holds::check_release(dsl, &one).await?;
        return Ok(Dropped::Hold(one));
    }
    if dsl.version().has_holds() || held.guid.is_none() {
        return Ok(Dropped::Entry);
    }
    if dsl.in_use.has(snapshot.object) || phys.num_children > 1 {
        return Err(PoolError::Busy("dataset is busy".into()));
    }
    destroy_snapshot::check(dsl, &snapshot).await?;
    Ok(Dropped::Snapshot(snapshot))
}

impl DslPool {
    /// Takes a snapshot that goes when it is dropped, or when the pool is imported next. No limit counts against it.
    /// Of a pool that is too old for holds it stays after a crash.
    ///
    /// # Errors
    /// What stands against it; the pool is read-only or stopped; damage.
    pub async fn take_temporary_snapshot(self: &Arc<Self>, full_name: &str, tag: &str) -> Result<TemporarySnapshot> {
        let names = [full_name.to_owned()];
        let _ended = take_snapshot::EndedLogs::of(self, &names).await?;
        loop {
            let (names, tag) = (names.clone(), tag.to_owned());
            let check =
                async move |dsl: Arc<Self>, txg: Txg| take_snapshot::check(&dsl, &names, txg, Counting::Exempt).await;
            let make = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<Site>>| match verdict {
                Verdict::Fine(sites) => take(&dsl, &tx, &sites, &tag).await.map(|made| Some(Ok(made))),
                Verdict::Refused(refusals) => Ok(Some(Err(refusals))),
                Verdict::Later => Ok(None),
            };
            match self.checked_task_in_group(check, make).await? {
                Some(Ok(made)) => return Ok(made),
                Some(Err(refusals)) => return Err(first_of(refusals)),
                None => {}
            }
        }
    }

    /// What it is called by now, as far as it is there.
    pub async fn name_of_temporary_snapshot(&self, held: &TemporarySnapshot) -> Option<String> {
        let guid = SnapshotBonus::load(&self.mos, held.object).await.ok()?.phys.guid;
        let found = by_object(self, held.object).await.ok().flatten().filter(|_| held.guid == Some(guid));
        found.map(|snapshot| snapshot.full_name)
    }

    /// Takes the hold away; the snapshot goes, unless something else keeps it by now.
    ///
    /// # Errors
    /// [`PoolError::Busy`]: somebody reads it, and it is to be tried again. It cannot be destroyed; the pool is
    /// read-only or stopped; damage.
    pub async fn drop_temporary_snapshot(self: &Arc<Self>, held: &TemporarySnapshot) -> Result<()> {
        let (held, wanted) = (held.clone(), held.clone());
        let check = async move |dsl: Arc<Self>| find(&dsl, &wanted).await;
        let change = async move |dsl: Arc<Self>, tx: Tx, dropped: Dropped| match dropped {
            Dropped::Hold(one) => holds::release(&dsl, &tx, &held.tag, &[one]).await,
            Dropped::Snapshot(doomed) => Ok(destroy_snapshot::destroy(&dsl, &tx, &doomed).await?),
            Dropped::Entry => forget(&dsl, &tx, held.object, &held.tag).await,
            Dropped::Nothing => Ok(()),
        };
        self.checked_task(check, change).await
    }

    /// Takes away the holds of those who are gone, after an import.
    ///
    /// # Errors
    /// The map cannot be read. That one cannot be taken away is only noted: the next import tries it again.
    pub async fn drop_temporary_holds(self: &Arc<Self>) -> Result<()> {
        let Some(map) = map(self).await? else { return Ok(()) };
        for entry in map.all().await? {
            let Some((object, tag)) = parsed(&entry.name) else { continue };
            if let Err(error) = self.drop_temporary_snapshot(&TemporarySnapshot { object, guid: None, tag }).await {
                tracing::warn!(pool = self.name(), %object, %error, "a hold of somebody who is gone stays");
            }
        }
        Ok(())
    }
}

fn first_of(refusals: Refusals) -> PoolError {
    let first = refusals.into_iter().next().map(|(_, reason)| reason);
    first.unwrap_or_else(|| PoolError::invalid("it was refused"))
}
