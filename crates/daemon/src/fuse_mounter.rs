//! The real [`Mounter`]: the POSIX layer on a data set, shown to the kernel through FUSE.
//!
//! A mount owns two things, in this order: the kernel's mount, and the pool's handle of the object set. The handle is
//! given back only after the kernel's side is gone and everything is written.

use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use platter_api::report::{DatasetReport, PropertyValue};
use platter_dmu::{Objset, Totals, Tx};
use platter_dsl::{FilesystemMaker, FilesystemOptions};
use platter_fuse::{Elsewhere, FuseError, Keeper, KernelFlags};
use platter_ondisk::ObjectId;
use platter_spa::Pool;
use platter_vfs::{ControlDirectory, ServeOptions, Vfs};
use platter_zpl::{AtimeMode, CreateOptions, Timestamp, XattrMode, Zpl, user_quota};

use crate::dataset_space::DatasetSpace;
use crate::engine::PoolHandle;
use crate::machine::{SystemClock, random_u64};
use crate::memory_limit::MemoryLimit;
use crate::mount_plan::{OwnFolder, of_a_mount};
use crate::mounter::{HowToMount, Mounted, MountedVolumes, Mounter, UnmountError};
use crate::pool_volumes::PoolVolumes;
use crate::run::Parts;
use crate::shown_snapshots::ShownSnapshots;
use crate::snapshot_requests::SnapshotRequests;
use platter_api::messages::{IdQuota, IdUsage, Whose};

/// How often, and how long each time, a sync waits for the kernel to tell that it has forgotten what was removed. It
/// tells at once unless somebody stands in a removed directory or has it by `O_PATH`.
const FORGETTING_TRIES: usize = 50;
const FORGETTING: Duration = Duration::from_millis(2);

/// What the real daemon is made of.
pub fn parts() -> Parts {
    Parts { maker: Arc::new(ZplMaker), mounter: Arc::new(FuseMounter { own: own_folder(), requests: Arc::default() }) }
}

/// Fills new data sets with an empty file system that belongs to whoever makes it, or runs the daemon.
struct ZplMaker;

impl FilesystemMaker for ZplMaker {
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        Box::pin(async move {
            let options = CreateOptions {
                version: options.version,
                utf8only: u64::from(options.utf8_only),
                normalization: options.normalization,
                case_sensitivity: options.case_sensitivity,
                uid: options.owner.map_or_else(|| rustix::process::geteuid().as_raw(), |owner| owner.uid),
                gid: options.owner.map_or_else(|| rustix::process::getegid().as_raw(), |owner| owner.gid),
                now: now(),
                salt_seed: random_u64(),
            };
            Zpl::create_filesystem(os, tx, &options).await
        })
    }
}

fn is_on(report: &DatasetReport, property: &str, default: bool) -> bool {
    match of_a_mount(report, property).as_deref() {
        Some("on") => true,
        Some("off") => false,
        _ => default,
    }
}

/// Records that memory should have room for: with 16 MiB each, 512 MiB did for several pools under load, and 256 MiB
/// did not.
const RECORDS_IN_MEMORY: u64 = 32;

/// What the properties and options say about a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    kernel: KernelFlags,
    posix_acl: bool,
}

fn flags(report: &DatasetReport, how: &HowToMount) -> Flags {
    let choose = |yes: &str, no: &str, property: &str| {
        let last = how.options.iter().rev().find(|option| *option == yes || *option == no);
        last.map_or_else(|| is_on(report, property, true), |option| option == yes)
    };
    Flags {
        kernel: KernelFlags {
            read_only: how.read_only,
            devices: choose("dev", "nodev", "devices"),
            setuid: choose("suid", "nosuid", "setuid"),
            exec: choose("exec", "noexec", "exec"),
            atime: atime(report, how),
        },
        posix_acl: matches!(of_a_mount(report, "acltype").as_deref(), Some("posix" | "posixacl")),
    }
}

