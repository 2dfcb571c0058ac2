//! What an incremental replication finds here: data sets by the snapshots that they share with where they came from
//! (`gather_nvlist`, `lib/libzfs/libzfs_sendrecv.c`).

use std::collections::BTreeMap;

use platter_ondisk::{Guid, Txg};

use crate::error::Result;
use crate::named_snapshot::in_order;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;

/// A snapshot of a [`LocalDataset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSnapshot {
    /// What stands behind the @.
    pub own: String,
    /// The same where it was sent.
    pub guid: Guid,
    /// Its group.
    pub created: Txg,
}

/// A data set as a replication knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDataset {
    /// Full name.
    pub name: String,
    /// Oldest first.
    pub snapshots: Vec<LocalSnapshot>,
    /// The snapshot it was cloned from.
    pub origin: Option<Guid>,
    /// The snapshot of the data set above from which the stream goes on; `None` for the topmost, and where it is
    /// missing.
    pub parent_from: Option<Guid>,
}

impl DslPool {
    /// `name` and all below it, those above before those below; none when it does not exist. `from` is the snapshot,
    /// without its data set, from which a stream goes on.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn local_replica(&self, name: &str, from: &str) -> Result<Vec<LocalDataset>> {
        let mut found = Vec::new();
        let mut from_guids: BTreeMap<String, Guid> = BTreeMap::new();
        if self.find(name).is_err() {
            return Ok(found);
        }
        for name in self.names_under(name)? {
            // Somebody may destroy it meanwhile.
            let Ok(dataset) = self.find(&name) else { continue };
            let origin = dataset.dir.phys.lock().origin_obj;
            // All descend from the pool's own empty snapshot, which is nobody's.
            let pool_origin = self.tree.read().origin.as_ref().map(|origin| origin.snapshot.object);
            let origin = match origin.is_some() && Some(origin) != pool_origin {
                true => Some(SnapshotBonus::load(&self.mos, origin).await?.phys.guid),
                false => None,
            };
            let all = in_order(self, &dataset).await?;
            let snapshots: Vec<LocalSnapshot> = all
                .into_iter()
                .map(|(own, bonus)| LocalSnapshot { own, guid: bonus.phys.guid, created: bonus.phys.creation_txg })
                .collect();
            if let Some(snapshot) = snapshots.iter().find(|snapshot| snapshot.own == from) {
                from_guids.insert(name.clone(), snapshot.guid);
            }
            let parent = name.rsplit_once('/').map_or("", |(parent, _)| parent);
            let parent_from = from_guids.get(parent).copied();
            found.push(LocalDataset { name, snapshots, origin, parent_from });
        }
        Ok(found)
    }
}
