//! `filesystem_limit`, `snapshot_limit` and the counts behind it (`dsl_dir_init_fs_ss_count`, `dsl_fs_ss_limit_check`,
//! `module/zfs/dsl_dir.c`).
//!
//! Invariants:
//! - a directory with counts has counts in every directory below it, and they are exact;
//! - feature `filesystem_limits` is active from the first limit on (it is never taken back);
//! - whoever may create data sets may also change the limits, since the daemon answers its owner only. OpenZFS exempts
//!   such a user; here a limit holds for everybody, otherwise it would never hold.

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Result, Tx};
use platter_ondisk::ObjectId;

use crate::counts::{Counts, FILESYSTEMS, SNAPSHOTS};
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::PoolError;
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::zapify;

const FEATURE: Feature = Feature::FsSsLimit;
async fn store(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>, counts: Counts) -> Result<()> {
    let zap = zapify::ensure_dir(dsl, tx, dir).await?;
    zap.put_u64(tx, FILESYSTEMS.as_bytes(), counts.filesystems).await?;
    zap.put_u64(tx, SNAPSHOTS.as_bytes(), counts.snapshots).await?;
    *dir.counts.lock() = Some(counts);
    Ok(())
}

/// Whether `property` is a limit on how many there are.
pub fn is_count(property: &str) -> bool {
    matches!(property, "filesystem_limit" | "snapshot_limit")
}

/// Whether limits can be set in this pool.
pub fn is_enabled(dsl: &DslPool) -> bool {
    dsl.features.is_enabled(FEATURE)
}

/// Whether some limit was ever set in this pool.
pub fn is_active(dsl: &DslPool) -> bool {
    dsl.features.is_active(FEATURE)
}

/// Counts what is below `dataset`, called `name`, before its first limit is set.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn initialize(dsl: &Arc<DslPool>, tx: &Tx, name: &str, dataset: &Arc<Dataset>) -> Result<()> {
    if !is_active(dsl) {
        dsl.features.adjust(tx, FEATURE, 1).await?;
        dsl.dirty_config();
    }
    let below = format!("{name}/");
    let all: Vec<(String, Arc<Dataset>)> =
        dsl.tree.read().datasets.iter().map(|(name, dataset)| (name.clone(), dataset.clone())).collect();
    let mut uncounted: Vec<(usize, Arc<Dataset>)> = all
        .iter()
        .filter(|(other, dataset)| other.starts_with(&below) && dataset.dir.counts.lock().is_none())
        .map(|(other, dataset)| (other.matches('/').count(), dataset.clone()))
        .collect();
    if dataset.dir.counts.lock().is_none() {
        uncounted.push((name.matches('/').count(), dataset.clone()));
    }
    // The deepest first: a directory's counts are made of its children's.
    uncounted.sort_by_key(|(depth, dataset)| (std::cmp::Reverse(*depth), dataset.object.0));
    for (_, dataset) in uncounted {
        let mut counts = Counts { filesystems: 0, snapshots: own_snapshots(dsl, &dataset).await? };
        for (_, child) in &all {
            if let Some(parent) = child.dir.parent().filter(|parent| parent.object == dataset.dir.object) {
                let below = *child.dir.counts.lock();
                // In a damaged pool a directory may have two names.
                assert!(below.is_some() || !Arc::ptr_eq(&parent, &dataset.dir), "what is below is counted first");
                let below = below.unwrap_or_default();
                counts.filesystems = counts.filesystems.saturating_add(below.filesystems).saturating_add(1);
                counts.snapshots = counts.snapshots.saturating_add(below.snapshots);
            }
        }
        store(dsl, tx, &dataset.dir, counts).await?;
    }
    Ok(())
}

