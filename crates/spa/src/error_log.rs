//! The list of objects with lost blocks, in the MOS (`module/zfs/spa_errlog.c`): a ZAP whose names are bookmarks.

use platter_ondisk::features::Feature;
use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Objset, Result, Tx};
use platter_ondisk::{ObjectId, ObjectType};

use crate::core::Core;
use platter_dsl::mos;

/// With this feature the log has another shape, which this version leaves alone.
const HEAD_ERRLOG: Feature = Feature::HeadErrlog;
/// More entries are not loaded: the message is the same.
const ENTRIES_MAX: usize = 100_000;

/// Replaces the log of the last scrub with the known errors, and drops the log of errors since.
///
/// # Errors
/// Out of space, device errors.
pub async fn write(core: &Arc<Core>, tx: &Tx) -> Result<()> {
    if core.dsl.features.is_active(HEAD_ERRLOG) {
        return Ok(());
    }
    for name in [mos::ERRLOG_LAST, mos::ERRLOG_SCRUB] {
        if let Some(object) = core.dsl.directory.get_u64(name.as_bytes()).await?.filter(|&o| o != 0) {
            core.dsl.mos.free_object(tx, ObjectId(object)).await?;
            core.dsl.directory.put_u64(tx, name.as_bytes(), 0).await?;
        }
    }
    let damaged = core.damaged.lock().clone();
    if damaged.is_empty() {
        return Ok(());
    }
    let object = mos::create_zap(&core.dsl.mos, tx, ObjectType::ERROR_LOG, core.random()).await?;
    let zap = Zap::open(&core.dsl.mos, object).await?;
    for (objset, object) in damaged.iter().take(ENTRIES_MAX) {
        let name = format!("{:x}:{:x}:0:0", objset.0, object.0);
        let empty = ZapValue { integer_size: 1, integers: vec![0] };
        zap.put(tx, name.as_bytes(), &empty).await?;
    }
    core.dsl.directory.put_u64(tx, mos::ERRLOG_LAST.as_bytes(), object.0).await
}

/// Loads both logs.
///
/// # Errors
/// Unreadable blocks. Entries that make no sense are skipped.
pub async fn load(os: &Arc<Objset>, directory: &Zap) -> Result<BTreeSet<(ObjectId, ObjectId)>> {
    let mut damaged = BTreeSet::new();
    for name in [mos::ERRLOG_LAST, mos::ERRLOG_SCRUB] {
        let Some(object) = directory.get_u64(name.as_bytes()).await?.filter(|&o| o != 0) else { continue };
        for entry in Zap::open(os, ObjectId(object)).await?.entries(0, ENTRIES_MAX).await? {
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let mut numbers = name.split(':').map(|part| u64::from_str_radix(part, 16));
            if let (Some(Ok(objset)), Some(Ok(object))) = (numbers.next(), numbers.next()) {
                damaged.insert((ObjectId(objset), ObjectId(object)));
            }
        }
    }
    Ok(damaged)
}
