//! Property `multihost`: a heartbeat in the uberblock rings, and the look for another host's before an import
//! (`module/zfs/mmp.c`, `spa_activity_check` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - while the property is on, some leaf's ring shows within [`FAIL_INTERVALS`] intervals that the pool is in use; when
//!   none can be written for that long, the pool is suspended, before another host may take it;
//! - a pool whose ring changes while it is watched is never opened, whatever `-f` says.

use std::sync::Weak;
use std::time::Duration;

use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_ondisk::label::{
    VDEV_LABELS, label_offset, uberblock_offset, uberblock_slot_size, uberblock_slots, usable_size,
};
use platter_ondisk::uberblock::{MMP_MAGIC, Mmp, Uberblock};
use platter_zio::Phase;
use tokio::time::Instant;

use crate::config::PoolState;
use crate::core::Core;
use crate::dir::StoredProperty;
use crate::discover::{Candidate, labels_at};
use crate::environment::Environment;
use crate::error::{PoolError, Result};
use crate::labels::LabelTarget;

/// Missed intervals after which the pool is suspended (`zfs_multihost_fail_intervals`).
const FAIL_INTERVALS: u16 = 10;
/// Intervals for which a pool is watched when its writer said nothing better (`zfs_multihost_import_intervals`).
const IMPORT_INTERVALS: u64 = 20;
/// The writer suspends its pool after its own fail intervals; a watcher waits twice as long
/// (`MMP_IMPORT_SAFETY_FACTOR`).
const SAFETY: u64 = 2;
/// Why a pool is suspended that could not show that it is in use.
pub const SUSPENDED: &str = "multihost writes failed or were delayed";

/// Whether the property is on.
pub fn is_on(core: &Core) -> bool {
    matches!(core.pool_properties.read().get("multihost"), Some(StoredProperty::Text(word)) if word == "on")
}

/// Completes an uberblock that is about to be written.
pub fn complete(core: &Core, uberblock: &mut Uberblock) {
    uberblock.mmp_magic = MMP_MAGIC;
    if is_on(core) {
        uberblock.mmp_delay = interval(&core.environment).as_nanos() as u64;
        uberblock.mmp_config = fields(&core.environment, 0).to_config();
    }
}

fn fields(environment: &Environment, sequence: u16) -> Mmp {
    Mmp {
        interval_ms: Some(environment.multihost_interval_ms),
        sequence: Some(sequence),
        fail_intervals: Some(FAIL_INTERVALS),
    }
}

fn interval(environment: &Environment) -> Duration {
    Duration::from_millis(u64::from(environment.multihost_interval_ms.max(100)))
}

/// Writes the heartbeat until the pool is closed.
pub async fn beat(weak: Weak<Core>) {
    let (mut last, mut sequence, mut second) = (Instant::now(), 0u16, 0);
    loop {
        let Some(core) = weak.upgrade() else { return };
        let stopped = matches!(core.store.suspension().phase(), Phase::Stopped(_)) || core.gate.suspended().is_some();
        if stopped {
            return;
        }
        let wait = interval(&core.environment);
        if !is_on(&core) || core.store.suspension().is_suspended() {
            // A suspended pool does not write: whoever resumes it looks first.
            last = Instant::now();
            drop(core);
            tokio::time::sleep(wait).await;
            continue;
        }
        let targets = core.label_targets();
        let each = wait / targets.len().max(1) as u32;
        if let Some(target) = targets.get(core.random() as usize % targets.len().max(1)) {
            let now = core.now();
            sequence = if now == second { sequence.saturating_add(1) } else { 1 };
            second = now;
            let delay = each.max(last.elapsed());
            let write = write(&core, target.clone(), sequence, delay);
            // A device that hangs must not keep the others from showing that the pool is in use.
            if let Ok(true) = tokio::time::timeout(wait, write).await {
                last = Instant::now();
            }
            if last.elapsed() > wait * u32::from(FAIL_INTERVALS) {
                let suspension = core.store.suspension().clone();
                tokio::spawn(async move { suspension.hold(suspension.resumptions(), SUSPENDED).await });
            }
        }
        // Neither the pool nor its devices are held while nothing is done.
        drop((core, targets));
        tokio::time::sleep(each).await;
    }
}

