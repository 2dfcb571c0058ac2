//! The daemon's operations on an engine that has no disks: what is remembered, mounted, refused and in which words.

mod guests;
mod hanging;
mod jobs;
mod refusals;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_api::report::{
    DatasetKind, DatasetReport, HistoryEntry, Properties, Property, PropertySource, PropertyValue,
};
use platter_api::report::{FoundPools, ImportableReport, PoolReport, ScanReport, VdevReport};
use platter_api::request::ImportRequest;
use platter_api::request::{Changed, DatasetOperation, ScrubAction, Setting};
use platter_api::txgs::TxgReport;
use platter_dsl::permissions::Granted;
use platter_dsl::{PoolError, Result};
use platter_ondisk::dsl::PermissionKey;
use platter_spa::Pool;

use super::*;
use crate::asker::Asker;
use crate::client::Client;
use crate::engine::{Engine, Identity, Liveness, Operations, Reports};
use crate::home::Home;
use crate::mounter::{HowToMount, Mounted, Mounter, UnmountError};
use crate::server::{Context, router};
use platter_api::messages::{
    ClosePool, CreateDataset, DestroyDataset, GetHistory, GetPool, ListDatasets, ListPools, MountRequest, OperatePool,
    RenameDataset, SearchPools, SetDatasetProperties, StopDaemon, UnmountRequest,
};

/// Disks and pools: a pool on disk is its data sets' local properties.
#[derive(Default)]
struct FakeDisks {
    /// Name and data sets of every pool on disk, by guid.
    pools: Mutex<BTreeMap<u64, (String, FakeDatasets)>>,
    /// Whether imports fail as if devices were missing.
    missing: Mutex<bool>,
    /// The scan of all pools, and what they free.
    scan: Mutex<ScanReport>,
    freeing: Mutex<u64>,
    /// Pools whose devices answer nothing.
    hanging: Mutex<BTreeSet<String>>,
    /// Pools whose I/O waits for devices.
    suspended: tokio::sync::watch::Sender<BTreeSet<u64>>,
    /// Pools whose devices answer when another pool has been given up for a while.
    slow: Mutex<BTreeSet<String>>,
    /// Grows when a pool is given up.
    given_up: tokio::sync::watch::Sender<BTreeSet<u64>>,
}

type UsageOrReason = std::result::Result<Vec<platter_api::messages::IdUsage>, String>;
type FakeDatasets = BTreeMap<String, BTreeMap<String, String>>;

struct FakeEngine(Arc<FakeDisks>);

struct FakePool {
    guid: u64,
    disks: Arc<FakeDisks>,
    log: Mutex<Vec<String>>,
}

#[async_trait]
impl Engine for FakeEngine {
    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn PoolHandle>> {
        if request.vdevs.is_empty() {
            return Err(PoolError::NeedsForce {
                reason: "/d0 is part of active pool 'other'".into(),
                hint: "use '-f' to override the following errors:".into(),
            });
        }
        let mut pools = self.0.pools.lock();
        let guid = 1000 + pools.len() as u64;
        let datasets = BTreeMap::from([(request.name.clone(), request.dataset_properties)]);
        pools.insert(guid, (request.name, datasets));
        Ok(Arc::new(FakePool { guid, disks: self.0.clone(), log: Mutex::default() }))
    }

    async fn dry_run(&self, request: CreateRequest) -> Result<VdevReport> {
        Ok(VdevReport { name: request.name, kind: "root".into(), ..VdevReport::default() })
    }

    async fn discover(&self, _search: &[PathBuf], _silent: &[PathBuf]) -> Result<FoundPools> {
        let pools = self.0.pools.lock();
        let report = |(guid, (name, _)): (&u64, &(String, FakeDatasets))| ImportableReport {
            name: name.clone(),
            guid: *guid,
            ..ImportableReport::default()
        };
        Ok(FoundPools { pools: pools.iter().map(report).collect(), silent: Vec::new() })
    }

    async fn clear_label(&self, path: &Path, _force: bool) -> Result<()> {
        Err(PoolError::NotFound(format!("failed to read label from {}", path.display())))
    }

    async fn import(&self, request: ImportRequest) -> Result<Arc<dyn PoolHandle>> {
        if *self.0.missing.lock() {
            return Err(PoolError::Unavailable("one or more devices are missing: guid 5, last at /d5".into()));
        }
        let pools = self.0.pools.lock();
        let found = pools.iter().find(|(guid, (name, _))| *name == request.pool || guid.to_string() == request.pool);
        let guid = *found.ok_or_else(|| PoolError::NotFound("no such pool available".into()))?.0;
        Ok(Arc::new(FakePool { guid, disks: self.0.clone(), log: Mutex::default() }))
    }
}

