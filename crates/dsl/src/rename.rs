//! `zfs rename` of a file system with all that is below it (`dsl_dir_rename_check`, `dsl_dir_rename_sync`,
//! `module/zfs/dsl_dir.c`).
//!
//! Invariants: everything is checked before anything changes; space and counts move with the directory, so that those
//! of every directory above stay exact.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};

use crate::counts::Counts;
use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::resume_state::RECEIVING;
use crate::used_space::{SpaceChange, UsedKind, difference, reserved_delta};
use crate::{history, limits, space};
use platter_api::names;
use platter_api::report::DatasetKind;

/// The directories from `dir` to the root, itself first.
fn upwards(dir: &Arc<Dir>) -> Vec<Arc<Dir>> {
    let mut all = vec![dir.clone()];
    while let Some(parent) = all.last().and_then(|dir| dir.parent()) {
        all.push(parent);
    }
    all
}

/// The new name of what was called `name` when `old` becomes `new`.
fn renamed(name: &str, old: &str, new: &str) -> Option<String> {
    let rest = name.strip_prefix(old)?;
    (rest.is_empty() || rest.starts_with('/')).then(|| format!("{new}{rest}"))
}

/// A rename that was found possible.
pub struct Plan {
    dataset: Arc<Dataset>,
    old_parent: Arc<Dir>,
    new_parent: Arc<Dir>,
    /// Each data set with its old and its new name.
    moved: Vec<(String, String, Arc<Dataset>)>,
}

/// Whether `old` can become `new`, as far as names go.
fn plan(dsl: &DslPool, old: &str, new: &str) -> Result<Plan> {
    names::check_dataset(new)?;
    let tree: Vec<(String, Arc<Dataset>)> =
        dsl.tree.read().datasets.iter().map(|(name, dataset)| (name.clone(), dataset.clone())).collect();
    let find = |name: &str| tree.iter().find(|(other, _)| other == name).map(|(_, dataset)| dataset.clone());
    let dataset = find(old).ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
    let Some(old_parent) = dataset.dir.parent() else {
        return Err(PoolError::invalid("operation does not apply to pools"));
    };
    if find(new).is_some() {
        return Err(PoolError::Exists("dataset already exists".into()));
    }
    let (above, _) = new.rsplit_once('/').ok_or_else(|| PoolError::invalid("pools cannot be renamed this way"))?;
    let parent = find(above).ok_or_else(|| PoolError::NotFound("parent does not exist".into()))?;
    if parent.kind == DatasetKind::Volume {
        return Err(PoolError::invalid("parent is not a filesystem"));
    }
    let new_parent = parent.dir.clone();
    if upwards(&new_parent).iter().any(|dir| dir.object == dataset.dir.object) {
        return Err(PoolError::invalid("New dataset name cannot be a descendant of current dataset name"));
    }
    let moved: Vec<(String, String, Arc<Dataset>)> =
        tree.iter().filter_map(|(name, ds)| Some((name.clone(), renamed(name, old, new)?, ds.clone()))).collect();
    for (_, name, dataset) in &moved {
        let is_received = name.rsplit('/').next() == Some(RECEIVING);
        if is_received && dataset.open_objset().is_some() {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        // What is being received has a name that nobody can give.
        let checked = if is_received { name.replace(RECEIVING, "recv1") } else { name.clone() };
        names::check_dataset(&checked)
            .map_err(|_| PoolError::invalid("name is too long: a descendant's name would not fit"))?;
    }
    Ok(Plan { dataset, old_parent, new_parent, moved })
}

/// Whether `old` can become `new`.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn check(dsl: &DslPool, old: &str, new: &str) -> Result<Plan> {
    let plan = plan(dsl, old, new)?;
    for (_, name, dataset) in &plan.moved {
        let room = names::NAME_MAX.saturating_sub(name.len() + 1);
        if dataset.snapshot_names(&dsl.mos).await?.iter().any(|(own, _)| own.len() > room) {
            return Err(PoolError::invalid("name is too long: a snapshot's name would not fit"));
        }
    }
    if plan.new_parent.object != plan.old_parent.object {
        let phys = plan.dataset.dir.phys.lock().clone();
        // Where there are limits, what is moved will be counted, if it was not yet.
        let counts = match limits::is_active(dsl) {
            true => limits::count(dsl, old, &plan.dataset).await?,
            false => Counts::default(),
        };
        check_room(dsl, &phys, &plan.old_parent, &plan.new_parent, counts)?;
    }
    Ok(plan)
}