/// One write: the newest uberblock, with the time and number of this beat, to the last slot of some label's ring.
async fn write(core: &Core, target: LabelTarget, sequence: u16, delay: Duration) -> bool {
    let mut uberblock = core.uberblock.lock().clone();
    uberblock.timestamp = core.now();
    uberblock.mmp_magic = MMP_MAGIC;
    uberblock.mmp_delay = delay.as_nanos() as u64;
    uberblock.mmp_config = fields(&core.environment, sequence).to_config();
    let label = core.random() as usize % VDEV_LABELS;
    let slot = uberblock_slots(target.ashift) - 1;
    let offset = label_offset(usable_size(target.device.size()), label) + uberblock_offset(target.ashift, slot);
    let bytes = uberblock.build_slot(uberblock_slot_size(target.ashift), offset, sha256);
    let written = target.device.write(offset, vec![Buf::copy_from(&bytes)]).await;
    if let Err(error) = &written {
        tracing::warn!(pool = core.name(), %error, "a multihost write failed");
    }
    written.is_ok()
}

/// How long a pool with this uberblock is watched, at least (`spa_activity_check_duration`).
fn duration(environment: &Environment, uberblock: &Uberblock) -> Duration {
    let own = interval(environment) * IMPORT_INTERVALS as u32;
    let least = own.max(Duration::from_secs(1));
    let Some(mmp) = uberblock.mmp() else { return least };
    let delay = Duration::from_nanos(uberblock.mmp_delay);
    match (mmp.interval_ms.map(u64::from), mmp.fail_intervals.map(u64::from)) {
        (Some(ms), Some(fails)) if fails > 0 => Duration::from_millis(fails * ms * SAFETY),
        (Some(ms), Some(_)) => least.max((Duration::from_millis(ms) + delay) * IMPORT_INTERVALS as u32),
        _ => least.max((interval(environment) + delay) * IMPORT_INTERVALS as u32),
    }
}

/// Watches a pool that another host may be using, when its uberblock says that one would show it.
///
/// # Errors
/// It is in use.
pub async fn check(environment: &Environment, candidate: &Candidate) -> Result<()> {
    let config = &candidate.config;
    let Some(first) = candidate.uberblock.as_ref().filter(|ub| ub.is_multihost()) else { return Ok(()) };
    if config.state != PoolState::Active || config.hostid == Some(environment.hostid) {
        return Ok(());
    }
    // A quarter more at most, so that two hosts that watch each other do not end together.
    let least = duration(environment, first);
    let watched = least + least.mul_f64((environment.random_u64() % 1000) as f64 / 4000.0);
    let end = Instant::now() + watched;
    while Instant::now() < end {
        tokio::time::sleep(interval(environment).min(watched)).await;
        for path in candidate.paths.values() {
            let Some((_, labels)) = labels_at(&*environment.devices, path).await else { continue };
            if labels.uberblock.is_some_and(|now| now.compare(first).is_gt()) {
                let host = config.hostname.as_deref().unwrap_or("<unknown>");
                let hostid = config.hostid.unwrap_or(0);
                return Err(PoolError::Busy(format!(
                    "pool is imported on {host} (hostid: {hostid:#x})\nExport the pool on the other system, then run \
                     'zpool import'."
                )));
            }
        }
    }
    Ok(())
}

/// Before a suspended pool goes on: whether it is still as this host left it.
///
/// # Errors
/// Another host has written it since.
pub async fn check_own(core: &Core) -> Result<()> {
    if !is_on(core) {
        return Ok(());
    }
    let own = core.uberblock.lock().clone();
    let paths: Vec<String> =
        core.config.read().vdev_tree.leaves().iter().filter_map(|leaf| leaf.path.clone()).collect();
    for path in paths {
        let Some((_, labels)) = labels_at(&*core.environment.devices, std::path::Path::new(&path)).await else {
            continue;
        };
        let foreign = labels.config().hostid.is_some_and(|id| id != core.environment.hostid);
        if foreign && labels.uberblock.as_ref().is_some_and(|now| now.txg > own.txg) {
            return Err(PoolError::Busy(format!(
                "it was imported on {} meanwhile\nExport it here with 'zpool export -f'.",
                labels.config().hostname.as_deref().unwrap_or("another host")
            )));
        }
    }
    Ok(())
}
