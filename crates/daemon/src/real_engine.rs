//! The engine on real devices, and its pools as handles: operations become calls of the engine, all else is handed on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use platter_api::delegation;
use platter_api::faults::DeviceSigns;
use platter_api::report::{DatasetReport, Detail, FoundPools, HistoryEntry, PoolReport, Properties, VdevReport};
use platter_api::request::{
    Changed, CreateRequest, DatasetOperation, ImportRequest, NewVolume, PoolOperation, ScrubAction, SnapshotOperation,
};
use platter_api::splits::{SplitOff, SplitRequest};
use platter_api::txgs::TxgsReport;
use platter_dsl::delegation::Changes;
use platter_dsl::inheritance::InForce;
use platter_dsl::permissions::Granted;
use platter_dsl::take_snapshot::Refusals;
use platter_dsl::volume::Plan;
use platter_dsl::{PoolError, Result};
use platter_ondisk::dsl::PermissionKey;
use platter_ondisk::{ObjectId, Txg};
use platter_spa::{Environment, Events, Idleness, Pool, Unwritten};
use platter_zpl::diff::Difference;
use tokio::sync::mpsc;

use crate::engine::{Engine, Identity, Leave, Liveness, Operations, PoolHandle, Reports};

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

    fn cache(&self) -> (u64, u64) {
        let memory = &self.environment.memory;
        (memory.cached(), memory.spared(self.environment.memory_limits()))
    }

    async fn dry_run(&self, request: CreateRequest) -> Result<VdevReport> {
        Pool::dry_run(self.environment.clone(), request).await
    }

    async fn discover(&self, search: &[PathBuf], silent: &[PathBuf]) -> Result<FoundPools> {
        Pool::discover(&self.environment, search, silent).await
    }

    async fn pool_at(&self, path: &Path) -> Option<String> {
        Pool::name_at(&self.environment, path).await
    }

    async fn import(&self, request: ImportRequest) -> Result<Arc<dyn PoolHandle>> {
        let pool = Pool::import(self.environment.clone(), request).await?;
        if !pool.dsl().read_only
            && let Err(error) = pool.dsl().clean_up_receives().await
        {
            tracing::warn!("what receives have left of pool '{}' stays: {error}", pool.name());
        }
        Ok(Arc::new(RealPool(pool)))
    }

    async fn clear_label(&self, path: &Path, force: bool) -> Result<()> {
        Pool::clear_label(&self.environment, path, force).await
    }

    fn events(&self) -> Arc<Events> {
        self.environment.events.clone()
    }

    fn hold(&self, devices: BTreeSet<u64>) {
        *self.environment.held.lock() = devices;
    }
}

/// Keys of permissions as they stand in a request, with the names that are stored.
fn changes(given: impl IntoIterator<Item = (String, Option<BTreeSet<String>>)>) -> Result<Changes> {
    let parse = |(key, names): (String, Option<BTreeSet<String>>)| {
        let key = PermissionKey::decode(key.as_bytes()).map_err(|_| PoolError::invalid("invalid permission"))?;
        let stored = |name: String| delegation::canonical(&name).map_or(name, str::to_owned);
        Ok((key, names.map(|names| names.into_iter().map(stored).collect())))
    };
    given.into_iter().map(parse).collect()
}

/// A pool of the engine.
struct RealPool(Arc<Pool>);

impl PoolHandle for RealPool {
    fn engine_pool(&self) -> Option<Arc<Pool>> {
        Some(self.0.clone())
    }
}

#[async_trait]
impl Operations for RealPool {
    async fn perform(&self, operation: PoolOperation) -> Result<Changed> {
        let pool = &self.0;
        match operation {
            PoolOperation::Change(change) => return pool.change(change).await,
            PoolOperation::Set { property, value } => pool.set_property(&property, &value).await,
            PoolOperation::SetVdev { device, property, value } => {
                pool.set_vdev_property(&device, &property, &value).await
            }
            PoolOperation::Scrub(ScrubAction::Start) => pool.scrub_start().await,
            PoolOperation::Scrub(ScrubAction::Continue) => pool.scrub_continue().await,
            PoolOperation::Scrub(ScrubAction::Errors) => pool.error_scrub().await,
            PoolOperation::Scrub(ScrubAction::Pause) => pool.scrub_pause().await,
            PoolOperation::Scrub(ScrubAction::Stop) => pool.scrub_stop().await,
            PoolOperation::Scrub(ScrubAction::Resilver) => pool.resilver().await,
            PoolOperation::Clear { device } => pool.clear(device.as_deref()).await,
            PoolOperation::Sync { force } => {
                if force {
                    pool.force_group().await?;
                }
                pool.sync_and_release().await
            }
        }?;
        Ok(Changed::default())
    }

