//! Snapshots: taking, destroying, renaming and holding them, and going back to one.
//!
//! Invariants:
//! - what is named together is done together, or not at all;
//! - what the kernel still holds of files is in a snapshot too, as far as it can be asked for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::messages::{DatasetView, ErrorBody, Outcome, SetDatasetProperties};
use platter_api::names::check_snapshot;
use platter_api::report::{DatasetReport, PropertyValue};
use platter_api::request::{DatasetOperation, SnapshotOperation};
use platter_api::snapshots::{
    DestroySnapshots, DestroyedSnapshots, GetHolds, GetWritten, HoldSnapshot, Holds, RenameSnapshot, RollbackDataset,
    TakeSnapshots, Written,
};
use platter_dsl::PoolError;
use platter_dsl::resume_state::RECEIVING;
use platter_dsl::take_snapshot::Refusals;

use super::dependents::Dependents;
use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::engine::PoolHandle;
use crate::mount_plan;

/// Everybody may ask, and each takes a walk from snapshot to snapshot.
const WRITTEN_MAX: usize = 20_000;

/// What stands in the way, each with its reason; `what` says of what ("cannot create snapshot").
fn problems(refusals: Refusals, word: impl Fn(&str) -> String) -> Vec<String> {
    refusals.into_iter().map(|(name, reason)| failed(&word(&name), reason).message).collect()
}

/// As [`problems`], when one of them ends the command.
fn first(refusals: Refusals, word: impl Fn(&str) -> String) -> Answer<()> {
    let mut refusals = refusals.into_iter();
    let Some((name, reason)) = refusals.next() else { return Ok(()) };
    let error = failed(&word(&name), reason);
    let others = problems(refusals.collect(), word);
    Err(ErrorBody { message: [vec![error.message], others].concat().join("\n"), ..error })
}

/// Which of `names`, a data set's snapshots without its name, oldest first, are meant by a list of names and ranges of
/// them (`zfs_iter_snapspec`, `lib/libzfs/libzfs_iter.c`). A name that is not there is left out, and so is a range with
/// such an end.
pub(super) fn meant<'a>(names: &[&'a str], which: &str) -> Vec<&'a str> {
    let mut meant = Vec::new();
    for part in which.split(',') {
        let place = |name: &str| names.iter().position(|other| *other == name);
        match part.split_once('%') {
            None => meant.extend(place(part).map(|at| names[at])),
            Some((from, to)) => {
                let from = if from.is_empty() { Some(0) } else { place(from) };
                let to = if to.is_empty() { names.len().checked_sub(1) } else { place(to) };
                if let (Some(from), Some(to)) = (from, to) {
                    meant.extend(names.get(from..=to).unwrap_or_default());
                }
            }
        }
    }
    let mut seen = BTreeSet::new();
    meant.retain(|name| seen.insert(*name));
    meant
}

