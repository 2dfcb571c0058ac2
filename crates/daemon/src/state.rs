//! The daemon's state and the operations on pools. Data sets are in [`datasets`], mounts in [`mounts`], how pools
//! come at the start in [`opening`] and how they go in [`leaving`].
//!
//! What holds at all times:
//! - whoever changes a pool, or what is mounted of it, holds its lock ([`locks`]); nobody waits for another pool;
//! - no other lock is held across an await;
//! - a pool in `pools` is open; one in `unavailable` is remembered in `pools.json` but could not be opened.

mod bookmarks;
mod clones;
mod daemon;
mod datasets;
mod delegation;
mod dependents;
mod device_places;
mod diffs;
mod disks;
mod faults;
mod leaving;
mod locks;
mod long_work;
mod mount_table;
mod mounts;
mod nesting;
mod opening;
mod operations;
mod own_devices;
mod permitted;
mod replicated;
mod schedule_notes;
mod schedules;
mod sends;
mod settings;
mod silence;
mod snapshot_folders;
mod snapshots;
mod splits;
mod stream_permissions;
mod streams;
#[cfg(test)]
mod tests;
mod unmounts;
mod userspace;
mod volumes;

use std::collections::btree_map::Entry as Known;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use platter_api::event::Event;
use platter_api::job::{Job, JobKind};
use platter_api::messages::{
    ClearLabel, CreatePool, CreatedPool, DaemonStatus, ErrorBody, ErrorKind, ImportPool, ImportedPool, Outcome,
    PoolNames, PoolView, SearchPools,
};
use platter_api::report::{Detail, FoundPools, HistoryEntry, PoolReport, VdevReport};
use platter_api::request::{CreateRequest, PoolChange, PoolOperation, VdevRequest};
use platter_api::txgs::TxgsReport;
use platter_dsl::PoolError;

use crate::damaged::{Whereabouts, describe};
use crate::engine::{Leave, PoolHandle};
use crate::home::waiting;
use crate::machine::now_seconds;
use crate::mount_plan::{self, Mountpoint, Roots};
use crate::pools_file::{self, RememberedPool};
pub use daemon::{Answer, Daemon};
use daemon::{Entry, failed};

/// How long `status -v` waits for another operation before it shows an object's number instead of its name.
const LOOK_UP_WAIT: Duration = Duration::from_secs(2);

/// How long the devices of a pool that cannot be opened at the start are looked for elsewhere.
const LOOK_FURTHER_MAX: Duration = Duration::from_secs(60);

/// OpenZFS words a refusal that `-f` overrides as a list under its heading, and says what is wrong with devices without
/// the pool's name.
fn failed_creation(what: &str, error: PoolError) -> ErrorBody {
    let kind = daemon::kind_of(&error);
    match error {
        PoolError::NeedsForce { reason, hint } => {
            ErrorBody::of_kind(kind, format!("invalid vdev specification\n{hint}\n{reason}"))
        }
        PoolError::Devices(text) => ErrorBody::of_kind(kind, text),
        error => failed(what, error),
    }
}

fn no_such_pool(name: &str) -> ErrorBody {
    ErrorBody::of_kind(ErrorKind::NoSuchPool, format!("cannot open '{name}': no such pool"))
}

/// Whether the pool is not to be opened by itself (`cachefile=none`).
fn is_uncached(properties: &BTreeMap<String, String>) -> bool {
    properties.get("cachefile").is_some_and(|value| value == "none")
}

impl Daemon {
    /// Opens a pool whose devices were where `request` searches. Those that have another name now, as disks may after a
    /// reboot, are looked for beside the others.
    async fn open_where_it_is(
        &self,
        request: platter_api::request::ImportRequest,
    ) -> Result<Arc<dyn PoolHandle>, PoolError> {
        let beside: BTreeSet<PathBuf> =
            request.search.iter().filter_map(|path| path.parent().map(PathBuf::from)).collect();
        let wider = platter_api::request::ImportRequest { search: beside.into_iter().collect(), ..request.clone() };
        let handle = match self.engine.import(request).await {
            Ok(handle) => handle,
            // What another device in these folders may be waiting for is not this pool's concern.
            Err(error) => match tokio::time::timeout(LOOK_FURTHER_MAX, self.engine.import(wider)).await {
                Ok(Ok(handle)) => handle,
                // What it found instead.
                Ok(Err(further)) if matches!(error, PoolError::NotFound(_)) => return Err(further),
                _ => return Err(error),
            },
        };
        if handle.report(Detail::default()).await.is_ok_and(|report| report.state == "DEGRADED")
            && let Err(error) = handle.perform(PoolOperation::Change(PoolChange::Reopen)).await
        {
            tracing::warn!("pool '{}': {error}", handle.name());
        }
        Ok(handle)
    }