/// What [`initialize`] would count below `dataset`, called `name`.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn count(dsl: &DslPool, name: &str, dataset: &Arc<Dataset>) -> Result<Counts> {
    if let Some(counts) = *dataset.dir.counts.lock() {
        return Ok(counts);
    }
    let below = format!("{name}/");
    let below: Vec<Arc<Dataset>> = {
        let tree = dsl.tree.read();
        let below = tree.datasets.iter().filter(|(other, _)| other.starts_with(&below));
        below.map(|(_, dataset)| dataset.clone()).collect()
    };
    let mut counts = Counts { filesystems: below.len() as u64, snapshots: own_snapshots(dsl, dataset).await? };
    for dataset in &below {
        counts.snapshots = counts.snapshots.saturating_add(own_snapshots(dsl, dataset).await?);
    }
    Ok(counts)
}

/// Snapshots of the data set itself; temporary ones do not count.
async fn own_snapshots(dsl: &DslPool, dataset: &Dataset) -> Result<u64> {
    let names = dataset.phys.lock().snapnames_zapobj;
    if !names.is_some() {
        return Ok(0);
    }
    let entries = Zap::open(&dsl.mos, names).await?.all().await?;
    Ok(entries.iter().filter(|entry| entry.name.first() != Some(&b'%')).count() as u64)
}

/// Checks that `more` file systems fit below `dir` and every directory above it, up to but without `until`.
///
/// # Errors
/// [`PoolError::Invalid`] naming the limit.
pub fn check(dsl: &DslPool, dir: &Arc<Dir>, more: u64, until: Option<ObjectId>) -> std::result::Result<(), PoolError> {
    let mut at = Some(dir.clone());
    while let Some(dir) = at.filter(|dir| Some(dir.object) != until && more > 0) {
        let Some(counts) = *dir.counts.lock() else { return Ok(()) };
        let limit = match dir.own_property("filesystem_limit") {
            Some((StoredProperty::Number(limit), _)) => limit,
            _ => u64::MAX,
        };
        if counts.filesystems.saturating_add(more) > limit {
            return Err(PoolError::Invalid(format!(
                "out of space\n'{}' has a filesystem_limit of {limit} and {} below it",
                dir.full_name(dsl.name()),
                counts.filesystems
            )));
        }
        at = dir.parent();
    }
    Ok(())
}

/// Checks that `more` snapshots fit below `dir` itself; each directory above is asked on its own.
///
/// # Errors
/// [`PoolError::Invalid`] naming the limit.
pub fn check_snapshots(dsl: &DslPool, dir: &Arc<Dir>, more: u64) -> std::result::Result<(), PoolError> {
    let Some(counts) = *dir.counts.lock() else { return Ok(()) };
    let Some((StoredProperty::Number(limit), _)) = dir.own_property("snapshot_limit") else {
        return Ok(());
    };
    if counts.snapshots.saturating_add(more) <= limit {
        return Ok(());
    }
    let (name, there) = (dir.full_name(dsl.name()), counts.snapshots);
    Err(PoolError::Invalid(format!("out of space\n'{name}' has a snapshot_limit of {limit} and {there} below it")))
}

/// Counts `filesystems` and `snapshots` more (or fewer) below `dir` and every directory above it that has counts.
///
/// # Errors
/// Device errors, damage.
pub async fn adjust(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>, filesystems: i64, snapshots: i64) -> Result<()> {
    let mut at = Some(dir.clone());
    while let Some(dir) = at {
        let Some(mut counts) = *dir.counts.lock() else { return Ok(()) };
        counts.filesystems = counts.filesystems.saturating_add_signed(filesystems);
        counts.snapshots = counts.snapshots.saturating_add_signed(snapshots);
        store(dsl, tx, &dir, counts).await?;
        at = dir.parent();
    }
    Ok(())
}

/// Gives a new data set's directory its counts when the one above has some.
///
/// # Errors
/// Out of space, device errors.
pub async fn inherit(dsl: &Arc<DslPool>, tx: &Tx, dir: &Arc<Dir>) -> Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    if parent.counts.lock().is_none() {
        return Ok(());
    }
    store(dsl, tx, dir, Counts::default()).await?;
    adjust(dsl, tx, &parent, 1, 0).await
}