    async fn split(&self, request: SplitRequest) -> Result<SplitOff> {
        self.0.split(request).await
    }

    async fn perform_on_dataset(&self, operation: DatasetOperation) -> Result<()> {
        let dsl = self.0.dsl();
        match operation {
            DatasetOperation::Create { name, volume: None, properties, creator } => {
                dsl.create_dataset_of(&name, &properties, creator).await
            }
            DatasetOperation::Create { name, volume: Some(volume), properties, creator } => {
                dsl.create_volume_of(&name, &volume, &properties, creator).await
            }
            DatasetOperation::Destroy { name } => dsl.destroy_dataset(&name).await,
            DatasetOperation::Rename { from, to } => dsl.rename_dataset(&from, &to).await,
            DatasetOperation::Set { name, settings } => dsl.set_dataset_properties(&name, &settings).await,
            DatasetOperation::Rollback { name, snapshot } => dsl.rollback_dataset(&name, &snapshot).await,
            DatasetOperation::Clone { snapshot, name, properties, creator } => {
                dsl.clone_snapshot_of(&snapshot, &name, &properties, creator).await
            }
            DatasetOperation::Promote { name } => dsl.promote_dataset(&name).await,
            DatasetOperation::Allow { name, granted } => {
                let all = granted.into_iter().map(|(key, names)| (key, Some(names)));
                dsl.allow(&name, changes(all)?).await
            }
            DatasetOperation::Unallow { name, revoked } => dsl.unallow(&name, changes(revoked)?).await,
        }
    }

    async fn perform_on_snapshots(&self, operation: SnapshotOperation) -> Result<Refusals> {
        let dsl = self.0.dsl();
        match operation {
            SnapshotOperation::Take { names, properties } => dsl.take_snapshots(&names, &properties).await,
            SnapshotOperation::Destroy { names, defer } => dsl.destroy_snapshots(&names, defer).await,
            SnapshotOperation::Rename { dataset, from, to, recursive } => {
                dsl.rename_snapshots(&dataset, &from, &to, recursive).await
            }
            SnapshotOperation::Hold { names, tag } => dsl.hold_snapshots(&names, &tag).await,
            SnapshotOperation::Release { names, tag } => dsl.release_snapshots(&names, &tag).await,
            SnapshotOperation::Set { name, properties } => {
                dsl.set_snapshot_properties(&name, &properties).await.map(|()| Refusals::new())
            }
        }
    }

    async fn check(&self, operation: &DatasetOperation) -> Result<()> {
        let dsl = self.0.dsl();
        match operation {
            DatasetOperation::Create { volume: None, properties, .. } => dsl.check_new_properties(properties),
            DatasetOperation::Create { volume: Some(volume), properties, .. } => {
                dsl.check_new_volume(volume, properties).map(drop)
            }
            DatasetOperation::Destroy { name } => dsl.check_destroy(name).await,
            DatasetOperation::Rename { from, to } => dsl.check_rename(from, to).await,
            DatasetOperation::Set { name, settings } => dsl.check_dataset_properties(name, settings).await,
            DatasetOperation::Rollback { name, snapshot } => dsl.check_rollback(name, snapshot).await,
            DatasetOperation::Clone { snapshot, name, properties, .. } => {
                dsl.check_clone(snapshot, name, properties).await
            }
            DatasetOperation::Promote { name } => dsl.check_promote(name).await,
            DatasetOperation::Allow { name, .. } | DatasetOperation::Unallow { name, .. } => dsl.find(name).map(drop),
        }
    }

    fn log_command(&self, text: &str, who: u32) -> Result<()> {
        self.0.log_command(text, who)
    }

