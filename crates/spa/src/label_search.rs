//! Looks for labels at many paths, of which some may lead to devices that do not answer.
//!
//! Invariants:
//! - a device is waited for for [`ANSWER_MAX`], and none makes the others wait;
//! - what was given up is named: what it holds may be needed;
//! - however often is searched, what waits at a path that does not answer does not grow: it is looked at first.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use platter_device::{BlockDevice, DeviceSource, OpenOptions, PathKind, WindowDevice, gpt};

use crate::labels::{self, DeviceLabels};

/// Where devices are looked for when nothing is said.
const DEFAULT_FOLDERS: [&str; 1] = ["/dev"];
/// More entries of a folder are not looked at.
const ENTRIES_MAX: usize = 100_000;
/// So many devices are looked at together: each takes its labels' megabyte of memory.
const LOOKS_AT_ONCE: usize = 64;

/// How long a device may take to say in which pool it is: a disk may have to spin up, and Linux itself tries for 30
/// seconds.
pub const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long one may take when only its pool's name is asked for.
const NAME_MAX: Duration = Duration::from_secs(5);

/// What a search found.
pub struct Searched {
    /// The devices with labels, by path.
    pub found: Vec<(PathBuf, DeviceLabels)>,
    /// What did not answer within [`ANSWER_MAX`]: nobody knows what it holds.
    pub silent: Vec<PathBuf>,
}

/// A path to be looked at.
enum Place {
    /// It was named.
    Named(PathBuf),
    /// It is in a folder; of one of the default folders only block devices count.
    Entry { path: PathBuf, devices_only: bool },
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Entry { path, .. } => path,
        }
    }

    /// Whether what is there may be a pool's.
    fn may_hold(&self, kind: &PathKind) -> bool {
        match (self, kind) {
            (Self::Named(_), _) | (_, PathKind::BlockDevice) => true,
            (Self::Entry { devices_only, .. }, PathKind::File(size)) => {
                !devices_only && *size >= labels::DEVICE_SIZE_MIN
            }
            (_, PathKind::Missing(_) | PathKind::Folder | PathKind::Other) => false,
        }
    }

    /// The labels there. The first look may wait for a server, and shares its thread with those who looked before.
    async fn labels(&self, devices: &dyn DeviceSource) -> Option<(PathBuf, DeviceLabels)> {
        let seen = devices.look(self.path()).await;
        if !self.may_hold(&seen.kind) {
            return None;
        }
        labels_at(devices, self.path()).await
    }
}

/// What is to be looked at for one place: itself, or what a folder holds. Folders are not descended into.
async fn places(devices: &dyn DeviceSource, place: PathBuf, devices_only: bool) -> Vec<Place> {
    if devices.look(&place).await.kind != PathKind::Folder {
        return vec![Place::Named(place)];
    }
    let entries = devices.entries(&place, ENTRIES_MAX).await.into_iter();
    entries.map(|path| Place::Entry { path, devices_only }).collect()
}

/// Waits for an answer as long as is waited; else says at which path there was none.
async fn in_time<T>(path: PathBuf, answer: impl Future<Output = T>) -> Result<T, PathBuf> {
    tokio::time::timeout(ANSWER_MAX, answer).await.map_err(|_| path)
}

/// Looks for labels in `search` (folders, files and devices; the default folders when it is empty), but for devices
/// that are known to be `silent`.
pub async fn search(devices: &dyn DeviceSource, search: &[PathBuf], silent: &[PathBuf]) -> Searched {
    let devices_only = search.is_empty();
    let defaults: Vec<PathBuf> = DEFAULT_FOLDERS.iter().map(PathBuf::from).collect();
    let given = if devices_only { defaults } else { search.to_vec() };
    let given = given.into_iter().filter(|place| !silent.contains(place));
    let mut searched = Searched { found: Vec::new(), silent: silent.to_vec() };
    let mut all = Vec::new();
    let mut listed = stream::iter(given)
        .map(|place| in_time(place.clone(), places(devices, place, devices_only)))
        .buffer_unordered(LOOKS_AT_ONCE);
    while let Some(listed) = listed.next().await {
        match listed {
            Ok(places) => {
                all.extend(places.into_iter().filter(|place| !silent.iter().any(|path| path == place.path())))
            }
            Err(silent) => searched.silent.push(silent),
        }
    }
    drop(listed);
    let look = |place: Place| async move { in_time(place.path().to_owned(), place.labels(devices)).await };
    let mut looks = stream::iter(all).map(look).buffer_unordered(LOOKS_AT_ONCE);
    while let Some(look) = looks.next().await {
        match look {
            Ok(found) => searched.found.extend(found),
            Err(silent) => searched.silent.push(silent),
        }
    }
    drop(looks);
    // Which answered first is chance.
    searched.found.sort_by(|(one, _), (other, _)| one.cmp(other));
    searched.silent.sort();
    searched.silent.dedup();
    assert!(silent.iter().all(|path| searched.silent.contains(path)), "what is passed over is named");
    searched
}

