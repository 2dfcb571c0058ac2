//! Operations on data sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::report::{DatasetKind, DatasetReport, Property, PropertySource, PropertyValue};
use platter_api::request::{DatasetOperation, NewVolume};
use platter_api::snapshots::{DeleteQueue, GetDeleteQueue};
use platter_dsl::resume_state::RECEIVING;
use platter_dsl::volume::{Plan, RESERVED};
use platter_ondisk::zvol::BLOCK_SIZE_DEFAULT;

use super::dependents::Dependents;
use super::mounts::{is_under, no_such_dataset, pool_of, remove_folders};
use super::{Answer, Daemon, failed};
use crate::asker::Asker;
use crate::engine::PoolHandle;
use crate::mount_plan::{self, Roots};
use crate::mounter::HowToMount;
use platter_api::messages::{
    CreateDataset, CreatedDataset, DatasetView, Datasets, DestroyDataset, DestroyedDatasets, ErrorBody, ListDatasets,
    Outcome, RenameDataset,
};

/// What must be made before `name` can be, topmost first.
pub(super) fn missing_parents(known: &BTreeMap<String, DatasetReport>, name: &str) -> Vec<String> {
    let mut missing = Vec::new();
    let mut at = name;
    while let Some(cut) = at.rfind('/') {
        at = &at[..cut];
        if known.contains_key(at) {
            break;
        }
        missing.push(at.to_owned());
    }
    missing.reverse();
    missing
}

/// Refuses to create what is there, or what has no parent that would have to be.
fn check_new(call: &CreateDataset, what: &str, lacks_parents: bool, exists: bool) -> Answer<()> {
    if !call.dry_run && lacks_parents && !call.parents {
        return Err(ErrorBody::new(format!("{what}: parent does not exist"))
            .hint("use 'zfs create -p' to create the missing parents too"));
    }
    if !call.dry_run && exists {
        return Err(ErrorBody::new(format!("{what}: dataset already exists")));
    }
    Ok(())
}

/// Properties of parents that are made on the way.
pub(super) fn for_parents(unmounted: bool) -> BTreeMap<String, String> {
    unmounted.then(|| ("canmount".to_owned(), "off".to_owned())).into_iter().collect()
}

/// Refuses to destroy data set `name` for what depends on it: without `recursive`, all that is below, else clones that
/// are elsewhere (`destroy_check_dependent`, `cmd/zfs/zfs_main.c`).
fn check_dependents(name: &str, kind: DatasetKind, dependents: &[String], recursive: bool) -> Answer<()> {
    let in_the_way: Vec<&str> =
        dependents.iter().map(String::as_str).filter(|other| is_under(other, name) != recursive).collect();
    if in_the_way.is_empty() {
        return Ok(());
    }
    let (what, option) = if recursive { ("dependent clones", "-R") } else { ("children", "-r") };
    Err(ErrorBody::new(format!(
        "cannot destroy '{name}': {} has {what}\nuse '{option}' to destroy the following datasets:\n{}",
        kind.name(),
        in_the_way.join("\n")
    )))
}

/// What there will be of a data set to be made and those above it, as far as it decides where they are mounted.
fn planned(
    mut reports: BTreeMap<String, DatasetReport>,
    chain: &[String],
    call: &CreateDataset,
) -> BTreeMap<String, DatasetReport> {
    for made in chain.iter().filter(|made| call.volume.is_none() || **made != call.name) {
        let given = if *made == call.name { call.properties.clone() } else { for_parents(call.parents_unmounted) };
        let mut report = mount_plan::with_mountpoint(made, given.get("mountpoint").map(String::as_str));
        if let Some(value) = given.get("canmount") {
            let value = PropertyValue::Text(value.clone());
            report.properties.insert("canmount".to_owned(), Property { value, source: PropertySource::Local });
        }
        reports.insert(made.clone(), report);
    }
    reports
}

/// Says what a volume gets beside what was given.
fn say_plan(answer: &mut CreatedDataset, asked: &NewVolume, plan: Plan) {
    let Plan { shape, reserved, warning } = plan;
    let said = asked.block_size.is_some() || shape.block_size != BLOCK_SIZE_DEFAULT;
    let numbers =
        [("volsize", Some(shape.size)), ("volblocksize", said.then_some(shape.block_size)), (RESERVED, reserved)];
    let said = numbers.into_iter().filter_map(|(name, number)| Some((name.to_owned(), number?)));
    answer.worked_out = said.collect();
    answer.warning = if asked.block_size.is_some() { warning } else { String::new() };
}

