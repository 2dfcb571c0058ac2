//! Mounting. Every function of the crate's own here is called with the pool's
//! lock held, except the reading ones.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use platter_api::report::{DatasetKind, DatasetReport};
use platter_fuse::Place;
use rustix::io::Errno;

use super::locks::PASS_OVER;
use super::mount_table::ActiveMount;
use super::{Answer, Daemon, failed};
use crate::mount_plan::{self, CanMount, Mountpoint};
use crate::mounter::HowToMount;
use crate::places;
use platter_api::messages::{ErrorBody, ErrorKind, MOUNT_OPTIONS, MountEntry, MountOutcome, MountRequest};

/// How long who only asks waits until mounts that are gone are forgotten.
const NOTICING: Duration = Duration::from_secs(2);

/// How long it is looked at where a place leads.
const LOOK_MAX: Duration = Duration::from_secs(10);

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// Name of the pool a data set belongs to.
pub(super) fn pool_of(dataset: &str) -> &str {
    dataset.split(['/', '@', '#']).next().unwrap_or(dataset)
}

/// Whether `name` is a data set or snapshot below data set `ancestor`, or a snapshot of it.
pub(super) fn is_under(name: &str, ancestor: &str) -> bool {
    name.strip_prefix(ancestor).is_some_and(|rest| rest.starts_with(['/', '@']))
}

/// The system's text for an error, without Rust's "(os error 2)".
pub(super) fn errno_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(cut) => text[..cut].to_owned(),
        None => text,
    }
}

/// What an ordinary user does about a mount point that is not his; nothing for root.
fn own_place_advice(dataset: &str) -> String {
    if rustix::process::geteuid().is_root() {
        return String::new();
    }
    let last = dataset.rsplit('/').next().unwrap_or(dataset);
    format!(
        "\nchoose a folder of yours: 'zfs set mountpoint=/your/folder/{last} {dataset}', then 'zfs mount {dataset}'"
    )
}

/// Removes folders that only served as mount points, deepest first, when they are empty.
pub(super) async fn remove_folders(mut places: Vec<PathBuf>) {
    places.sort_by_key(|place| std::cmp::Reverse(place.components().count()));
    let removed = tokio::task::spawn_blocking(move || {
        for place in places {
            if place != Path::new("/") {
                let _ = std::fs::remove_dir(place);
            }
        }
    });
    let _ = removed.await;
}

/// Makes a mount point; root does so behind no link that others can lay.
fn make_folders(place: &Path) -> std::io::Result<()> {
    match rustix::process::geteuid().is_root() {
        true => Place::make(place).map(drop),
        false => std::fs::create_dir_all(place),
    }
}

impl Daemon {
    pub(super) fn mounted(&self, dataset: &str) -> Option<ActiveMount> {
        self.mounts.read().get(dataset).cloned()
    }

    /// Nothing is mounted there any more, or what was there before is seen again.
    pub(super) fn forget_record(&self, at: &Path) {
        let below = self.mounts.read().latest_at(at).map(|other| other.source.clone());
        match below {
            Some(source) => self.recorded.add(at, &source),
            None => self.recorded.remove(at),
        }
    }

    fn mounts_of(&self, pool: &str) -> Vec<ActiveMount> {
        let of_pool = |(dataset, active): (&String, &ActiveMount)| (pool_of(dataset) == pool).then(|| active.clone());
        self.mounts.read().iter().filter_map(of_pool).collect()
    }

    /// Has the mounts of a pool free what was removed a moment ago. One that is being unmounted does that by itself.
    pub(super) async fn settle_mounts(&self, pool: &str) {
        for active in self.mounts_of(pool) {
            if let Ok(mounted) = active.mounted.try_lock() {
                mounted.settle().await;
            }
        }
    }

    /// Has the kernel hand over what was stored in files of these data sets through mappings, all at once.
    pub(super) async fn flush_mounts(&self, datasets: &BTreeSet<String>) {
        let active: Vec<ActiveMount> = datasets.iter().filter_map(|dataset| self.mounted(dataset)).collect();
        let flushed = active.iter().map(|active| async {
            if let Ok(mounted) = active.mounted.try_lock() {
                mounted.flush().await;
            }
        });
        futures::future::join_all(flushed).await;
    }

