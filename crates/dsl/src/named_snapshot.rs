//! Snapshots by name.

use std::sync::Arc;

use platter_dmu::Objset;
use platter_ondisk::ObjectId;
use platter_ondisk::dsl::DslDatasetPhys;

use crate::accounting::Accounting;
use crate::dataset::Dataset;
use crate::effects;
use crate::error::{PoolError, Result};
use crate::in_use::Kept;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;

/// A snapshot that is there.
pub struct NamedSnapshot {
    /// The head of its data set.
    pub head: Arc<Dataset>,
    /// Its full name.
    pub full_name: String,
    /// Its own name, as the head's map has it.
    pub name: String,
    /// Its object.
    pub object: ObjectId,
}

/// The snapshot of this full name, if it is there.
///
/// # Errors
/// A name that no snapshot has; damage, unreadable blocks.
pub async fn find(dsl: &DslPool, full_name: &str) -> Result<Option<NamedSnapshot>> {
    let (dataset, name) = platter_api::names::check_snapshot(full_name)?;
    let Ok(head) = dsl.find(dataset) else { return Ok(None) };
    let Some(bonus) = head.snapshot(&dsl.mos, name).await? else { return Ok(None) };
    let object = bonus.snapshot().object;
    // Without regard to case it may have been asked for by another name.
    let names = head.phys.lock().snapnames_zapobj;
    let name = bonus.snapshot().name(&dsl.mos, names).await?.unwrap_or_else(|| name.to_owned());
    Ok(Some(NamedSnapshot { full_name: format!("{dataset}@{name}"), head, name, object }))
}

/// The snapshot with this number, if it is one of a data set's.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn by_object(dsl: &DslPool, object: ObjectId) -> platter_dmu::Result<Option<NamedSnapshot>> {
    let bonus = SnapshotBonus::load(&dsl.mos, object).await?;
    let Some((dataset, head)) = dsl.tree.read().dataset_in(bonus.phys.dir_obj) else { return Ok(None) };
    let names = head.phys.lock().snapnames_zapobj;
    let name = bonus.snapshot().name(&dsl.mos, names).await?;
    Ok(name.map(|name| NamedSnapshot { full_name: format!("{dataset}@{name}"), head, name, object }))
}

/// A data set's snapshots, oldest first: each with its name and its bonus.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn in_order(dsl: &DslPool, head: &Dataset) -> Result<Vec<(String, SnapshotBonus)>> {
    let mut all = Vec::new();
    for (name, object) in head.snapshot_names(&dsl.mos).await? {
        all.push((name, SnapshotBonus::load(&dsl.mos, object).await?));
    }
    all.sort_by_key(|(_, bonus)| (bonus.phys.creation_txg, bonus.snapshot().object));
    Ok(all)
}

impl DslPool {
    /// Whether a snapshot comes before another one, both by full name: of the same data set, or of what that descends
    /// from (`dsl_dataset_is_before`, `module/zfs/dsl_dataset.c`).
    ///
    /// # Errors
    /// It does not, or one of them does not exist; damage.
    pub async fn check_descends(&self, later: &str, earlier: &str) -> Result<()> {
        let missing = || PoolError::NotFound("dataset does not exist".into());
        let earlier = find(self, earlier).await?.ok_or_else(missing)?.object;
        let mut at = find(self, later).await?.ok_or_else(missing)?.object;
        let end = SnapshotBonus::load(&self.mos, earlier).await?.phys.creation_txg;
        loop {
            let phys = SnapshotBonus::load(&self.mos, at).await?.phys;
            if phys.prev_snap_txg < end || phys.prev_snap_txg >= phys.creation_txg {
                return Err(PoolError::invalid("\n   Not an earlier snapshot from the same fs"));
            }
            at = phys.prev_snap_obj;
            if at == earlier {
                return Ok(());
            }
        }
    }

    /// Opens a snapshot's object set for reading; the pool keeps no handle of it.
    ///
    /// # Errors
    /// It does not exist, is encrypted or damaged.
    pub async fn open_snapshot(&self, full_name: &str) -> Result<Arc<Objset>> {
        let found = find(self, full_name).await?;
        let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
        let phys = SnapshotBonus::load(&self.mos, found.object).await?.phys;
        self.open_for_reading(found.object, &phys, &found.head).await
    }

    /// Opens the object set of a snapshot, which is not destroyed before the second is dropped: what reads freed blocks
    /// finds others in their place, and takes them for damage.
    ///
    /// # Errors
    /// There is no such snapshot; damage.
    pub async fn open_kept_snapshot(&self, full_name: &str) -> Result<(Arc<Objset>, Kept)> {
        let missing = || PoolError::NotFound("dataset does not exist".into());
        let found = find(self, full_name).await?.ok_or_else(missing)?;
        let kept = self.in_use.keep(found.object);
        if !self.read_only {
            // Who found it free a moment ago is done with it then.
            self.sync().await?;
        }
        let os = self.open_snapshot(full_name).await?;
        match os.params().id == found.object {
            true => Ok((os, kept)),
            false => Err(missing()),
        }
    }

    /// Opens the object set of data set `object`, a snapshot of `head` or it itself, which nobody changes meanwhile.
    pub(crate) async fn open_for_reading(
        &self,
        object: ObjectId,
        phys: &DslDatasetPhys,
        head: &Dataset,
    ) -> Result<Arc<Objset>> {
        let nothing = Arc::new(Accounting::new(self.store.clone(), phys.creation_txg));
        let properties = effects::write_properties(self, &head.dir);
        let params = self.objset_params(object, nothing, properties, true);
        Ok(Objset::open(params, phys.bp).await?)
    }
}