impl Daemon {
    /// The pool of a data set or a snapshot.
    pub(super) fn pool_with(&self, name: &str) -> Answer<Arc<dyn PoolHandle>> {
        self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))
    }

    /// A data set and those below it, or it alone.
    pub(super) async fn data_sets(
        &self,
        pool: &Arc<dyn PoolHandle>,
        name: &str,
        recursive: bool,
    ) -> Answer<Vec<String>> {
        let names = pool.names_under(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        if names.is_empty() {
            return Err(no_such_dataset(name));
        }
        Ok(if recursive { names } else { vec![name.to_owned()] })
    }

    /// A snapshot as it is shown.
    pub(super) async fn snapshot_view(&self, name: &str) -> Answer<DatasetView> {
        let pool = self.pool_with(name)?;
        let report = pool.snapshot(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        Ok(DatasetView { report, mounted_at: None })
    }

    /// Snapshots of a data set and those below it.
    pub(super) async fn snapshot_reports(
        &self,
        pool: &Arc<dyn PoolHandle>,
        under: Option<&str>,
    ) -> Answer<Vec<DatasetReport>> {
        let what = format!("cannot open '{}'", under.map_or_else(|| pool.name(), str::to_owned));
        pool.snapshots(under).await.map_err(|error| failed(&what, error))
    }

    /// `zfs snapshot`.
    pub async fn take_snapshots(&self, call: &TakeSnapshots) -> Answer<Outcome> {
        let Some(named) = call.names.first() else { return Ok(Outcome::default()) };
        let pool_name = pool_of(named).to_owned();
        let _lock = self.turn(&pool_name, "cannot create snapshots ").await?;
        let pool = self.pool_with(named)?;
        let (mut names, mut datasets, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for named in &call.names {
            let (dataset, own) = named.split_once('@').unwrap_or((named, ""));
            if pool_of(named) != pool_name {
                return Err(ErrorBody::new("cannot create snapshots : they are not in one pool"));
            }
            for dataset in self.data_sets(&pool, dataset, call.recursive).await? {
                let name = format!("{dataset}@{own}");
                check_snapshot(&name)
                    .map_err(|reason| failed(&format!("cannot create snapshot '{name}'"), PoolError::from(reason)))?;
                if !seen.insert(name.clone()) {
                    continue;
                }
                if !datasets.insert(dataset) {
                    let reason = "multiple snapshots of same fs not allowed";
                    return Err(ErrorBody::new(format!("cannot create snapshots : {reason}")));
                }
                names.push(name);
            }
        }
        self.flush_mounts(&datasets).await;
        let take = SnapshotOperation::Take { names, properties: call.properties.clone() };
        let refusals =
            pool.perform_on_snapshots(take).await.map_err(|error| failed("cannot create snapshots ", error))?;
        first(refusals, |name| format!("cannot create snapshot '{name}'"))?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// `zfs destroy` of snapshots.
    pub async fn destroy_snapshots(&self, call: &DestroySnapshots) -> Answer<DestroyedSnapshots> {
        let name = &call.dataset;
        let _lock = self.turn(pool_of(name), "cannot destroy snapshots").await?;
        let pool = self.pool_with(name)?;
        let cannot_open = |error| failed(&format!("cannot open '{name}'"), error);
        let mut doomed = Vec::new();
        for dataset in self.data_sets(&pool, name, call.recursive).await? {
            let all = pool.snapshot_names(&dataset).await.map_err(cannot_open)?;
            let own: Vec<&str> = all.iter().filter_map(|name| Some(name.split_once('@')?.1)).collect();
            doomed.extend(meant(&own, &call.which).into_iter().map(|name| format!("{dataset}@{name}")));
        }
        if doomed.is_empty() {
            return Err(ErrorBody::new("could not find any snapshots to destroy; check snapshot names."));
        }
        let reclaimed = pool.snapshots_would_free(&doomed).await.map_err(cannot_open)?;
        if !call.defer && !call.clones {
            self.check_clones(&pool, &doomed).await?;
        }
        let mut answer = DestroyedSnapshots { destroyed: doomed.clone(), reclaimed, ..Default::default() };
        if call.dry_run {
            return Ok(answer);
        }
        if call.clones {
            let (gone, problems) = self.destroy_clones(&pool, &doomed).await?;
            (answer.dependents, answer.problems) = (gone, problems);
        }
        self.destroy_named(&pool, doomed, call.defer).await?;
        self.log(&pool, &call.command);
        Ok(answer)
    }

    /// Destroys these, which no mount shows from then on. Whoever has files of one open gets errors.
    pub(super) async fn destroy_named(
        &self,
        pool: &Arc<dyn PoolHandle>,
        names: Vec<String>,
        defer: bool,
    ) -> Answer<()> {
        let shown = self.shown(pool, &names).await;
        let destroy = SnapshotOperation::Destroy { names, defer };
        if !defer {
            self.close_shown(&shown);
        }
        let result = pool.perform_on_snapshots(destroy).await;
        // Somebody may have looked at one meanwhile.
        let refusals = result.map_err(|error| failed("cannot destroy snapshots", error))?;
        if refusals.is_empty() && !defer {
            self.close_shown(&shown);
        }
        first(refusals, |name| format!("cannot destroy snapshot {name}"))
    }

    /// Those of these snapshots that a mount may show, by their data set: their numbers.
    pub(super) async fn shown(&self, pool: &Arc<dyn PoolHandle>, names: &[String]) -> BTreeMap<String, Vec<u64>> {
        let mut shown: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for name in names {
            let Some((dataset, _)) = name.split_once('@').filter(|(dataset, _)| self.mounted(dataset).is_some()) else {
                continue;
            };
            let report = pool.snapshot(name).await.ok();
            let number = report.and_then(|report| report.properties.get("objsetid").map(|found| found.value.clone()));
            if let Some(PropertyValue::Number(number)) = number {
                shown.entry(dataset.to_owned()).or_default().push(number);
            }
        }
        shown
    }

    /// Takes these away from the mounts that show them; whoever has files of one open gets errors.
    pub(super) fn close_shown(&self, shown: &BTreeMap<String, Vec<u64>>) {
        for (dataset, numbers) in shown {
            let Some(active) = self.mounted(dataset) else { continue };
            if let Ok(mounted) = active.mounted.try_lock() {
                mounted.close_snapshots(numbers);
            }
        }
    }

    /// What depends on these snapshots.
    async fn dependents(&self, pool: &Arc<dyn PoolHandle>, names: &[String]) -> Answer<Dependents> {
        let what = format!("cannot open '{}'", pool.name());
        let reports = self.reports(pool, &what).await?;
        Dependents::of(pool, &reports, names, &what).await
    }

    /// Refuses to destroy what has clones.
    async fn check_clones(&self, pool: &Arc<dyn PoolHandle>, names: &[String]) -> Answer<()> {
        let all = self.dependents(pool, names).await?;
        let mut messages = Vec::new();
        for name in names {
            let dependents = all.seen_from(name);
            if !dependents.is_empty() {
                messages.push(format!(
                    "cannot destroy '{name}': snapshot has dependent clones\n\
                     use '-R' to destroy the following datasets:\n{}",
                    dependents.join("\n")
                ));
            }
        }
        if messages.is_empty() { Ok(()) } else { Err(ErrorBody::new(messages.join("\n"))) }
    }

    /// Destroys the clones of these snapshots with all that depends on them: what was destroyed, and what could not be.
    async fn destroy_clones(&self, pool: &Arc<dyn PoolHandle>, names: &[String]) -> Answer<(Vec<String>, Vec<String>)> {
        let all = self.dependents(pool, names).await?;
        let (mut gone, mut problems, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
        for name in names {
            for dependent in all.in_order(name)? {
                if !seen.insert(dependent.clone()) {
                    continue;
                }
                let unfinished = dependent.strip_suffix(RECEIVING).and_then(|name| name.strip_suffix('/'));
                let result = match unfinished {
                    Some(dataset) => self.destroy_unfinished(pool, dataset).await,
                    // Snapshots go with what they are of.
                    None if dependent.contains('@') => Ok(()),
                    None => self.destroy_with_snapshots(pool, &dependent).await,
                };
                problems.extend(result.err().map(|error| error.message));
                gone.push(dependent);
            }
        }
        Ok((gone, problems))
    }

    /// `zfs set` and `zfs inherit` of a snapshot.
    pub(super) async fn set_snapshot_properties(
        &self,
        pool: &Arc<dyn PoolHandle>,
        call: &SetDatasetProperties,
    ) -> Answer<Outcome> {
        let name = &call.name;
        pool.snapshot(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let what = match call.properties.iter().next() {
            Some((property, None)) => format!("cannot inherit {property} for '{name}'"),
            _ => format!("cannot set property for '{name}'"),
        };
        let set = SnapshotOperation::Set { name: name.clone(), properties: call.properties.clone() };
        pool.perform_on_snapshots(set).await.map_err(|error| failed(&what, error))?;
        self.log(pool, &call.command);
        Ok(Outcome::default())
    }

    /// Destroys what a receive into `dataset` that was broken off has left, which is a clone of one of its snapshots.
    async fn destroy_unfinished(&self, pool: &Arc<dyn PoolHandle>, dataset: &str) -> Answer<()> {
        let unfinished = format!("{dataset}/{RECEIVING}");
        let dsl = pool.engine_pool().map(|engine| engine.dsl().clone()).filter(|dsl| dsl.find(&unfinished).is_ok());
        let Some(dsl) = dsl else { return Ok(()) };
        let destroyed = dsl.destroy_unfinished(&unfinished).await;
        destroyed.map_err(|error| failed(&format!("cannot destroy '{dataset}'"), error))
    }

    /// Destroys all of a data set's own snapshots.
    pub(super) async fn destroy_own_snapshots(&self, pool: &Arc<dyn PoolHandle>, dataset: &str) -> Answer<()> {
        let what = format!("cannot destroy '{dataset}'");
        self.destroy_unfinished(pool, dataset).await?;
        let names = pool.snapshot_names(dataset).await.map_err(|error| failed(&what, error))?;
        if names.is_empty() {
            return Ok(());
        }
        self.destroy_named(pool, names, false).await
    }

    /// `zfs rename` of a snapshot.
    pub async fn rename_snapshot(&self, call: &RenameSnapshot) -> Answer<Outcome> {
        let (from, to) = (&call.from, &call.to);
        let _lock = self.turn(pool_of(from), &format!("cannot rename to '{to}'")).await?;
        let pool = self.pool_with(from)?;
        let cannot_open = |error| failed(&format!("cannot open '{from}'"), error);
        let cannot = |reason| failed(&format!("cannot rename to '{to}'"), PoolError::from(reason));
        let (dataset, old) = check_snapshot(from).map_err(|reason| cannot_open(PoolError::from(reason)))?;
        let (_, new) = check_snapshot(to).map_err(cannot)?;
        pool.snapshot(from).await.map_err(cannot_open)?;
        if from == to {
            return Ok(Outcome::default());
        }
        let rename = SnapshotOperation::Rename {
            dataset: dataset.to_owned(),
            from: old.to_owned(),
            to: new.to_owned(),
            recursive: call.recursive,
        };
        let word = |name: &str| format!("cannot rename '{name}'");
        let refusals = pool.perform_on_snapshots(rename).await.map_err(|error| failed(&word(from), error))?;
        first(refusals, word)?;
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// `zfs hold` and `zfs release`.
    pub async fn hold_snapshot(&self, call: &HoldSnapshot) -> Answer<Outcome> {
        let what = format!("cannot {} '{}'", if call.release { "release" } else { "hold" }, call.name);
        let _lock = self.turn(pool_of(&call.name), &what).await?;
        let pool = self.pool_with(&call.name)?;
        let (dataset, own) = call.name.split_once('@').unwrap_or((&call.name, ""));
        let names = self.data_sets(&pool, dataset, call.recursive).await?;
        let names: Vec<String> = names.into_iter().map(|dataset| format!("{dataset}@{own}")).collect();
        let mut waiting = Vec::new();
        for name in names.iter().filter(|_| call.release) {
            let deferred = PropertyValue::Text("on".to_owned());
            let report = pool.snapshot(name).await.ok();
            if report.and_then(|report| report.properties.get("defer_destroy").map(|found| found.value == deferred))
                == Some(true)
            {
                waiting.push(name.clone());
            }
        }
        let shown = self.shown(&pool, &waiting).await;
        let word = |name: &str| match call.release {
            true => format!("cannot release hold from snapshot '{name}'"),
            false => format!("cannot hold snapshot '{name}'"),
        };
        let tag = call.tag.clone();
        let operation = match call.release {
            true => SnapshotOperation::Release { names, tag },
            false => SnapshotOperation::Hold { names, tag },
        };
        let refusals = pool.perform_on_snapshots(operation).await.map_err(|error| failed(&word(&call.name), error))?;
        first(refusals, word)?;
        // Those that waited for it to be destroyed: who still looks at one that is there opens it again.
        self.close_shown(&shown);
        self.log(&pool, &call.command);
        Ok(Outcome::default())
    }

    /// Properties `written@…` and `written#…`. What cannot be told is left out.
    pub async fn written(&self, call: &GetWritten) -> Answer<Written> {
        if call.names.len().saturating_mul(call.since.len()) > WRITTEN_MAX {
            return Err(ErrorBody::new(format!("more than {WRITTEN_MAX} properties 'written@' at a time")));
        }
        let mut written = Vec::new();
        for name in &call.names {
            let engine = self.pool(pool_of(name)).ok().and_then(|pool| pool.engine_pool());
            let Some(engine) = engine else { continue };
            let dataset = name.split('@').next().unwrap_or_default();
            let full = |since: &String| match since.get(1..) {
                Some(name) if name.contains(['@', '#']) => name.to_owned(),
                _ => format!("{dataset}{since}"),
            };
            let earlier: Vec<String> = call.since.iter().map(full).collect();
            let found = engine.dsl().written_since(name, &earlier).await.unwrap_or_default();
            let told = call.since.iter().zip(found);
            written.extend(told.filter_map(|(since, bytes)| Some((name.clone(), since.clone(), bytes?))));
        }
        Ok(Written { written })
    }

    /// `zfs holds`.
    pub async fn holds(&self, call: &GetHolds) -> Answer<Holds> {
        let pool = self.pool_with(&call.name)?;
        let (dataset, own) = call.name.split_once('@').unwrap_or((&call.name, ""));
        let mut found = Holds::default();
        for dataset in self.data_sets(&pool, dataset, call.recursive).await? {
            let name = format!("{dataset}@{own}");
            match pool.holds(&name).await {
                Ok(holds) => found.holds.push((name, holds)),
                Err(PoolError::NotFound(_)) if call.recursive => {}
                Err(error) => return Err(failed(&format!("cannot open '{name}'"), error)),
            }
        }
        Ok(found)
    }

    /// Destroys the snapshots that a rollback leaves behind, with their clones when that was asked for.
    async fn destroy_newer(
        &self,
        pool: &Arc<dyn PoolHandle>,
        call: &RollbackDataset,
        newer: Vec<String>,
    ) -> Answer<()> {
        if !call.clones {
            let all = self.dependents(pool, &newer).await?;
            let dependents: Vec<String> = newer.iter().flat_map(|name| all.seen_from(name)).collect();
            if !dependents.is_empty() {
                return Err(ErrorBody::new(format!(
                    "cannot rollback to '{}': clones of previous snapshots exist\n\
                     use '-R' to force deletion of the following clones and dependents:\n{}",
                    call.snapshot,
                    dependents.join("\n")
                )));
            }
        } else if let (_, problems) = self.destroy_clones(pool, &newer).await?
            && !problems.is_empty()
        {
            return Err(ErrorBody::new(problems.join("\n")));
        }
        self.destroy_named(pool, newer, false).await
    }

    /// Bookmarks of what came after a snapshot, whose data set goes back to it.
    pub(super) async fn newer_bookmarks(&self, pool: &Arc<dyn PoolHandle>, snapshot: &str) -> Answer<Vec<String>> {
        let cannot_open = |error| failed(&format!("cannot open '{snapshot}'"), error);
        let dataset = snapshot.split('@').next().unwrap_or_default();
        let group = |report: &DatasetReport| report.number("createtxg").unwrap_or_default();
        let taken = group(&pool.snapshot(snapshot).await.map_err(cannot_open)?);
        let all = pool.bookmarks(Some(dataset)).await.map_err(cannot_open)?;
        let is_own = |report: &DatasetReport| report.name.split('#').next() == Some(dataset);
        let newer = all.into_iter().filter(|report| is_own(report) && group(report) > taken);
        Ok(newer.map(|report| report.name).collect())
    }

    /// `zfs rollback`.
    pub async fn rollback_dataset(&self, call: &RollbackDataset) -> Answer<Outcome> {
        let full_name = &call.snapshot;
        let (name, own) = full_name.split_once('@').unwrap_or((full_name, ""));
        self.wait_closed(name).await;
        let what = format!("cannot rollback '{name}'");
        let _lock = self.turn(pool_of(full_name), &what).await?;
        let pool = self.pool_with(full_name)?;
        let cannot_open = |error| failed(&format!("cannot open '{full_name}'"), error);
        pool.snapshot(full_name).await.map_err(cannot_open)?;
        let all = pool.snapshot_names(name).await.map_err(cannot_open)?;
        let newer: Vec<String> = all.into_iter().skip_while(|other| other != full_name).skip(1).collect();
        let bookmarks = self.newer_bookmarks(&pool, full_name).await?;
        let all: Vec<&str> = newer.iter().chain(&bookmarks).map(String::as_str).collect();
        if !all.is_empty() && !call.recursive {
            return Err(ErrorBody::new(format!(
                "cannot rollback to '{full_name}': more recent snapshots or bookmarks exist\n\
                 use '-r' to force deletion of the following snapshots and bookmarks:\n{}",
                all.join("\n")
            )));
        }
        if !newer.is_empty() {
            self.destroy_newer(&pool, call, newer).await?;
        }
        let rollback = DatasetOperation::Rollback { name: name.to_owned(), snapshot: own.to_owned() };
        // What is refused unmounts nothing.
        pool.check(&rollback).await.map_err(|error| failed(&what, error))?;
        let map = mount_plan::by_name(&self.reports(&pool, &what).await?);
        let again = self.as_mounted(&self.mounted_under(name));
        let names = again.iter().map(|(name, _)| name.clone()).collect();
        self.unmount_all_or_none(names, call.force, &map).await?;
        let result = pool.perform_on_dataset(rollback).await.map_err(|error| failed(&what, error));
        let problems = self.mount_again(again, &map).await;
        result?;
        self.log(&pool, &call.command);
        Ok(Outcome { name: None, problems })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_name_snapshots() {
        let all = ["a", "b", "c", "d"];
        let table: [(&str, &[&str]); 9] = [
            ("b", &["b"]),
            ("d,a", &["d", "a"]),
            ("b%c", &["b", "c"]),
            ("%b", &["a", "b"]),
            ("c%", &["c", "d"]),
            ("%", &all),
            ("c%b,x,y%d", &[]),
            ("a,a%b", &["a", "b"]),
            ("", &[]),
        ];
        for (which, expected) in table {
            assert_eq!(meant(&all, which), expected, "{which}");
        }
        assert_eq!(meant(&[], "%"), [""; 0]);
    }
}