    /// Tells the mounts of a pool that a group is on disk.
    pub(super) fn mounts_are_synced(&self, pool: &str) {
        for active in self.mounts_of(pool) {
            if let Ok(mounted) = active.mounted.try_lock() {
                mounted.synced();
            }
        }
    }

    /// All mounts, by data set.
    pub async fn mount_entries(&self) -> Vec<MountEntry> {
        // While an operation runs the list is what it has come to so far.
        for pool in self.pool_names().pools {
            if let Some(_lock) = self.locks.now(&pool) {
                let _ = tokio::time::timeout(NOTICING, self.notice_gone(&pool)).await;
            }
        }
        self.mounts
            .read()
            .iter()
            .map(|(dataset, active)| MountEntry { dataset: dataset.clone(), mountpoint: active.at.clone() })
            .collect()
    }

    /// Mounts what is mounted by itself of a pool; tells what could not be.
    pub(super) async fn mount_automatic(&self, pool: &str) -> Vec<String> {
        self.notice_gone(pool).await;
        let plan = match self.plan(pool).await {
            Ok(plan) => plan,
            Err(problem) => return vec![problem],
        };
        let mut problems = Vec::new();
        for (report, at) in plan {
            if self.mounted(&report.name).is_none() {
                problems.extend(self.mount_one(&report, &at, &HowToMount::default()).await.err());
            }
        }
        problems
    }

    /// What is mounted by itself of a pool, and where.
    async fn plan(&self, pool: &str) -> Result<Vec<(DatasetReport, PathBuf)>, String> {
        let Ok(handle) = self.pool(pool) else { return Ok(Vec::new()) };
        let reports =
            handle.datasets().await.map_err(|error| format!("cannot list the datasets of '{pool}': {error}"))?;
        let map = mount_plan::by_name(&reports);
        let plan = mount_plan::automatic(&reports, &self.roots(pool));
        Ok(plan.into_iter().map(|(dataset, at)| (map[&dataset].clone(), at)).collect())
    }

    /// `zfs mount -a`: all pools' together, since one may be mounted inside another. Holds no lock when it is called.
    async fn mount_all(&self, how: &HowToMount) -> Vec<String> {
        let (mut plan, mut problems) = (Vec::new(), Vec::new());
        let names: Vec<String> = self.pools.read().keys().cloned().collect();
        let busy = |pool: &str| format!("cannot mount the datasets of '{pool}': another operation on it is under way");
        for name in names {
            let Some(_lock) = self.locks.soon(&name, PASS_OVER).await else {
                problems.push(busy(&name));
                continue;
            };
            self.notice_gone(&name).await;
            match self.plan(&name).await {
                Ok(more) => plan.extend(more),
                Err(problem) => problems.push(problem),
            }
        }
        plan.sort_by(|a, b| a.1.components().cmp(b.1.components()).then_with(|| a.0.name.cmp(&b.0.name)));
        for (report, at) in plan {
            let Some(_lock) = self.locks.soon(pool_of(&report.name), PASS_OVER).await else {
                problems.push(busy(pool_of(&report.name)));
                continue;
            };
            if self.mounted(&report.name).is_none() && self.pool(pool_of(&report.name)).is_ok() {
                problems.extend(self.mount_one(&report, &at, how).await.err());
            }
        }
        problems
    }

    /// Refuses a place where nothing of the pool may be mounted; the error is the reason only. `devices` are those of a
    /// pool to be made.
    pub(super) async fn check_place(&self, pool: &str, at: &Path, devices: Option<Vec<PathBuf>>) -> Result<(), String> {
        let own = || self.pools.read().get(pool).map(|entry| entry.real_devices.clone()).unwrap_or_default();
        let devices = devices.unwrap_or_else(own);
        let (at, home) = (at.to_path_buf(), self.home.path().to_path_buf());
        let looked = tokio::task::spawn_blocking(move || {
            places::forbidden(&places::without_links(&at), &places::without_links(&home), &devices)
        });
        // Whoever serves what lies there may not answer.
        let looked = tokio::time::timeout(LOOK_MAX, looked).await.map_err(|_| "nothing answers there".to_owned())?;
        looked.map_err(|error| error.to_string())?.map_or(Ok(()), Err)
    }

