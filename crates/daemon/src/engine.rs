//! The engine as the daemon sees it: two traits, so that everything above can be tested without a single disk block.
//!
//! [`RealEngine`] is the only implementation that touches devices; every method of [`PoolHandle`] for [`Pool`]
//! forwards and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use platter_api::report::{DatasetReport, HistoryEntry, Properties};
use platter_api::report::{Detail, ImportableReport, PoolReport, VdevReport};
use platter_api::request::Setting;
use platter_api::request::{Changed, CreateRequest, ImportRequest, PoolChange};
use platter_api::txgs::TxgsReport;
use platter_dsl::Result;
use platter_ondisk::Txg;
use platter_spa::{Environment, Events, Idleness, Pool, Unwritten};

/// Makes, finds and opens pools.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Creates a pool.
    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn PoolHandle>>;
    /// Checks a creation and tells its layout.
    async fn dry_run(&self, request: CreateRequest) -> Result<VdevReport>;
    /// Pools found below `search`.
    async fn discover(&self, search: &[PathBuf]) -> Result<Vec<ImportableReport>>;
    /// Imports a pool.
    async fn import(&self, request: ImportRequest) -> Result<Arc<dyn PoolHandle>>;
    /// Zeroes the labels of a device.
    async fn clear_label(&self, path: &Path, force: bool) -> Result<()>;
    /// What happened lately.
    fn events(&self) -> Arc<Events> {
        Arc::default()
    }
}

