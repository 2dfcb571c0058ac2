//! How file systems become visible: a trait in front of FUSE.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use platter_api::report::DatasetReport;
use platter_fuse::{Elsewhere, Keeper};

use crate::engine::PoolHandle;
use crate::mount_plan::OwnFolder;
use crate::snapshot_requests::SnapshotRequests;
use platter_api::messages::{IdQuota, IdUsage, Whose};

/// How to mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HowToMount {
    /// Refuse writes.
    pub read_only: bool,
    /// Options of this mount only, as given with `zfs mount -o`.
    pub options: Vec<String>,
    /// Also over a folder that is not empty.
    pub overlay: bool,
    /// Also what was received without some of its blocks.
    pub incomplete: bool,
    /// Whoever mounts says where, and the folder is his.
    pub is_at_given_place: bool,
}

/// Why a file system stays mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnmountError {
    /// Somebody uses it.
    Busy,
    /// Anything else.
    Other(String),
}

/// Mounts file systems and knows their files' names.
#[async_trait]
pub trait Mounter: Send + Sync + 'static {
    /// Mounts a data set of `pool` at `at`, which is an existing folder. The error is the reason only.
    async fn mount(
        &self,
        pool: &Arc<dyn PoolHandle>,
        report: &DatasetReport,
        at: &Path,
        how: &HowToMount,
    ) -> Result<Box<dyn Mounted>, String>;

    /// Where file systems belong that have no mount point of their own, when that is not `/`.
    fn own_folder(&self) -> Option<OwnFolder> {
        None
    }

    /// What is done in the directories of snapshots of its mounts.
    fn snapshot_requests(&self) -> Option<&SnapshotRequests> {
        None
    }

    /// Does again what a crash left in the intent logs of a pool's volumes.
    async fn replay_volumes(&self, _pool: &Arc<dyn PoolHandle>) {}

    /// Shows the volumes of a pool at `at`, as `source`; nothing when it has none. The error is the reason only.
    async fn mount_volumes(
        &self,
        _pool: &Arc<dyn PoolHandle>,
        _source: &str,
        _at: &Path,
    ) -> Result<Option<Box<dyn MountedVolumes>>, String> {
        Ok(None)
    }

    /// What is mounted at this moment, in the mounter's own terms; `None` when that cannot be told.
    fn present(&self) -> Option<BTreeSet<String>>;

    /// Path of an object below the root of a file system that need not be mounted ("/dir/file"); `None` when it has
    /// none.
    async fn object_path(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, object: u64) -> Option<String>;

    /// What users, groups or projects use of a file system that need not be mounted. The error is the reason only.
    async fn usage(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, whose: Whose) -> Result<Vec<IdUsage>, String>;

    /// Sets somebody's quota on a file system that need not be mounted; a mount of it is told with
    /// [`Mounted::reload_quotas`]. The error is the reason only.
    async fn set_quota(&self, pool: &Arc<dyn PoolHandle>, dataset: &str, quota: &IdQuota) -> Result<(), String>;
}

/// The mount that shows a pool's volumes.
#[async_trait]
pub trait MountedVolumes: Send + Sync + 'static {
    /// Unmounts; with `force` also when a volume is open. Every volume is closed before it returns `Ok`.
    async fn unmount(&mut self, force: bool) -> Result<(), UnmountError>;

    /// Ends it where it cannot be unmounted. Otherwise as [`unmount`](Self::unmount).
    async fn cut_off(&mut self) -> Result<(), UnmountError>;

    /// Its device number, `major:minor`.
    fn device(&self) -> Option<String>;

    /// Whether somebody took it away (`umount(8)`).
    fn is_gone(&self) -> bool;
}

/// A mounted file system.
#[async_trait]
pub trait Mounted: Send + Sync + 'static {
    /// Unmounts; with `force` also when somebody uses it. Everything is written and the pool's handle given back
    /// before it returns `Ok`.
    async fn unmount(&mut self, force: bool) -> Result<(), UnmountError>;

    /// Ends it where it cannot be unmounted: the mount point stays and gives errors. Otherwise as
    /// [`unmount`](Self::unmount).
    async fn cut_off(&mut self) -> Result<(), UnmountError>;

    /// Its device number, as `stat` tells it of its files: `major:minor`.
    fn device(&self) -> Option<String> {
        None
    }

    /// Who has it mounted somewhere else too, and would lose it when it is unmounted.
    fn keeper(&self, _elsewhere: &Elsewhere) -> Option<Keeper> {
        None
    }

    /// Path of an object below its root ("/dir/file"); `None` when it has none.
    async fn object_path(&self, object: u64) -> Option<String>;

    /// Takes over changed properties. `false` when that needs unmounting and mounting again.
    async fn follow(&mut self, report: &DatasetReport) -> bool;

    /// The data set has another name now; the mount stays where it is.
    fn renamed(&mut self, name: &str);

    /// Takes over changed quotas of users and groups.
    async fn reload_quotas(&mut self);

    /// Frees what was removed a moment ago and nobody has open: the next group counts it as gone.
    async fn settle(&self);

    /// Has the kernel hand over what was stored in files through mappings.
    async fn flush(&self) {}

    /// How many files have no name any more and are still to be freed.
    fn waiting_to_be_freed(&self) -> usize {
        0
    }

    /// Serves no snapshot of these numbers any more.
    fn close_snapshots(&self, _numbers: &[u64]) {}

    /// A group is on disk: the kernel asks anew for the space that files take.
    fn synced(&self);

    /// Whether somebody took the mount away behind the daemon's back (`umount(8)`). With `present`, what
    /// [`Mounter::present`] said, also when its files are still open (`umount -l`).
    fn is_gone(&self, present: Option<&BTreeSet<String>>) -> bool;
}