    /// As [`check_place`](Self::check_place), of what would be mounted by itself among `names`, as `reports` say; the
    /// error is a complete message after `what`.
    pub(super) async fn check_places(
        &self,
        what: &str,
        names: &[String],
        reports: &BTreeMap<String, DatasetReport>,
    ) -> Answer<()> {
        for name in names {
            let Some(report) = reports.get(name).filter(|report| report.kind == DatasetKind::Filesystem) else {
                continue;
            };
            let roots = self.roots(pool_of(name));
            if mount_plan::canmount(report) == CanMount::On
                && let Mountpoint::Path(at) = mount_plan::resolve(name, reports, &roots)
                && let Err(reason) = self.check_place(pool_of(name), &at, None).await
            {
                return Err(ErrorBody::new(format!("{what}: '{}' cannot be a mount point: {reason}", at.display())));
            }
        }
        Ok(())
    }

    /// Mounts one file system; the error is a complete message.
    pub(super) async fn mount_one(&self, report: &DatasetReport, at: &Path, how: &HowToMount) -> Result<(), String> {
        let pool = self.pool(pool_of(&report.name)).map_err(|error| error.message)?;
        let mut how = how.clone();
        let said = how.options.iter().rev().find(|option| *option == "ro" || *option == "rw");
        // A word at the command decides for this mount.
        how.read_only |= said.map_or_else(|| mount_plan::read_only(report), |option| option == "ro");
        if let Some(reason) = &report.read_only_reason
            && !how.read_only
        {
            tracing::warn!("'{}' is mounted read-only: {reason}", report.name);
            how.read_only = true;
        }
        let overlay = how.overlay || report.properties.get("overlay").map(mount_plan::text).as_deref() != Some("off");
        self.check_place(pool_of(&report.name), at, None)
            .await
            .map_err(|reason| format!("cannot mount '{}': {reason}", at.display()))?;
        let place = at.to_path_buf();
        // The folder may lie in a file system that this very daemon serves: never on a thread that serves it.
        let prepared = tokio::task::spawn_blocking(move || -> Result<(), String> {
            let found = std::fs::metadata(&place);
            // What a server that is gone, or whose connection was cut, left there is cleared away by the mounter.
            let is_dead = |error: &std::io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
            if !found.as_ref().is_ok_and(std::fs::Metadata::is_dir) && !found.is_err_and(|error| is_dead(&error)) {
                make_folders(&place).map_err(|error| format!("failed to create mountpoint: {}", errno_text(&error)))?;
            }
            if !overlay && std::fs::read_dir(&place).is_ok_and(|mut entries| entries.next().is_some()) {
                return Err("directory is not empty\nUse the -O flag to mount over it".to_owned());
            }
            Ok(())
        })
        .await
        .map_err(|error| error.to_string())
        .and_then(|result| result);
        prepared.map_err(|reason| {
            let advice =
                if reason.ends_with("Permission denied") { own_place_advice(&report.name) } else { String::new() };
            format!("cannot mount '{}': {reason}{advice}", at.display())
        })?;
        // Before it is made: a daemon that is killed in between leaves it.
        self.recorded.add(at, &report.name);
        let mounted = self.mounter.mount(&pool, report, at, &how).await.map_err(|reason| {
            self.forget_record(at);
            let advice =
                if reason.contains("no write access") { own_place_advice(&report.name) } else { String::new() };
            format!("cannot mount '{}': {reason}{advice}", report.name)
        })?;
        let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
        let active = ActiveMount {
            at: at.to_path_buf(),
            source: report.name.clone(),
            is_chosen: how.is_at_given_place || mount_plan::is_chosen(&report.name, report),
            options: how.options.clone(),
            sequence,
            mounted: Arc::new(tokio::sync::Mutex::new(mounted)),
        };
        self.mounts.write().insert(report.name.clone(), active);
        tracing::info!("mounted '{}' at {}", report.name, at.display());
        Ok(())
    }