impl Daemon {
    /// Data sets of all pools, or one with its descendants; or a snapshot.
    pub async fn datasets(&self, call: &ListDatasets) -> Answer<Datasets> {
        let under = call.under.as_deref();
        if let Some(name) = under.filter(|name| name.contains('@')) {
            return Ok(Datasets { datasets: vec![self.snapshot_view(name).await?] });
        }
        if let Some(name) = under.filter(|name| name.ends_with(RECEIVING)) {
            let engine = self.pool(pool_of(name)).ok().and_then(|pool| pool.engine_pool());
            let engine = engine.ok_or_else(|| no_such_dataset(name))?;
            let report = engine.dsl().hidden_report(name).await;
            let report = report.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
            return Ok(Datasets { datasets: vec![DatasetView { report, mounted_at: None }] });
        }
        if let Some(name) = under.filter(|name| name.contains('#')) {
            return self.bookmark_view(name).await;
        }
        // Reading it notices mounts that are gone.
        let _ = self.mount_entries().await;
        let pools: Vec<String> = match under {
            Some(name) => vec![pool_of(name).to_owned()],
            None => self.pools.read().keys().cloned().collect(),
        };
        let mut datasets = Vec::new();
        for pool_name in pools {
            let pool = match (self.pool(&pool_name), under) {
                (Ok(pool), _) => pool,
                (Err(_), Some(name)) => return Err(no_such_dataset(name)),
                (Err(_), None) => continue,
            };
            let reports = match pool.datasets().await {
                Ok(reports) => reports,
                Err(error) => return Err(failed(&format!("cannot open '{}'", under.unwrap_or(&pool_name)), error)),
            };
            let map = mount_plan::by_name(&reports);
            let roots = self.roots(&pool_name);
            let mut snapshots: BTreeMap<String, Vec<DatasetReport>> = BTreeMap::new();
            if call.snapshots {
                for report in self.snapshot_reports(&pool, under).await? {
                    let of = report.name.split('@').next().unwrap_or_default().to_owned();
                    snapshots.entry(of).or_default().push(report);
                }
            }
            if call.bookmarks {
                let found = pool.bookmarks(under).await;
                let what = format!("cannot open '{}'", under.unwrap_or(&pool_name));
                for report in found.map_err(|error| failed(&what, error))? {
                    let of = report.name.split('#').next().unwrap_or_default().to_owned();
                    snapshots.entry(of).or_default().push(report);
                }
            }
            for report in reports {
                let own = snapshots.remove(&report.name).unwrap_or_default();
                if under.is_none_or(|name| report.name == name || is_under(&report.name, name)) {
                    datasets.push(self.view(report, &map, &roots));
                    datasets.extend(own.into_iter().map(|report| DatasetView { report, mounted_at: None }));
                }
            }
        }
        match under {
            Some(name) if !datasets.iter().any(|view| view.report.name == name) => Err(no_such_dataset(name)),
            _ => Ok(Datasets { datasets }),
        }
    }

    /// One bookmark, by full name.
    async fn bookmark_view(&self, name: &str) -> Answer<Datasets> {
        let engine = self.pool(pool_of(name)).ok().and_then(|pool| pool.engine_pool());
        let engine = engine.ok_or_else(|| no_such_dataset(name))?;
        let found = engine.dsl().bookmark_report(name).await;
        let found = found.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let report = found.ok_or_else(|| no_such_dataset(name))?;
        Ok(Datasets { datasets: vec![DatasetView { report, mounted_at: None }] })
    }

    fn view(&self, mut report: DatasetReport, map: &BTreeMap<String, DatasetReport>, roots: &Roots) -> DatasetView {
        let active = self.mounted(&report.name);
        if let Some(active) = &active {
            mount_plan::show_options(&mut report, &active.options);
        }
        let mounted_at = active.map(|active| active.at);
        if report.kind == DatasetKind::Filesystem {
            let place = mount_plan::resolve(&report.name, map, roots).shown();
            report
                .properties
                .entry("mountpoint".to_owned())
                .or_insert(Property { value: PropertyValue::Text(String::new()), source: PropertySource::Default })
                .value = PropertyValue::Text(place);
            let mounted = if mounted_at.is_some() { "yes" } else { "no" };
            report.properties.insert(
                "mounted".to_owned(),
                Property { value: PropertyValue::Text(mounted.to_owned()), source: PropertySource::None },
            );
        }
        DatasetView { report, mounted_at }
    }