fn xattr(report: &DatasetReport, how: &HowToMount) -> XattrMode {
    if how
        .options
        .iter()
        .rev()
        .find(|option| matches!(option.as_str(), "xattr" | "noxattr"))
        .is_some_and(|last| last == "noxattr")
    {
        return XattrMode::Off;
    }
    match of_a_mount(report, "xattr").as_deref() {
        Some("off") => XattrMode::Off,
        Some("dir") => XattrMode::Dir,
        _ => XattrMode::Sa,
    }
}

/// Who finds `.zfs`, by property `snapdir`.
fn control(report: &DatasetReport) -> ControlDirectory {
    match of_a_mount(report, "snapdir").as_deref() {
        Some("visible") => ControlDirectory::Visible,
        Some("disabled") => ControlDirectory::Disabled,
        _ => ControlDirectory::Hidden,
    }
}

fn atime(report: &DatasetReport, how: &HowToMount) -> AtimeMode {
    let given = how.options.iter().rev().find_map(|option| match option.as_str() {
        "noatime" => Some(AtimeMode::Off),
        "atime" | "norelatime" => Some(AtimeMode::Always),
        "relatime" => Some(AtimeMode::Relative),
        "strictatime" => Some(AtimeMode::Always),
        _ => None,
    });
    given.unwrap_or_else(|| match (is_on(report, "atime", true), is_on(report, "relatime", true)) {
        (false, _) => AtimeMode::Off,
        (true, true) => AtimeMode::Relative,
        (true, false) => AtimeMode::Always,
    })
}

/// The reason alone: the caller says what could not be mounted or unmounted.
fn reason(error: &FuseError) -> String {
    let text = error.to_string();
    match text.split_once(": ") {
        Some((start, rest)) if start.starts_with("cannot mount") || start.starts_with("cannot unmount") => {
            rest.to_owned()
        }
        _ => text,
    }
}

/// An ordinary user's home folder, if it is his: what he has not given a mount point is mounted there, since `/` is not
/// his to make folders in. `None` for root.
pub fn own_folder() -> Option<OwnFolder> {
    let me = rustix::process::geteuid();
    let path = std::env::var_os("HOME").map(std::path::PathBuf::from).filter(|path| path.is_absolute())?;
    let is_his = std::fs::metadata(&path).is_ok_and(|found| found.is_dir() && found.uid() == me.as_raw());
    (!me.is_root() && is_his).then(|| OwnFolder { path, nested: platter_fuse::users_may_share() })
}

/// Mounts through FUSE.
struct FuseMounter {
    own: Option<OwnFolder>,
    requests: Arc<SnapshotRequests>,
}

#[async_trait]
impl Mounter for FuseMounter {
    fn own_folder(&self) -> Option<OwnFolder> {
        self.own.clone()
    }

    fn snapshot_requests(&self) -> Option<&SnapshotRequests> {
        Some(&self.requests)
    }

    async fn mount(
        &self,
        pool: &Arc<dyn PoolHandle>,
        report: &DatasetReport,
        at: &Path,
        how: &HowToMount,
    ) -> Result<Box<dyn Mounted>, String> {
        let pool = pool.engine_pool().ok_or("the pool has no engine")?;
        let name = report.name.clone();
        let objset = pool.dsl().open_filesystem(&name).await.map_err(|error| error.to_string())?;
        let mounted = mount_objset(&pool, objset, report, at, how, &self.requests).await;
        match mounted {
            Ok((zpl, vfs, mount, snapshots, flags)) => Ok(Box::new(FuseMount {
                pool,
                name,
                zpl,
                vfs,
                mount: Arc::new(mount),
                snapshots,
                flags,
                how: how.clone(),
                closed: false,
            })),
            Err(reason) => {
                if let Err(error) = pool.dsl().close_filesystem(&name).await {
                    tracing::error!("cannot close '{name}': {error}");
                }
                Err(reason)
            }
        }
    }