/// What is said of a device that was passed over.
pub fn silence() -> String {
    format!("it did not answer within {} seconds", ANSWER_MAX.as_secs())
}

/// The labels of a device, or of the pool's partition on it, with the path of the one that has them.
pub async fn labels_at(devices: &dyn DeviceSource, path: &Path) -> Option<(PathBuf, DeviceLabels)> {
    let device = devices.open_path(path, OpenOptions::read_only()).await.ok()?;
    if let Ok(found) = labels::read(&*device).await {
        return Some((path.to_owned(), found));
    }
    if devices.look(path).await.kind != PathKind::BlockDevice {
        return None;
    }
    // The kernel may have no node for the partition.
    let partition = devices.open_vdev(path, true, OpenOptions::read_only()).await.ok()?;
    let found = labels::read(&*partition).await.ok()?;
    Some((partition.path()?.to_owned(), found))
}

/// The name of the pool that a device is labelled for; none when it does not answer for long.
pub async fn name_at(devices: &dyn DeviceSource, path: &Path) -> Option<String> {
    let found = tokio::time::timeout(NAME_MAX, labels_at(devices, path)).await.ok()??;
    let (at, labels) = found;
    // A whole disk's label is told where it is.
    (at == path).then(|| labels.config().name.clone()).filter(|name| !name.is_empty())
}

/// As [`labels_at`], of an open device: its own, or those in the partition that is a pool's.
pub async fn labels_of(device: &Arc<dyn BlockDevice>) -> Option<DeviceLabels> {
    if let Ok(found) = labels::read(&**device).await {
        return Some(found);
    }
    let partition = gpt::zfs_partition(&**device).await.ok()??;
    let window = WindowDevice::new(device.clone(), partition.start, partition.size, partition.number.to_string());
    labels::read(&window.ok()?).await.ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use platter_device::{DeviceError, MemDevice, Seen};
    use tokio::time::Instant;

    use super::*;

    /// A folder of empty devices, of which those called `mute` never answer and those called `late` answer when it is
    /// too late.
    #[derive(Debug)]
    struct Folder(Vec<PathBuf>);

    impl Folder {
        async fn wait(&self, path: &Path) {
            match path.to_str().unwrap_or_default() {
                path if path.contains("mute") => std::future::pending().await,
                path if path.contains("late") => tokio::time::sleep(ANSWER_MAX + Duration::from_secs(1)).await,
                _ => {}
            }
        }
    }

    #[async_trait]
    impl DeviceSource for Folder {
        fn kind(&self, path: &Path) -> PathKind {
            if path == Path::new("/d") { PathKind::Folder } else { PathKind::BlockDevice }
        }

        fn list(&self, _folder: &Path, _limit: usize) -> Vec<PathBuf> {
            self.0.clone()
        }

        fn canonical(&self, path: &Path) -> Option<PathBuf> {
            Some(path.to_owned())
        }

        async fn look(&self, path: &Path) -> Seen {
            self.wait(path).await;
            Seen { kind: self.kind(path), real: self.canonical(path), stamp: None }
        }

        fn is_whole_disk(&self, _path: &Path) -> bool {
            false
        }

        async fn file_systems_below(&self, _path: &Path) -> BTreeSet<String> {
            BTreeSet::new()
        }

        async fn open_path(&self, path: &Path, _options: OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
            Ok(Arc::new(MemDevice::new(path.display().to_string(), 64 << 20)))
        }

        async fn open_vdev(
            &self,
            path: &Path,
            _whole_disk: bool,
            options: OpenOptions,
        ) -> Result<Arc<dyn BlockDevice>, DeviceError> {
            self.open_path(path, options).await
        }
    }

    /// An import waited for each device in turn, for as long as the device liked: one slow disk of 44 was enough to
    /// keep a pool that could do without it away.
    #[tokio::test(start_paused = true)]
    async fn what_does_not_answer_is_passed_over_and_named() {
        let names = ["/d/a", "/d/late", "/d/mute", "/d/mute2", "/d/z"].map(PathBuf::from);
        let folder = Folder(names.to_vec());
        let start = Instant::now();
        let searched = search(&folder, &["/d".into(), "/e/mute".into()], &[]).await;
        let silent: Vec<PathBuf> = ["/d/late", "/d/mute", "/d/mute2", "/e/mute"].map(PathBuf::from).into();
        assert_eq!(searched.silent, silent);
        assert!(start.elapsed() <= ANSWER_MAX * 2, "{:?}: first the places, then the devices", start.elapsed());
        // What did not answer a moment ago is not asked again.
        let start = Instant::now();
        let searched = search(&folder, &["/d".into(), "/e/mute".into()], &silent).await;
        assert_eq!((searched.silent, start.elapsed()), (silent, Duration::ZERO));
    }
}
