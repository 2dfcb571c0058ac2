//! `zfs send` of one snapshot, in full or what changed since an earlier one (`dmu_send`, `module/zfs/dmu_send.c`): what
//! is sent, whether it can be, and how much it will be.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::Objset;
pub use platter_dmu::changes::From as Resume;
use platter_dmu::zap::Zap;
use platter_nvlist::{NvList, Value};
use platter_ondisk::dsl::{DslDatasetPhys, dataset_flags};
use platter_ondisk::features::Feature;
use platter_ondisk::{Guid, ObjectId, ObjectType, ObjsetType, Txg};
use platter_stream::{Begin, HeaderKind, RECORD_SIZE, StreamFeatures, begin_flags};

use crate::contents::{self, Contents};
use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::in_use::Kept;
use crate::inheritance::number;
use crate::named_snapshot;
use crate::pool::DslPool;
use crate::send_since::{Since, is_before, missing, not_earlier};
use crate::send_source::{Held, Source};
use crate::snapshot::SnapshotBonus;
use crate::space_since::{Earlier, space_since};
use crate::used_space::SpaceChange;
use crate::{bookmarks, encryption, redacted, redaction_list, send_source};

/// How blocks are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// Blocks beyond 128 KiB as they are (`-L`).
    pub large_blocks: bool,
    /// Blocks that are in their pointers as they are (`-e`).
    pub embedded: bool,
    /// Compressed blocks as they are (`-c`).
    pub compressed: bool,
}

/// What is to be sent.
#[derive(Clone, Debug, Default)]
pub struct SendRequest {
    /// Full name of the snapshot, or of the file system or volume itself.
    pub snapshot: String,
    /// Of a data set: what a receive that was broken off has left there (`-S`).
    pub saved: bool,
    /// Full name of the snapshot, or bookmark, that the other side has.
    pub since: Option<String>,
    /// How.
    pub flags: SendFlags,
    /// Where a receive was broken off.
    pub resume: Option<Resume>,
    /// Full name of the redaction bookmark whose blocks are left out.
    pub redact: Option<String>,
}

/// A stream that can be made. While it is there what is sent stays as it is, too.
pub struct Sending {
    pub(crate) objset: ObjectId,
    pub(crate) phys: DslDatasetPhys,
    /// Whether the stream goes on where this one ends: it has no end of its own.
    pub(crate) is_partial: bool,
    /// Blocks born up to here are known to the other side.
    pub(crate) since: Txg,
    pub(crate) begin: Begin,
    pub(crate) list: Vec<u8>,
    pub(crate) from: Resume,
    pub(crate) os: Arc<Objset>,
    /// Lists of what is left out, and of what was left out of what the other side has.
    pub(crate) redaction: [Option<ObjectId>; 2],
    estimate: u64,
    _held: Held,
    _lists: Vec<Kept>,
}

impl Sending {
    /// About how many bytes it will have (`dmu_send_estimate_fast`).
    pub fn estimate(&self) -> u64 {
        self.estimate
    }

    /// How it begins.
    pub fn begin(&self) -> &Begin {
        &self.begin
    }
}

/// Features that the data set or snapshot `object` says it uses.
pub(crate) async fn features_of(dsl: &DslPool, object: ObjectId) -> Result<BTreeSet<Feature>> {
    let dnode = dsl.mos.dnode(object).await?;
    let mut features = BTreeSet::new();
    if dnode.info().object_type == ObjectType::OTN_ZAP_METADATA {
        for entry in Zap::from_dnode(dnode).all().await? {
            let feature = Feature::by_guid(&String::from_utf8_lossy(&entry.name));
            features.extend(feature.filter(|feature| feature.info().per_dataset));
        }
    }
    Ok(features)
}

async fn since(dsl: &DslPool, name: &str, to: &DslDatasetPhys) -> Result<Since> {
    if name.contains('#') {
        return bookmarks::since(dsl, name, to).await;
    }
    let found = named_snapshot::find(dsl, name).await?;
    let found = found.ok_or_else(|| missing(name))?;
    let from = SnapshotBonus::load(&dsl.mos, found.object).await?.phys;
    match is_before(dsl, (from.dir_obj, from.creation_txg), to).await? {
        Some(of_origin) => {
            let redacted = redacted::snapshots_of(dsl, found.object).await?;
            let earlier = Some(Earlier::snapshot(&from));
            Ok(Since { guid: from.guid, txg: from.creation_txg, of_origin, redaction: None, redacted, earlier })
        }
        None => Err(not_earlier()),
    }
}

