//! The engine as the daemon sees it: traits, so that everything above can be tested without a single disk block.
//!
//! An open pool is a [`PoolHandle`], which is four small things: who it is ([`Identity`]), what it tells ([`Reports`]),
//! what is done to it ([`Operations`]), and whether its devices answer ([`Liveness`]). The implementation that touches
//! devices is in `real_engine`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use platter_api::faults::DeviceSigns;
use platter_api::names;
use platter_api::report::{DatasetReport, HistoryEntry, Properties};
use platter_api::report::{Detail, FoundPools, PoolReport, VdevReport};
use platter_api::request::{
    Changed, CreateRequest, DatasetOperation, ImportRequest, NewVolume, PoolOperation, SnapshotOperation,
};
use platter_api::splits::{SplitOff, SplitRequest};
use platter_api::txgs::TxgsReport;
use platter_dsl::inheritance::InForce;
use platter_dsl::permissions::Granted;
use platter_dsl::take_snapshot::Refusals;
use platter_dsl::volume::Plan;
use platter_dsl::{PoolError, Result};
use platter_ondisk::Txg;
use platter_spa::{Events, Idleness, Pool, Unwritten};
use platter_zpl::diff::Difference;
use tokio::sync::mpsc;

/// Makes, finds and opens pools.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Creates a pool.
    async fn create(&self, request: CreateRequest) -> Result<Arc<dyn PoolHandle>>;
    /// Checks a creation and tells its layout.
    async fn dry_run(&self, request: CreateRequest) -> Result<VdevReport>;
    /// Pools found below `search`.
    async fn discover(&self, search: &[PathBuf], silent: &[PathBuf]) -> Result<FoundPools>;
    /// Imports a pool.
    async fn import(&self, request: ImportRequest) -> Result<Arc<dyn PoolHandle>>;
    /// The name of the pool that a device is labelled for.
    async fn pool_at(&self, _path: &Path) -> Option<String> {
        None
    }
    /// Zeroes the labels of a device.
    async fn clear_label(&self, path: &Path, force: bool) -> Result<()>;
    /// What happened lately.
    fn events(&self) -> Arc<Events> {
        Arc::default()
    }
    /// Bytes that the block caches of all pools hold, and may hold at the moment.
    fn cache(&self) -> (u64, u64) {
        (0, 0)
    }
    /// From now on does nothing by itself with the devices of these guids.
    fn hold(&self, _devices: BTreeSet<u64>) {}
}

/// Who a pool is, and what it lies on.
#[async_trait]
pub trait Identity {
    /// Its name here.
    fn name(&self) -> String;
    /// Its guid.
    fn guid(&self) -> u64;
    /// Where its devices are, hot spares among them.
    fn device_paths(&self) -> Vec<PathBuf>;
    /// Devices that did not answer when it was imported, and were passed over.
    fn silent_paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// Where its hot spares are, also those in use.
    fn spare_paths(&self) -> Vec<PathBuf>;
    /// Where those of them are that stand in for another device of it.
    fn spares_at_work(&self) -> Vec<PathBuf> {
        Vec::new()
    }
    /// The path of the device of this guid or name, when it has one.
    fn path_of(&self, _device: &str) -> Option<PathBuf> {
        None
    }
    /// Device numbers of the mounted file systems that its devices are in.
    async fn file_systems_below(&self) -> BTreeSet<String> {
        BTreeSet::new()
    }
}