    async fn replay_volumes(&self, pool: &Arc<dyn PoolHandle>) {
        if let Some(pool) = pool.engine_pool() {
            PoolVolumes::new(pool).replay_logs().await;
        }
    }

    async fn mount_volumes(
        &self,
        pool: &Arc<dyn PoolHandle>,
        source: &str,
        at: &Path,
    ) -> Result<Option<Box<dyn MountedVolumes>>, String> {
        let Some(pool) = pool.engine_pool() else { return Ok(None) };
        let volumes = PoolVolumes::new(pool);
        if !volumes.any() {
            return Ok(None);
        }
        let options = platter_fuse::MountOptions {
            source: source.to_owned(),
            flags: KernelFlags { devices: false, setuid: false, exec: false, ..KernelFlags::default() },
            allow_other: rustix::process::geteuid().is_root() || platter_fuse::users_may_share(),
            ..platter_fuse::MountOptions::default()
        };
        let (place, runtime) = (at.to_path_buf(), tokio::runtime::Handle::current());
        let mount = tokio::task::spawn_blocking(move || {
            let mut folders = std::fs::DirBuilder::new();
            // What is on a disk is its owner's business.
            folders.recursive(true).mode(0o700).create(&place).map_err(|error| error.to_string())?;
            platter_fuse::mount_volumes(volumes, &place, options, runtime).map_err(|error| reason(&error))
        });
        let mount = mount.await.map_err(|error| error.to_string())??;
        Ok(Some(Box::new(FuseVolumes(Arc::new(mount)))))
    }

    fn present(&self) -> Option<BTreeSet<String>> {
        platter_fuse::mountinfo::present()
    }

    async fn object_path(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, object: u64) -> Option<String> {
        let pool = pool.engine_pool()?;
        if dataset.contains('@') {
            let objset = pool.dsl().open_snapshot(dataset).await.ok()?;
            return platter_zpl::object_path(&objset, ObjectId(object)).await.ok();
        }
        let objset = pool.dsl().open_filesystem(dataset).await.ok()?;
        let path = platter_zpl::object_path(&objset, ObjectId(object)).await.ok();
        drop(objset);
        let _ = pool.dsl().close_filesystem(dataset).await;
        path
    }

    async fn usage(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, whose: Whose) -> Result<Vec<IdUsage>, String> {
        let look = async |objset: &Arc<Objset>| {
            let usage = user_quota::usage(objset, totals(whose)).await.map_err(|error| error.to_string())?;
            let shown = |usage: &user_quota::Usage| IdUsage {
                id: usage.id,
                used: usage.used,
                quota: usage.quota,
                objects_used: usage.objects_used,
                objects_quota: usage.objects_quota,
            };
            Ok(usage.iter().map(shown).collect())
        };
        if !dataset.contains('@') {
            return with_objset(pool, dataset, look).await;
        }
        let pool = pool.engine_pool().ok_or("the pool has no engine")?;
        let objset = pool.dsl().open_snapshot(dataset).await.map_err(|error| error.to_string())?;
        look(&objset).await
    }

    async fn set_quota(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, quota: &IdQuota) -> Result<(), String> {
        with_objset(pool, dataset, async |objset| {
            objset.account_everything().await.map_err(|error| error.to_string())?;
            user_quota::set_quota(objset, totals(quota.whose), quota.objects, quota.id, quota.value, random_u64())
                .await
                .map_err(|error| error.to_string())
        })
        .await
    }
}

/// Works with a file system's object set, which is opened when nobody has it open. The error is the reason only.
async fn with_objset<T>(
    pool: &Arc<dyn PoolHandle>,
    dataset: &str,
    work: impl AsyncFnOnce(&Arc<Objset>) -> Result<T, String>,
) -> Result<T, String> {
    let pool = pool.engine_pool().ok_or("the pool has no engine")?;
    let was_open = pool.dsl().is_open(dataset);
    let objset = pool.dsl().open_filesystem(dataset).await.map_err(|error| error.to_string())?;
    let result = match objset.space_is_counted() {
        true => work(&objset).await,
        false if objset.params().read_only => Err("its users' space was never counted, and it is read-only".into()),
        // Made by a version that did not count: counted once, now.
        false => match objset.account_everything().await {
            Ok(()) => work(&objset).await,
            Err(error) => Err(error.to_string()),
        },
    };
    drop(objset);
    if !was_open {
        pool.dsl().close_filesystem(dataset).await.map_err(|error| error.to_string())?;
    }
    result
}

