//! Snapshots: which one it is, for ever, and its bonus, which changes with its neighbours.
//!
//! Invariants: what [`Snapshot`] says was fixed when the snapshot was taken; counters and links are read from the bonus
//! each time ([`SnapshotBonus`]), since whoever changes a neighbour changes them there.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Dnode, Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{Guid, ObjectId, ObjectType, Txg};

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its object in the MOS.
    pub object: ObjectId,
    /// Its identity, in streams and in other pools too.
    pub guid: Guid,
    /// The group in which it was taken: it holds what was born up to here.
    pub creation_txg: Txg,
}

impl Snapshot {
    /// Its name, without the data set's: `names` is the map of the head (`snapnames_zapobj`). `None` when it is not
    /// there.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn name(&self, os: &Arc<Objset>, names: ObjectId) -> Result<Option<String>> {
        let entries = Zap::open(os, names).await?.all().await?;
        let entry = entries.iter().find(|entry| entry.value.integers.first() == Some(&self.object.0));
        Ok(entry.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()))
    }
}

/// A snapshot's bonus: its place among the others, its counters, its root.
pub struct SnapshotBonus {
    dnode: Arc<Dnode>,
    /// Whose it was when it was read.
    read: Snapshot,
    /// The bonus.
    pub phys: DslDatasetPhys,
}

impl SnapshotBonus {
    /// Reads that of snapshot `object`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn load(os: &Arc<Objset>, object: ObjectId) -> Result<Self> {
        let dnode = os.dnode(object).await?;
        if dnode.info().bonus_type != ObjectType::DSL_DATASET {
            return Err(ZioError::corrupt("snapshot", format!("object {object} is something else")));
        }
        let phys = DslDatasetPhys::decode(&dnode.bonus())
            .map_err(|e| ZioError::corrupt("snapshot", format!("object {object}: {e}")))?;
        let read = Snapshot { object, guid: phys.guid, creation_txg: phys.creation_txg };
        Ok(Self { dnode, read, phys })
    }

    /// Whose it is.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { object: self.dnode.object(), guid: self.phys.guid, creation_txg: self.phys.creation_txg }
    }

    /// Writes it back.
    ///
    /// # Errors
    /// Read-only pool.
    pub fn store(&self, tx: &Tx) -> Result<()> {
        assert_eq!(self.snapshot(), self.read, "what a snapshot is was fixed when it was taken");
        self.dnode.set_bonus(tx, ObjectType::DSL_DATASET, &self.phys.encode())
    }
}

/// The number that `names`, the map of a head's snapshots, has for `name`; with `folded` names compare without case
/// (`dsl_dataset_snap_lookup`).
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn lookup(os: &Arc<Objset>, names: ObjectId, name: &str, folded: bool) -> Result<Option<ObjectId>> {
    if !names.is_some() {
        return Ok(None);
    }
    let zap = Zap::open(os, names).await?;
    let found = match folded {
        true => zap.get_normalized(name.as_bytes(), false).await?.map(|(_, value)| value),
        false => zap.get(name.as_bytes()).await?,
    };
    Ok(found.and_then(|value| value.integers.first().copied()).map(ObjectId))
}

/// The snapshot from which every new file system descends.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// The birth groups of the `$ORIGIN` head's deadlist.
    pub deadlist_keys: Vec<Txg>,
}
