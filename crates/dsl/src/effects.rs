//! What follows from the properties in force: how blocks are written, cached and logged, and the features that a value
//! needs.
//!
//! Invariants: what is open follows a change as soon as its task has run, and the way blocks are written once its group
//! is on disk.

use platter_ondisk::dnode::DNODE_SIZE;
use platter_ondisk::features::Feature;
use platter_ondisk::{Checksum, Compression};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use platter_dmu::{Objset, RedundantMetadata, Tx, UserAccounting, WriteProperties};
use platter_zil::SyncMode;
use platter_zio::{Caching, LogBias};

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::inheritance::number;
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::{limits, zapify};
use platter_api::report::DatasetKind;
use platter_api::{block_properties, properties};

/// The property.
pub const COMPRESSION: &str = "compression";

const LARGE_DNODE: Feature = Feature::LargeDnode;
const OBJECT_ACCOUNTING: Feature = Feature::UserobjAccounting;
const PROJECT_ACCOUNTING: Feature = Feature::ProjectQuota;

/// How blocks of the data set in `dir` are to be written.
pub fn write_properties(dsl: &DslPool, dir: &Arc<Dir>) -> WriteProperties {
    let compression = number(dir, "compression");
    let (kind, level) = block_properties::compression_and_level(compression);
    let format = dsl.format();
    let kind = match kind {
        Compression::ON => format.compression,
        Compression::ZSTD if !dsl.features.is_enabled(Feature::ZstdCompress) => format.compression,
        Compression::LZ4 if !dsl.features.is_active(Feature::Lz4Compress) => format.compression,
        kind => kind,
    };
    let checksum = match Checksum::from_number(number(dir, "checksum") as u8) {
        Checksum::ON => Checksum::FLETCHER_4,
        checksum => checksum,
    };
    let mut record_size = number(dir, "recordsize");
    if !dsl.features.is_enabled(Feature::LargeBlocks) {
        record_size = record_size.min(128 << 10);
    }
    WriteProperties {
        checksum,
        compression: kind,
        compression_level: if kind == Compression::ZSTD && level == 0 { 3 } else { level as i32 },
        copies: number(dir, "copies") as u8,
        record_size: record_size as u32,
        is_mos: false,
        embedded_data: dsl.features.is_enabled(Feature::EmbeddedData),
        dnode_size: match number(dir, "dnodesize") {
            _ if !dsl.features.is_enabled(LARGE_DNODE) => DNODE_SIZE as u32,
            0 => DNODE_SIZE as u32,
            1 => 1024,
            size => size.min(16 << 10) as u32,
        },
        redundant_metadata: match number(dir, "redundant_metadata") {
            1 => RedundantMetadata::Most,
            2 => RedundantMetadata::Some,
            3 => RedundantMetadata::None,
            _ => RedundantMetadata::All,
        },
        format,
        accounting: UserAccounting {
            space: true,
            objects: dsl.features.is_enabled(OBJECT_ACCOUNTING),
            projects: dsl.features.is_enabled(PROJECT_ACCOUNTING),
        },
    }
}

/// Property `sync` of a data set.
pub fn sync_mode(dataset: &Dataset) -> SyncMode {
    SyncMode::from_number(number(&dataset.dir, "sync"))
}

/// Property `logbias` of a data set.
pub fn log_bias(dataset: &Dataset) -> LogBias {
    LogBias::from_number(number(&dataset.dir, "logbias"))
}