/// What the stream asks of who receives it.
async fn stream_features(
    dsl: &DslPool,
    os: &Arc<Objset>,
    object: ObjectId,
    request: &SendRequest,
) -> Result<StreamFeatures> {
    let (flags, used) = (request.flags, features_of(dsl, object).await?);
    let mut features = StreamFeatures::default();
    let mut add = |wanted: bool, feature: StreamFeatures| {
        if wanted {
            features = features.with(feature);
        }
    };
    if os.kind() == ObjsetType::ZFS {
        let kind = platter_api::report::DatasetKind::Filesystem;
        if let Contents::Filesystem([version, ..]) = contents::read(os, kind).await? {
            add(version >= platter_ondisk::znode::ZPL_VERSION, StreamFeatures::SA_SPILL);
        }
    }
    add(flags.large_blocks && used.contains(&Feature::LargeBlocks), StreamFeatures::LARGE_BLOCKS);
    let embeds = flags.embedded && dsl.features.is_active(Feature::EmbeddedData);
    add(embeds, StreamFeatures::EMBED_DATA);
    add(flags.compressed, StreamFeatures::COMPRESSED);
    let as_stored = embeds || flags.compressed;
    add(as_stored && dsl.features.is_active(Feature::Lz4Compress), StreamFeatures::LZ4);
    add(flags.compressed && used.contains(&Feature::ZstdCompress), StreamFeatures::ZSTD);
    add(request.resume.is_some(), StreamFeatures::RESUMING);
    add(used.contains(&Feature::LargeDnode), StreamFeatures::LARGE_DNODE);
    let redacted = request.redact.is_some() || used.contains(&Feature::RedactedDatasets);
    add(redacted, StreamFeatures::REDACTED);
    Ok(features)
}

/// About how many bytes a stream of this space has (`dmu_adjust_send_estimate_for_indirects`).
fn estimate(space: SpaceChange, record_size: u64, compressed: bool) -> u64 {
    let bytes = |number: i64| u64::try_from(number).unwrap_or(0);
    let records = bytes(space.uncompressed) / record_size.max(1);
    let data = if compressed { bytes(space.compressed) } else { bytes(space.uncompressed) };
    let pointers = records.saturating_mul(platter_ondisk::blkptr::BLKPTR_SIZE as u64);
    data.saturating_sub(pointers).saturating_add((records + 2).saturating_mul(RECORD_SIZE as u64))
}

/// What is known of what the other side has, for an estimate.
async fn earlier(dsl: &DslPool, head: &Dataset, since: &Since) -> Result<Earlier> {
    if let Some(earlier) = &since.earlier {
        return Ok(earlier.clone());
    }
    for (_, bonus) in named_snapshot::in_order(dsl, head).await? {
        if bonus.phys.guid == since.guid {
            return Ok(Earlier::snapshot(&bonus.phys));
        }
    }
    Ok(Earlier::unknown(since.txg))
}