fn totals(whose: Whose) -> Totals {
    match whose {
        Whose::User => Totals::Users,
        Whose::Group => Totals::Groups,
        Whose::Project => Totals::Projects,
    }
}

/// Says it in the log when records are so large that the memory may not do: some are there several times while they are
/// read, changed, compressed and written, whatever waits for what.
fn warn_of_little_memory(report: &DatasetReport) {
    let Some(PropertyValue::Number(record)) = report.properties.get("recordsize").map(|found| &found.value) else {
        return;
    };
    let (memory, needed) = (MemoryLimit::of_this_process().bytes, record.saturating_mul(RECORDS_IN_MEMORY));
    if memory < needed {
        tracing::warn!(
            "'{}' has records of {} MiB: with {} MiB of memory the daemon may be killed for want of it; {} MiB are \
             enough",
            report.name,
            record >> 20,
            memory >> 20,
            needed >> 20
        );
    }
}

fn now() -> Timestamp {
    let (seconds, nanoseconds) = platter_hooks::WallClock::now(&SystemClock);
    Timestamp { seconds: i64::try_from(seconds).unwrap_or(i64::MAX), nanoseconds }
}

async fn mount_objset(
    pool: &Arc<Pool>,
    objset: Arc<Objset>,
    report: &DatasetReport,
    at: &Path,
    how: &HowToMount,
    requests: &Arc<SnapshotRequests>,
) -> Result<(Arc<Zpl>, Arc<Vfs>, platter_fuse::Mount, Arc<ShownSnapshots>, Flags), String> {
    let flags = flags(report, how);
    let options = platter_zpl::MountOptions {
        read_only: flags.kernel.read_only,
        atime: flags.kernel.atime,
        xattr: xattr(report, how),
        posix_acl: flags.posix_acl,
        salt_seed: random_u64(),
        log: pool.dsl().intent_log(&report.name).map_err(|error| error.to_string())?,
        ..platter_zpl::MountOptions::default()
    };
    warn_of_little_memory(report);
    let space = Arc::new(DatasetSpace(pool.dsl().filesystem_space(&report.name).map_err(|error| error.to_string())?));
    let zpl = Zpl::mount(objset, options, Arc::new(SystemClock), space).await.map_err(|error| error.to_string())?;
    if let Some(reason) = zpl.read_only_reason().filter(|_| !flags.kernel.read_only) {
        tracing::warn!("'{}' is mounted read-only: {reason}", report.name);
    }
    if !flags.kernel.read_only && zpl.read_only_reason().is_none() {
        pool.dsl().count_in_background(&report.name).map_err(|error| error.to_string())?;
    }
    let runtime = tokio::runtime::Handle::current();
    let (of_files, lists) = (xattr(report, how), flags.posix_acl);
    let (name, requests) = (report.name.clone(), requests.clone());
    let snapshots = ShownSnapshots::new(pool.clone(), name, of_files, lists, runtime.clone(), requests);
    let options = platter_fuse::MountOptions {
        snapshots: Some(snapshots.clone()),
        source: report.name.clone(),
        flags: KernelFlags { read_only: flags.kernel.read_only || zpl.read_only_reason().is_some(), ..flags.kernel },
        // Others may enter, as with any file system (permissions decide), where the machine lets this user allow it.
        allow_other: rustix::process::geteuid().is_root() || platter_fuse::users_may_share(),
        cache_absent: of_a_mount(report, "casesensitivity").is_none_or(|case| case == "sensitive")
            && of_a_mount(report, "normalization").is_none_or(|form| form == "none"),
        ..platter_fuse::MountOptions::default()
    };
    let served = ServeOptions { name: report.name.clone(), since: now(), control: control(report), observer: None };
    let vfs = Vfs::new(zpl.clone(), served, runtime.clone());
    let (served, place) = (vfs.clone(), at.to_path_buf());
    // The kernel asks for the root before mount(2) is over: not on a thread that answers.
    let mount = tokio::task::spawn_blocking(move || platter_fuse::mount(served, &place, options, runtime))
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| reason(&error))?;
    Ok((zpl, vfs, mount, snapshots, flags))
}

