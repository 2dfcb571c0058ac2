//! Where pools find their devices: the machine, or whatever a simulator makes up.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;

use crate::block_device::BlockDevice;
use crate::disk::Holding;
use crate::error::Result;
use crate::file::OpenOptions;
use crate::holder::Holder;
use crate::looks::{Looks, Seen, Stamp};
use crate::path_kind::PathKind;
use crate::{busy, disk};

/// Finds and opens devices by their paths.
#[async_trait]
pub trait DeviceSource: Send + Sync + Debug {
    /// What the path leads to.
    fn kind(&self, path: &Path) -> PathKind;

    /// What a folder holds, in no particular order, at most `limit` entries. Empty when it cannot be read.
    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf>;

    /// As [`list`](Self::list), where somebody else's server may make one wait.
    async fn entries(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        self.list(folder, limit)
    }

    /// The one path behind all names of a device; `None` when it leads nowhere.
    fn canonical(&self, path: &Path) -> Option<PathBuf>;

    /// As [`kind`](Self::kind) and [`canonical`](Self::canonical) tell it, where somebody else's server may make one
    /// wait, for ever if it likes. However often that is asked, what waits for the server does not grow.
    async fn look(&self, path: &Path) -> Seen {
        let real = self.canonical(path);
        let stamp = real.is_some().then(|| Stamp::of_number(0));
        Seen { kind: self.kind(path), real, stamp }
    }

    /// The disk that a partition is on; `None` when the path is not a partition's, as far as that is known.
    async fn disk_of(&self, _path: &Path) -> Option<Holding> {
        None
    }

    /// Whether `zpool create` takes this path as a whole disk that it partitions (see [`disk::is_whole_disk`]).
    fn is_whole_disk(&self, path: &Path) -> bool;

    /// Who else has the device open for writing, for a person; `None` when nobody is known to.
    async fn writer(&self, _path: &Path) -> Option<Holder> {
        None
    }

    /// The mounted file systems that hold the file that a path means, or what lies behind a device there, as far as
    /// that can be told: device numbers, `major:minor`.
    async fn file_systems_below(&self, path: &Path) -> BTreeSet<String>;

    /// Opens a device as it is.
    ///
    /// # Errors
    /// As [`disk::open_path`].
    async fn open_path(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>>;

    /// Opens what a label or the `zpool` command calls a vdev.
    ///
    /// # Errors
    /// As [`disk::open_vdev`].
    async fn open_vdev(&self, path: &Path, whole_disk: bool, options: OpenOptions) -> Result<Arc<dyn BlockDevice>>;
}

fn file_systems_below(path: &Path) -> BTreeSet<String> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(found) = std::fs::metadata(path) else { return BTreeSet::new() };
    let (mut seen, mut pending) = (BTreeSet::new(), Vec::new());
    pending.extend(found.is_file().then(|| found.dev()));
    pending.extend(found.file_type().is_block_device().then(|| found.rdev()));
    // A file system has the number of the device that it lies on, which may be a loop device itself.
    while let Some(device) = pending.pop() {
        if seen.insert(device) && rustix::fs::major(device) != 0 {
            let behind = crate::backing::behind(device).unwrap_or_default();
            pending.extend(behind.iter().filter_map(|below| below.file.metadata().ok()).map(|below| below.dev()));
        }
    }
    seen.into_iter().map(|device| format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))).collect()
}

/// The machine's own files and block devices.
#[derive(Clone, Debug, Default)]
pub struct SystemDevices {
    /// Further kinds of block devices (beginnings of their names) that are partitioned as whole disks.
    pub whole_disk_kinds: Vec<String>,
    looks: Looks,
}

impl SystemDevices {
    /// The machine's devices, of which those whose names begin with one of `whole_disk_kinds` are partitioned, too.
    pub fn new(whole_disk_kinds: Vec<String>) -> Self {
        Self { whole_disk_kinds, looks: Looks::default() }
    }
}

/// A look at a path of the machine's.
fn look(path: &Path) -> Seen {
    let devices = SystemDevices::default();
    let stamp = std::fs::metadata(path).ok().map(|data| Stamp::of(&data));
    Seen { kind: devices.kind(path), real: devices.canonical(path), stamp }
}

#[async_trait]
impl DeviceSource for SystemDevices {
    fn kind(&self, path: &Path) -> PathKind {
        use std::os::unix::fs::FileTypeExt;
        match std::fs::metadata(path) {
            Err(error) => PathKind::Missing(error.to_string()),
            Ok(data) if data.is_file() => PathKind::File(data.len()),
            Ok(data) if data.file_type().is_block_device() => PathKind::BlockDevice,
            Ok(data) if data.is_dir() => PathKind::Folder,
            Ok(_) => PathKind::Other,
        }
    }

    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        entries.take(limit).flatten().map(|entry| entry.path()).collect()
    }

    async fn entries(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        let (devices, folder) = (self.clone(), folder.to_owned());
        tokio::task::spawn_blocking(move || devices.list(&folder, limit)).await.unwrap_or_default()
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok()
    }

    async fn look(&self, path: &Path) -> Seen {
        self.looks.at(path, look).await
    }

    async fn disk_of(&self, path: &Path) -> Option<Holding> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || disk::holding(&path)).await.ok().flatten()
    }

    async fn file_systems_below(&self, path: &Path) -> BTreeSet<String> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || file_systems_below(&path)).await.unwrap_or_default()
    }

    fn is_whole_disk(&self, path: &Path) -> bool {
        disk::is_whole_disk(path, &self.whole_disk_kinds)
    }

    async fn writer(&self, path: &Path) -> Option<Holder> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || busy::writer(&path)).await.ok().flatten()
    }

    async fn open_path(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
        disk::open_path(path, options).await
    }

    async fn open_vdev(&self, path: &Path, whole_disk: bool, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
        disk::open_vdev(path, whole_disk, options).await
    }
}
