//! How a receive begins: whether it can, and the data set that it fills (`dmu_recv_begin_check`,
//! `dmu_recv_begin_sync`, `dmu_recv_resume_begin_check`, `module/zfs/dmu_recv.c`).

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::delegation::Creator;
use platter_api::report::DatasetKind;
use platter_dmu::Tx;
use platter_nvlist::NvList;
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, ObjsetType};
use platter_stream::{Begin, HeaderKind, StreamFeatures, begin_flags};

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::{history, new_dataset, redacted, resume_state, zapify};

/// What is to be received, and where.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The data set.
    pub target: String,
    /// What the snapshot is called there, without the data set's name.
    pub snapshot: String,
    /// How the stream begins.
    pub begin: Begin,
    /// The list that came with that.
    pub list: Option<NvList>,
    /// Full name of the snapshot of which it becomes a clone.
    pub origin: Option<String>,
    /// What changed in the target since, or is newer, is given up (`-F`).
    pub force: bool,
    /// What was received stays when the stream breaks off (`-s`).
    pub resumable: bool,
    /// Properties of a new data set.
    pub properties: BTreeMap<String, StoredProperty>,
    /// Whose a new data set is.
    pub creator: Option<Creator>,
}

/// A data set that is being filled.
#[derive(Clone)]
pub struct Begun {
    /// It.
    pub dataset: Arc<Dataset>,
    /// Whether it is the target itself.
    pub is_new: bool,
    /// Whether it goes on where one was broken off.
    pub is_resumed: bool,
    /// Bytes that were received before.
    pub bytes: u64,
}

pub(crate) fn bad_stream() -> PoolError {
    PoolError::invalid("invalid backup stream")
}

/// Whether this pool has what the stream asks for.
pub fn check_features(dsl: &DslPool, begin: &Begin) -> Result<()> {
    if begin.kind == HeaderKind::Compound {
        return Err(bad_stream());
    }
    let asked = begin.features;
    if asked.has(StreamFeatures::RAW) {
        return Err(PoolError::Unsupported("stream is encrypted (raw), which this version cannot receive yet".into()));
    }
    if !asked.unknown().is_empty() {
        return Err(PoolError::Unsupported("stream has unsupported feature".into()));
    }
    let needs = [
        (StreamFeatures::LZ4, Feature::Lz4Compress),
        (StreamFeatures::ZSTD, Feature::ZstdCompress),
        (StreamFeatures::EMBED_DATA, Feature::EmbeddedData),
        (StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks),
        (StreamFeatures::LARGE_DNODE, Feature::LargeDnode),
        (StreamFeatures::REDACTED, Feature::RedactedDatasets),
    ];
    let lacks = |(flag, feature): &(StreamFeatures, Feature)| asked.has(*flag) && !dsl.features.is_enabled(*feature);
    if needs.iter().any(lacks) || asked.has(StreamFeatures::SA_SPILL) && !dsl.version().has_system_attributes() {
        return Err(PoolError::Unsupported("pool must be upgraded to receive this stream.".into()));
    }
    match begin.objset_type {
        ObjsetType::ZFS | ObjsetType::ZVOL => Ok(()),
        _ => Err(bad_stream()),
    }
}

/// What the stream makes: a file system or a volume.
pub fn kind_of(begin: &Begin) -> DatasetKind {
    if begin.objset_type == ObjsetType::ZVOL { DatasetKind::Volume } else { DatasetKind::Filesystem }
}

/// Whether the target can be made.
///
/// # Errors
/// It exists; what the stream asks for is not there; limits, space.
pub(crate) async fn check_new(dsl: &DslPool, request: &ReceiveRequest) -> Result<new_dataset::Site> {
    check_features(dsl, &request.begin)?;
    if request.begin.from_guid.0 != 0 {
        return Err(PoolError::NotFound(format!("destination '{}' does not exist", request.target)));
    }
    if request.resumable && !dsl.features.is_enabled(zapify::EXTENSIBLE_DATASET) {
        return Err(PoolError::Unsupported("pool must be upgraded to receive this stream.".into()));
    }
    new_dataset::check(dsl, &request.target, kind_of(&request.begin), &request.properties).await
}

/// Makes the target, empty and marked as unfinished. Within a task.
pub(crate) async fn make_new(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    request: &ReceiveRequest,
    site: new_dataset::Site,
) -> Result<Begun> {
    let new_dataset::Site { above, last } = site;
    let (now, random) = (dsl.now(), || dsl.random());
    let dir = Dir::create(&dsl.mos, &dsl.directory, tx, Some(above.dir.clone()), &last, now, random).await?;
    new_dataset::prepare(dsl, tx, &dir, &request.properties, request.creator).await?;
    let dataset = new_dataset::empty_head(dsl, tx, &dir, kind_of(&request.begin)).await?;
    mark(dsl, tx, &dataset, request).await?;
    let os = new_dataset::empty_objset(dsl, tx, &dataset, request.begin.objset_type);
    dataset.set_open(&os);
    new_dataset::settle(dsl, tx, &request.target, &dataset, &request.properties).await?;
    history::append_event(dsl, tx, "receive", &format!("{} ({})", request.target, dataset.object)).await?;
    Ok(Begun { dataset, is_new: true, is_resumed: false, bytes: 0 })
}

/// Marks a data set as unfinished, with what the stream says of it.
pub(crate) async fn mark(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    request: &ReceiveRequest,
) -> platter_zio::Result<()> {
    let begin = &request.begin;
    {
        let mut phys = dataset.phys.lock();
        phys.flags |= dataset_flags::INCONSISTENT;
        if begin.flags & begin_flags::CI_DATA != 0 {
            phys.flags |= dataset_flags::CI_DATASET;
        }
    }
    dataset.store(&dsl.mos, tx).await?;
    if request.resumable {
        let from_redacted = redacted::listed(request.list.as_ref(), redacted::FROM_SNAPS);
        resume_state::begin(dsl, tx, dataset, begin, from_redacted).await?;
    }
    // What its origin lacks it may get.
    let missing = redacted::listed(request.list.as_ref(), redacted::SNAPS);
    let missing = missing.filter(|_| begin.features.has(StreamFeatures::REDACTED));
    redacted::replace(dsl, tx, dataset, missing).await?;
    let features =
        [(StreamFeatures::LARGE_BLOCKS, Feature::LargeBlocks), (StreamFeatures::LARGE_DNODE, Feature::LargeDnode)];
    for (_, feature) in features.into_iter().filter(|(flag, _)| begin.features.has(*flag)) {
        zapify::activate(dsl, tx, dataset, feature).await?;
    }
    Ok(())
}

impl DslPool {
    /// The name of the data set with this object, whatever it was renamed to.
    pub fn name_of(&self, object: ObjectId) -> Option<String> {
        let tree = self.tree.read();
        tree.datasets.iter().find(|(_, dataset)| dataset.object == object).map(|(name, _)| name.clone())
    }
}