    /// Mounts a data set where its properties say, when they say so; `explicit` overrides `canmount=noauto` and makes
    /// every reason against it an error.
    pub(super) async fn mount_dataset(&self, name: &str, explicit: bool, how: &HowToMount) -> Answer<()> {
        let pool_name = pool_of(name);
        let pool = self.pool(pool_name).map_err(|_| no_such_dataset(name))?;
        let reports = pool.lineage(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let map = mount_plan::by_name(&reports);
        let report = map.get(name).ok_or_else(|| no_such_dataset(name))?;
        let refuse = |reason: &str, hint: Option<&str>| {
            if !explicit {
                return Ok(());
            }
            let error = ErrorBody::new(format!("cannot mount '{name}': {reason}"));
            Err(match hint {
                Some(hint) => error.hint(hint),
                None => error,
            })
        };
        if report.kind != DatasetKind::Filesystem {
            return refuse("operation not applicable to datasets of this type", None);
        }
        let at = match mount_plan::resolve(name, &map, &self.roots(pool_name)) {
            Mountpoint::Path(at) => at,
            Mountpoint::Legacy => {
                return refuse(
                    "legacy mountpoint",
                    Some("set a mountpoint with 'zfs set mountpoint=/path' to mount it here"),
                );
            }
            Mountpoint::None => return refuse("no mountpoint set", None),
        };
        match mount_plan::canmount(report) {
            CanMount::Off => return refuse("'canmount' property is set to 'off'", None),
            CanMount::NoAuto if !explicit => return Ok(()),
            CanMount::On | CanMount::NoAuto => {}
        }
        if mount_plan::is_unfinished(report) {
            return refuse("mountpoint or dataset is busy", None);
        }
        if mount_plan::is_redacted(report) && !how.incomplete {
            let reason = "Dataset is not complete, was created by receiving a redacted zfs send stream.";
            return refuse(reason, None);
        }
        if mount_plan::is_locked(report) {
            return refuse("encryption key not loaded", Some("this version cannot load keys yet"));
        }
        // The table of all mounts is long where there are many.
        if self.mounted(name).is_some() {
            let present = self.mounter.present();
            self.notice_gone_of(name, present.as_ref()).await;
        }
        if self.mounted(name).is_some() {
            return refuse("filesystem already mounted", None);
        }
        self.mount_one(report, &at, how).await.map_err(ErrorBody::new)
    }

    /// Mounts what is below a data set and mounted by itself; tells what could not be.
    async fn mount_below(&self, name: &str, how: &HowToMount) -> Vec<String> {
        let Ok(pool) = self.pool(pool_of(name)) else { return Vec::new() };
        let Ok(reports) = pool.datasets().await else { return Vec::new() };
        let below = format!("{name}/");
        let mut problems = Vec::new();
        for (dataset, _) in mount_plan::automatic(&reports, &self.roots(pool_of(name))) {
            if dataset.starts_with(&below)
                && self.mounted(&dataset).is_none()
                && let Err(error) = self.mount_dataset(&dataset, false, how).await
            {
                problems.push(error.message);
            }
        }
        problems
    }

    /// `zfs mount`.
    pub async fn mount(&self, call: &MountRequest) -> Answer<MountOutcome> {
        if let Some(option) = call.options.iter().find(|option| !MOUNT_OPTIONS.contains(&option.as_str())) {
            let what = call.dataset.as_deref().unwrap_or("all");
            return Err(ErrorBody::new(format!("cannot mount '{what}': mount option '{option}' has no effect here"))
                .hint(format!("known are {}", MOUNT_OPTIONS.join(", "))));
        }
        let how = HowToMount {
            options: call.options.clone(),
            overlay: call.overlay,
            incomplete: call.incomplete,
            is_at_given_place: call.at.is_some(),
            ..HowToMount::default()
        };
        let Some(name) = &call.dataset else {
            let problems = self.mount_all(&how).await;
            let mut considered = 0;
            let pools: Vec<String> = self.pools.read().keys().cloned().collect();
            for pool in pools {
                considered += self.count_filesystems(&pool).await;
            }
            return Ok(MountOutcome { considered, problems });
        };
        let _lock = self.turn(pool_of(name), &format!("cannot mount '{name}'")).await?;
        if call.recursive {
            let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
            let reports = pool.datasets().await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
            if !reports.iter().any(|report| report.name == *name) {
                return Err(no_such_dataset(name));
            }
            let mut problems = Vec::new();
            if self.mounted(name).is_none()
                && let Err(error) = self.mount_dataset(name, false, &how).await
            {
                problems.push(error.message);
            }
            problems.extend(self.mount_below(name, &how).await);
            return Ok(MountOutcome { considered: self.count_filesystems(name).await, problems });
        }
        if call.options.iter().any(|option| option == "remount")
            && let Some(active) = self.mounted(name)
        {
            self.remount(name, ActiveMount { options: call.options.clone(), ..active }).await?;
            return Ok(MountOutcome { considered: 1, problems: Vec::new() });
        }
        match &call.at {
            Some(at) => self.mount_at(name, at, call.zfsutil, &how).await?,
            None => self.mount_dataset(name, true, &how).await?,
        }
        Ok(MountOutcome { considered: 1, problems: Vec::new() })
    }

    /// Mounts again where it is what is mounted, with the options of `active`.
    async fn remount(&self, name: &str, active: ActiveMount) -> Answer<()> {
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let reports = pool.lineage(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        // FUSE has no other way to change the kernel's flags than a new mount.
        let inner = self.mounted_under(name).len() > 1;
        if inner || self.unmount_unused(vec![name.to_owned()]).await.is_err() {
            let at = active.at.display();
            return Err(ErrorBody::new(format!("cannot remount '{at}': pool or dataset is busy"))
                .hint("a remount needs a file system that nobody uses and nothing is mounted in"));
        }
        let problems = self.mount_again(vec![(name.to_owned(), active)], &mount_plan::by_name(&reports)).await;
        problems.into_iter().next().map_or(Ok(()), |problem| Err(ErrorBody::new(problem)))
    }

    /// Mounts a data set with `mountpoint=legacy` where mount(8) says, or with `zfsutil` any other (`cmd/mount_zfs.c`).
    async fn mount_at(&self, name: &str, at: &Path, zfsutil: bool, how: &HowToMount) -> Answer<()> {
        let pool = self.pool(pool_of(name)).map_err(|_| no_such_dataset(name))?;
        let reports = pool.lineage(name).await.map_err(|error| failed(&format!("cannot open '{name}'"), error))?;
        let map = mount_plan::by_name(&reports);
        let report = map
            .get(name)
            .filter(|report| report.kind == DatasetKind::Filesystem)
            .ok_or_else(|| no_such_dataset(name))?;
        let is_legacy = mount_plan::resolve(name, &map, &self.roots(pool_of(name))) == Mountpoint::Legacy;
        if is_legacy && zfsutil {
            return Err(ErrorBody::new(format!(
                "filesystem '{name}' cannot be mounted using 'zfs mount'.\n\
                 Use 'zfs set mountpoint=PATH' or 'mount -t zfs {name} {}'.\nSee zfs(8) for more information.",
                at.display()
            )));
        }
        if !is_legacy && !zfsutil {
            return Err(ErrorBody::new(format!(
                "filesystem '{name}' cannot be mounted using 'mount'.\n\
                 Use 'zfs set mountpoint=legacy' or 'zfs mount {name}'.\nSee zfs(8) for more information."
            )));
        }
        if mount_plan::is_locked(report) {
            return Err(ErrorBody::new(format!("filesystem '{name}' cannot be mounted: encryption key not loaded")));
        }
        self.notice_gone_of(name, self.mounter.present().as_ref()).await;
        if self.mounted(name).is_some() {
            let text = format!("filesystem '{name}' is already mounted");
            return Err(ErrorBody::of_kind(ErrorKind::MountBusy, text));
        }
        self.mount_one(report, at, how).await.map_err(ErrorBody::new)
    }

    /// File systems at and below a data set.
    async fn count_filesystems(&self, name: &str) -> u64 {
        let Ok(pool) = self.pool(pool_of(name)) else { return 0 };
        let Ok(reports) = pool.datasets().await else { return 0 };
        let below = format!("{name}/");
        let inside = reports.iter().filter(|report| report.name == name || report.name.starts_with(&below));
        inside.filter(|report| report.kind == DatasetKind::Filesystem).count() as u64
    }

    /// Mounts that stay where they are have another data set's name now.
    pub(super) async fn mounts_renamed(&self, names: &[String], from: &str, to: &str) {
        for name in names {
            let new = format!("{to}{}", &name[from.len()..]);
            let Some(active) = self.mounts.write().remove(name) else { continue };
            active.mounted.lock().await.renamed(&new);
            self.mounts.write().insert(new, active);
        }
    }
}

/// OpenZFS's words for a data set that is not there.
pub(super) fn no_such_dataset(name: &str) -> ErrorBody {
    ErrorBody::of_kind(ErrorKind::NotFound, format!("cannot open '{name}': dataset does not exist"))
}
