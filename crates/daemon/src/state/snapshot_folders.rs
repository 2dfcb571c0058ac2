//! `mkdir`, `rmdir` and `mv` in `.zfs/snapshot` (`module/os/linux/zfs/zfs_ctldir.c`), where the data set says that
//! they are meant so: OpenZFS has a switch for the whole machine (`zfs_admin_snapshot`), off unless told otherwise,
//! Platter a user property of each data set.

use std::sync::Arc;
use std::time::Duration;

use platter_api::messages::{ErrorBody, ErrorKind};
use platter_api::names::check_snapshot;
use platter_api::report::PropertyValue;
use platter_api::snapshots::{RenameSnapshot, TakeSnapshots};
use platter_fuse::snapshots::{ChangeRefused, SnapshotChange};

use super::mounts::pool_of;
use super::{Answer, Daemon};

/// The property, and its value where folders may be made.
const PROPERTY: (&str, &str) = ("platter:snapdir", "writable");
/// Whoever unmounts has the pool to himself, and waits for what is asked for here.
const PATIENCE: Duration = Duration::from_secs(5);

fn refusal(error: &ErrorBody) -> ChangeRefused {
    match error.kind {
        ErrorKind::Exists => ChangeRefused::Exists,
        ErrorKind::NotFound | ErrorKind::NoSuchPool => ChangeRefused::Missing,
        ErrorKind::Busy => ChangeRefused::Busy,
        _ => ChangeRefused::Failed,
    }
}

impl Daemon {
    /// Does what is done in mounts' directories of snapshots, until the daemon is gone.
    pub fn serve_snapshot_folders(self: &Arc<Self>) {
        let Some(mut requests) = self.mounter.snapshot_requests().and_then(|requests| requests.listen()) else {
            return;
        };
        let daemon = Arc::downgrade(self);
        tokio::spawn(async move {
            while let Some(request) = requests.recv().await {
                let Some(daemon) = daemon.upgrade() else { return };
                tokio::spawn(async move {
                    let done = daemon.change_in_folder(&request.dataset, request.change).await;
                    let _ = request.answer.send(done);
                });
            }
        });
    }

    async fn change_in_folder(&self, dataset: &str, change: SnapshotChange) -> Result<(), ChangeRefused> {
        let pool = self.pool(pool_of(dataset)).map_err(|error| refusal(&error))?;
        let lineage = pool.lineage(dataset).await.map_err(|_| ChangeRefused::Failed)?;
        let report = lineage.iter().find(|report| report.name == dataset).ok_or(ChangeRefused::Missing)?;
        let value = report.properties.get(PROPERTY.0).map(|property| &property.value);
        if !matches!(value, Some(PropertyValue::Text(text)) if text == PROPERTY.1) {
            return Err(ChangeRefused::Forbidden);
        }
        let full = |name: &str| {
            let full = format!("{dataset}@{name}");
            check_snapshot(&full).map(|_| full.clone()).map_err(|_| ChangeRefused::Invalid)
        };
        // It is let go of at once: what follows takes it again.
        let free = tokio::time::timeout(PATIENCE, self.locks.of(pool_of(dataset))).await;
        drop(free.map_err(|_| ChangeRefused::Busy)?);
        let done = match change {
            SnapshotChange::Take(name) => self.take_in_folder(full(&name)?).await,
            SnapshotChange::Destroy(name) => self.destroy_in_folder(full(&name)?).await,
            SnapshotChange::Rename(from, to) => {
                let (from, to) = (full(&from)?, full(&to)?);
                let command = format!("zfs rename {from} {to}");
                self.rename_snapshot(&RenameSnapshot { from, to, recursive: false, command }).await.map(|_| ())
            }
        };
        done.map_err(|error| {
            tracing::info!("in '.zfs/snapshot' of '{dataset}': {}", error.message);
            refusal(&error)
        })
    }

    async fn take_in_folder(&self, name: String) -> Answer<()> {
        let command = format!("zfs snapshot {name}");
        let take = TakeSnapshots { names: vec![name], command, ..TakeSnapshots::default() };
        self.take_snapshots(&take).await.map(|_| ())
    }

    async fn destroy_in_folder(&self, name: String) -> Answer<()> {
        let _lock = self.turn(pool_of(&name), &format!("cannot destroy '{name}'")).await?;
        let pool = self.pool_with(&name)?;
        self.destroy_named(&pool, vec![name.clone()], false).await?;
        self.log(&pool, &format!("zfs destroy {name}"));
        Ok(())
    }
}
