//! `zfs rename` of a snapshot, with `-r` of those of that name below too (`dsl_dataset_rename_snapshot`,
//! `module/zfs/dsl_dataset.c`): all of them or none.

use std::sync::Arc;

use platter_api::names::{NAME_MAX, check_snapshot};
use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::history;
use crate::named_snapshot::{NamedSnapshot, find};
use crate::pool::DslPool;
use crate::take_snapshot::{Refusals, Verdict};

/// The data set called `name`, with `recursive` also those below, each with its name.
fn heads(dsl: &DslPool, name: &str, recursive: bool) -> Vec<(String, Arc<Dataset>)> {
    let below = format!("{name}/");
    let tree = dsl.tree.read();
    let among = |other: &str| other == name || recursive && other.starts_with(&below);
    tree.datasets.iter().filter(|(other, _)| among(other)).map(|(name, head)| (name.clone(), head.clone())).collect()
}

/// Which snapshots get the new name.
async fn check(
    dsl: &DslPool,
    dataset: &str,
    old: &str,
    new: &str,
    recursive: bool,
) -> Result<Verdict<Vec<NamedSnapshot>>> {
    dsl.find(dataset)?;
    let (mut renamed, mut refusals) = (Vec::new(), Refusals::new());
    for (name, head) in heads(dsl, dataset, recursive) {
        let Some(snapshot) = find(dsl, &format!("{name}@{old}")).await? else { continue };
        let refuse = |reason| (format!("{name}@{old}"), reason);
        if name.len() + 1 + new.len() > NAME_MAX {
            refusals.push(refuse(PoolError::invalid("dataset name is too long")));
        } else if head.snapshot(&dsl.mos, new).await?.is_some_and(|other| other.snapshot().object != snapshot.object) {
            let reason = match recursive {
                true => "a child dataset already has a snapshot with the new name",
                false => "dataset already exists",
            };
            refusals.push(refuse(PoolError::Exists(reason.into())));
        } else {
            renamed.push(snapshot);
        }
    }
    if renamed.is_empty() && refusals.is_empty() {
        return Err(PoolError::NotFound("dataset does not exist".into()));
    }
    Ok(if refusals.is_empty() { Verdict::Fine(renamed) } else { Verdict::Refused(refusals) })
}

/// Gives each of these its new name. Within a task.
async fn rename(dsl: &Arc<DslPool>, tx: &Tx, snapshots: &[NamedSnapshot], new: &str) -> Result<()> {
    for snapshot in snapshots {
        let text = format!("{} ({}) -> @{new}", snapshot.full_name, snapshot.object);
        history::append_event(dsl, tx, "rename", &text).await?;
        let names = snapshot.head.phys.lock().snapnames_zapobj;
        let zap = Zap::open(&dsl.mos, names).await?;
        zap.remove(tx, snapshot.name.as_bytes()).await?;
        zap.add(tx, new.as_bytes(), &ZapValue::from_u64(snapshot.object.0)).await?;
    }
    Ok(())
}

impl DslPool {
    /// `zfs rename` of snapshot `old` of a data set to `new`, both without the data set's name; with `recursive` also
    /// of all below that have one of that name. Returned are the names that stand in the way, with the reasons.
    ///
    /// # Errors
    /// It does not exist; a bad name; the pool is read-only or stopped; damage.
    pub async fn rename_snapshots(
        self: &Arc<Self>,
        dataset: &str,
        old: &str,
        new: &str,
        recursive: bool,
    ) -> Result<Refusals> {
        check_snapshot(&format!("{dataset}@{new}"))?;
        let (dataset, old, wanted, new) = (dataset.to_owned(), old.to_owned(), new.to_owned(), new.to_owned());
        let check = async move |dsl: Arc<Self>| check(&dsl, &dataset, &old, &wanted, recursive).await;
        let change = async move |dsl: Arc<Self>, tx: Tx, verdict: Verdict<Vec<NamedSnapshot>>| match verdict {
            Verdict::Fine(snapshots) => rename(&dsl, &tx, &snapshots, &new).await.map(|()| Refusals::new()),
            Verdict::Refused(refusals) => Ok(refusals),
            Verdict::Later => Ok(Refusals::new()),
        };
        self.checked_task(check, change).await
    }
}
