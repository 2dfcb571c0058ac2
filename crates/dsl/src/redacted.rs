//! What a data set says that was received without some of its blocks: for the sake of which snapshots they were left
//! out, as the value of its feature (`SPA_FEATURE_REDACTED_DATASETS`; `redact_check`, `module/zfs/dmu_recv.c`).

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::Zap;
use platter_nvlist::NvList;
use platter_ondisk::features::Feature;
use platter_ondisk::zap::VALUE_LEN_MAX;
use platter_ondisk::{Guid, ObjectId, ObjectType};
use platter_stream::{Begin, StreamFeatures};

use crate::dataset::Dataset;
use crate::error::Result;
use crate::pool::DslPool;
use crate::{named_snapshot, zapify};

/// The snapshots for whose sake a stream leaves out blocks, in its list (`BEGINNV_REDACT_SNAPS`).
pub const SNAPS: &str = "redact_snaps";
/// Those for whose sake that was done in what it builds on (`BEGINNV_REDACT_FROM_SNAPS`).
pub const FROM_SNAPS: &str = "redact_from_snaps";

/// The snapshots for whose sake blocks were left out of data set or snapshot `object`; none when it is whole.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn snapshots_of(dsl: &DslPool, object: ObjectId) -> platter_zio::Result<Option<Vec<Guid>>> {
    let dnode = dsl.mos.dnode(object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    let value = Zap::from_dnode(dnode).get(Feature::RedactedDatasets.guid().as_bytes()).await?;
    Ok(value.map(|value| value.integers.into_iter().map(Guid).collect()))
}

/// Notes that blocks are left out of `dataset` for the sake of these. Within a task.
///
/// # Errors
/// Out of space, device errors.
async fn set(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, snaps: &[Guid]) -> platter_zio::Result<()> {
    let values = snaps.iter().map(|guid| guid.0).collect();
    zapify::activate_with(dsl, tx, dataset, Feature::RedactedDatasets, values).await
}

/// Notes that blocks are left out of `dataset` for the sake of these, or that it is whole, whatever it was before.
/// Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn replace(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    snaps: Option<Vec<Guid>>,
) -> platter_zio::Result<()> {
    zapify::deactivate(dsl, tx, dataset, Feature::RedactedDatasets).await?;
    match snaps {
        Some(snaps) => set(dsl, tx, dataset, &snaps).await,
        None => Ok(()),
    }
}

/// What snapshot `object` lacks, its data set lacks now, too. Within a task.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn follow(dsl: &Arc<DslPool>, tx: &Tx, head: &Arc<Dataset>, object: ObjectId) -> platter_zio::Result<()> {
    let snaps = snapshots_of(dsl, object).await?;
    replace(dsl, tx, head, snaps).await
}

/// What the list of a stream says under `name`; none when that is more than a data set can say.
pub fn listed(list: Option<&NvList>, name: &str) -> Option<Vec<Guid>> {
    let snaps = list?.get_u64_array(name)?;
    let fits = !snaps.is_empty() && snaps.len() <= VALUE_LEN_MAX / size_of::<u64>();
    fits.then(|| snaps.iter().map(|&guid| Guid(guid)).collect())
}

/// Whether a stream can be received on top of `base`, from which blocks were left out: it must not count on them.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn takes(dsl: &DslPool, base: ObjectId, begin: &Begin, list: Option<&NvList>) -> Result<bool> {
    let Some(missing) = snapshots_of(dsl, base).await? else { return Ok(true) };
    let among = |snaps: &[Guid]| snaps.iter().all(|snap| missing.contains(snap));
    if begin.from_guid == Guid(0) {
        return Ok(true);
    }
    Ok(match listed(list, FROM_SNAPS) {
        Some(from) => among(&from),
        None if begin.features.has(StreamFeatures::REDACTED) => listed(list, SNAPS).is_some_and(|snaps| among(&snaps)),
        // It is one of those from which nothing was left out that it has.
        None => missing.contains(&begin.to_guid),
    })
}

/// As properties show it.
pub fn shown(snaps: &[Guid]) -> String {
    let texts: Vec<String> = snaps.iter().map(|guid| guid.0.to_string()).collect();
    if texts.is_empty() { "none".to_owned() } else { texts.join(",") }
}

impl DslPool {
    /// Whether blocks were left out of the snapshot or data set called `name`.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn is_redacted(&self, name: &str) -> Result<bool> {
        let object = match name.contains('@') {
            true => named_snapshot::find(self, name).await?.map(|found| found.object),
            false => self.find(name).ok().map(|head| head.object),
        };
        match object {
            Some(object) => Ok(snapshots_of(self, object).await?.is_some()),
            None => Ok(false),
        }
    }
}
