//! Snapshots: the bonus of one, and the one from which every new file system descends.

use std::sync::Arc;

use platter_dmu::{Dnode, Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{ObjectId, ObjectType, Txg};

/// A snapshot's bonus, as far as it changes with its data set.
pub struct Snapshot {
    dnode: Arc<Dnode>,
    /// The bonus.
    pub phys: DslDatasetPhys,
}

impl Snapshot {
    /// Reads snapshot `object`.
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
        Ok(Self { dnode, phys })
    }

    /// Writes the bonus back.
    ///
    /// # Errors
    /// Read-only pool.
    pub fn store(&self, tx: &Tx) -> Result<()> {
        self.dnode.set_bonus(tx, ObjectType::DSL_DATASET, &self.phys.encode())
    }
}

/// The snapshot from which every new file system descends.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The snapshot's object.
    pub snapshot: ObjectId,
    /// Its group.
    pub creation_txg: Txg,
    /// The birth groups of the `$ORIGIN` head's deadlist.
    pub deadlist_keys: Vec<u64>,
}