impl FakePool {
    async fn wait_for_devices(&self) -> Result<()> {
        if self.disks.slow.lock().contains(&self.name()) {
            let mut given_up = self.disks.given_up.subscribe();
            let _ = given_up.wait_for(|all| !all.is_empty()).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        if self.disks.hanging.lock().contains(&self.name()) {
            let mut given_up = self.disks.given_up.subscribe();
            let _ = given_up.wait_for(|all| all.contains(&self.guid)).await;
            return Err(PoolError::Unavailable("pool I/O is currently suspended".into()));
        }
        Ok(())
    }

    fn with<T>(&self, work: impl FnOnce(&mut FakeDatasets) -> T) -> T {
        let mut pools = self.disks.pools.lock();
        work(&mut pools.get_mut(&self.guid).expect("the pool is on disk").1)
    }
}

impl PoolHandle for FakePool {
    fn engine_pool(&self) -> Option<Arc<Pool>> {
        None
    }
}

impl Identity for FakePool {
    fn name(&self) -> String {
        self.disks.pools.lock()[&self.guid].0.clone()
    }
    fn guid(&self) -> u64 {
        self.guid
    }
    fn device_paths(&self) -> Vec<PathBuf> {
        vec!["/d0".into()]
    }
    fn spare_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

#[async_trait]
impl Liveness for FakePool {
    fn is_suspended(&self) -> bool {
        self.disks.suspended.borrow().contains(&self.guid)
    }
    async fn suspended(&self) {
        let mut suspended = self.disks.suspended.subscribe();
        let _ = suspended.wait_for(|all| all.contains(&self.guid)).await;
    }
    async fn hangs(&self) -> String {
        if !self.disks.hanging.lock().contains(&self.name()) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        "/d0".into()
    }
    fn abandon(&self, _reason: &str) {
        self.disks.given_up.send_modify(|all| _ = all.insert(self.guid));
    }
    fn unwritten(&self) -> platter_spa::Unwritten {
        platter_spa::Unwritten { synced: platter_ondisk::Txg(42), bytes: 1000, changed: true }
    }
}

#[async_trait]
impl Reports for FakePool {
    async fn report(&self, _detail: Detail) -> Result<PoolReport> {
        let (scan, freeing) = (self.disks.scan.lock().clone(), *self.disks.freeing.lock());
        let (name, guid, state) = (self.name(), self.guid, "ONLINE".into());
        Ok(PoolReport { name, guid, state, scan, freeing, ..PoolReport::default() })
    }
    async fn properties(&self) -> Result<Properties> {
        Ok(Properties::new())
    }
    async fn history(&self) -> Result<Vec<HistoryEntry>> {
        let entry = |text: &String| HistoryEntry { time: 1, text: text.clone(), internal: false, who: None, txg: None };
        Ok(self.log.lock().iter().map(entry).collect())
    }
    fn txgs(&self, after: u64) -> TxgsReport {
        let groups = (after + 1..=3).map(|txg| TxgReport { txg, ..TxgReport::default() }).collect();
        TxgsReport { synced: 3, groups }
    }
    /// What is set as `allow:KEY`.
    async fn granted(&self, dataset: &str) -> Result<Granted> {
        let local = self.with(|datasets| datasets.get(dataset).cloned().unwrap_or_default());
        let allowed = |(name, names): (&String, &String)| {
            let key = PermissionKey::decode(name.strip_prefix("allow:")?.as_bytes()).expect("a key");
            Some((key, names.split(',').map(str::to_owned).collect()))
        };
        Ok(local.iter().filter_map(allowed).collect())
    }
    async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        let report = |(name, local): (&String, &BTreeMap<String, String>)| DatasetReport {
            name: name.clone(),
            kind: DatasetKind::Filesystem,
            properties: local
                .iter()
                .map(|(name, value)| {
                    let value = PropertyValue::Text(value.clone());
                    (name.clone(), Property { value, source: PropertySource::Local })
                })
                .collect(),
            received: BTreeMap::new(),
            read_only_reason: None,
        };
        Ok(self.with(|datasets| datasets.iter().map(report).collect()))
    }
}

#[async_trait]
impl Operations for FakePool {
    async fn perform(&self, operation: PoolOperation) -> Result<Changed> {
        match operation {
            PoolOperation::Set { property, .. } if property != "comment" => {
                Err(PoolError::invalid(format!("invalid property '{property}'")))
            }
            PoolOperation::Scrub(action) if !self.disks.scan.lock().state.is_empty() => {
                self.disks.scan.lock().state = match action {
                    ScrubAction::Start | ScrubAction::Continue | ScrubAction::Errors => "scanning".into(),
                    ScrubAction::Pause => "paused".into(),
                    ScrubAction::Stop => "canceled".into(),
                    ScrubAction::Resilver => return Ok(Changed::default()),
                };
                Ok(Changed::default())
            }
            PoolOperation::Scrub(ScrubAction::Start) => {
                Err(PoolError::Busy("currently scrubbing; use 'zpool scrub -s' to cancel scrub".into()))
            }
            PoolOperation::Scrub(ScrubAction::Pause) => Err(PoolError::invalid("there is no active scrub")),
            _ => Ok(Changed::default()),
        }
    }
    async fn perform_on_dataset(&self, operation: DatasetOperation) -> Result<()> {
        self.with(|datasets| match operation {
            DatasetOperation::Create { name, properties, .. } => _ = datasets.insert(name, properties),
            DatasetOperation::Destroy { name } => _ = datasets.remove(&name),
            DatasetOperation::Rename { from, to } => {
                let below = |name: &&String| **name == from || name.starts_with(&format!("{from}/"));
                let moving: Vec<String> = datasets.keys().filter(below).cloned().collect();
                for name in moving {
                    let properties = datasets.remove(&name).expect("it was listed");
                    datasets.insert(format!("{to}{}", &name[from.len()..]), properties);
                }
            }
            DatasetOperation::Clone { name, properties, .. } => _ = datasets.insert(name, properties),
            DatasetOperation::Rollback { .. }
            | DatasetOperation::Promote { .. }
            | DatasetOperation::Allow { .. }
            | DatasetOperation::Unallow { .. } => {}
            DatasetOperation::Set { name, settings } => {
                let local = datasets.get_mut(&name).expect("the data set is there");
                for (property, setting) in settings {
                    match setting {
                        Setting::Value(value) => local.insert(property, value),
                        Setting::Inherit | Setting::Received => local.remove(&property),
                    };
                }
            }
        });
        Ok(())
    }
    async fn check(&self, operation: &DatasetOperation) -> Result<()> {
        let nonsense = |setting: &Setting| *setting == Setting::Value("nonsense".into());
        match operation {
            DatasetOperation::Create { properties, .. } if properties.values().any(|value| value == "nonsense") => {
                Err(PoolError::invalid("nonsense"))
            }
            DatasetOperation::Set { settings, .. } if settings.iter().any(|(_, setting)| nonsense(setting)) => {
                Err(PoolError::invalid(format!("'{}' must be one of 'on | off'", settings[0].0)))
            }
            DatasetOperation::Rename { to, .. } if to.ends_with("/full") => Err(PoolError::invalid("out of space")),
            DatasetOperation::Destroy { name } if name.ends_with("/kept") => {
                Err(PoolError::Unsupported("it has snapshots".into()))
            }
            _ => Ok(()),
        }
    }
    fn log_command(&self, text: &str, _who: u32) -> Result<()> {
        self.log.lock().push(text.to_owned());
        Ok(())
    }
    async fn leave(&self, how: Leave) -> Result<()> {
        match how {
            Leave::Export | Leave::Close => self.wait_for_devices().await,
            Leave::Destroy => {
                self.disks.pools.lock().remove(&self.guid);
                Ok(())
            }
        }
    }
}

/// Mounts nothing, but keeps book: what is mounted, in which order it was, and what somebody uses.
#[derive(Clone, Default)]
struct FakeMounter(Arc<FakeMounts>);

#[derive(Default)]
struct FakeMounts {
    order: Mutex<Vec<String>>,
    busy: Mutex<BTreeSet<String>>,
    /// Who was told of changed properties.
    heard: Mutex<Vec<String>>,
}

struct FakeMount {
    name: String,
    mounts: Arc<FakeMounts>,
}

#[async_trait]
impl Mounter for FakeMounter {
    async fn mount(
        &self,
        _pool: &Arc<dyn PoolHandle>,
        report: &DatasetReport,
        _at: &Path,
        _how: &HowToMount,
    ) -> std::result::Result<Box<dyn Mounted>, String> {
        self.0.order.lock().push(format!("+{}", report.name));
        Ok(Box::new(FakeMount { name: report.name.clone(), mounts: self.0.clone() }))
    }

