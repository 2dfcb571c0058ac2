//! How far a receive has come that can go on after it was broken off: kept in the data set that it fills
//! (`DS_FIELD_RESUME_*`, `include/sys/dsl_dataset.h`).
//!
//! What was received and how far that is reach the disk in the same group: a transaction that writes a record notes the
//! record, and the group's sync stores the last one noted.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Result, Tx};
use platter_ondisk::dsl::dataset_flags;
use platter_ondisk::{Guid, ObjectId, ObjectType};
use platter_stream::{Begin, ResumeToken, StreamFeatures};

use crate::dataset::Dataset;
use crate::pool::DslPool;
use crate::{named_snapshot, redacted, zapify};

const FROM_GUID: &str = "com.delphix:resume_fromguid";
const TO_GUID: &str = "com.delphix:resume_toguid";
const TO_NAME: &str = "com.delphix:resume_toname";
const OBJECT: &str = "com.delphix:resume_object";
const OFFSET: &str = "com.delphix:resume_offset";
const BYTES: &str = "com.delphix:resume_bytes";
const LARGE_BLOCKS: &str = "com.delphix:resume_largeblockok";
const EMBEDDED: &str = "com.delphix:resume_embedok";
const COMPRESSED: &str = "com.delphix:resume_compressok";
const FROM_REDACTED: &str = "com.delphix:resume_redact_book_snaps";

/// All of them.
const FIELDS: [&str; 10] =
    [FROM_GUID, TO_GUID, TO_NAME, OBJECT, OFFSET, BYTES, LARGE_BLOCKS, EMBEDDED, COMPRESSED, FROM_REDACTED];

/// Notes in `dataset`, which a new receive of `begin` fills, that nothing was received yet.
///
/// # Errors
/// Out of space, device errors.
pub async fn begin(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    begin: &Begin,
    from_redacted: Option<Vec<Guid>>,
) -> Result<()> {
    let zap = zapify::ensure(dsl, tx, dataset).await?;
    let mut numbers = vec![(TO_GUID, begin.to_guid.0), (OBJECT, 1), (OFFSET, 0), (BYTES, 0)];
    if begin.from_guid != Guid(0) {
        numbers.push((FROM_GUID, begin.from_guid.0));
    }
    let flags = [
        (LARGE_BLOCKS, StreamFeatures::LARGE_BLOCKS),
        (EMBEDDED, StreamFeatures::EMBED_DATA),
        (COMPRESSED, StreamFeatures::COMPRESSED),
    ];
    numbers.extend(flags.into_iter().filter(|(_, flag)| begin.features.has(*flag)).map(|(name, _)| (name, 1)));
    for (name, number) in numbers {
        zap.put_u64(tx, name.as_bytes(), number).await?;
    }
    if let Some(snaps) = from_redacted {
        let integers = snaps.into_iter().map(|guid| guid.0).collect();
        zap.put(tx, FROM_REDACTED.as_bytes(), &ZapValue { integer_size: 8, integers }).await?;
    }
    let name = begin.to_name.bytes().chain([0]).map(u64::from).collect();
    zap.put(tx, TO_NAME.as_bytes(), &ZapValue { integer_size: 1, integers: name }).await
}

/// Stores what group `tx` noted, when its data set is written.
///
/// # Errors
/// Out of space, device errors.
pub async fn sync(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>) -> Result<()> {
    let noted = {
        let mut noted = dataset.noted.lock();
        let later = noted.split_off(&tx.txg().plus(1));
        std::mem::replace(&mut *noted, later)
    };
    let Some((_, point)) = noted.into_iter().next_back() else { return Ok(()) };
    let Some(zap) = fields(dsl, dataset).await? else { return Ok(()) };
    for (name, number) in [(OBJECT, point.object.0), (OFFSET, point.offset), (BYTES, point.bytes)] {
        zap.put_u64(tx, name.as_bytes(), number).await?;
    }
    Ok(())
}

/// The receive is finished.
///
/// # Errors
/// Out of space, device errors.
pub async fn end(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>) -> Result<()> {
    dataset.noted.lock().clear();
    let Some(zap) = fields(dsl, dataset).await? else { return Ok(()) };
    for name in FIELDS {
        zap.remove(tx, name.as_bytes()).await?;
    }
    Ok(())
}

async fn fields(dsl: &DslPool, dataset: &Dataset) -> Result<Option<Zap>> {
    let dnode = dsl.mos.dnode(dataset.object).await?;
    Ok((dnode.info().object_type == ObjectType::OTN_ZAP_METADATA).then(|| Zap::from_dnode(dnode)))
}

/// Name of the data set, below its target, that a receive into one that exists fills.
pub const RECEIVING: &str = "%recv";

/// Where the receive goes on whose target is `dataset`, called `name`: it, or what is hidden below it.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn token_for(dsl: &DslPool, name: &str, dataset: &Dataset) -> Result<Option<ResumeToken>> {
    let below = dsl.tree.read().datasets.get(&format!("{name}/{RECEIVING}")).cloned();
    match below {
        Some(below) => token(dsl, &below).await,
        None if dataset.phys.lock().flags & dataset_flags::INCONSISTENT == 0 => Ok(None),
        None => token(dsl, dataset).await,
    }
}

/// Full name of what a receive that was broken off has left beside the data set of `snapshot`, where that is a clone of
/// it and keeps it from being destroyed.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn unfinished_clone(dsl: &DslPool, snapshot: &str) -> Result<Option<String>> {
    let name = format!("{}/{RECEIVING}", snapshot.split('@').next().unwrap_or_default());
    let Some(below) = dsl.tree.read().datasets.get(&name).cloned() else { return Ok(None) };
    let origin = below.dir.phys.lock().origin_obj;
    let origin = named_snapshot::by_object(dsl, origin).await?;
    Ok(origin.filter(|origin| origin.full_name == snapshot).map(|_| name))
}

/// Where the receive into `dataset` goes on; none when none was broken off there.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn token(dsl: &DslPool, dataset: &Dataset) -> Result<Option<ResumeToken>> {
    let Some(zap) = fields(dsl, dataset).await? else { return Ok(None) };
    let Some(to_guid) = zap.get_u64(TO_GUID.as_bytes()).await? else { return Ok(None) };
    let name = zap.get(TO_NAME.as_bytes()).await?.unwrap_or(ZapValue { integer_size: 1, integers: Vec::new() });
    let name: Vec<u8> = name.integers.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    let mut numbers = BTreeMap::new();
    for name in FIELDS.iter().filter(|name| ![TO_NAME, FROM_REDACTED].contains(*name)) {
        if let Some(number) = zap.get_u64(name.as_bytes()).await? {
            numbers.insert(*name, number);
        }
    }
    let number = |name: &str| numbers.get(name).copied().unwrap_or(0);
    let from_redacted = zap.get(FROM_REDACTED.as_bytes()).await?;
    Ok(Some(ResumeToken {
        from_guid: numbers.get(FROM_GUID).copied().map(Guid),
        object: ObjectId(number(OBJECT)),
        offset: number(OFFSET),
        bytes: number(BYTES),
        to_guid: Guid(to_guid),
        to_name: String::from_utf8_lossy(&name).into_owned(),
        large_blocks: numbers.contains_key(LARGE_BLOCKS),
        embedded: numbers.contains_key(EMBEDDED),
        compressed: numbers.contains_key(COMPRESSED),
        raw: false,
        redacted: redacted::snapshots_of(dsl, dataset.object).await?,
        from_redacted: from_redacted.map(|value| value.integers.into_iter().map(Guid).collect()),
    }))
}