    pub(super) async fn reports(&self, pool: &Arc<dyn PoolHandle>, what: &str) -> Answer<Vec<DatasetReport>> {
        pool.datasets().await.map_err(|error| failed(what, error))
    }

    /// `zfs wait`.
    pub async fn delete_queue(&self, call: &GetDeleteQueue) -> Answer<DeleteQueue> {
        let name = &call.name;
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let lineage = pool.lineage(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        if !lineage.iter().any(|report| report.name == *name) {
            return Err(no_such_dataset(name));
        }
        let Some(active) = self.mounted(name) else { return Ok(DeleteQueue::default()) };
        let files = active.mounted.lock().await.waiting_to_be_freed();
        Ok(DeleteQueue { files })
    }

    /// `zfs create`.
    pub async fn create_dataset(&self, call: &CreateDataset, asker: &Asker) -> Answer<CreatedDataset> {
        let name = &call.name;
        let what = format!("cannot create '{name}'");
        let _lock = self.turn(pool_of(name), &what).await?;
        let pool_name = pool_of(name);
        // A pool's root is there already, which is all that `-p` wants.
        if pool_name == name {
            let is_there = call.parents && call.volume.is_none() && self.pool(name).is_ok();
            let there = is_there.then(CreatedDataset::default);
            return there.ok_or_else(|| ErrorBody::new(format!("{what}: missing dataset name")));
        }
        let pool = self.pool(pool_name).map_err(|_| ErrorBody::new(format!("{what}: no such pool '{pool_name}'")))?;
        // Of these alone: there may be thousands of others.
        let map = mount_plan::by_name(&pool.lineage(name).await.map_err(|error| failed(&what, error))?);
        let (properties, creator) = (call.properties.clone(), Some(asker.creator()));
        let wanted = DatasetOperation::Create { name: name.clone(), volume: call.volume, properties, creator };
        if call.dry_run {
            // As OpenZFS: the properties, not whether it could be made.
            pool.check(&wanted).await.map_err(|error| failed(&format!("cannot verify '{name}'"), error))?;
        }
        if map.contains_key(name) && call.parents {
            return Ok(CreatedDataset::default());
        }
        let mut chain = missing_parents(&map, name);
        check_new(call, &what, !chain.is_empty(), map.contains_key(name))?;
        chain.push(name.clone());
        let mut answer = CreatedDataset { created: chain.clone(), ..CreatedDataset::default() };
        if let Some(volume) = &call.volume {
            let plan = pool.plan_volume(volume, &call.properties).map_err(|error| failed(&what, error))?;
            say_plan(&mut answer, volume, plan);
        }
        if call.dry_run {
            return Ok(answer);
        }
        // Refused before parents are made for it.
        pool.check(&wanted).await.map_err(|error| failed(&what, error))?;
        let planned = planned(map, &chain, call);
        self.check_places(&what, &chain, &planned).await?;
        for made in &chain {
            let given = if made == name { call.properties.clone() } else { for_parents(call.parents_unmounted) };
            let volume = call.volume.filter(|_| made == name);
            let create = DatasetOperation::Create { name: made.clone(), volume, properties: given, creator };
            pool.perform_on_dataset(create).await.map_err(|error| failed(&what, error))?;
            if made == name
                && let Err(reason) = self.set_id_quotas(&pool, name, &call.quotas).await
            {
                // A create that fails leaves nothing.
                let destroy = DatasetOperation::Destroy { name: name.clone() };
                pool.perform_on_dataset(destroy).await.map_err(|error| failed(&what, error))?;
                return Err(ErrorBody::new(format!("{what}: {reason}")));
            }
            // What had to be made above it is mounted in any case, unless it says otherwise.
            if !asker.may_mount() {
                let is_wanted = made == name && call.mount && call.volume.is_none();
                answer.outcome.problems.extend(self.left_unmounted(&pool, made).await.filter(|_| is_wanted));
            } else if call.mount && call.volume.is_none() || made != name {
                let mounted = self.mount_dataset(made, false, &HowToMount::default()).await;
                let told =
                    |why: ErrorBody| format!("{}\nfilesystem successfully created, but not mounted", why.message);
                answer.outcome.problems.extend(mounted.err().map(told));
            }
        }
        if call.volume.is_some() {
            self.show_volumes(pool_name, false).await;
        }
        self.log(&pool, &call.command);
        Ok(answer)
    }

    /// Makes what is missing above a data set and mounts it; tells what could not be mounted.
    pub(super) async fn make_missing(
        &self,
        pool: &Arc<dyn PoolHandle>,
        parents: Vec<String>,
        properties: &BTreeMap<String, String>,
        what: &str,
        asker: &Asker,
    ) -> Answer<Vec<String>> {
        let mut problems = Vec::new();
        for name in parents {
            let (properties, creator) = (properties.clone(), Some(asker.creator()));
            let create = DatasetOperation::Create { name: name.clone(), volume: None, properties, creator };
            pool.perform_on_dataset(create).await.map_err(|error| failed(what, error))?;
            if asker.may_mount() {
                let mounted = self.mount_dataset(&name, false, &HowToMount::default()).await;
                problems.extend(mounted.err().map(|error| error.message));
            }
        }
        Ok(problems)
    }

    /// OpenZFS's words for a file system that a guest made and that would be mounted by itself.
    pub(super) async fn left_unmounted(&self, pool: &Arc<dyn PoolHandle>, name: &str) -> Option<String> {
        let lineage = pool.lineage(name).await.ok()?;
        let report = lineage.last().filter(|report| report.name == name && report.kind == DatasetKind::Filesystem)?;
        let text = "filesystem successfully created, but it may only be mounted by root";
        (mount_plan::canmount(report) == mount_plan::CanMount::On).then(|| text.to_owned())
    }

    /// `zfs destroy`.
    pub async fn destroy_dataset(&self, call: &DestroyDataset) -> Answer<DestroyedDatasets> {
        let name = &call.name;
        self.wait_closed(name).await;
        let what = format!("cannot destroy '{name}'");
        let _lock = self.turn(pool_of(name), &what).await?;
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let reports = self.reports(&pool, &format!("cannot open '{name}'")).await?;
        let report = reports.iter().find(|report| report.name == *name).ok_or_else(|| no_such_dataset(name))?;
        let kind = report.kind;
        let pool_name = pool_of(name);
        let is_pool = name == pool_name;
        if is_pool && !call.recursive {
            return Err(ErrorBody::new(format!("{what}: operation does not apply to pools")).hint(format!(
                "use 'zfs destroy -r {name}' to destroy all datasets in the pool\n\
                 use 'zpool destroy {name}' to destroy the pool itself"
            )));
        }
        let all = Dependents::of(&pool, &reports, std::slice::from_ref(name), &what).await?;
        if !call.clones {
            check_dependents(name, kind, &all.seen_from(name), call.recursive)?;
        }
        let mut doomed = all.in_order(name)?;
        doomed.push(name.clone());
        let mut answer = DestroyedDatasets::default();
        if call.dry_run {
            answer.destroyed = doomed;
            return Ok(answer);
        }
        for victim in doomed {
            if victim.contains('@') {
                // They go with what they are of.
                answer.destroyed.push(victim);
                continue;
            }
            if victim == pool_name {
                if let Err(error) = self.destroy_own_snapshots(&pool, &victim).await {
                    answer.outcome.problems.push(error.message);
                }
                // The pool's own stays; it is named all the same, as in OpenZFS.
                answer.destroyed.push(victim);
                continue;
            }
            match self.destroy_with_snapshots(&pool, &victim).await {
                Ok(()) => answer.destroyed.push(victim),
                Err(error) if call.recursive => answer.outcome.problems.push(error.message),
                Err(error) => return Err(error),
            }
        }
        self.log(&pool, &call.command);
        Ok(answer)
    }

    /// Destroys one data set with its own snapshots, and the folder where it was mounted. What is in use is found out
    /// first, and stays with all its snapshots (with `-f` too, as in OpenZFS on Linux).
    pub(super) async fn destroy_with_snapshots(&self, pool: &Arc<dyn PoolHandle>, name: &str) -> Answer<()> {
        let place = self.mounted(name).filter(|active| !active.is_chosen).map(|active| active.at);
        let what = format!("cannot destroy '{name}'");
        let has_snapshots = !pool.snapshot_names(name).await.map_err(|error| failed(&what, error))?.is_empty();
        if !has_snapshots {
            // What is refused unmounts nothing. With snapshots it can be told only once they are gone.
            let destroy = DatasetOperation::Destroy { name: name.to_owned() };
            pool.check(&destroy).await.map_err(|error| failed(&what, error))?;
        }
        let names = self.mounted_under(name);
        let before = self.as_mounted(&names);
        self.unmount_unused(names).await?;
        if let Err(error) = self.destroy_unmounted(pool, name).await {
            let what = format!("cannot mount '{name}'");
            let problems = match self.reports(pool, &what).await {
                Ok(reports) => self.mount_again(before, &mount_plan::by_name(&reports)).await,
                Err(error) => vec![error.message],
            };
            problems.iter().for_each(|problem| tracing::warn!("{problem}"));
            return Err(error);
        }
        remove_folders(place.into_iter().collect()).await;
        Ok(())
    }

    /// Waits for who has just closed a volume, while nobody waits for this.
    pub(super) async fn wait_closed(&self, name: &str) {
        if let Ok(pool) = self.pool(pool_of(name)) {
            pool.wait_closed(name).await;
        }
    }

    async fn destroy_unmounted(&self, pool: &Arc<dyn PoolHandle>, name: &str) -> Answer<()> {
        let what = format!("cannot destroy '{name}'");
        pool.check_unused(name).await.map_err(|error| failed(&what, error))?;
        self.destroy_own_snapshots(pool, name).await?;
        let origin = self.waiting_origin(pool, name).await;
        let destroy = DatasetOperation::Destroy { name: name.to_owned() };
        pool.perform_on_dataset(destroy).await.map_err(|error| failed(&what, error))?;
        self.close_shown(&origin);
        Ok(())
    }

    /// `zfs rename` of a file system; its mounts move with it, or stay where they are with `-u`.
    pub async fn rename_dataset(&self, call: &RenameDataset, asker: &Asker) -> Answer<Outcome> {
        let (from, to) = (&call.from, &call.to);
        let what = format!("cannot rename '{from}'");
        let _lock = self.turn(pool_of(from), &what).await?;
        let pool_name = pool_of(from);
        let pool = self.pool(pool_name).map_err(|_| no_such_dataset(from))?;
        let map = mount_plan::by_name(&self.reports(&pool, &format!("cannot open '{from}'")).await?);
        if !map.contains_key(from) {
            return Err(no_such_dataset(from));
        }
        if from == to {
            return Ok(Outcome::default());
        }
        // OpenZFS says it so when the new place is at fault.
        let no_place = |reason: &str| ErrorBody::new(format!("cannot create '{to}': {reason}"));
        if !to.contains('/') {
            return Err(no_place("missing dataset name"));
        }
        if self.pool(pool_of(to)).is_err() {
            return Err(no_place(&format!("no such pool '{}'", pool_of(to))));
        }
        if pool_of(to) != pool_name {
            return Err(ErrorBody::new(format!("cannot rename to '{to}': datasets must be within same pool"))
                .hint("copy the files to a new file system in the other pool"));
        }
        if is_under(to, from) {
            let reason = "New dataset name cannot be a descendant of current dataset name";
            return Err(ErrorBody::new(format!("cannot rename to '{to}': {reason}")));
        }
        let parents = missing_parents(&map, to);
        if !parents.is_empty() && !call.parents {
            return Err(no_place("parent does not exist").hint("use 'zfs rename -p' to create the missing parents too"));
        }
        let properties = for_parents(call.parents_unmounted);
        let mut problems = self.make_missing(&pool, parents, &properties, &what, asker).await?;
        let moving = self.mounted_under(from);
        let rename = DatasetOperation::Rename { from: from.clone(), to: to.clone() };
        if call.no_mount {
            pool.perform_on_dataset(rename).await.map_err(|error| failed(&what, error))?;
            self.mounts_renamed(&moving, from, to).await;
            self.log(&pool, &call.command);
            return Ok(Outcome { name: None, problems });
        }
        // What is refused unmounts nothing.
        pool.check(&rename).await.map_err(|error| failed(&what, error))?;
        let places = self.unmount_all_or_none(moving.clone(), call.force, &map).await?;
        let result = pool.perform_on_dataset(rename).await.map_err(|error| failed(&what, error));
        let mut again: Vec<String> = match &result {
            Ok(()) => moving.iter().map(|name| format!("{to}{}", &name[from.len()..])).collect(),
            Err(_) => moving,
        };
        again.sort();
        for name in again {
            if let Err(error) = self.mount_dataset(&name, false, &HowToMount::default()).await {
                problems.push(error.message);
            }
        }
        let now: Vec<std::path::PathBuf> = self.mounts.read().mounts().map(|active| active.at.clone()).collect();
        remove_folders(places.into_iter().filter(|place| !now.contains(place)).collect()).await;
        result?;
        self.log(&pool, &call.command);
        Ok(Outcome { name: None, problems })
    }
}