    fn present(&self) -> Option<BTreeSet<String>> {
        None
    }
    async fn usage(&self, _: &Arc<dyn PoolHandle>, _: &str, _: platter_api::messages::Whose) -> UsageOrReason {
        Err("nothing is used".into())
    }
    async fn set_quota(
        &self,
        _: &Arc<dyn PoolHandle>,
        _: &str,
        _: &platter_api::messages::IdQuota,
    ) -> std::result::Result<(), String> {
        Err("nothing is limited".into())
    }
    async fn object_path(&self, _pool: &Arc<dyn PoolHandle>, _dataset: &str, _object: u64) -> Option<String> {
        Some("/file".into())
    }
}

#[async_trait]
impl Mounted for FakeMount {
    async fn unmount(&mut self, force: bool) -> std::result::Result<(), UnmountError> {
        if self.mounts.busy.lock().contains(&self.name) && !force {
            return Err(UnmountError::Busy);
        }
        self.mounts.order.lock().push(format!("-{}", self.name));
        Ok(())
    }
    async fn cut_off(&mut self) -> std::result::Result<(), UnmountError> {
        self.mounts.order.lock().push(format!("x{}", self.name));
        Ok(())
    }
    async fn object_path(&self, _object: u64) -> Option<String> {
        Some("/file".into())
    }
    async fn follow(&mut self, report: &DatasetReport) -> bool {
        self.mounts.heard.lock().push(self.name.clone());
        !report.properties.contains_key("readonly")
    }
    fn renamed(&mut self, name: &str) {
        self.name = name.to_owned();
    }
    async fn reload_quotas(&mut self) {}
    async fn settle(&self) {}