/// Unmounts on a thread that may wait.
async fn unmounting(mount: &Arc<platter_fuse::Mount>, force: bool) -> Result<(), UnmountError> {
    let mount = mount.clone();
    match tokio::task::spawn_blocking(move || mount.unmount(force)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(FuseError::Busy(_))) => Err(UnmountError::Busy),
        Ok(Err(error)) => Err(UnmountError::Other(reason(&error))),
        Err(error) => Err(UnmountError::Other(error.to_string())),
    }
}

/// Ends a connection on a thread that may wait.
async fn cutting_off(mount: &Arc<platter_fuse::Mount>) -> Result<(), UnmountError> {
    let mount = mount.clone();
    let result = tokio::task::spawn_blocking(move || mount.cut_off()).await;
    let cut = result.map_err(|error| error.to_string()).and_then(|cut| cut.map_err(|error| reason(&error)));
    cut.map_err(UnmountError::Other)
}

/// The mount that shows a pool's volumes.
struct FuseVolumes(Arc<platter_fuse::Mount>);

#[async_trait]
impl MountedVolumes for FuseVolumes {
    async fn unmount(&mut self, force: bool) -> Result<(), UnmountError> {
        unmounting(&self.0, force).await
    }

    async fn cut_off(&mut self) -> Result<(), UnmountError> {
        cutting_off(&self.0).await
    }

    fn device(&self) -> Option<String> {
        self.0.device().map(str::to_owned)
    }

    fn is_gone(&self) -> bool {
        !self.0.is_alive()
    }
}

/// A mounted file system.
struct FuseMount {
    pool: Arc<Pool>,
    name: String,
    zpl: Arc<Zpl>,
    vfs: Arc<Vfs>,
    mount: Arc<platter_fuse::Mount>,
    snapshots: Arc<ShownSnapshots>,
    flags: Flags,
    how: HowToMount,
    /// Whether the pool's handle is given back.
    closed: bool,
}

impl FuseMount {
    /// Gives the file system back to the pool, once the kernel's side is gone.
    async fn close(&mut self) {
        if self.closed {
            return;
        }
        // Nothing of the kernel's is left; what cannot be written now (a stopped pool) cannot be written later either.
        if let Err(error) = self.zpl.unmount().await {
            tracing::error!("'{}': {error}", self.name);
        }
        if let Err(error) = self.pool.dsl().close_filesystem(&self.name).await {
            tracing::error!("cannot close '{}': {error}", self.name);
        }
        self.closed = true;
    }
}

#[async_trait]
impl Mounted for FuseMount {
    async fn unmount(&mut self, force: bool) -> Result<(), UnmountError> {
        unmounting(&self.mount, force).await?;
        self.close().await;
        Ok(())
    }

    async fn cut_off(&mut self) -> Result<(), UnmountError> {
        cutting_off(&self.mount).await?;
        self.close().await;
        Ok(())
    }

    fn device(&self) -> Option<String> {
        self.mount.device().map(str::to_owned)
    }

    fn keeper(&self, elsewhere: &Elsewhere) -> Option<Keeper> {
        self.mount.keeper(elsewhere)
    }

    async fn object_path(&self, object: u64) -> Option<String> {
        self.zpl.object_path(ObjectId(object)).await.ok()
    }