/// Renames `old` to `new`, within a task, as [`check`] planned it.
///
/// # Errors
/// Device errors.
pub async fn rename(dsl: &Arc<DslPool>, tx: &Tx, old: &str, new: &str, plan: Plan) -> Result<()> {
    let Plan { dataset, old_parent, new_parent, moved } = plan;
    let last = new.rsplit('/').next().unwrap_or(new);

    let dir = dataset.dir.clone();
    if limits::is_active(dsl) {
        // So that its counts can be taken along.
        limits::initialize(dsl, tx, old, &dataset).await?;
    }
    if new_parent.object != old_parent.object {
        move_space(dsl, tx, &dir, &old_parent, &new_parent).await?;
    }

    let children = old_parent.phys.lock().child_dir_zapobj;
    Zap::open(&dsl.mos, children).await?.remove(tx, dir.name().as_bytes()).await?;
    let children = new_parent.phys.lock().child_dir_zapobj;
    Zap::open(&dsl.mos, children).await?.add(tx, last.as_bytes(), &ZapValue::from_u64(dir.object.0)).await?;
    dir.phys.lock().parent_obj = new_parent.object;
    {
        let mut place = dir.place.write();
        place.parent = Some(new_parent);
        place.name = last.to_owned();
    }
    dir.store(&dsl.mos, tx).await?;
    {
        let mut tree = dsl.tree.write();
        for (name, _, _) in &moved {
            tree.datasets.remove(name);
        }
        for (_, name, dataset) in moved {
            tree.datasets.insert(name, dataset);
        }
    }
    crate::effects::follow(dsl);
    Ok(history::append_event(dsl, tx, "rename", &format!("{old} ({}) -> {new}", dataset.object)).await?)
}

/// Takes the space and the counts of `dir` from one directory to another.
async fn move_space(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dir: &Arc<Dir>,
    old_parent: &Arc<Dir>,
    new_parent: &Arc<Dir>,
) -> Result<()> {
    let (phys, counts) = (dir.phys.lock().clone(), *dir.counts.lock());
    let change = SpaceChange::minus_all(&phys);
    let unused = difference(phys.reserved.max(phys.used_bytes), phys.used_bytes);
    let rest = |used| SpaceChange { used, ..SpaceChange::default() };
    let mut changed = old_parent.diduse(UsedKind::Child, change);
    changed.extend(old_parent.diduse(UsedKind::ChildReservation, rest(-unused)));
    changed.extend(new_parent.diduse(UsedKind::Child, -change));
    changed.extend(new_parent.diduse(UsedKind::ChildReservation, rest(unused)));
    for dir in changed {
        dir.store(&dsl.mos, tx).await?;
    }
    if let Some(counts) = counts {
        let filesystems = difference(counts.filesystems.saturating_add(1), 0);
        let snapshots = difference(counts.snapshots, 0);
        limits::adjust(dsl, tx, old_parent, -filesystems, -snapshots).await?;
        limits::adjust(dsl, tx, new_parent, filesystems, snapshots).await?;
    }
    Ok(())
}

/// Whether there is room for the directory below its new parent, by space and by number (`dsl_dir_transfer_possible`).
fn check_room(
    dsl: &DslPool,
    phys: &platter_ondisk::dsl::DslDirPhys,
    old_parent: &Arc<Dir>,
    new_parent: &Arc<Dir>,
    counts: Counts,
) -> Result<()> {
    let space = phys.used_bytes.max(phys.reserved);
    let old = upwards(old_parent);
    let common = upwards(new_parent)
        .into_iter()
        .find(|dir| old.iter().any(|other| other.object == dir.object))
        .ok_or_else(|| PoolError::invalid("the two are not in one pool"))?;
    // How much the common ancestor loses by it: reservations in between keep some (`would_change`).
    let mut lost = difference(0, space);
    for dir in old.iter().take_while(|dir| dir.object != common.object) {
        let phys = dir.phys.lock();
        lost = reserved_delta(phys.reserved, phys.used_bytes, lost);
    }
    if space::available_after_moving(dsl, new_parent, common.object, lost.unsigned_abs()) < space {
        return Err(PoolError::invalid("out of space"));
    }
    limits::check(dsl, new_parent, counts.filesystems.saturating_add(1), Some(common.object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_data_set_and_what_is_below_get_new_names() {
        assert_eq!(renamed("t/a", "t/a", "t/b").as_deref(), Some("t/b"));
        assert_eq!(renamed("t/a/x/y", "t/a", "t/c/d").as_deref(), Some("t/c/d/x/y"));
        assert_eq!(renamed("t/ab", "t/a", "t/b"), None);
        assert_eq!(renamed("t", "t/a", "t/b"), None);
    }
}