/// Whether `value` (`None`: inherit) may be set on a data set of `kind` in this pool.
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn check_applies(dsl: &DslPool, kind: DatasetKind, property: &str, value: Option<&StoredProperty>) -> Result<()> {
    let feature = match (property, value) {
        ("dnodesize", Some(StoredProperty::Number(size))) if *size != 0 => Some(LARGE_DNODE),
        ("filesystem_limit" | "snapshot_limit", Some(_)) if !limits::is_enabled(dsl) => Some(Feature::FsSsLimit),
        _ => None,
    };
    if feature.is_some_and(|feature| !dsl.features.is_enabled(feature)) {
        return Err(PoolError::Unsupported("pool must be upgraded to set this property or value".into()));
    }
    if let Some(value) = value {
        block_properties::check_features(|feature| dsl.features.is_enabled(feature), property, value)?;
    }
    if kind == DatasetKind::Volume && properties::find(property).is_some_and(|native| !native.of_volumes) {
        return Err(PoolError::invalid(format!("'{property}' does not apply to datasets of this type")));
    }
    Ok(())
}

/// Lets the block cache and the cache devices follow properties `primarycache` and `secondarycache` of an open data
/// set.
pub fn follow_caching(dsl: &DslPool, dataset: &Dataset) {
    let caching = |property: &str| match number(&dataset.dir, property) {
        0 => Caching::Nothing,
        1 => Caching::Metadata,
        _ => Caching::All,
    };
    dsl.store.state().cache.set_caching(dataset.object, caching("primarycache"));
    dsl.store.state().l2arc.set_caching(dataset.object, caching("secondarycache"));
}

/// Lets everything that is open follow properties that a task has changed. How blocks are written changes only when its
/// group is on disk ([`follow_writing`]): what was written before the task came in is written as it was then
/// (`dsl_pool_sync`, `module/zfs/dsl_pool.c`, runs tasks after the data of their group).
pub fn follow(dsl: &DslPool) {
    for dataset in dsl.tree.read().datasets.values() {
        if dataset.open_objset().is_some() {
            follow_caching(dsl, dataset);
        }
        if let Some(zil) = &*dataset.zil.lock() {
            zil.set_mode(sync_mode(dataset));
            zil.set_bias(log_bias(dataset));
        }
        if let Some(server) = dataset.server.lock().as_ref().and_then(Weak::upgrade) {
            server.set_read_only(dsl.read_only || number(&dataset.dir, "readonly") != 0);
        }
    }
    dsl.properties_changed.store(true, Ordering::Relaxed);
}

/// The later part of [`follow`].
pub fn follow_writing(dsl: &DslPool) {
    if !dsl.properties_changed.swap(false, Ordering::Relaxed) {
        return;
    }
    for dataset in dsl.tree.read().datasets.values() {
        if let Some(os) = dataset.open_objset() {
            os.set_properties(write_properties(dsl, &dataset.dir));
        }
    }
}

/// A data set whose own `compression` needs a feature activates it when it is set, not first with a block
/// (`dsl_dataset_set_compression`, `module/zfs/dsl_dataset.c`).
///
/// # Errors
/// Out of space, device errors.
pub async fn activate_feature(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    property: &str,
    value: Option<&StoredProperty>,
) -> platter_zio::Result<()> {
    let Some(StoredProperty::Number(number)) = value.filter(|_| property == COMPRESSION) else { return Ok(()) };
    match block_properties::compression_feature(block_properties::compression_and_level(*number).0) {
        Some(feature) => zapify::activate(dsl, tx, dataset, feature).await,
        None => Ok(()),
    }
}

/// A data set that may have dnodes of more than 512 bytes says so (feature `large_dnode`), and so does one that counts
/// its users' objects (`userobj_accounting`) and its projects' (`project_quota`).
///
/// # Errors
/// Out of space, device errors.
pub async fn note_features(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    os: &Objset,
) -> platter_zio::Result<()> {
    let counted = os.counted();
    let large = os.properties().dnode_size > DNODE_SIZE as u32;
    let used = [(LARGE_DNODE, large), (OBJECT_ACCOUNTING, counted.objects), (PROJECT_ACCOUNTING, counted.projects)];
    for (feature, _) in used.into_iter().filter(|(_, used)| *used) {
        zapify::activate(dsl, tx, dataset, feature).await?;
    }
    Ok(())
}