    async fn insert(&self, pool: Arc<dyn PoolHandle>, mut remembered: RememberedPool) {
        remembered.guid = pool.guid().to_string();
        remembered.devices = pool.device_paths();
        let real_devices = self.all_real(remembered.devices.clone()).await;
        let led = remembered.devices.iter().cloned().zip(real_devices.iter().cloned()).collect();
        let altroot = remembered.altroot.clone();
        let entry = Entry { opened: Instant::now(), altroot, remembered, real_devices, led, forgettable: false, pool };
        let mut pools = self.pools.write();
        let name = entry.pool.name();
        assert!(!pools.contains_key(&name), "'{name}' is open, and whoever opens it again does not hold its lock");
        pools.insert(name, entry);
    }

    /// Writes `pools.json`. The operation itself has happened when this fails; the error is a complete message, and is
    /// logged.
    fn remember(&self) -> Result<(), String> {
        waiting(|| self.write_list())
    }

    fn write_list(&self) -> Result<(), String> {
        let _writing = self.pools_file.lock();
        let mut list: BTreeMap<String, RememberedPool> =
            self.unavailable.read().iter().map(|(name, (pool, _))| (name.clone(), pool.clone())).collect();
        let pools = self.pools.read();
        let kept = pools.iter().filter(|(_, entry)| !entry.forgettable);
        list.extend(kept.map(|(name, entry)| (name.clone(), entry.to_remember())));
        drop(pools);
        list.extend(self.closed.read().clone());
        pools_file::write(&self.home.pools_file(), &list).map_err(|reason| {
            tracing::error!("{reason}");
            format!("{reason}\nthe next daemon will open the pools that this one had before")
        })
    }

    fn set_forgettable(&self, name: &str, forgettable: bool) {
        if let Some(entry) = self.pools.write().get_mut(name) {
            entry.forgettable = forgettable;
        }
    }

    fn pool(&self, name: &str) -> Answer<Arc<dyn PoolHandle>> {
        if let Some(entry) = self.pools.read().get(name) {
            return Ok(entry.pool.clone());
        }
        if let Some((_, reason)) = self.unavailable.read().get(name) {
            let text = format!("cannot open '{name}': pool is unavailable: {reason}");
            return Err(ErrorBody::of_kind(ErrorKind::Unavailable, text).hint(format!(
                "attach its devices and run 'zpool import {name}', or forget it with 'zpool export {name}'"
            )));
        }
        Err(no_such_pool(name))
    }

    /// What the mount points of a pool's file systems lie below.
    fn roots(&self, pool: &str) -> Roots {
        let altroot = self.pools.read().get(pool).and_then(|entry| entry.altroot.clone());
        Roots { altroot, own: self.mounter.own_folder() }
    }

    /// Writes a command into a pool's history; a failure there does not undo the command.
    fn log(&self, pool: &Arc<dyn PoolHandle>, command: &str) {
        if command.is_empty() {
            return;
        }
        if let Err(error) = pool.log_command(command, 0) {
            tracing::warn!("cannot write the history of '{}': {error}", pool.name());
        }
    }

    /// Writes a guest's command into the history of the pool with data set `name`.
    pub fn note_command(&self, name: &str, command: &str, who: u32) {
        let name = name.split('#').next().unwrap_or_default();
        let Ok(pool) = self.pool_with(name) else { return };
        if let Err(error) = pool.log_command(command, who) {
            tracing::warn!("cannot write the history of '{}': {error}", pool.name());
        }
    }

    /// What runs here.
    pub fn status(&self) -> DaemonStatus {
        let (cached, cache_most) = self.engine.cache();
        DaemonStatus {
            cached,
            cache_most,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            home: self.home.path().to_path_buf(),
            started: self.started,
            pools: self.pools.read().keys().cloned().collect(),
            unavailable: self
                .unavailable
                .read()
                .iter()
                .map(|(name, (_, reason))| (name.clone(), reason.clone()))
                .collect(),
            mounts: self.mounts.read().len() as u64,
            silent: self.silent.read().clone(),
        }
    }

    /// What happened after event number `after`.
    pub fn events(&self, after: u64) -> Vec<Event> {
        self.engine.events().after(after)
    }