    fn synced(&self) {}
    fn is_gone(&self, _present: Option<&BTreeSet<String>>) -> bool {
        false
    }
}

/// A daemon on fake disks, with its pool mounted below a temporary folder.
struct Bench {
    dir: tempfile::TempDir,
    disks: Arc<FakeDisks>,
    mounter: FakeMounter,
    daemon: Arc<Daemon>,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disks = Arc::new(FakeDisks::default());
        let mounter = FakeMounter::default();
        let daemon = Self::daemon(&dir, &disks, &mounter);
        Self { dir, disks, mounter, daemon }
    }

    fn daemon(dir: &tempfile::TempDir, disks: &Arc<FakeDisks>, mounter: &FakeMounter) -> Arc<Daemon> {
        let home = Home::at(dir.path().join("home")).unwrap();
        home.create().unwrap();
        Arc::new(Daemon::new(Arc::new(FakeEngine(disks.clone())), Arc::new(mounter.clone()), home))
    }

    /// A second daemon in the same home, after the first.
    fn restarted(&self) -> Arc<Daemon> {
        Self::daemon(&self.dir, &self.disks, &self.mounter)
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    async fn with_pool(self) -> Self {
        let request = CreateRequest {
            name: "tank".into(),
            vdevs: vec![platter_api::request::VdevRequest::Leaf("/d0".into())],
            altroot: Some(self.root()),
            ..CreateRequest::default()
        };
        let created =
            self.daemon.create_pool(CreatePool { request, quotas: Vec::new(), dry_run: false }).await.unwrap();
        assert!(created.outcome.problems.is_empty(), "{created:?}");
        self
    }

    async fn make(&self, name: &str, properties: &[(&str, &str)]) {
        let call = CreateDataset {
            name: name.into(),
            properties: properties.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            mount: true,
            command: format!("zfs create {name}"),
            ..CreateDataset::default()
        };
        let made = self.daemon.create_dataset(&call, &Asker::Owner).await.unwrap();
        assert!(made.outcome.problems.is_empty(), "{made:?}");
    }

    async fn set(&self, name: &str, property: &str, value: Option<&str>) -> Answer<Outcome> {
        let properties = BTreeMap::from([(property.to_owned(), value.map(str::to_owned))]);
        let call = SetDatasetProperties { name: name.into(), properties, ..SetDatasetProperties::default() };
        self.daemon.set_dataset_properties(&call, &Asker::Owner).await
    }

    async fn places(&self) -> BTreeMap<String, PathBuf> {
        let root = self.root();
        let entries = self.daemon.mount_entries().await;
        entries
            .into_iter()
            .map(|entry| (entry.dataset, entry.mountpoint.strip_prefix(&root).unwrap().to_path_buf()))
            .collect()
    }

    fn order(&self) -> Vec<String> {
        std::mem::take(&mut self.mounter.0.order.lock())
    }
}

fn close(pool: &str) -> ClosePool {
    ClosePool { pool: pool.to_owned(), ..ClosePool::default() }
}

#[tokio::test]
async fn a_pool_tells_of_its_transaction_groups() {
    let bench = Bench::new().with_pool().await;
    let numbers = |after| bench.daemon.txgs("tank", after).unwrap().groups.iter().map(|g| g.txg).collect::<Vec<_>>();
    assert_eq!((numbers(0), numbers(2)), (vec![1, 2, 3], vec![3]));
    let unknown = bench.daemon.txgs("nosuch", 0).unwrap_err();
    assert_eq!((&*unknown.message, unknown.exit_code()), ("cannot open 'nosuch': no such pool", 1));
}

#[tokio::test]
async fn a_new_pool_is_mounted_and_remembered_until_it_is_exported() {
    let bench = Bench::new().with_pool().await;
    assert_eq!(bench.places().await, BTreeMap::from([("tank".to_owned(), "tank".into())]));
    let file = bench.daemon.home.pools_file();
    let remembered = pools_file::read(&file).unwrap();
    assert_eq!(remembered["tank"].guid, "1000");
    assert_eq!(remembered["tank"].altroot, Some(bench.root()));
    bench.daemon.export_pool(&close("tank")).await.unwrap();
    assert!(pools_file::read(&file).unwrap().is_empty());
    assert!(bench.places().await.is_empty());
    assert!(!bench.root().join("tank").exists(), "the mount point's folder is removed");
    let error = bench.daemon.pool_view("tank", Detail::default()).await.unwrap_err();
    assert_eq!(error.message, "cannot open 'tank': no such pool");
}

#[tokio::test]
async fn the_next_daemon_opens_and_mounts_what_the_last_one_had() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/media", &[]).await;
    bench.daemon.shut_down().await;
    let order = bench.order();
    assert_eq!(order, ["+tank", "+tank/media", "-tank/media", "-tank"]);
    let next = bench.restarted();
    next.open_remembered().await;
    assert_eq!(next.pool_names().pools, ["tank"]);
    assert_eq!(bench.order(), ["+tank", "+tank/media"]);
}

