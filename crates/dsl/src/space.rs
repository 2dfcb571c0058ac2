//! How much a data set may still use: quotas, reservations and the pool's size together (`dsl_dir_space_available`,
//! `dsl_dir_tempreserve_space`, `module/zfs/dsl_dir.c`; `dsl_dataset_space`, `module/zfs/dsl_dataset.c`), and changing
//! those limits.
//!
//! A writer is admitted when what he writes fits every limit together with all that waits to be written under that
//! limit. When it is not sure (what waits may turn out smaller, or free something), he waits for a group to be on disk.

use std::sync::Arc;

use platter_dmu::{Objset, Tx};
use platter_ondisk::ObjectId;
use platter_zio::ZioError;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::used_space::{SpaceChange, UsedKind, difference};

/// From the root down to `dir`.
fn chain(dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
    let mut chain = vec![dir.clone()];
    while let Some(parent) = chain.last().and_then(|dir| dir.parent()) {
        chain.push(parent);
    }
    chain.reverse();
    chain
}

/// Bytes available in `dir`. With `moving`, as if that much less were used in that directory, which is above `dir`.
/// Without `quotas` only the pool's size and reservations count.
fn available_below(dsl: &DslPool, dir: &Arc<Dir>, moving: Option<(ObjectId, u64)>, quotas: bool) -> u64 {
    let (pool_size, _) = dsl.space();
    let mut above = u64::MAX;
    for (depth, dir) in chain(dir).into_iter().enumerate() {
        let phys = dir.phys.lock();
        let is_root = depth == 0;
        let mut quota = if phys.quota == 0 || !quotas { u64::MAX } else { phys.quota };
        if is_root {
            quota = quota.min(pool_size);
        } else {
            // What is reserved here was taken off above.
            above = above.saturating_add(phys.reserved.saturating_sub(phys.used_bytes));
        }
        let mut used = phys.used_bytes;
        if let Some((_, bytes)) = moving.filter(|(object, _)| *object == dir.object) {
            used = used.saturating_sub(bytes);
            if !is_root {
                above = above.saturating_add(bytes);
            }
        }
        above = above.min(quota.saturating_sub(used));
    }
    above
}

/// Bytes available in a directory.
pub fn available_in(dsl: &DslPool, dir: &Arc<Dir>) -> u64 {
    available_below(dsl, dir, None, true)
}

/// Bytes available in `dir` if `bytes` fewer were used in the directory `above`, which is above it.
pub fn available_after_moving(dsl: &DslPool, dir: &Arc<Dir>, above: ObjectId, bytes: u64) -> u64 {
    available_below(dsl, dir, Some((above, bytes)), true)
}

fn for_dataset(in_dir: u64, dataset: &Dataset, quotas: bool) -> u64 {
    let (referenced, unique) = {
        let phys = dataset.phys.lock();
        (phys.referenced_bytes, phys.unique_bytes)
    };
    let available = in_dir.saturating_add(dataset.dir.local_number("refreservation").saturating_sub(unique));
    match dataset.dir.local_number("refquota") {
        refquota if refquota != 0 && quotas => available.min(refquota.saturating_sub(referenced)),
        _ => available,
    }
}

/// The property `available`: bytes that can still be written to the data set.
pub fn available(dsl: &DslPool, dataset: &Dataset) -> u64 {
    for_dataset(available_in(dsl, &dataset.dir), dataset, true)
}

/// Whether a write fits.
#[derive(Debug)]
pub enum Admission {
    /// It does.
    Yes,
    /// Only what waits to be written stands against it: ask again when that is on disk.
    AfterSync,
    /// It does not, and nothing that waits could change that.
    No(ZioError),
}

/// What waits to be written costs more on disk than in memory: indirect blocks and dnodes, in several copies.
fn on_disk(waiting: u64) -> u64 {
    waiting.saturating_add(waiting / 4)
}

fn is_below(dir: &Arc<Dir>, above: ObjectId) -> bool {
    let mut at = Some(dir.clone());
    while let Some(dir) = at {
        if dir.object == above {
            return true;
        }
        at = dir.parent();
    }
    false
}

/// Whether `bytes` more can be written to `dataset`.
pub fn admit(dsl: &DslPool, dataset: &Arc<Dataset>, bytes: u64) -> Admission {
    let dirty = dsl.gate.dirty();
    if available(dsl, dataset) >= bytes.saturating_add(on_disk(dirty)) {
        return Admission::Yes;
    }
    // Something is near. Each limit is met by what waits under it alone.
    let open: Vec<(Arc<Dataset>, Arc<Objset>)> =
        dsl.tree.read().datasets.values().filter_map(|ds| Some((ds.clone(), ds.open_objset()?))).collect();
    let below = |above: ObjectId| {
        open.iter().filter(move |(ds, _)| is_below(&ds.dir, above)).fold((0u64, false), |(bytes, changing), (_, os)| {
            (bytes.saturating_add(os.unsynced_bytes()), changing || os.has_changes())
        })
    };
    let pool = for_dataset(available_below(dsl, &dataset.dir, None, false), dataset, false);
    let maturing = dsl.store.state().allocator.lock().deferred() > 0;
    let pool_changing = maturing || dirty > 0 || open.iter().any(|(_, os)| os.has_changes());
    let mut quotas = Vec::new();
    for dir in chain(&dataset.dir) {
        let (quota, used) = {
            let phys = dir.phys.lock();
            (phys.quota, phys.used_bytes)
        };
        if quota != 0 {
            let (waiting, changing) = below(dir.object);
            quotas.push((quota.saturating_sub(used), waiting, changing));
        }
    }
    let refquota = dataset.dir.local_number("refquota");
    if refquota != 0 {
        let room = refquota.saturating_sub(dataset.phys.lock().referenced_bytes);
        let (waiting, changing) =
            dataset.open_objset().map_or((0, false), |os| (os.unsynced_bytes(), os.has_changes()));
        quotas.push((room, waiting, changing));
    }
    let mut unsure = false;
    if pool < bytes.saturating_add(on_disk(dirty)) {
        if !pool_changing {
            return Admission::No(ZioError::NoSpace);
        }
        unsure = true;
    }
    for (room, waiting, changing) in quotas {
        if !quota_admits(dataset, room.saturating_sub(on_disk(waiting)), bytes) {
            if !changing {
                return Admission::No(ZioError::Quota);
            }
            unsure = true;
        }
    }
    if unsure { Admission::AfterSync } else { Admission::Yes }
}