    /// What happened after event number `after`, at once or when something has, for so long.
    pub async fn events_within(&self, after: u64, time: Duration) -> Vec<Event> {
        let events = self.engine.events();
        tokio::time::timeout(time, events.arrived_after(after)).await.unwrap_or_default()
    }

    /// Forgets all events; how many there were.
    pub fn clear_events(&self) -> usize {
        self.engine.events().clear()
    }

    /// What a pool's finished groups after group `after` did.
    pub fn txgs(&self, name: &str, after: u64) -> Answer<TxgsReport> {
        Ok(self.pool(name)?.txgs(after))
    }

    /// Names of all pools, those that could not be opened included.
    pub fn pool_names(&self) -> PoolNames {
        let mut pools: Vec<String> = self.pools.read().keys().cloned().collect();
        pools.extend(self.unavailable.read().keys().cloned());
        pools.sort();
        pools.dedup();
        PoolNames { pools }
    }

    /// Everything about a pool.
    pub async fn pool_view(&self, name: &str, detail: Detail) -> Answer<PoolView> {
        let opened = self.pools.read().get(name).map(|entry| (entry.pool.clone(), entry.opened));
        let Some((pool, opened)) = opened else {
            let unavailable = self.unavailable.read();
            let Some((remembered, reason)) = unavailable.get(name) else {
                return Err(no_such_pool(name));
            };
            return Ok(unavailable_view(name, remembered, reason));
        };
        let what = format!("cannot open '{name}'");
        let open_ns = u64::try_from(opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut report = pool.report(detail).await.map_err(|error| failed(&what, error))?;
        // One that is suspended says why, and waits for no device.
        if let Some(device) = self.silent_device(name).filter(|_| !report.suspended) {
            report.status = Some(format!("A device does not answer: {device}. What needs it waits."));
            report.action = Some(silence::advice(name));
            report.message_id = Some("ZFS-8000-HC".to_owned());
        }
        // Of a scan status and job tell the same.
        let is_scan = |job: &&Job| matches!(job.kind, JobKind::Scrub | JobKind::Resilver);
        if let Some(job) = self.jobs_of(&report).iter().find(is_scan) {
            (report.scan.rate, report.scan.eta_seconds) = (job.rate, job.eta_seconds);
        }
        let properties = pool.properties().await.map_err(|error| failed(&what, error))?;
        let mut damaged_files = Vec::new();
        let mut snapshots: BTreeMap<u64, String> = BTreeMap::new();
        for object in &mut report.errors {
            if object.dataset_id != 0 && object.dataset.is_empty() {
                let name = match snapshots.entry(object.dataset_id) {
                    Known::Occupied(known) => known.into_mut(),
                    Known::Vacant(unknown) => {
                        // Its devices may hang, and what is wrong is told all the same.
                        let found = pool.snapshot_by_object(object.dataset_id);
                        let found = tokio::time::timeout(LOOK_UP_WAIT, found).await.ok().flatten();
                        unknown.insert(found.unwrap_or_default())
                    }
                };
                object.dataset.clone_from(name);
            }
            damaged_files.push(describe(object, &self.whereabouts(&pool, object).await));
        }
        Ok(PoolView { report, properties, damaged_files, open_ns, now: now_seconds() })
    }

    async fn whereabouts(
        &self,
        pool: &Arc<dyn PoolHandle>,
        object: &platter_api::report::DamagedObject,
    ) -> Whereabouts {
        if object.dataset_id == 0 || object.dataset.is_empty() {
            return Whereabouts::default();
        }
        if object.dataset.contains('@') {
            // A snapshot stays as it is: nobody has to be kept from it.
            let path = self.mounter.object_path(pool, &object.dataset, object.object);
            let path = tokio::time::timeout(LOOK_UP_WAIT, path).await.ok().flatten();
            return Whereabouts { mountpoint: None, path };
        }
        match self.mounted(&object.dataset) {
            Some(active) => Whereabouts {
                mountpoint: Some(active.at.display().to_string()),
                // Its devices may hang, or hold up its unmounting.
                path: tokio::time::timeout(LOOK_UP_WAIT, async {
                    active.mounted.lock().await.object_path(object.object).await
                })
                .await
                .ok()
                .flatten(),
            },
            None => {
                // The data set must not be mounted while its files are looked at: there is one handle for both.
                let path = match self.locks.soon(mounts::pool_of(&object.dataset), LOOK_UP_WAIT).await {
                    Some(_lock) if self.mounted(&object.dataset).is_none() => {
                        self.mounter.object_path(pool, &object.dataset, object.object).await
                    }
                    _ => None,
                };
                Whereabouts { mountpoint: None, path }
            }
        }
    }

    /// `zpool create`.
    pub async fn create_pool(&self, call: CreatePool) -> Answer<CreatedPool> {
        let stored = call.request.name.clone();
        let name = call.request.temporary_name.clone().unwrap_or_else(|| stored.clone());
        let what = format!("cannot create '{stored}'");
        self.refuse_own_devices(&call.request.vdevs, None, call.request.force).await?;
        let asked = call.request.pool_properties.get("ashift").and_then(|ashift| ashift.parse().ok());
        let warnings = self.warn_of_sectors(&call.request.vdevs, asked).await;
        if call.dry_run {
            let layout = self.engine.dry_run(call.request).await.map_err(|error| failed_creation(&what, error))?;
            return Ok(CreatedPool { layout: Some(layout), warnings, outcome: Outcome::default() });
        }
        let taken = || ErrorBody::new(format!("cannot create '{name}': pool already exists"));
        // Whose devices are waited for is there.
        let _lock = self.turn(&name, &what).await.map_err(|_| taken())?;
        if self.pool_names().pools.contains(&name) {
            return Err(taken());
        }
        self.check_first_place(&what, &call.request).await?;
        let remembered =
            RememberedPool { altroot: call.request.altroot.clone(), mount: true, ..RememberedPool::default() };
        let forgettable = call.request.temporary_name.is_some() || is_uncached(&call.request.pool_properties);
        let pool = self.engine.create(call.request).await.map_err(|error| failed_creation(&what, error))?;
        self.insert(pool, remembered).await;
        self.set_forgettable(&name, forgettable);
        let kept = self.remember().map_err(|reason| format!("'{name}' was created, but {reason}"));
        let mut problems: Vec<String> = kept.err().into_iter().collect();
        if let Ok(pool) = self.pool(&name) {
            let quotas = self.set_id_quotas(&pool, &name, &call.quotas).await;
            problems.extend(quotas.err().map(|reason| format!("cannot set property for '{name}': {reason}")));
        }
        problems.extend(self.mount_automatic(&name).await);
        Ok(CreatedPool { layout: None, warnings, outcome: Outcome { name: Some(name), problems } })
    }

    /// Refuses a new pool that would be mounted where nothing of it may be.
    async fn check_first_place(&self, what: &str, request: &CreateRequest) -> Answer<()> {
        let given = |name: &str| request.dataset_properties.get(name).map(String::as_str);
        if given("canmount").unwrap_or("on") != "on" {
            return Ok(());
        }
        let name = request.temporary_name.as_ref().unwrap_or(&request.name);
        let own = BTreeMap::from([(name.clone(), mount_plan::with_mountpoint(name, given("mountpoint")))]);
        let roots = Roots { altroot: request.altroot.clone(), own: self.mounter.own_folder() };
        let Mountpoint::Path(at) = mount_plan::resolve(name, &own, &roots) else { return Ok(()) };
        let devices = self.all_real(request.vdevs.iter().flat_map(VdevRequest::leaves).cloned().collect()).await;
        self.check_place(name, &at, Some(devices))
            .await
            .map_err(|reason| ErrorBody::new(format!("{what}: '{}' cannot be a mount point: {reason}", at.display())))
    }

    /// Pools that could be imported. Those imported here are left out.
    pub async fn search(&self, call: &SearchPools) -> Answer<FoundPools> {
        let found = self.engine.discover(&call.search, &call.silent).await;
        let mut found = found.map_err(|error| failed("cannot discover pools", error))?;
        let mine: Vec<u64> = self.pools.read().values().map(|entry| entry.pool.guid()).collect();
        found.pools.retain(|pool| !mine.contains(&pool.guid));
        Ok(found)
    }

    /// `zpool import` of one pool.
    pub async fn import_pool(&self, call: ImportPool) -> Answer<ImportedPool> {
        let asked = call.request.pool.clone();
        let what = format!("cannot import '{asked}'");
        let wanted = call.request.new_name.clone().unwrap_or_else(|| asked.clone());
        let taken_name = || {
            ErrorBody::new(format!("{what}: a pool with that name already exists"))
                .hint("use the form 'zpool import <pool | id> <newpool>' to give it a new name")
        };
        // Whose devices are waited for is there.
        let _lock = self.turn(&wanted, &what).await.map_err(|_| taken_name())?;
        let taken = {
            let pools = self.pools.read();
            pools.contains_key(&wanted) || pools.values().any(|entry| entry.pool.guid().to_string() == asked)
        };
        if taken {
            return Err(taken_name());
        }
        let mut request = call.request;
        if request.search.is_empty() {
            // A pool this daemon lost sight of is looked for where it was.
            if let Some((remembered, _)) = self.unavailable.read().get(&asked) {
                request.search = remembered.devices.clone();
            }
        }
        let remembered = RememberedPool {
            altroot: request.altroot.clone(),
            read_only: request.properties.get("readonly").is_some_and(|value| value == "on"),
            mount: call.mount,
            ..RememberedPool::default()
        };
        let forgettable = request.temporary_name || is_uncached(&request.properties);
        let pool = self.engine.import(request).await.map_err(|error| failed(&what, error))?;
        let name = pool.name();
        // Asked for by its number, it may have a name that somebody else's has or gets at this moment.
        let _lock = if name == wanted { None } else { Some(self.locks.of(&name).await) };
        if self.pools.read().contains_key(&name) {
            if let Err(error) = pool.leave(Leave::Export).await {
                tracing::error!("{what}: exporting it again: {error}");
            }
            return Err(taken_name());
        }
        let (guid, silent) = (pool.guid().to_string(), pool.silent_paths());
        self.insert(pool, remembered).await;
        self.set_forgettable(&name, forgettable);
        self.unavailable.write().retain(|_, (remembered, _)| remembered.guid != guid);
        let kept = self.remember().map_err(|reason| format!("'{name}' is imported, but {reason}"));
        self.show_volumes(&name, true).await;
        let unmounted = if call.mount { self.mount_automatic(&name).await } else { Vec::new() };
        let outcome = Outcome { name: Some(name), problems: kept.err().into_iter().collect() };
        Ok(ImportedPool { outcome, unmounted, silent })
    }

    /// `zpool history`.
    pub async fn history(&self, name: &str) -> Answer<Vec<HistoryEntry>> {
        let pool = self.pool(name)?;
        pool.history().await.map_err(|error| failed(&format!("cannot get history for '{name}'"), error))
    }

    /// `zpool labelclear`.
    pub async fn clear_label(&self, call: &ClearLabel) -> Answer<()> {
        let led = self.leading_among_devices(vec![call.device.clone()]).await;
        for (name, entry) in self.pools.read().iter() {
            if led.iter().any(|led| entry.real_devices.contains(led)) {
                let is_spare = led.iter().any(|led| entry.real_spares().contains(led));
                let (what, device) = (if is_spare { "SPARE" } else { "ACTIVE" }, call.device.display());
                return Err(ErrorBody::new(format!("{device} is a member ({what}) of pool \"{name}\"")));
            }
        }
        self.engine.clear_label(&call.device, call.force).await.map_err(|error| match error {
            PoolError::NeedsForce { reason, hint } => ErrorBody::new(format!("{hint}\n{reason}")),
            error => ErrorBody::new(error.to_string()),
        })
    }
}

/// How a pool that could not be opened is shown: as OpenZFS shows a cached pool whose devices are missing.
fn unavailable_view(name: &str, remembered: &RememberedPool, reason: &str) -> PoolView {
    let leaf = |path: &PathBuf| VdevReport {
        name: path.display().to_string(),
        kind: "file".to_owned(),
        path: Some(path.display().to_string()),
        state: "UNAVAIL".to_owned(),
        ..VdevReport::default()
    };
    let guid = remembered.guid.parse().unwrap_or(0);
    PoolView {
        report: PoolReport {
            name: name.to_owned(),
            guid,
            state: "UNAVAIL".to_owned(),
            version: 5000,
            status: Some(format!("The pool could not be opened when the daemon started:\n{reason}")),
            action: Some(format!(
                "Attach its devices and run 'zpool import {name}', or forget it with\n'zpool export {name}'."
            )),
            vdevs: VdevReport {
                name: name.to_owned(),
                kind: "root".to_owned(),
                guid,
                state: "UNAVAIL".to_owned(),
                children: remembered.devices.iter().map(leaf).collect(),
                ..VdevReport::default()
            },
            scan: platter_api::report::ScanReport { state: "none".to_owned(), ..Default::default() },
            ..PoolReport::default()
        },
        now: now_seconds(),
        ..PoolView::default()
    }
}