#[tokio::test]
async fn a_pool_that_cannot_be_opened_at_start_is_shown_and_can_be_imported_or_forgotten() {
    let bench = Bench::new().with_pool().await;
    bench.daemon.shut_down().await;
    *bench.disks.missing.lock() = true;
    let next = bench.restarted();
    next.open_remembered().await;
    let view = next.pool_view("tank", Detail::default()).await.unwrap();
    assert_eq!(view.report.state, "UNAVAIL");
    assert!(view.report.status.unwrap().contains("last at /d5"));
    assert_eq!(pools_file::read(&next.home.pools_file()).unwrap().len(), 1, "it stays remembered");
    let operation = PoolOperation::Sync { force: false };
    let sync = OperatePool { pool: "tank".into(), operation, command: String::new() };
    let error = next.operate_pool(sync).await.unwrap_err();
    assert!(error.message.contains("pool is unavailable"), "{error}");

    *bench.disks.missing.lock() = false;
    let request = ImportRequest { pool: "tank".into(), ..ImportRequest::default() };
    next.import_pool(ImportPool { request, mount: false }).await.unwrap();
    assert_eq!(next.pool_view("tank", Detail::default()).await.unwrap().report.state, "ONLINE");
    assert!(next.status().unavailable.is_empty());

    let third = bench.restarted();
    *bench.disks.missing.lock() = true;
    third.open_remembered().await;
    third.export_pool(&close("tank")).await.unwrap();
    assert!(third.pool_names().pools.is_empty());
}

#[tokio::test]
async fn a_busy_file_system_keeps_its_pool_unless_forced() {
    let bench = Bench::new().with_pool().await;
    bench.mounter.0.busy.lock().insert("tank".into());
    let error = bench.daemon.export_pool(&close("tank")).await.unwrap_err();
    let place = bench.root().join("tank");
    assert_eq!(error.message, format!("cannot unmount '{}': pool or dataset is busy", place.display()));
    let error = bench.daemon.destroy_pool(&close("tank")).await.unwrap_err();
    assert!(error.message.ends_with("\ncould not destroy 'tank': could not unmount datasets"), "{error}");
    let forced = ClosePool { force: true, ..close("tank") };
    bench.daemon.destroy_pool(&forced).await.unwrap();
    assert!(bench.daemon.pool_names().pools.is_empty());
}

