//! The snapshots that a mount shows in `.zfs/snapshot`, as its pool has them.
//!
//! Invariant: no file is changed through them, whatever the file system's own mount allows.

use std::sync::Arc;

use parking_lot::RwLock;
use platter_dsl::snapshots_changed;
use platter_fuse::snapshots::{Answer, ChangeRefused, SnapshotChange, Snapshots};
use platter_spa::Pool;
use platter_vfs::{AtimeMode, ControlDirectory, ServeOptions, Vfs};
use platter_zpl::{SpaceInfo, Timestamp, XattrMode, Zpl};

use crate::machine::SystemClock;
use crate::snapshot_requests::SnapshotRequests;

/// See the module text.
pub struct ShownSnapshots {
    pool: Arc<Pool>,
    /// The data set's name, which may become another one.
    dataset: RwLock<String>,
    xattr: XattrMode,
    posix_acl: bool,
    runtime: tokio::runtime::Handle,
    requests: Arc<SnapshotRequests>,
}

/// A snapshot has the space that it references, and no more.
struct Fixed(u64);

impl SpaceInfo for Fixed {
    fn available(&self) -> u64 {
        0
    }

    fn referenced(&self) -> u64 {
        self.0
    }
}

impl ShownSnapshots {
    /// Those of `dataset`, with extended attributes and access lists as the file system has them.
    pub fn new(
        pool: Arc<Pool>,
        dataset: String,
        xattr: XattrMode,
        posix_acl: bool,
        runtime: tokio::runtime::Handle,
        requests: Arc<SnapshotRequests>,
    ) -> Arc<Self> {
        Arc::new(Self { pool, dataset: RwLock::new(dataset), xattr, posix_acl, runtime, requests })
    }

    /// The data set has another name now.
    pub fn renamed(&self, dataset: &str) {
        *self.dataset.write() = dataset.to_owned();
    }

    async fn serve(&self, name: &str) -> Result<Arc<Vfs>, String> {
        let full_name = format!("{}@{name}", self.dataset.read());
        let dsl = self.pool.dsl();
        let os = dsl.open_snapshot(&full_name).await.map_err(|error| error.to_string())?;
        let referenced = dsl.snapshot(&full_name).await.map_err(|error| error.to_string())?;
        let referenced = match referenced.properties.get("referenced").map(|property| &property.value) {
            Some(platter_api::report::PropertyValue::Number(number)) => *number,
            _ => 0,
        };
        let options = platter_zpl::MountOptions {
            read_only: true,
            atime: AtimeMode::Off,
            xattr: self.xattr,
            posix_acl: self.posix_acl,
            ..platter_zpl::MountOptions::default()
        };
        let space = Arc::new(Fixed(referenced));
        let zpl = Zpl::mount(os, options, Arc::new(SystemClock), space).await.map_err(|error| error.to_string())?;
        assert!(zpl.read_only_reason().is_some(), "a snapshot is not written");
        let since = Timestamp { seconds: 0, nanoseconds: 0 };
        let served = ServeOptions { name: full_name, since, control: ControlDirectory::Absent, observer: None };
        Ok(Vfs::new(zpl, served, self.runtime.clone()))
    }
}

impl Snapshots for ShownSnapshots {
    fn list(&self) -> Answer<'_, Vec<(String, u64)>> {
        Box::pin(async {
            let dsl = self.pool.dsl();
            let dataset = self.dataset.read().clone();
            let Ok(head) = dsl.find(&dataset) else { return Vec::new() };
            match head.snapshot_names(&dsl.mos).await {
                Ok(names) => names.into_iter().map(|(name, object)| (name, object.0)).collect(),
                Err(error) => {
                    tracing::warn!("the snapshots of '{dataset}' cannot be listed: {error}");
                    Vec::new()
                }
            }
        })
    }

    fn find<'a>(&'a self, name: &'a str) -> Answer<'a, Option<u64>> {
        Box::pin(async move {
            let dsl = self.pool.dsl();
            let dataset = self.dataset.read().clone();
            let head = dsl.find(&dataset).ok()?;
            let found = head.snapshot(&dsl.mos, name).await.ok()?;
            found.map(|bonus| bonus.snapshot().object.0)
        })
    }

    fn changed(&self) -> Answer<'_, Option<Timestamp>> {
        Box::pin(async move {
            let dsl = self.pool.dsl();
            let head = dsl.find(&self.dataset.read().clone()).ok()?;
            // Damage there is told by whoever needs what is damaged.
            let seconds = snapshots_changed::get(dsl, &head.dir).await.ok()??;
            Some(Timestamp { seconds: i64::try_from(seconds).ok()?, nanoseconds: 0 })
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Arc<Vfs>>> {
        Box::pin(async move {
            let opened = self.serve(name).await;
            opened.inspect_err(|error| tracing::warn!("snapshot '{name}' cannot be shown: {error}")).ok()
        })
    }

    fn change(&self, change: SnapshotChange) -> Answer<'_, Result<(), ChangeRefused>> {
        let dataset = self.dataset.read().clone();
        Box::pin(self.requests.send(dataset, change))
    }
}