/// An imported pool; see [`Pool`] for the meaning of each method.
#[async_trait]
#[allow(missing_docs)]
pub trait PoolHandle: Send + Sync + 'static {
    /// The engine's own pool, for what mounts it; a stand-in has none.
    fn engine_pool(&self) -> Option<Arc<Pool>>;
    fn name(&self) -> String;
    fn guid(&self) -> u64;
    fn device_paths(&self) -> Vec<PathBuf>;
    fn spare_paths(&self) -> Vec<PathBuf>;
    /// The path of the device of this guid or name, when it has one.
    fn path_of(&self, _device: &str) -> Option<PathBuf> {
        None
    }
    /// Device numbers of the mounted file systems that its devices are in.
    async fn file_systems_below(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
    async fn export(&self) -> Result<()>;
    /// Whether its I/O waits for devices.
    fn is_suspended(&self) -> bool {
        false
    }
    /// Waits until its I/O waits for devices.
    async fn suspended(&self) {
        std::future::pending().await
    }
    /// Waits until a device does not answer any more; tells its name.
    async fn hangs(&self) -> String {
        std::future::pending().await
    }
    /// As `hangs`, of who looks himself, each `time`.
    fn silent_device(&self, _seen: &mut Idleness, _time: Duration) -> Option<String> {
        None
    }
    /// Parts from the devices at once and for good.
    fn abandon(&self, _reason: &str) {}
    fn unwritten(&self) -> Unwritten {
        Unwritten::default()
    }
    fn committed(&self) -> Txg {
        Txg::default()
    }
    async fn close(&self) -> Result<()>;
    async fn destroy(&self) -> Result<()>;
    async fn report(&self, detail: Detail) -> Result<PoolReport>;
    async fn properties(&self) -> Result<Properties>;
    async fn set_property(&self, name: &str, value: &str) -> Result<()>;
    async fn history(&self) -> Result<Vec<HistoryEntry>>;
    async fn log_command(&self, text: &str) -> Result<()>;
    fn txgs(&self, after: u64) -> TxgsReport;
    async fn sync(&self, force: bool) -> Result<()>;
    async fn scrub_start(&self) -> Result<()>;
    async fn scrub_pause(&self) -> Result<()>;
    async fn scrub_stop(&self) -> Result<()>;
    async fn scrub_wait(&self) -> Result<()>;
    async fn clear(&self, device: Option<&str>) -> Result<()>;
    async fn change(&self, change: PoolChange) -> Result<Changed>;
    async fn datasets(&self) -> Result<Vec<DatasetReport>>;
    async fn lineage(&self, name: &str) -> Result<Vec<DatasetReport>> {
        let above = |report: &DatasetReport| {
            name.strip_prefix(&report.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        Ok(self.datasets().await?.into_iter().filter(above).collect())
    }
    async fn create_dataset(&self, name: &str, properties: &BTreeMap<String, String>) -> Result<()>;
    async fn destroy_dataset(&self, name: &str) -> Result<()>;
    async fn rename_dataset(&self, old: &str, new: &str) -> Result<()>;
    async fn set_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()>;
    fn check_new_properties(&self, properties: &BTreeMap<String, String>) -> Result<()>;
    async fn check_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()>;
    async fn check_rename(&self, old: &str, new: &str) -> Result<()>;
    fn check_destroy(&self, name: &str) -> Result<()>;
}

/// The engine on real devices.
pub struct RealEngine {
    environment: Environment,
}

impl RealEngine {
    /// An engine in these surroundings.
    pub fn new(environment: Environment) -> Self {
        Self { environment }
    }
}

#[async_trait]
impl Engine for RealEngine {
    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn PoolHandle>> {
        let pool = Pool::create(self.environment.clone(), request).await?;
        Ok(Arc::new(RealPool(pool)))
    }

    async fn dry_run(&self, request: CreateRequest) -> Result<VdevReport> {
        Pool::dry_run(self.environment.clone(), request).await
    }

    async fn discover(&self, search: &[PathBuf]) -> Result<Vec<ImportableReport>> {
        Pool::discover(&self.environment, search).await
    }

    async fn import(&self, request: ImportRequest) -> Result<Arc<dyn PoolHandle>> {
        let pool = Pool::import(self.environment.clone(), request).await?;
        Ok(Arc::new(RealPool(pool)))
    }

    async fn clear_label(&self, path: &Path, force: bool) -> Result<()> {
        Pool::clear_label(&self.environment, path, force).await
    }

    fn events(&self) -> Arc<Events> {
        self.environment.events.clone()
    }
}

struct RealPool(Arc<Pool>);

#[async_trait]
impl PoolHandle for RealPool {
    fn engine_pool(&self) -> Option<Arc<Pool>> {
        Some(self.0.clone())
    }

    fn name(&self) -> String {
        self.0.name()
    }

    fn guid(&self) -> u64 {
        self.0.guid()
    }

    fn device_paths(&self) -> Vec<PathBuf> {
        self.0.device_paths()
    }

    fn spare_paths(&self) -> Vec<PathBuf> {
        self.0.spare_paths()
    }

    fn path_of(&self, device: &str) -> Option<PathBuf> {
        self.0.path_of(device)
    }

    async fn file_systems_below(&self) -> BTreeSet<String> {
        self.0.file_systems_below().await
    }

    fn is_suspended(&self) -> bool {
        self.0.is_suspended()
    }

    async fn suspended(&self) {
        self.0.suspended().await;
    }

    async fn hangs(&self) -> String {
        self.0.hangs().await
    }

    fn silent_device(&self, seen: &mut Idleness, time: Duration) -> Option<String> {
        self.0.silent_device(seen, time)
    }

    fn abandon(&self, reason: &str) {
        self.0.abandon(reason);
    }

    fn unwritten(&self) -> Unwritten {
        self.0.unwritten()
    }

    fn committed(&self) -> Txg {
        self.0.committed()
    }

    async fn export(&self) -> Result<()> {
        self.0.export().await
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }

    async fn destroy(&self) -> Result<()> {
        self.0.destroy().await
    }

    async fn report(&self, detail: Detail) -> Result<PoolReport> {
        self.0.report(detail).await
    }

    async fn properties(&self) -> Result<Properties> {
        self.0.properties().await
    }

    async fn set_property(&self, name: &str, value: &str) -> Result<()> {
        self.0.set_property(name, value).await
    }

    async fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.0.history().await
    }

    async fn log_command(&self, text: &str) -> Result<()> {
        self.0.log_command(text).await
    }

    fn txgs(&self, after: u64) -> TxgsReport {
        self.0.txgs(after)
    }

    async fn sync(&self, force: bool) -> Result<()> {
        if force {
            self.0.force_group().await?;
        }
        self.0.sync_and_release().await
    }

    async fn scrub_start(&self) -> Result<()> {
        self.0.scrub_start().await
    }

    async fn scrub_pause(&self) -> Result<()> {
        self.0.scrub_pause().await
    }

    async fn scrub_stop(&self) -> Result<()> {
        self.0.scrub_stop().await
    }

    async fn scrub_wait(&self) -> Result<()> {
        self.0.scrub_wait().await
    }

    async fn clear(&self, device: Option<&str>) -> Result<()> {
        self.0.clear(device).await
    }

    async fn change(&self, change: PoolChange) -> Result<Changed> {
        self.0.change(change).await
    }

    async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        self.0.dsl().datasets().await
    }

    async fn lineage(&self, name: &str) -> Result<Vec<DatasetReport>> {
        self.0.dsl().lineage(name).await
    }

    async fn create_dataset(&self, name: &str, properties: &BTreeMap<String, String>) -> Result<()> {
        self.0.dsl().create_dataset(name, properties).await
    }

    async fn destroy_dataset(&self, name: &str) -> Result<()> {
        self.0.dsl().destroy_dataset(name).await
    }

    async fn rename_dataset(&self, old: &str, new: &str) -> Result<()> {
        self.0.dsl().rename_dataset(old, new).await
    }

    async fn set_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        self.0.dsl().set_dataset_properties(name, settings).await
    }

    fn check_new_properties(&self, properties: &BTreeMap<String, String>) -> Result<()> {
        self.0.dsl().check_new_properties(properties)
    }

    async fn check_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        self.0.dsl().check_dataset_properties(name, settings).await
    }

    async fn check_rename(&self, old: &str, new: &str) -> Result<()> {
        self.0.dsl().check_rename(old, new).await
    }

    fn check_destroy(&self, name: &str) -> Result<()> {
        self.0.dsl().check_destroy(name)
    }
}