#[tokio::test]
async fn refusals_are_worded_as_openzfs_words_them() {
    let bench = Bench::new();
    let request = CreateRequest { name: "tank".into(), ..CreateRequest::default() };
    let error = bench.daemon.create_pool(CreatePool { request, quotas: Vec::new(), dry_run: false }).await.unwrap_err();
    assert_eq!(
        error.message,
        "invalid vdev specification\nuse '-f' to override the following errors:\n/d0 is part of active pool 'other'"
    );
    let bench = bench.with_pool().await;
    let vdevs = vec![platter_api::request::VdevRequest::Mirror(vec!["/d7".into(), "/d0".into()])];
    let mut request = CreateRequest { name: "second".into(), vdevs, ..CreateRequest::default() };
    let error = bench
        .daemon
        .create_pool(CreatePool { request: request.clone(), quotas: Vec::new(), dry_run: true })
        .await
        .unwrap_err();
    assert_eq!(
        error.message,
        "invalid vdev specification\nuse '-f' to override the following errors:\n/d0 is part of active pool 'tank'"
    );
    request.force = true;
    let error = bench.daemon.create_pool(CreatePool { request, quotas: Vec::new(), dry_run: false }).await.unwrap_err();
    assert!(error.message.contains("must be manually repaired:\n/d0 is part of active pool 'tank'"), "{error}");
    let scrub = |action| {
        let operation = PoolOperation::Scrub(action);
        bench.daemon.operate_pool(OperatePool { pool: "tank".into(), operation, command: String::new() })
    };
    let error = scrub(ScrubAction::Start).await.unwrap_err();
    assert_eq!(error.message, "cannot scrub 'tank': currently scrubbing; use 'zpool scrub -s' to cancel scrub");
    let error = scrub(ScrubAction::Pause).await.unwrap_err();
    assert_eq!(error.message, "cannot pause scrubbing tank: there is no active scrub");
    let error = bench.set("tank", "atime", Some("nonsense")).await.unwrap_err();
    assert_eq!(error.message, "cannot set property for 'tank': 'atime' must be one of 'on | off'");
    let error = bench.set("tank/nope", "atime", Some("on")).await.unwrap_err();
    assert_eq!(error.message, "cannot open 'tank/nope': dataset does not exist");
    let request = ImportRequest { pool: "tank".into(), ..ImportRequest::default() };
    let error = bench.daemon.import_pool(ImportPool { request, mount: true }).await.unwrap_err();
    assert_eq!(error.message, "cannot import 'tank': a pool with that name already exists");
}

#[tokio::test]
async fn parents_are_made_only_when_asked_for() {
    let bench = Bench::new().with_pool().await;
    let mut call = CreateDataset { name: "tank/a/b".into(), mount: true, ..CreateDataset::default() };
    let error = bench.daemon.create_dataset(&call, &Asker::Owner).await.unwrap_err();
    assert_eq!(error.message, "cannot create 'tank/a/b': parent does not exist");
    call.parents = true;
    assert_eq!(bench.daemon.create_dataset(&call, &Asker::Owner).await.unwrap().created, ["tank/a", "tank/a/b"]);
    assert!(
        bench.daemon.create_dataset(&call, &Asker::Owner).await.unwrap().created.is_empty(),
        "with -p being there is no error"
    );
    call.parents = false;
    let error = bench.daemon.create_dataset(&call, &Asker::Owner).await.unwrap_err();
    assert_eq!(error.message, "cannot create 'tank/a/b': dataset already exists");
    assert_eq!(bench.places().await["tank/a/b"], Path::new("tank/a/b"));
}

#[tokio::test]
async fn data_sets_are_destroyed_from_the_deepest_up() {
    let bench = Bench::new().with_pool().await;
    for name in ["tank/a", "tank/a/b", "tank/a/b/c"] {
        bench.make(name, &[]).await;
    }
    let mut call = DestroyDataset { name: "tank/a".into(), ..DestroyDataset::default() };
    let error = bench.daemon.destroy_dataset(&call).await.unwrap_err();
    assert_eq!(
        error.message,
        "cannot destroy 'tank/a': filesystem has children\n\
         use '-r' to destroy the following datasets:\ntank/a/b/c\ntank/a/b"
    );
    call.recursive = true;
    call.dry_run = true;
    assert_eq!(bench.daemon.destroy_dataset(&call).await.unwrap().destroyed, ["tank/a/b/c", "tank/a/b", "tank/a"]);
    assert_eq!(bench.places().await.len(), 4, "a dry run changes nothing");
    call.dry_run = false;
    bench.order();
    bench.daemon.destroy_dataset(&call).await.unwrap();
    assert_eq!(bench.order(), ["-tank/a/b/c", "-tank/a/b", "-tank/a"]);
    assert_eq!(bench.places().await.keys().collect::<Vec<_>>(), ["tank"]);
    let root = DestroyDataset { name: "tank".into(), ..DestroyDataset::default() };
    let error = bench.daemon.destroy_dataset(&root).await.unwrap_err();
    assert!(error.message.contains("operation does not apply to pools"), "{error}");
}