/// Whether a quota that leaves so much `room` lets `bytes` more through: as long as there is any it lets a record
/// through, so that what is used ends at the quota or a little above (`dsl_dataset_check_quota`,
/// `module/zfs/dsl_dataset.c`, looks at what is there only; OpenZFS writes record by record).
fn quota_admits(dataset: &Dataset, room: u64, bytes: u64) -> bool {
    let record = dataset.open_objset().map_or(0, |os| u64::from(os.properties().record_size));
    room > 0 && bytes <= room.max(record)
}

/// The limit that `bytes` more meet, by what is on disk.
pub fn limit_met(dsl: &DslPool, dataset: &Arc<Dataset>, bytes: u64) -> Option<ZioError> {
    let over_quota = chain(&dataset.dir).iter().any(|dir| {
        let phys = dir.phys.lock().clone();
        phys.quota != 0 && !quota_admits(dataset, phys.quota.saturating_sub(phys.used_bytes), bytes)
    });
    let refquota = dataset.dir.local_number("refquota");
    let referenced = dataset.phys.lock().referenced_bytes;
    if over_quota || refquota != 0 && !quota_admits(dataset, refquota.saturating_sub(referenced), bytes) {
        return Some(ZioError::Quota);
    }
    let pool = for_dataset(available_below(dsl, &dataset.dir, None, false), dataset, false);
    (pool < bytes).then_some(ZioError::NoSpace)
}

/// Refuses a task that takes space for good when only the reserve is left (`dsl_sync_task`, `ZFS_SPACE_CHECK_NORMAL`).
///
/// # Errors
/// No space.
pub fn check_task(dsl: &DslPool) -> Result<()> {
    let root = dsl.tree.read().root_dir.clone();
    match root {
        Some(root) if available_below(dsl, &root, None, false) == 0 => Err(PoolError::invalid("out of space")),
        _ => Ok(()),
    }
}

/// Whether `property` is one of the limits that [`set`] sets.
pub fn is_limit(property: &str) -> bool {
    matches!(property, "quota" | "refquota" | "reservation" | "refreservation")
}

fn too_small<T>() -> Result<T> {
    Err(PoolError::invalid("size is less than current used or reserved space"))
}

fn too_large<T>() -> Result<T> {
    Err(PoolError::invalid("size is greater than available space"))
}

/// Sets a quota or reservation (0: none) on `dataset`, within a task.
///
/// # Errors
/// In OpenZFS's words, why the value does not fit; device errors.
pub async fn set(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, property: &str, value: u64) -> Result<()> {
    let dir = &dataset.dir;
    let directory = dir.phys.lock().clone();
    let (referenced, unique) = {
        let phys = dataset.phys.lock();
        (phys.referenced_bytes, phys.unique_bytes)
    };
    let (refquota, refreservation) = (dir.local_number("refquota"), dir.local_number("refreservation"));
    let mut changed = Vec::new();
    match property {
        "quota" => {
            if value != 0 && (value < directory.reserved || value < directory.used_bytes) {
                return too_small();
            }
            dir.phys.lock().quota = value;
            changed.push(dir.clone());
        }
        "refquota" => {
            if value != 0 && (value < referenced || value < refreservation) {
                return too_small();
            }
        }
        "reservation" => {
            let used = directory.used_bytes;
            let more = used.max(value).saturating_sub(used.max(directory.reserved));
            let room = dir.parent().map_or_else(|| dsl.space().0.saturating_sub(used), |dir| available_in(dsl, &dir));
            if more > 0 && (more > room || directory.quota != 0 && value > directory.quota) {
                return too_large();
            }
            changed = dir.set_reservation(value);
        }
        "refreservation" => {
            let more = unique.max(value).saturating_sub(unique.max(refreservation));
            if more > 0 && (more > available_in(dsl, dir) || refquota != 0 && value > refquota) {
                return too_large();
            }
            let used = difference(value.saturating_sub(unique), refreservation.saturating_sub(unique));
            changed = dir.diduse(UsedKind::Refreservation, SpaceChange { used, ..SpaceChange::default() });
        }
        other => return Err(PoolError::invalid(format!("'{other}' is no limit"))),
    }
    for dir in changed {
        dir.store(&dsl.mos, tx).await?;
    }
    dir.set_property(&dsl.mos, tx, property, Some(StoredProperty::Number(value))).await?;
    Ok(())
}

/// Checks the limits that a data set below `parent` is to be created with.
///
/// # Errors
/// In OpenZFS's words, why a value does not fit.
pub fn check_new(dsl: &DslPool, parent: &Arc<Dir>, wanted: impl Fn(&str) -> u64) -> Result<()> {
    let (quota, refquota) = (wanted("quota"), wanted("refquota"));
    let (reservation, refreservation) = (wanted("reservation"), wanted("refreservation"));
    let most = reservation.max(refreservation);
    if quota != 0 && most > quota || refquota != 0 && refreservation > refquota || most > available_in(dsl, parent) {
        return too_large();
    }
    Ok(())
}
