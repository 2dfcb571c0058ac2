//! Properties that are set or inherited, and what becomes of mounts then.
//!
//! Invariants:
//! - what is refused unmounts nothing;
//! - what cannot be unmounted keeps its old mount point, and the property its old value;
//! - whatever takes its mount point from a data set whose own is set is mounted afterwards, as if it had been before
//!   (`changelist_postfix`, `lib/libzfs/libzfs_changelist.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use platter_api::properties;
use platter_api::report::{DatasetReport, Property, PropertySource, PropertyValue};
use platter_api::request::{DatasetOperation, Setting};

use super::mounts::{is_under, no_such_dataset, pool_of, remove_folders};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::engine::PoolHandle;
use crate::mount_plan::{self, CanMount, Mountpoint};
use crate::mounter::HowToMount;
use platter_api::messages::{Outcome, SetDatasetProperties};

/// The data sets as they will be with the mount point that is to be set.
fn with_new_mountpoint(call: &SetDatasetProperties, reports: &[DatasetReport]) -> BTreeMap<String, DatasetReport> {
    let mut map = mount_plan::by_name(reports);
    let Some(value) = call.properties.get("mountpoint") else { return map };
    let changed = |other: &str| other == call.name || (call.recursive && is_under(other, &call.name));
    for (_, report) in map.iter_mut().filter(|(name, _)| changed(name)) {
        match value {
            Some(value) => report.properties.insert(
                "mountpoint".to_owned(),
                Property { value: PropertyValue::Text(value.clone()), source: PropertySource::Local },
            ),
            None => report.properties.remove("mountpoint"),
        };
    }
    map
}

/// A data set and those below it that take their mount point from it, or from nowhere else.
fn inheriting(name: &str, reports: &BTreeMap<String, DatasetReport>) -> BTreeSet<String> {
    let mut found = BTreeSet::from([name.to_owned()]);
    // Parents come before their children.
    for (other, report) in reports.iter().filter(|(other, _)| is_under(other, name)) {
        let parent = other.rfind('/').map_or("", |cut| &other[..cut]);
        if found.contains(parent) && !mount_plan::is_chosen(other, report) {
            found.insert(other.clone());
        }
    }
    found
}

/// What setting properties comes to.
struct Change<'a> {
    call: &'a SetDatasetProperties,
    /// Whether mount points may move.
    moves: bool,
    /// Whether it becomes another question what is mounted.
    canmount: bool,
    /// Where data sets are mounted before, except where somebody chose the place.
    places: Vec<PathBuf>,
    /// All data sets of the pool as they will be.
    planned: BTreeMap<String, DatasetReport>,
    /// Mounted data sets that cannot stay so meanwhile.
    unmounted: Vec<String>,
    /// Data sets that get the properties.
    targets: Vec<String>,
}

impl Change<'_> {
    /// How a message begins that says what went wrong.
    fn failure(&self, target: &str) -> String {
        match self.call.properties.iter().next() {
            Some((property, None)) => format!("cannot inherit {property} for '{target}'"),
            _ => format!("cannot set property for '{target}'"),
        }
    }
}

fn settings_of(call: &SetDatasetProperties) -> Vec<(String, Setting)> {
    let setting = |value: &Option<String>| match value {
        Some(value) => Setting::Value(value.clone()),
        None if call.received => Setting::Received,
        None => Setting::Inherit,
    };
    call.properties.iter().map(|(property, value)| (property.clone(), setting(value))).collect()
}

impl Daemon {
    /// `zfs set` and `zfs inherit`.
    pub async fn set_dataset_properties(&self, call: &SetDatasetProperties, asker: &Asker) -> Answer<Outcome> {
        let name = &call.name;
        let _lock = self.turn(pool_of(name), &format!("cannot set property for '{name}'")).await?;
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        if name.contains('@') {
            return self.set_snapshot_properties(&pool, call).await;
        }
        let reports = self.reports(&pool, &format!("cannot open '{name}'")).await?;
        if !reports.iter().any(|report| report.name == *name) {
            return Err(no_such_dataset(name));
        }
        let change = self.change_of(call, &reports).await?;
        let settings = settings_of(call);
        // What is refused unmounts nothing.
        for target in &change.targets {
            let operation = DatasetOperation::Set { name: target.clone(), settings: settings.clone() };
            pool.check(&operation).await.map_err(|error| failed(&change.failure(target), error))?;
        }
        // As OpenZFS: what cannot be unmounted keeps its old mount point, and the property its old value.
        self.unmount_all_or_none(change.unmounted.clone(), false, &mount_plan::by_name(&reports)).await?;
        let mut result = Ok(());
        for target in &change.targets {
            let operation = DatasetOperation::Set { name: target.clone(), settings: settings.clone() };
            if let Err(error) = pool.perform_on_dataset(operation).await {
                result = Err(failed(&change.failure(target), error));
                break;
            }
        }
        let mut problems = Vec::new();
        if result.is_ok() {
            self.log(&pool, &call.command);
            // `-u` is about where things are mounted; all else reaches a mount in any case.
            if properties::followed_by_mounts().any(|property| call.properties.contains_key(property)) {
                problems.extend(self.let_mounts_follow(&pool, name, asker).await);
            }
        }
        problems.extend(self.mount_by_change(&change, result.is_ok()).await);
        if change.moves {
            let now: Vec<PathBuf> = self.mounts.read().mounts().map(|active| active.at.clone()).collect();
            remove_folders(change.places.into_iter().filter(|place| !now.contains(place)).collect()).await;
        }
        result?;
        if !problems.is_empty() && change.moves {
            problems.push("property may be set but unable to remount filesystem".to_owned());
        }
        Ok(Outcome { name: None, problems })
    }

