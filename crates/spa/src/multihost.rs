//! Property `multihost`: a heartbeat in the uberblock rings, the look for another host's before an import, and the
//! claim that two hosts cannot both make (`module/zfs/mmp.c`, `spa_activity_check` in `module/zfs/spa.c`).
//!
//! Invariants:
//! - while the property is on, some leaf's ring shows within [`FAIL_INTERVALS`] intervals that the pool is in use; when
//!   none was written for that long, the [`Lease`] ends and nothing is written, before another host may take the pool;
//! - a pool whose rings change while it is watched is never opened, whatever `-f` says;
//! - who opens a pool for writing writes a claim into every ring first, and goes on only when it is still there after
//!   any other host that had looked before must have written its own ([`claim`] says why that suffices).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::join_all;
use platter_buffer::Buf;
use platter_checksum::sha256;
use platter_device::Lease;
use platter_ondisk::label::{
    VDEV_LABELS, label_offset, uberblock_offset, uberblock_slot_size, uberblock_slots, usable_size,
};
use platter_ondisk::uberblock::{MMP_MAGIC, Mmp, Uberblock};
use platter_zio::Phase;
use tokio::time::Instant;

use crate::activity::{self, Seen};
use crate::claim::Claim;
use crate::config::PoolState;
use crate::core::Core;
use crate::discover::Candidate;
use crate::environment::{CHOOSE_HOSTID, Environment};
use crate::label_search::labels_at;
use crate::labels::LabelTarget;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::stored_property::StoredProperty;

/// Missed intervals after which the pool is suspended (`zfs_multihost_fail_intervals`).
const FAIL_INTERVALS: u16 = 10;
/// Intervals for which a pool is watched when its writer said nothing better (`zfs_multihost_import_intervals`).
const IMPORT_INTERVALS: u64 = 20;
/// The writer suspends its pool after its own fail intervals; a watcher waits twice as long
/// (`MMP_IMPORT_SAFETY_FACTOR`).
const SAFETY: u64 = 2;
/// Nobody watches a pool for longer: an uberblock that asks for more is damaged.
const WATCH_MAX: Duration = Duration::from_secs(3600);
/// Intervals within which a claim must follow the look at the rings; one that took longer counts for nothing.
const CLAIM_INTERVALS: u32 = 2;
/// Intervals for which a claim must stay: more than another host may take from its last look to its claim.
const PROOF_INTERVALS: u32 = 4;
/// How often a claim that took too long is tried.
const CLAIM_ATTEMPTS: usize = 5;
const _: () = {
    assert!(SAFETY * FAIL_INTERVALS as u64 <= IMPORT_INTERVALS, "who watches would not wait until the writer stops");
    assert!(CLAIM_INTERVALS < PROOF_INTERVALS, "another host's claim could come after ours was believed");
};
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

/// For how long after a heartbeat the pool may be written.
fn limit(environment: &Environment) -> Duration {
    interval(environment) * u32::from(FAIL_INTERVALS)
}

/// Writes the heartbeat until the pool is closed.
pub async fn beat(weak: Weak<Core>) {
    let (mut last, mut sequence, mut second) = (Instant::now(), 0u16, 0);
    loop {
        let Some(core) = weak.upgrade() else { return };
        // From here on these beats are the pool's.
        core.multihost_claim.lock().take();
        let stopped =
            matches!(core.dsl.store.suspension().phase(), Phase::Stopped(_)) || core.dsl.gate.suspended().is_some();
        if stopped {
            return;
        }
        let (lease, wait) = (core.cutoff.lease().clone(), interval(&core.environment));
        if !is_on(&core) || core.dsl.store.suspension().is_suspended() {
            // A suspended pool does not write: whoever resumes it looks first.
            if !is_on(&core) {
                lease.remove();
            }
            last = Instant::now();
            drop(core);
            tokio::time::sleep(wait).await;
            continue;
        }
        if !lease.is_timed() {
            lease.renew(Instant::now(), limit(&core.environment));
        }
        let targets = core.label_targets();
        let each = wait / targets.len().max(1) as u32;
        if let Some(target) = targets.get(core.random() as usize % targets.len().max(1)) {
            let now = core.now();
            sequence = if now == second { sequence.saturating_add(1) } else { 1 };
            second = now;
            let issued = Instant::now();
            let delay = each.max(issued - last);
            let newest = core.uberblock.lock().clone();
            let beat = heartbeat(&core.environment, &newest, sequence, delay);
            let label = core.random() as usize % VDEV_LABELS;
            // A device that hangs must not keep the others from showing that the pool is in use.
            match tokio::time::timeout(wait, write(target, label, &beat)).await {
                // The time of the request, not of the answer: nobody may have seen it later than that.
                Ok(Ok(_)) => {
                    lease.renew(issued, limit(&core.environment));
                    last = issued;
                }
                Ok(Err(error)) => tracing::warn!(pool = core.name(), %error, "a multihost write failed"),
                Err(_) => {}
            }
        }
        if !lease.holds() {
            let suspension = core.dsl.store.suspension().clone();
            tokio::spawn(async move { suspension.hold(suspension.resumptions(), SUSPENDED).await });
        }
        // Neither the pool nor its devices are held while nothing is done.
        drop((core, targets));
        tokio::time::sleep(each).await;
    }
}