#[tokio::test]
async fn a_new_mountpoint_moves_the_file_system_and_those_that_inherit_it() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.make("tank/a/b", &[]).await;
    bench.make("tank/own", &[("mountpoint", "/elsewhere")]).await;
    bench.order();
    bench.set("tank/a", "mountpoint", Some("/data")).await.unwrap();
    assert_eq!(bench.order(), ["-tank/a/b", "-tank/a", "+tank/a", "+tank/a/b"]);
    let places = bench.places().await;
    assert_eq!(places["tank/a"], Path::new("data"));
    assert_eq!(places["tank/a/b"], Path::new("data/b"));
    assert_eq!(places["tank/own"], Path::new("elsewhere"));
    assert!(!bench.root().join("tank/a").exists(), "the old folder is removed");

    bench.set("tank/a", "mountpoint", Some("none")).await.unwrap();
    assert!(!bench.places().await.contains_key("tank/a"));
    bench.set("tank/a", "mountpoint", None).await.unwrap();
    assert_eq!(bench.places().await["tank/a"], Path::new("tank/a"));

    bench.mounter.0.busy.lock().insert("tank/a".into());
    assert!(bench.set("tank/a", "mountpoint", Some("/never")).await.is_err());
    assert_eq!(bench.places().await["tank/a"], Path::new("tank/a"), "what is busy stays where it is");
    let datasets = bench
        .daemon
        .datasets(&ListDatasets { under: Some("tank/a".into()), ..ListDatasets::default() })
        .await
        .unwrap()
        .datasets;
    assert!(!mount_plan_text(&datasets[0].report).contains("never"), "and so does the property");
}

/// What is inside is unmounted first: it stayed unmounted when what it is in was busy.
#[tokio::test]
async fn what_is_busy_leaves_what_is_inside_it_mounted() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.make("tank/a/b", &[]).await;
    let before = bench.places().await;
    bench.mounter.0.busy.lock().insert("tank/a".into());
    for (property, value) in [("mountpoint", "/never"), ("canmount", "off")] {
        bench.set("tank/a", property, Some(value)).await.unwrap_err();
        assert_eq!(bench.places().await, before, "{property}");
    }
    let call = RenameDataset { from: "tank/a".into(), to: "tank/c".into(), ..RenameDataset::default() };
    bench.daemon.rename_dataset(&call, &Asker::Owner).await.unwrap_err();
    assert_eq!(bench.places().await, before, "rename");
}

fn mount_plan_text(report: &DatasetReport) -> String {
    crate::mount_plan::text(&report.properties["mountpoint"])
}

#[tokio::test]
async fn canmount_and_readonly_are_followed_at_once() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.set("tank/a", "canmount", Some("off")).await.unwrap();
    assert!(!bench.places().await.contains_key("tank/a"));
    let mount = MountRequest { dataset: Some("tank/a".into()), ..MountRequest::default() };
    let error = bench.daemon.mount(&mount).await.unwrap_err();
    assert_eq!(error.message, "cannot mount 'tank/a': 'canmount' property is set to 'off'");
    bench.set("tank/a", "canmount", Some("noauto")).await.unwrap();
    let all = MountRequest::default();
    bench.daemon.mount(&all).await.unwrap();
    assert!(!bench.places().await.contains_key("tank/a"), "noauto is not mounted by -a");
    bench.daemon.mount(&mount).await.unwrap();
    let error = bench.daemon.mount(&mount).await.unwrap_err();
    assert_eq!(error.message, "cannot mount 'tank/a': filesystem already mounted");
    bench.set("tank/a", "canmount", Some("on")).await.unwrap();
    bench.order();
    bench.set("tank/a", "readonly", Some("on")).await.unwrap();
    assert_eq!(bench.order(), ["-tank/a", "+tank/a"], "a mount that cannot follow is made anew");
}

/// A remount unmounted what mount(8) had mounted and then refused to mount it: its mount point is `legacy`.
#[tokio::test]
async fn a_remount_stays_where_it_is() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/old", &[("mountpoint", "legacy")]).await;
    let there = bench.root().join("there");
    let mount = MountRequest { dataset: Some("tank/old".into()), at: Some(there), ..MountRequest::default() };
    bench.daemon.mount(&mount).await.unwrap();
    let place = || async { bench.places().await.get("tank/old").cloned() };
    assert_eq!(place().await, Some("there".into()));
    let options = vec!["remount".to_owned(), "ro".to_owned()];
    bench.daemon.mount(&MountRequest { options: options.clone(), ..mount.clone() }).await.unwrap();
    bench.daemon.mount(&MountRequest { options: options.clone(), at: None, ..mount }).await.unwrap();
    assert_eq!(place().await, Some("there".into()));
    // What has a mount point of its own, as at shutdown: `mount -o remount,ro` (`cmd/mount_zfs.c`).
    bench.make("tank/own", &[]).await;
    let mount = MountRequest { dataset: Some("tank/own".into()), options, ..MountRequest::default() };
    bench.order();
    bench.daemon.mount(&MountRequest { at: Some(bench.root().join("tank/own")), ..mount }).await.unwrap();
    assert_eq!(bench.order(), ["-tank/own", "+tank/own"]);
}