    /// What setting properties comes to in the pool with these data sets.
    async fn change_of<'a>(&self, call: &'a SetDatasetProperties, reports: &[DatasetReport]) -> Answer<Change<'a>> {
        let name = &call.name;
        let moves = call.properties.contains_key("mountpoint") && !call.no_mount;
        let canmount = call.properties.contains_key("canmount") && !call.no_mount;
        let mounted = self.mounted_under(name);
        let active = mounted.iter().filter_map(|mounted| self.mounted(mounted));
        let places = active.filter(|active| !active.is_chosen).map(|active| active.at).collect();
        let planned = with_new_mountpoint(call, reports);
        if call.properties.contains_key("mountpoint") {
            let inside: Vec<String> =
                planned.keys().filter(|other| *other == name || is_under(other, name)).cloned().collect();
            self.check_places(&format!("cannot set property for '{name}'"), &inside, &planned).await?;
        }
        let turned_off =
            canmount && call.properties.get("canmount").is_some_and(|value| value.as_deref() == Some("off"));
        let mut unmounted = if moves { self.that_move(name, &planned, &mounted) } else { Vec::new() };
        if turned_off && self.mounted(name).is_some() {
            // Those inside it would keep it busy.
            let inside = inheriting(name, &planned);
            unmounted.extend(mounted.iter().filter(|other| inside.contains(*other)).cloned());
        }
        unmounted.sort();
        unmounted.dedup();
        let mut targets = vec![name.clone()];
        if call.recursive {
            targets.extend(reports.iter().map(|report| &report.name).filter(|other| is_under(other, name)).cloned());
        }
        Ok(Change { call, moves, canmount, places, planned, unmounted, targets })
    }

    /// Mounts what was unmounted for a change, and what has a place by it now. Returns what went wrong.
    async fn mount_by_change(&self, change: &Change<'_>, is_set: bool) -> Vec<String> {
        let Change { call, planned, unmounted, targets, .. } = change;
        let mut again: BTreeSet<String> = unmounted.iter().cloned().collect();
        if change.moves && is_set {
            // Of those none has a mount point of its own any more.
            again.extend(match call.recursive {
                true => targets.iter().cloned().collect(),
                false => inheriting(&call.name, planned),
            });
        }
        let roots = self.roots(pool_of(&call.name));
        let mut problems = Vec::new();
        for dataset in again.iter().filter(|dataset| planned.contains_key(*dataset)) {
            // `canmount=noauto` that was mounted by hand is mounted again.
            let by_hand = unmounted.contains(dataset)
                && mount_plan::canmount(&planned[dataset]) == CanMount::NoAuto
                && !(change.canmount && targets.contains(dataset))
                && matches!(mount_plan::resolve(dataset, planned, &roots), Mountpoint::Path(_));
            if self.mounted(dataset).is_none()
                && let Err(error) = self.mount_dataset(dataset, by_hand, &HowToMount::default()).await
            {
                problems.push(error.message);
            }
        }
        problems
    }

    /// Mounted data sets whose place changes with these properties.
    fn that_move(&self, name: &str, planned: &BTreeMap<String, DatasetReport>, mounted: &[String]) -> Vec<String> {
        let roots = self.roots(pool_of(name));
        mounted
            .iter()
            .filter(|name| {
                let now = self.mounted(name).map(|active| Mountpoint::Path(active.at));
                now != Some(mount_plan::resolve(name, planned, &roots))
            })
            .cloned()
            .collect()
    }

    /// Lets the mounts at and below a data set take over its changed properties; those that cannot are made anew. A
    /// busy one stays as it is, with a word about it.
    async fn let_mounts_follow(&self, pool: &Arc<dyn PoolHandle>, name: &str, asker: &Asker) -> Vec<String> {
        let Ok(reports) = pool.datasets().await else { return Vec::new() };
        let map = mount_plan::by_name(&reports);
        let mut problems = Vec::new();
        for report in reports.iter().filter(|report| report.name == name || is_under(&report.name, name)) {
            let Some(active) = self.mounted(&report.name) else { continue };
            if active.mounted.lock().await.follow(report).await {
                continue;
            }
            if !asker.may_mount() {
                problems.push("property may be set but unable to remount filesystem".to_owned());
                continue;
            }
            // Inner mounts would keep it busy.
            let again = self.as_mounted(&self.mounted_under(&report.name));
            let names = again.iter().map(|(name, _)| name.clone()).collect();
            if let Err(error) = self.unmount_unused(names).await {
                problems.push(format!("{}\nproperty may be set but unable to remount filesystem", error.message));
            }
            problems.extend(self.mount_again(again, &map).await);
        }
        problems
    }
}