/// `uberblock` with the time and number of a beat.
fn heartbeat(environment: &Environment, uberblock: &Uberblock, sequence: u16, delay: Duration) -> Uberblock {
    Uberblock {
        timestamp: environment.clock.now().0,
        mmp_magic: MMP_MAGIC,
        mmp_delay: delay.as_nanos() as u64,
        mmp_config: fields(environment, sequence).to_config(),
        ..uberblock.clone()
    }
}

/// Writes a beat to the last slot of one label's ring; returns the slot's bytes.
async fn write(target: &LabelTarget, label: usize, beat: &Uberblock) -> std::result::Result<Vec<u8>, String> {
    let slot = uberblock_slots(target.ashift) - 1;
    let offset = label_offset(usable_size(target.device.size()), label) + uberblock_offset(target.ashift, slot);
    let bytes = beat.build_slot(uberblock_slot_size(target.ashift), offset, sha256);
    match target.device.write(offset, vec![Buf::copy_from(&bytes)]).await {
        Ok(()) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

/// How long a pool with this uberblock is watched, at least (`spa_activity_check_duration`).
fn duration(environment: &Environment, uberblock: &Uberblock) -> Result<Duration> {
    let own = interval(environment) * IMPORT_INTERVALS as u32;
    let least = own.max(Duration::from_secs(1));
    let Some(mmp) = uberblock.mmp() else { return Ok(least) };
    let delay = Duration::from_nanos(uberblock.mmp_delay);
    let long = match (mmp.interval_ms.map(u64::from), mmp.fail_intervals.map(u64::from)) {
        (Some(ms), Some(fails)) if fails > 0 => Duration::from_millis(fails * ms * SAFETY),
        (Some(ms), Some(_)) => least.max((Duration::from_millis(ms) + delay) * IMPORT_INTERVALS as u32),
        _ => least.max((interval(environment) + delay) * IMPORT_INTERVALS as u32),
    };
    match long <= WATCH_MAX {
        true => Ok(long),
        false => Err(PoolError::Unavailable(format!(
            "its uberblock asks to be watched for {} hours before an import: it is damaged",
            long.as_secs() / 3600
        ))),
    }
}

/// Refuses `multihost=on` where nobody chose a host id.
///
/// # Errors
/// In `zpool_valid_proplist`'s words, with what to do.
pub fn check_property(environment: &Environment, name: &str, value: &str) -> Result<()> {
    match name == "multihost" && value == "on" && environment.host.hostid().is_derived {
        true => Err(PoolError::Invalid(format!("requires a non-zero system hostid\n{CHOOSE_HOSTID}"))),
        false => Ok(()),
    }
}

fn in_use(candidate: &Candidate) -> PoolError {
    let config = &candidate.config;
    let host = config.hostname.as_deref().unwrap_or("<unknown>");
    let hostid = config.hostid.unwrap_or(0);
    PoolError::Busy(format!(
        "pool is imported on {host} (hostid: {hostid:#x})\nExport the pool on the other system, then run \
         'zpool import'."
    ))
}

/// Watches a pool that another host may be using, when its uberblock says that one would show it. Returns what the
/// rings showed last, if anybody looked.
///
/// # Errors
/// It is in use; nobody chose an id for this host, and it is to be written.
pub async fn check(environment: &Environment, candidate: &Candidate, read_only: bool) -> Result<Option<Seen>> {
    let config = &candidate.config;
    let Some(first) = candidate.uberblock.as_ref().filter(|ub| ub.is_multihost()) else { return Ok(None) };
    if !read_only && environment.host.hostid().is_derived {
        return Err(PoolError::Unavailable(format!(
            "pool has the multihost property on and the\nsystem's hostid is not set. {CHOOSE_HOSTID}"
        )));
    }
    if config.state != PoolState::Active || config.hostid == Some(environment.hostid()) {
        return Ok(None);
    }
    let mut targets = Vec::new();
    for (top, vdev) in config.vdev_tree.children.iter().enumerate() {
        for leaf in vdev.leaves() {
            let Some(path) = candidate.paths.get(&leaf.guid.0) else { continue };
            let Ok(device) = environment.devices.open_path(path, platter_device::OpenOptions::read_only()).await else {
                continue;
            };
            targets.push(LabelTarget { device, guid: leaf.guid, top, ashift: vdev.ashift as u32 });
        }
    }
    let seen = activity::look(&targets).await;
    if seen.best.as_ref().is_some_and(|best| best.compare(first).is_gt()) {
        return Err(in_use(candidate));
    }
    match watch(environment, &targets, &seen, duration(environment, first)?).await {
        true => Ok(Some(seen)),
        false => Err(in_use(candidate)),
    }
}

/// Whether the rings stay as they were `seen` for so long, and up to a quarter more, so that two hosts that watch each
/// other do not end together.
async fn watch(environment: &Environment, targets: &[LabelTarget], seen: &Seen, least: Duration) -> bool {
    let watched = least + least.mul_f64((environment.random_u64() % 1000) as f64 / 4000.0);
    let end = Instant::now() + watched;
    while Instant::now() < end {
        tokio::time::sleep(interval(environment).min(end - Instant::now())).await;
        if !seen.is_still(&activity::look(targets).await) {
            return false;
        }
    }
    true
}

/// Writes a claim into every ring; what each slot holds now.
async fn write_claim(targets: &[LabelTarget], claim: &Uberblock) -> Result<BTreeMap<(u64, usize), Option<Vec<u8>>>> {
    let written = join_all(targets.iter().map(|target| async {
        let mut slots = BTreeMap::new();
        for label in 0..VDEV_LABELS {
            slots.insert((target.guid.0, label), write(target, label, claim).await.ok());
        }
        let flushed = target.device.flush().await.is_ok();
        (flushed && slots.values().all(Option::is_some), slots)
    }))
    .await;
    // Two hosts that write more than half of the same devices have one in common.
    let good = written.iter().filter(|(whole, _)| *whole).count();
    if good * 2 <= targets.len() {
        return Err(PoolError::Unavailable(format!(
            "property multihost is on, and only {good} of {} devices took the claim of this system",
            targets.len()
        )));
    }
    Ok(written.into_iter().flat_map(|(_, slots)| slots).collect())
}

/// Claims a pool whose newest uberblock is `newest`, with the committed one `base`, for this host. `seen` is what its
/// rings showed when somebody looked last. The lease is renewed for as long as this claim is good for.
///
/// Why two hosts cannot both succeed: a claim is written into every ring at most [`CLAIM_INTERVALS`] after its host
/// saw the rings without another, and is looked at for [`PROOF_INTERVALS`] after that, which is more. Let the claim of
/// A be the first to arrive. B looked before it arrived, else it would have seen it; so B's claim arrives before A's
/// has been looked at for the last time, and A finds it in the place of its own. Both may give up, one of them always
/// does. A host that stood still between its look and its claim begins anew, and watches for as long as a heartbeat
/// may take.
///
/// # Errors
/// Somebody else is there; devices that do not take the claim.
pub async fn claim(
    environment: &Environment,
    lease: &Arc<Lease>,
    targets: &[LabelTarget],
    base: &Uberblock,
    newest: &Uberblock,
    mut seen: Option<Seen>,
) -> Result<Claim> {
    let busy = || {
        PoolError::Busy(
            "another system is importing the pool or has imported it\nExport the pool on the other system, then run \
             'zpool import'."
                .into(),
        )
    };
    let mut newest = newest.clone();
    for _ in 0..CLAIM_ATTEMPTS {
        let looked = Instant::now();
        let mut now = activity::look(targets).await;
        let is_newer = now.best.as_ref().is_some_and(|best| best.compare(&newest).is_gt());
        if is_newer || seen.is_some_and(|seen| !seen.is_still(&now)) {
            return Err(busy());
        }
        // What tells it from another host's: a part of a millisecond that nobody needs, and the sequence.
        let random = environment.random_u64();
        let delay = interval(environment) + Duration::from_nanos(random % 1_000_000);
        let mine = heartbeat(environment, base, (random >> 32) as u16, delay);
        let issued = Instant::now();
        for (place, slot) in write_claim(targets, &mine).await? {
            now.expect_last(place, slot);
        }
        let in_time = looked.elapsed() <= interval(environment) * CLAIM_INTERVALS;
        let stays = match in_time {
            true => {
                let end = Instant::now() + interval(environment) * PROOF_INTERVALS;
                let mut stays = true;
                while stays && Instant::now() < end {
                    tokio::time::sleep((interval(environment) / 2).min(end - Instant::now())).await;
                    stays = now.is_still(&activity::look(targets).await);
                }
                stays
            }
            false => watch(environment, targets, &now, duration(environment, &mine)?).await,
        };
        if !stays {
            return Err(busy());
        }
        if in_time && issued.elapsed() < limit(environment) {
            lease.renew(issued, limit(environment));
            return Ok(keep(environment, lease, targets, base));
        }
        newest = if mine.compare(&newest).is_gt() { mine } else { newest };
        seen = Some(now);
    }
    Err(PoolError::Unavailable("property multihost is on, and this system is too slow to claim the pool".into()))
}

/// Heartbeats for a claimed pool that is still being opened.
pub fn keep(environment: &Environment, lease: &Arc<Lease>, targets: &[LabelTarget], base: &Uberblock) -> Claim {
    let (environment, lease, targets, base) = (environment.clone(), lease.clone(), targets.to_vec(), base.clone());
    let beats = tokio::spawn(async move {
        let (wait, mut sequence) = (interval(&environment), 0u16);
        let each = wait / targets.len().max(1) as u32;
        loop {
            for target in &targets {
                tokio::time::sleep(each).await;
                sequence = sequence.wrapping_add(1);
                let issued = Instant::now();
                let beat = heartbeat(&environment, &base, sequence, each);
                let label = environment.random_u64() as usize % VDEV_LABELS;
                if let Ok(Ok(_)) = tokio::time::timeout(wait, write(target, label, &beat)).await {
                    lease.renew(issued, limit(&environment));
                }
            }
        }
    });
    Claim(beats.abort_handle())
}

/// Before a suspended pool goes on: makes sure that it is still as this host left it, and renews its lease.
///
/// # Errors
/// Another host has written it since, or is there.
pub async fn check_own(core: &Core) -> Result<()> {
    if !is_on(core) {
        core.cutoff.lease().remove();
        return Ok(());
    }
    let own = core.uberblock.lock().clone();
    let paths: Vec<String> =
        core.config.read().vdev_tree.leaves().iter().filter_map(|leaf| leaf.path.clone()).collect();
    let elsewhere = |host: Option<&str>| {
        PoolError::Busy(format!(
            "it was imported on {} meanwhile\nExport it here with 'zpool export -f'.",
            host.unwrap_or("another host")
        ))
    };
    // What this host was called when it opened the pool.
    let ours = core.config.read().hostid;
    for path in paths {
        let Some((_, labels)) = labels_at(&*core.environment.devices, std::path::Path::new(&path)).await else {
            continue;
        };
        let foreign = labels.config().hostid.is_some_and(|id| Some(id) != ours);
        if foreign && labels.uberblock.as_ref().is_some_and(|now| now.txg > own.txg) {
            return Err(elsewhere(labels.config().hostname.as_deref()));
        }
    }
    let targets = core.label_targets();
    let seen = activity::look(&targets).await;
    // Whose last beat is not too long ago need not watch: nobody else can have taken the pool.
    if !core.cutoff.lease().holds() {
        let watched = duration(&core.environment, &heartbeat(&core.environment, &own, 0, Duration::ZERO))?;
        if !watch(&core.environment, &targets, &seen, watched).await {
            return Err(elsewhere(None));
        }
        // The claim itself is a write, too.
        core.cutoff.lease().renew(Instant::now(), limit(&core.environment));
    }
    // A group may be half written: its uberblock is this host's too.
    let newest = seen.best.clone().filter(|best| best.compare(&own).is_gt()).unwrap_or_else(|| own.clone());
    let claim = claim(&core.environment, core.cutoff.lease(), &targets, &own, &newest, Some(seen)).await?;
    *core.multihost_claim.lock() = Some(claim);
    Ok(())
}