impl DslPool {
    /// The guid of a snapshot; nothing when it does not exist.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn snapshot_guid(&self, full_name: &str) -> Result<Option<Guid>> {
        let Some(found) = named_snapshot::find(self, full_name).await? else { return Ok(None) };
        Ok(Some(SnapshotBonus::load(&self.mos, found.object).await?.phys.guid))
    }

    /// Full name of the snapshot of this guid of `dataset`, which need not exist, or of the nearest one by its name:
    /// the same snapshot may have been received more than once in a pool.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn snapshot_by_guid(&self, dataset: &str, guid: Guid) -> Result<Option<String>> {
        let in_common = |other: &str| {
            let both = dataset.split('/').zip(other.split('/'));
            both.take_while(|(own, theirs)| own == theirs).count()
        };
        let mut all: Vec<_> =
            self.tree.read().datasets.iter().map(|(name, dataset)| (name.clone(), dataset.clone())).collect();
        all.sort_by_key(|(name, _)| (name != dataset, std::cmp::Reverse(in_common(name))));
        for (dataset, head) in all {
            for (name, bonus) in named_snapshot::in_order(self, &head).await? {
                if bonus.phys.guid == guid {
                    return Ok(Some(format!("{dataset}@{name}")));
                }
            }
        }
        Ok(None)
    }

    /// The list that comes with the first record: where it goes on, and for the sake of which snapshots blocks are left
    /// out, of it and of what it builds on (`dmu_send_impl`).
    async fn begin_list(
        &self,
        to: &Source,
        since: &Since,
        redact: Option<ObjectId>,
        resume: Option<Resume>,
    ) -> Result<Vec<u8>> {
        let mut list = NvList::new();
        let snaps_of = async |list: Option<ObjectId>| match list {
            Some(list) => {
                let head = redaction_list::load(&self.mos, list).await?;
                match head.is_complete() {
                    true => Ok(Some(head.snaps)),
                    false => Err(PoolError::invalid("the redaction bookmark is not complete")),
                }
            }
            None => Ok(None),
        };
        let own = match snaps_of(redact).await? {
            Some(snaps) => Some(snaps),
            None => redacted::snapshots_of(self, to.object).await?,
        };
        let from = snaps_of(since.redaction).await?.or_else(|| since.redacted.clone());
        for (name, snaps) in [(redacted::SNAPS, own), (redacted::FROM_SNAPS, from)] {
            if let Some(snaps) = snaps {
                list.add(name, Value::Uint64Array(snaps.iter().map(|guid| guid.0).collect()));
            }
        }
        if let Some(from) = resume {
            list.add_u64("resume_object", from.object.0).add_u64("resume_offset", from.offset);
        }
        if list.is_empty() {
            return Ok(Vec::new());
        }
        let mut packed = list.encode_xdr();
        packed.resize(packed.len().next_multiple_of(8), 0);
        Ok(packed)
    }

    /// Whether that can be sent, and all it takes.
    ///
    /// # Errors
    /// It does not exist, is encrypted or damaged; the earlier snapshot does not exist, or is none.
    pub async fn prepare_send(&self, request: &SendRequest) -> Result<Sending> {
        let to = send_source::open(self, &request.snapshot, request.saved).await?;
        if encryption::of(&self.mos, &to.head.dir).await?.is_some() {
            return Err(PoolError::Unsupported("it is encrypted, which this version cannot send yet".into()));
        }
        let since = match &request.since {
            Some(name) => since(self, name, &to.phys).await?,
            None => Since::default(),
        };
        let os = self.open_for_reading(to.object, &to.phys, &to.head).await?;
        let features = stream_features(self, &os, to.object, request).await?;
        let redact = match &request.redact {
            Some(name) => Some(bookmarks::redaction_of(self, name, to.guid).await?),
            None => None,
        };
        let redaction = [redact, since.redaction];
        let list = self.begin_list(&to, &since, redact, request.resume).await?;
        let mut flags = begin_flags::FREE_RECORDS | begin_flags::SPILL_BLOCK;
        // What a receive fills is a clone only until it is finished.
        let own = |since: &String| since.split(['@', '#']).next() == Some(&request.snapshot);
        let is_own = request.saved && request.since.as_ref().is_some_and(own);
        flags |= if since.of_origin && !is_own { begin_flags::CLONE } else { 0 };
        flags |= if to.phys.flags & dataset_flags::CI_DATASET != 0 { begin_flags::CI_DATA } else { 0 };
        let before = match request.since {
            Some(_) => Some(earlier(self, &to.head, &since).await?),
            None => None,
        };
        let space = space_since(self, &to.phys, before.as_ref()).await?;
        let begin = Begin {
            kind: HeaderKind::Substream,
            features,
            creation_time: to.phys.creation_time,
            objset_type: os.kind(),
            flags,
            to_guid: to.guid,
            from_guid: since.guid,
            to_name: to.name,
            list_length: u32::try_from(list.len()).unwrap_or(u32::MAX),
        };
        Ok(Sending {
            objset: to.object,
            since: since.txg,
            begin,
            list,
            from: request.resume.unwrap_or_default(),
            estimate: estimate(space, number(&to.head.dir, "recordsize"), request.flags.compressed),
            is_partial: request.saved,
            os,
            _lists: redaction.iter().flatten().map(|list| self.in_use.keep(*list)).collect(),
            redaction,
            phys: to.phys,
            _held: to.held,
        })
    }
}
