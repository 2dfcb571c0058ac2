//! Per-dataset features: a data set that uses one says so in a ZAP in its own object (`dsl_dataset_activate_feature`,
//! `dmu_object_zapify`).

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Result, Tx};
use platter_ondisk::{ObjectId, ObjectType};

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::pool::DslPool;

/// Counts the objects of the pool that became ZAPs this way.
pub const EXTENSIBLE_DATASET: Feature = Feature::ExtensibleDataset;

/// Notes that `dataset` uses `feature` from now on. Does nothing when it did before.
///
/// # Errors
/// Out of space, device errors.
pub async fn activate(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, feature: Feature) -> Result<()> {
    activate_with(dsl, tx, dataset, feature, vec![0]).await
}

/// As [`activate`], for a feature whose entry has a value (`ZFEATURE_TYPE_UINT64_ARRAY`).
///
/// # Errors
/// Out of space, device errors.
pub async fn activate_with(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    feature: Feature,
    integers: Vec<u64>,
) -> Result<()> {
    if dataset.features.lock().contains(&feature) || !dsl.features.is_enabled(feature) {
        return Ok(());
    }
    dsl.features.adjust(tx, feature, 1).await?;
    let zap = ensure(dsl, tx, dataset).await?;
    zap.put(tx, feature.guid().as_bytes(), &ZapValue { integer_size: 8, integers }).await?;
    dataset.features.lock().insert(feature);
    dsl.dirty_config();
    Ok(())
}

/// Notes that `dataset` does not use `feature` any more (`dsl_dataset_deactivate_feature`). Does nothing when it
/// did not before.
///
/// # Errors
/// Device errors, damage.
pub async fn deactivate(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, feature: Feature) -> Result<()> {
    if !dataset.features.lock().remove(&feature) {
        return Ok(());
    }
    dsl.features.adjust(tx, feature, -1).await?;
    let dnode = dsl.mos.dnode(dataset.object).await?;
    Zap::from_dnode(dnode).remove(tx, feature.guid().as_bytes()).await?;
    dsl.dirty_config();
    Ok(())
}

/// Takes back all that `dataset` uses, before it is destroyed.
///
/// # Errors
/// Device errors.
pub async fn deactivate_all(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>) -> Result<()> {
    let features = std::mem::take(&mut *dataset.features.lock());
    for feature in features {
        dsl.features.adjust(tx, feature, -1).await?;
    }
    let dnode = dsl.mos.dnode(dataset.object).await?;
    if dnode.info().object_type == ObjectType::OTN_ZAP_METADATA {
        dsl.features.adjust(tx, EXTENSIBLE_DATASET, -1).await?;
    }
    Ok(())
}

/// What object set `from` needs of the pool, a snapshot or clone of it, whose object `to` is new, needs too
/// (`dsl_dataset_activate_feature`).
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn copy(dsl: &Arc<DslPool>, tx: &Tx, from: ObjectId, to: ObjectId) -> Result<()> {
    let dnode = dsl.mos.dnode(from).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(());
    }
    let mut copy = None;
    for entry in Zap::from_dnode(dnode).all().await? {
        let feature = Feature::by_guid(&String::from_utf8_lossy(&entry.name));
        let Some(feature) = feature.filter(|feature| feature.info().per_dataset) else { continue };
        let zap = match copy.take() {
            Some(zap) => zap,
            None => {
                let dnode = dsl.mos.dnode(to).await?;
                dsl.features.adjust(tx, EXTENSIBLE_DATASET, 1).await?;
                Zap::zapify(&dnode, tx, ObjectType::OTN_ZAP_METADATA, dsl.random()).await?
            }
        };
        dsl.features.adjust(tx, feature, 1).await?;
        zap.put(tx, &entry.name, &entry.value).await?;
        copy = Some(zap);
    }
    dsl.dirty_config();
    Ok(())
}

/// The ZAP that the data set's own object is, from now on.
///
/// # Errors
/// Out of space, device errors.
pub async fn ensure(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Dataset) -> Result<Zap> {
    of_object(dsl, tx, dataset.object).await
}

/// The ZAP that the directory's own object is, from now on (`dsl_dir_zapify`).
///
/// # Errors
/// Out of space, device errors.
pub async fn ensure_dir(dsl: &Arc<DslPool>, tx: &Tx, dir: &Dir) -> Result<Zap> {
    of_object(dsl, tx, dir.object).await
}

async fn of_object(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId) -> Result<Zap> {
    let dnode = dsl.mos.dnode(object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        Zap::zapify(&dnode, tx, ObjectType::OTN_ZAP_METADATA, dsl.random()).await?;
        dsl.features.adjust(tx, EXTENSIBLE_DATASET, 1).await?;
    }
    Ok(Zap::from_dnode(dnode))
}
