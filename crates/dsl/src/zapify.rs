//! Per-dataset features: a data set that uses one says so in a ZAP in its own object (`dsl_dataset_activate_feature`,
//! `dmu_object_zapify`).

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx};
use platter_ondisk::types::object_type;

use crate::dataset::Dataset;
use crate::pool::DslPool;

/// Counts the objects of the pool that became ZAPs this way.
pub const EXTENSIBLE_DATASET: &str = "com.delphix:extensible_dataset";

/// Notes that `dataset` uses feature `guid` from now on. Does nothing when it did before.
///
/// # Errors
/// Out of space, device errors.
pub async fn activate(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, guid: &str) -> Result<()> {
    if dataset.features.lock().contains(guid) || !dsl.features.is_enabled(guid) {
        return Ok(());
    }
    dsl.features.adjust(tx, guid, 1).await?;
    let dnode = dsl.mos.dnode(dataset.object).await?;
    if dnode.info().object_type != object_type::OTN_ZAP_METADATA {
        Zap::zapify(&dnode, tx, object_type::OTN_ZAP_METADATA, dsl.random()).await?;
        dsl.features.adjust(tx, EXTENSIBLE_DATASET, 1).await?;
    }
    Zap::from_dnode(dnode).put_u64(tx, guid.as_bytes(), 0).await?;
    dataset.features.lock().insert(guid.to_owned());
    dsl.dirty_config();
    Ok(())
}

/// Notes that `dataset` does not use feature `guid` any more (`dsl_dataset_deactivate_feature`). Does nothing when it
/// did not before.
///
/// # Errors
/// Device errors, damage.
pub async fn deactivate(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, guid: &str) -> Result<()> {
    if !dataset.features.lock().remove(guid) {
        return Ok(());
    }
    dsl.features.adjust(tx, guid, -1).await?;
    let dnode = dsl.mos.dnode(dataset.object).await?;
    Zap::from_dnode(dnode).remove(tx, guid.as_bytes()).await?;
    dsl.dirty_config();
    Ok(())
}

/// Takes back all that `dataset` uses, before it is destroyed.
///
/// # Errors
/// Device errors.
pub async fn deactivate_all(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>) -> Result<()> {
    let guids: Vec<String> = std::mem::take(&mut *dataset.features.lock()).into_iter().collect();
    for guid in &guids {
        dsl.features.adjust(tx, guid, -1).await?;
    }
    let dnode = dsl.mos.dnode(dataset.object).await?;
    if dnode.info().object_type == object_type::OTN_ZAP_METADATA {
        dsl.features.adjust(tx, EXTENSIBLE_DATASET, -1).await?;
    }
    Ok(())
}