/// `zfs set xattr=` and `acltype=` waited for the next mount: the properties that are followed were listed beside the
/// code that uses them, and not all were.
#[tokio::test]
async fn a_live_mount_hears_of_every_property_that_it_is_made_of() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    for property in platter_api::properties::followed_by_mounts() {
        for value in [Some("on"), None] {
            bench.mounter.0.heard.lock().clear();
            // The one that cannot be followed is made anew.
            bench.set("tank/a", property, value).await.unwrap();
            assert_eq!(*bench.mounter.0.heard.lock(), ["tank/a"], "{property}");
            assert!(bench.places().await.contains_key("tank/a"), "{property}");
        }
    }
    bench.mounter.0.heard.lock().clear();
    bench.set("tank/a", "compression", Some("on")).await.unwrap();
    assert!(bench.mounter.0.heard.lock().is_empty(), "that is none of a mount's");
}

#[tokio::test]
async fn unmounting_takes_names_and_paths_and_inner_mounts_first() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.order();
    let by_path = UnmountRequest { target: Some(bench.root().join("tank").display().to_string()), force: false };
    bench.daemon.unmount(&by_path).await.unwrap();
    assert_eq!(bench.order(), ["-tank/a", "-tank"]);
    let by_name = UnmountRequest { target: Some("tank/a".into()), force: false };
    let error = bench.daemon.unmount(&by_name).await.unwrap_err();
    assert_eq!(error.message, "cannot unmount 'tank/a': not currently mounted");
    bench.daemon.mount(&MountRequest::default()).await.unwrap();
    assert_eq!(bench.order(), ["+tank", "+tank/a"]);
}

/// A child mounted before its parent is hidden by the parent's mount, and a path to it leads into the parent:
/// unmounting the child first waited forever for a mount that was not the one unmounted.
#[tokio::test]
async fn what_was_mounted_last_is_unmounted_first() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.daemon.unmount(&UnmountRequest::default()).await.unwrap();
    let child = MountRequest { dataset: Some("tank/a".into()), ..MountRequest::default() };
    bench.daemon.mount(&child).await.unwrap();
    bench.daemon.mount(&MountRequest::default()).await.unwrap();
    bench.order();
    let hidden = UnmountRequest { target: Some("tank/a".into()), force: false };
    let error = bench.daemon.unmount(&hidden).await.unwrap_err();
    assert!(error.message.ends_with("it is hidden by 'tank', which was mounted over it"), "{error}");
    bench.daemon.export_pool(&close("tank")).await.unwrap();
    assert_eq!(bench.order(), ["-tank", "-tank/a"]);
}

#[tokio::test]
async fn pools_imported_here_are_not_offered_for_import() {
    let bench = Bench::new().with_pool().await;
    assert!(bench.daemon.search(&SearchPools::default()).await.unwrap().pools.is_empty());
    bench.daemon.export_pool(&close("tank")).await.unwrap();
    assert_eq!(bench.daemon.search(&SearchPools::default()).await.unwrap().pools[0].name, "tank");
}

#[tokio::test]
async fn the_api_answers_over_its_socket() {
    let bench = Bench::new().with_pool().await;
    let socket = bench.daemon.home.socket();
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let (stop, mut stopped) = tokio::sync::watch::channel(false);
    let server = tokio::spawn({
        let routes = router(Context { daemon: bench.daemon.clone(), stop });
        async move { axum::serve(listener, routes).await }
    });
    let client = Client::new(bench.daemon.home.clone());
    assert_eq!(client.ask(ListPools {}).await.unwrap().pools, ["tank"]);
    let of_pool = |pool: &str| GetPool { pool: pool.into(), errors: true, extended: false };
    assert_eq!(client.ask(of_pool("tank")).await.unwrap().report.guid, 1000);
    let create = CreateDataset { name: "tank/ü b".into(), mount: true, command: "x".into(), ..Default::default() };
    assert_eq!(client.ask(create).await.unwrap().created, ["tank/ü b"]);
    let found = client.ask(ListDatasets { under: Some("tank/ü b".into()), ..ListDatasets::default() }).await.unwrap();
    assert_eq!(found.datasets[0].mounted_at.as_deref(), Some(bench.root().join("tank/ü b").as_path()));
    assert_eq!(client.ask(GetHistory { pool: "tank".into() }).await.unwrap()[0].text, "x");
    let error = client.ask(of_pool("nope")).await.unwrap_err();
    assert_eq!((&*error.message, error.kind), ("cannot open 'nope': no such pool", ErrorKind::NoSuchPool));
    client.ask(StopDaemon {}).await.unwrap();
    stopped.wait_for(|told| *told).await.unwrap();
    server.abort();
}