    async fn follow(&mut self, report: &DatasetReport) -> bool {
        self.zpl.set_atime(atime(report, &self.how));
        self.zpl.set_xattr_mode(xattr(report, &self.how));
        self.vfs.show_control(control(report));
        let asked = self.how.options.iter().rev().find(|option| *option == "ro" || *option == "rw");
        let read_only = asked.map_or_else(|| crate::mount_plan::read_only(report), |option| option == "ro");
        let how = HowToMount { read_only, ..self.how.clone() };
        let wanted = flags(report, &how);
        let remains = |flags: Flags| (flags.kernel.read_only, flags.posix_acl);
        if wanted != self.flags && remains(wanted) == remains(self.flags) {
            // The kernel shows it read-only when the file system is, whatever the property says.
            let read_only = wanted.kernel.read_only || self.zpl.read_only_reason().is_some();
            let (mount, kernel) = (self.mount.clone(), KernelFlags { read_only, ..wanted.kernel });
            let set = tokio::task::spawn_blocking(move || mount.set_flags(kernel)).await;
            // What is only shown is no reason for a new mount.
            let honoured = KernelFlags { atime: wanted.kernel.atime, ..self.flags.kernel };
            if set.unwrap_or(false) || honoured == wanted.kernel {
                self.flags = wanted;
            }
        }
        wanted == self.flags
    }

    fn renamed(&mut self, name: &str) {
        self.name = name.to_owned();
        self.snapshots.renamed(name);
    }

    async fn reload_quotas(&mut self) {
        if let Err(error) = self.zpl.reload_quotas().await {
            tracing::error!("'{}': its quotas cannot be read: {error}", self.name);
        }
    }

    async fn settle(&self) {
        for _ in 0..FORGETTING_TRIES {
            match self.zpl.reap_unopened().await {
                Ok(0) => return,
                Ok(_) => tokio::time::sleep(FORGETTING).await,
                // It stays in the unlinked set.
                Err(error) => return tracing::warn!("'{}': what was removed cannot be freed: {error}", self.name),
            }
        }
    }

    fn waiting_to_be_freed(&self) -> usize {
        self.zpl.waiting_to_be_freed()
    }

    fn close_snapshots(&self, numbers: &[u64]) {
        self.mount.close_snapshots(numbers);
    }

    async fn flush(&self) {
        let mount = self.mount.clone();
        let _ = tokio::task::spawn_blocking(move || mount.flush()).await;
    }

    fn synced(&self) {
        self.vfs.forget_settled_attributes();
    }

    fn is_gone(&self, present: Option<&BTreeSet<String>>) -> bool {
        !self.mount.is_alive() || present.is_some_and(|present| self.mount.is_detached(present))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount_plan::tests::dataset;
    use platter_api::report::PropertySource;

    #[test]
    fn properties_decide_and_options_override() {
        let report = dataset(
            "tank",
            &[
                ("atime", "on", PropertySource::Default),
                ("relatime", "off", PropertySource::Local),
                ("exec", "off", PropertySource::Local),
            ],
        );
        let how = HowToMount::default();
        let kernel =
            KernelFlags { read_only: false, devices: true, setuid: false, exec: false, atime: AtimeMode::Always };
        let expected = Flags { kernel, posix_acl: false };
        assert_eq!(xattr(&report, &how), XattrMode::Sa);
        assert_eq!(atime(&report, &how), AtimeMode::Always);
        assert_eq!(flags(&report, &how), Flags { kernel: KernelFlags { setuid: true, ..kernel }, ..expected });
        let how = HowToMount {
            incomplete: false,
            read_only: true,
            options: vec!["noatime".into(), "exec".into(), "nosuid".into()],
            overlay: false,
            is_at_given_place: false,
        };
        assert_eq!(atime(&report, &how), AtimeMode::Off);
        let kernel = KernelFlags { read_only: true, exec: true, atime: AtimeMode::Off, ..kernel };
        assert_eq!(flags(&report, &how), Flags { kernel, ..expected });
    }
}
