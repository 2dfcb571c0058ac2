//! What a stream is made of: a snapshot; a file system or volume itself, which nobody has open or opens meanwhile; or
//! what a receive that was broken off has left (`dmu_send`, `module/zfs/dmu_send.c`).

use std::sync::Arc;

use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::{Guid, ObjectId, Txg};
use tokio::sync::OwnedMutexGuard;

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::in_use::Kept;
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::resume_state::{self, RECEIVING};
use crate::snapshot::SnapshotBonus;

/// What the snapshot is called that a data set itself is received as.
const OF_HEAD: &str = "@--head--";

/// While it is there what is sent is neither destroyed nor, being a data set itself, opened or exchanged.
pub(crate) struct Held {
    _kept: Kept,
    _closed: Option<OwnedMutexGuard<usize>>,
}

/// What is sent.
pub(crate) struct Source {
    pub(crate) object: ObjectId,
    /// The head of its data set.
    pub(crate) head: Arc<Dataset>,
    /// A head's is as if it were taken later than all snapshots.
    pub(crate) phys: DslDatasetPhys,
    /// Which snapshot the stream makes, and what that is called.
    pub(crate) guid: Guid,
    pub(crate) name: String,
    pub(crate) held: Held,
}

fn missing() -> PoolError {
    PoolError::NotFound("dataset does not exist".into())
}

/// The snapshot or data set called `name`; with `saved`, what a receive has left in that data set.
///
/// # Errors
/// It does not exist, or is open; nothing was received there in part; damage.
pub(crate) async fn open(dsl: &DslPool, name: &str, saved: bool) -> Result<Source> {
    if name.contains('@') {
        let found = named_snapshot::find(dsl, name).await?.ok_or_else(missing)?;
        let held = Held { _kept: dsl.in_use.keep(found.object), _closed: None };
        let phys = SnapshotBonus::load(&dsl.mos, found.object).await?.phys;
        return Ok(Source {
            object: found.object,
            head: found.head,
            guid: phys.guid,
            phys,
            name: found.full_name,
            held,
        });
    }
    if !saved {
        let head = dsl.find(name).map_err(|_| missing())?;
        if head.phys.lock().flags & dataset_flags::INCONSISTENT != 0 {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        return of_head(dsl, head, |phys| (phys.guid, format!("{name}{OF_HEAD}"))).await;
    }
    let saved = dsl.find(&format!("{name}/{RECEIVING}")).or_else(|_| dsl.find(name)).map_err(|_| missing())?;
    let nothing = || PoolError::invalid("it has no partially received state");
    let token = resume_state::token(dsl, &saved).await?.ok_or_else(nothing)?;
    of_head(dsl, saved, |_| (token.to_guid, token.to_name.clone())).await
}

/// A data set itself. In a pool that is read-only nothing changes: who has it open does not matter.
async fn of_head(
    dsl: &DslPool,
    head: Arc<Dataset>,
    identity: impl FnOnce(&DslDatasetPhys) -> (Guid, String),
) -> Result<Source> {
    let (kept, mut closed) = (dsl.in_use.keep(head.object), None);
    if !dsl.read_only {
        closed = Some(dsl.keep_closed(&head).await?);
        // Who opens it looks whether it is kept while it holds this.
        if head.open_objset().is_some() {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        dsl.sync().await?;
    }
    let mut phys = head.phys.lock().clone();
    if phys.bp.is_hole() {
        return Err(PoolError::invalid("it has no contents"));
    }
    let (guid, name) = identity(&phys);
    phys.creation_txg = Txg(u64::MAX);
    Ok(Source { object: head.object, head, phys, guid, name, held: Held { _kept: kept, _closed: closed } })
}

impl DslPool {
    /// Full name of the file system or volume of this guid, which a stream of it itself has.
    pub fn dataset_by_guid(&self, guid: Guid) -> Option<String> {
        let tree = self.tree.read();
        let mut all = tree.datasets.iter();
        all.find(|(_, dataset)| dataset.phys.lock().guid == guid).map(|(name, _)| name.clone())
    }
}