/// What a pool tells.
#[async_trait]
pub trait Reports {
    /// Its state and devices.
    async fn report(&self, detail: Detail) -> Result<PoolReport>;
    /// The name of a vdev that is lost with the pool when that is closed, as its files were deleted.
    async fn lost_when_closed(&self) -> Option<String> {
        None
    }
    /// Its properties.
    async fn properties(&self) -> Result<Properties>;
    /// Its history, oldest first.
    async fn history(&self) -> Result<Vec<HistoryEntry>>;
    /// Parts from a device that does not answer, or not soon, if the others can do without it; whether that was done.
    fn part_from(&self, _device: u64, _reason: &str) -> bool {
        false
    }
    /// What is seen of its devices that may fail.
    fn signs(&self) -> Vec<DeviceSigns> {
        Vec::new()
    }
    /// Finished transaction groups after group `after`.
    fn txgs(&self, after: u64) -> TxgsReport;
    /// Its data sets.
    async fn datasets(&self) -> Result<Vec<DatasetReport>>;
    /// Names of the data set `name` and of those below it, parents first.
    async fn names_under(&self, name: &str) -> Result<Vec<String>> {
        let among = |other: &String| names::is_at_or_below(other, name);
        Ok(self.datasets().await?.into_iter().map(|report| report.name).filter(among).collect())
    }
    /// Snapshots of a data set and those below it, or of all; of each the oldest first.
    async fn snapshots(&self, _under: Option<&str>) -> Result<Vec<DatasetReport>> {
        Ok(Vec::new())
    }
    /// Bookmarks of a data set and those below it, or of all; of each the oldest first.
    async fn bookmarks(&self, _under: Option<&str>) -> Result<Vec<DatasetReport>> {
        Ok(Vec::new())
    }
    /// What a user property is for each data set that has it.
    fn in_force(&self, _property: &str) -> Vec<InForce> {
        Vec::new()
    }
    /// Full name of the snapshot of this number in the MOS.
    async fn snapshot_by_object(&self, _object: u64) -> Option<String> {
        None
    }
    /// Whether nobody has a data set open that is not mounted: as a volume, or to send it.
    async fn check_unused(&self, _dataset: &str) -> Result<()> {
        Ok(())
    }
    /// Waits for a moment for who has just closed it.
    async fn wait_closed(&self, _dataset: &str) {}
    /// Full names of a data set's own snapshots, the oldest first.
    async fn snapshot_names(&self, _dataset: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// A snapshot, by its full name.
    async fn snapshot(&self, _name: &str) -> Result<DatasetReport> {
        Err(PoolError::NotFound("dataset does not exist".into()))
    }
    /// Bytes that destroying these snapshots would free.
    async fn snapshots_would_free(&self, _names: &[String]) -> Result<u64> {
        Ok(0)
    }
    /// Tells `found` what differs in the snapshot `to` from the earlier one `from`, both by full name.
    async fn differences(&self, _from: &str, _to: &str, _found: mpsc::Sender<Difference>) -> Result<()> {
        Ok(())
    }
    /// What a data set itself allows to whom.
    async fn granted(&self, _dataset: &str) -> Result<Granted> {
        Ok(Granted::new())
    }
    /// By what a snapshot is held, each with since when in seconds since the epoch.
    async fn holds(&self, _snapshot: &str) -> Result<BTreeMap<String, u64>> {
        Ok(BTreeMap::new())
    }
    /// What a volume would be made with.
    fn plan_volume(&self, _volume: &NewVolume, _properties: &BTreeMap<String, String>) -> Result<Plan> {
        Err(PoolError::Unsupported("no volumes here".into()))
    }
    /// A data set and those above it, as far as they are there.
    async fn lineage(&self, name: &str) -> Result<Vec<DatasetReport>> {
        let above = |report: &DatasetReport| names::is_at_or_below(name, &report.name);
        Ok(self.datasets().await?.into_iter().filter(above).collect())
    }
}

/// How a pool leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Its labels say that it is free.
    Export,
    /// Its labels say that it is in use: the next daemon opens it again.
    Close,
    /// Its labels say that it was destroyed.
    Destroy,
}

/// What is done to a pool.
#[async_trait]
pub trait Operations {
    /// Does something to the pool itself.
    async fn perform(&self, operation: PoolOperation) -> Result<Changed>;
    /// Makes a pool of some of its devices, and exports that.
    async fn split(&self, _request: SplitRequest) -> Result<SplitOff> {
        Err(PoolError::Unsupported("no split here".into()))
    }
    /// Does something to one of its data sets.
    async fn perform_on_dataset(&self, operation: DatasetOperation) -> Result<()>;
    /// Does something to snapshots; returned are those that stand in the way, so that nothing was done.
    async fn perform_on_snapshots(&self, _operation: SnapshotOperation) -> Result<Refusals> {
        Ok(Refusals::new())
    }
    /// Whether that would be refused, as far as can be told without doing it.
    async fn check(&self, operation: &DatasetOperation) -> Result<()>;
    /// Adds a command of this user to its history, which it is part of a moment later.
    fn log_command(&self, text: &str, who: u32) -> Result<()>;
    /// Ends it.
    async fn leave(&self, how: Leave) -> Result<()>;
}

/// Whether a pool's devices do what they should, and how one is given up whose devices do not.
#[async_trait]
pub trait Liveness {
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
    /// What would be lost if it were given up now.
    fn unwritten(&self) -> Unwritten {
        Unwritten::default()
    }
    /// The last group that is on its devices.
    fn committed(&self) -> Txg {
        Txg::default()
    }
}

/// An open pool.
pub trait PoolHandle: Identity + Reports + Operations + Liveness + Send + Sync + 'static {
    /// The engine's own pool, for what mounts it; a stand-in has none.
    fn engine_pool(&self) -> Option<Arc<Pool>>;
}
