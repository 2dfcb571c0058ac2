//! When a snapshot of a data set was last made, renamed or destroyed (`dsl_dir_snap_cmtime_update`,
//! `module/zfs/dsl_dir.c`).

use std::sync::Arc;

use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Result, Tx};
use platter_ondisk::ObjectType;

use crate::dir::Dir;
use crate::pool::DslPool;
use crate::zapify::{self, EXTENSIBLE_DATASET};

/// Where a directory's ZAP has it (`DD_FIELD_SNAPSHOTS_CHANGED`): seconds and nanoseconds since the epoch.
const FIELD: &[u8] = b"com.ixsystems:snapshots_changed";

/// The seconds; `None` when it was never noted.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn get(dsl: &DslPool, dir: &Dir) -> Result<Option<u64>> {
    let dnode = dsl.mos.dnode(dir.object).await?;
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    let time = Zap::from_dnode(dnode).get(FIELD).await?;
    Ok(time.and_then(|time| time.integers.first().copied()))
}

/// Notes that it was now. Within a task.
///
/// # Errors
/// Device errors, damage.
pub async fn note(dsl: &Arc<DslPool>, tx: &Tx, dir: &Dir) -> Result<()> {
    if !dsl.features.is_enabled(EXTENSIBLE_DATASET) {
        return Ok(());
    }
    let zap = zapify::ensure_dir(dsl, tx, dir).await?;
    let (seconds, nanoseconds) = dsl.surroundings.clock.now();
    let integers = vec![seconds, u64::from(nanoseconds)];
    zap.put(tx, FIELD, &ZapValue { integer_size: 8, integers }).await
}