    async fn leave(&self, how: Leave) -> Result<()> {
        match how {
            Leave::Export => self.0.export().await,
            Leave::Close => self.0.close().await,
            Leave::Destroy => self.0.destroy().await,
        }
    }
}

#[async_trait]
impl Identity for RealPool {
    fn name(&self) -> String {
        self.0.name()
    }

    fn guid(&self) -> u64 {
        self.0.guid()
    }

    fn device_paths(&self) -> Vec<PathBuf> {
        self.0.device_paths()
    }

    fn silent_paths(&self) -> Vec<PathBuf> {
        self.0.silent_paths()
    }

    fn spare_paths(&self) -> Vec<PathBuf> {
        self.0.spare_paths()
    }

    fn spares_at_work(&self) -> Vec<PathBuf> {
        self.0.spares_at_work()
    }

    fn path_of(&self, device: &str) -> Option<PathBuf> {
        self.0.path_of(device)
    }

    async fn file_systems_below(&self) -> BTreeSet<String> {
        self.0.file_systems_below().await
    }
}

#[async_trait]
impl Reports for RealPool {
    async fn report(&self, detail: Detail) -> Result<PoolReport> {
        self.0.report(detail).await
    }

    async fn lost_when_closed(&self) -> Option<String> {
        self.0.lost_when_closed().await
    }

    async fn properties(&self) -> Result<Properties> {
        self.0.properties().await
    }

    async fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.0.history().await
    }

    fn part_from(&self, device: u64, reason: &str) -> bool {
        self.0.part_from(device, reason)
    }

    fn signs(&self) -> Vec<DeviceSigns> {
        self.0.signs()
    }

    fn txgs(&self, after: u64) -> TxgsReport {
        self.0.txgs(after)
    }

    async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        self.0.dsl().datasets().await
    }

    async fn names_under(&self, name: &str) -> Result<Vec<String>> {
        self.0.dsl().names_under(name)
    }

    async fn snapshots(&self, under: Option<&str>) -> Result<Vec<DatasetReport>> {
        self.0.dsl().snapshots(under).await
    }

    async fn bookmarks(&self, under: Option<&str>) -> Result<Vec<DatasetReport>> {
        self.0.dsl().bookmark_reports(under).await
    }

    fn in_force(&self, property: &str) -> Vec<InForce> {
        self.0.dsl().in_force(property)
    }

    async fn snapshot_by_object(&self, object: u64) -> Option<String> {
        self.0.dsl().snapshot_by_object(ObjectId(object)).await
    }

    async fn check_unused(&self, dataset: &str) -> Result<()> {
        self.0.dsl().check_unused(dataset)
    }

    async fn wait_closed(&self, dataset: &str) {
        self.0.dsl().wait_closed(dataset).await;
    }

    async fn snapshot_names(&self, dataset: &str) -> Result<Vec<String>> {
        self.0.dsl().snapshot_names(dataset).await
    }

    async fn snapshot(&self, name: &str) -> Result<DatasetReport> {
        self.0.dsl().snapshot(name).await
    }

    async fn snapshots_would_free(&self, names: &[String]) -> Result<u64> {
        self.0.dsl().snapshots_would_free(names).await
    }

    async fn differences(&self, from: &str, to: &str, found: mpsc::Sender<Difference>) -> Result<()> {
        let dsl = self.0.dsl();
        dsl.check_descends(to, from).await?;
        let ((old, _old_kept), (new, _new_kept)) =
            (dsl.open_kept_snapshot(from).await?, dsl.open_kept_snapshot(to).await?);
        Ok(platter_zpl::diff::differences(&old, &new, found).await?)
    }

    async fn granted(&self, dataset: &str) -> Result<Granted> {
        self.0.dsl().granted(dataset).await
    }

    async fn holds(&self, snapshot: &str) -> Result<BTreeMap<String, u64>> {
        self.0.dsl().holds(snapshot).await
    }

    fn plan_volume(&self, volume: &NewVolume, properties: &BTreeMap<String, String>) -> Result<Plan> {
        self.0.dsl().check_new_volume(volume, properties)
    }

    async fn lineage(&self, name: &str) -> Result<Vec<DatasetReport>> {
        self.0.dsl().lineage(name).await
    }
}

#[async_trait]
impl Liveness for RealPool {
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
}
