//! Disks as pools name them: whole disks that carry a partition table, partitions, and the names of both.
//!
//! A pool's partition on a whole disk is reached through a window into the disk that the table describes, never through
//! the partition's node: so it works whether or not the kernel has made that node.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::block_device::BlockDevice;
use crate::error::{DeviceError, Result};
use crate::file::{FileDevice, OpenOptions};
use crate::gpt::{self, GptIds};
use crate::sysfs::{disk_of_partition, is_partition_number};
use crate::window::WindowDevice;

/// Opens a file, a partition or a whole device as it is. That may wait for a server's answer, so a thread made for
/// waiting does it.
///
/// # Errors
/// As [`FileDevice::open`].
pub async fn open_path(path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    let owned = path.to_owned();
    let opened = tokio::task::spawn_blocking(move || FileDevice::open(&owned, options)).await;
    Ok(Arc::new(opened.unwrap_or_else(|error| Err(DeviceError::open(path, std::io::Error::other(error))))?))
}

/// Opens what a label or the `zpool` command calls a vdev. With `whole_disk`, `path` names partition 1 of a disk that
/// the pool owns (or the disk itself), and the disk's partition table says where it lies.
///
/// # Errors
/// As [`FileDevice::open`]; [`DeviceError::PartitionTable`] when the disk has no pool partition.
pub async fn open_vdev(path: &Path, whole_disk: bool, options: OpenOptions) -> Result<Arc<dyn BlockDevice>> {
    if !whole_disk {
        return open_path(path, options).await;
    }
    // To look at a path may wait, too.
    let owned = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || partitioned(&owned)).await;
    let Some(disk) = looked.ok().flatten() else { return open_path(path, options).await };
    let device = open_path(&disk, options).await?;
    match gpt::zfs_partition(device.as_ref()).await? {
        Some(part) => {
            let name = partition_path(&disk, part.number);
            Ok(Arc::new(WindowDevice::new(device, part.start, part.size, name)?))
        }
        None => Err(DeviceError::PartitionTable {
            device: disk.display().to_string(),
            detail: "it has no intact table with a ZFS partition".into(),
        }),
    }
}

/// The disk whose partition table says where the pool's partition lies; `None` when the path is to be taken as it is.
fn partitioned(path: &Path) -> Option<PathBuf> {
    let disk = disk_of(path).filter(|disk| is_block_device(disk)).unwrap_or_else(|| path.to_owned());
    (is_block_device(&disk) && (disk != path || !is_partition(path))).then_some(disk)
}

/// The disk that a partition is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The disk.
    pub disk: PathBuf,
    /// The byte of it at which the kernel has the partition begin; `None` when the kernel has none.
    pub start: Option<u64>,
}

/// The disk that a partition is on, as the kernel says, or by its name when the kernel has no such partition.
pub fn holding(partition: &Path) -> Option<Holding> {
    match fs::metadata(partition) {
        Ok(data) if data.file_type().is_block_device() => {
            let (disk, start) = disk_of_partition(data.rdev())?;
            Some(Holding { disk, start: Some(start) })
        }
        Ok(_) => None,
        Err(_) => {
            let disk = disk_of(partition).filter(|disk| is_block_device(disk))?;
            Some(Holding { disk, start: None })
        }
    }
}

/// Gives a whole disk the partition table of a pool member, tells the kernel, and returns partition 1. Its path (the
/// returned device's `path()`) is what belongs in the label. Everything on the disk is lost. `path` is the disk's; it
/// is not opened again.
///
/// # Errors
/// As [`gpt::write`].
pub async fn label_whole_disk(disk: Arc<dyn BlockDevice>, path: &Path, ids: &GptIds) -> Result<Arc<dyn BlockDevice>> {
    let layout = gpt::write(&*disk, ids).await?;
    disk.announce(&[&layout.data, &layout.reserved]);
    let name = partition_path(path, layout.data.number);
    Ok(Arc::new(WindowDevice::new(disk, layout.data.start, layout.data.size, name)?))
}

/// Whether the path leads to a block device.
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device())
}

fn is_partition(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.file_type().is_block_device() && is_partition_number(data.rdev()))
}

/// Whether `zpool create` takes this path as a whole disk that it partitions: a disk, not a partition, of a kind that
/// can have partitions. Loop, device-mapper and RAM devices are used as they are (`efi_get_info` in `lib/libefi`).
/// `more_kinds` are further beginnings of device names that count as disks.
pub fn is_whole_disk(path: &Path, more_kinds: &[String]) -> bool {
    let Ok(real) = fs::canonicalize(path) else { return false };
    let Some(name) = real.file_name().map(|name| name.to_string_lossy().into_owned()) else { return false };
    let kinds = ["sd", "hd", "md", "vd", "xvd", "zd", "nvme", "mmcblk"];
    is_block_device(&real)
        && !is_partition(&real)
        && (kinds.iter().any(|kind| name.starts_with(kind)) || more_kinds.iter().any(|kind| name.starts_with(kind)))
}

/// The name of partition `number` of a disk: `sda1`, `nvme0n1p1`, `…-part1` for the links under `/dev/disk`.
pub fn partition_path(disk: &Path, number: u32) -> PathBuf {
    let text = disk.as_os_str().to_string_lossy();
    if text.starts_with("/dev/disk/") {
        PathBuf::from(format!("{text}-part{number}"))
    } else if text.ends_with(|last: char| last.is_ascii_digit()) {
        PathBuf::from(format!("{text}p{number}"))
    } else {
        PathBuf::from(format!("{text}{number}"))
    }
}

/// The disk that a partition's name belongs to; `None` when the name is not a partition's.
pub fn disk_of(partition: &Path) -> Option<PathBuf> {
    let text = partition.as_os_str().to_str()?;
    let stem = text.trim_end_matches(|last: char| last.is_ascii_digit());
    if stem.len() == text.len() {
        return None;
    }
    let name = &stem[stem.rfind('/').map_or(0, |slash| slash + 1)..];
    if let Some(disk) = stem.strip_suffix("-part") {
        return Some(disk.into());
    }
    if let Some(disk) = stem.strip_suffix('p')
        && disk.ends_with(|last: char| last.is_ascii_digit())
    {
        return Some(disk.into());
    }
    let lettered = ["sd", "hd", "vd", "xvd"].iter().any(|kind| {
        name.strip_prefix(kind)
            .is_some_and(|unit| !unit.is_empty() && unit.bytes().all(|byte| byte.is_ascii_alphabetic()))
    });
    lettered.then(|| stem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_names_follow_the_disks_and_lead_back() {
        for (disk, partition) in [
            ("/dev/sda", "/dev/sda1"),
            ("/dev/nvme0n1", "/dev/nvme0n1p1"),
            ("/dev/loop3", "/dev/loop3p1"),
            ("/dev/disk/by-id/ata-X_1", "/dev/disk/by-id/ata-X_1-part1"),
            ("/dev/xvdb", "/dev/xvdb1"),
        ] {
            assert_eq!(partition_path(Path::new(disk), 1), Path::new(partition));
            assert_eq!(disk_of(Path::new(partition)).as_deref(), Some(Path::new(disk)));
        }
        for other in ["/dev/sda", "/data/file7", "/data/d", "/dev/mapper/vg-lv"] {
            assert_eq!(disk_of(Path::new(other)), None);
        }
    }

    #[tokio::test]
    async fn a_file_given_as_whole_disk_gets_a_table_and_a_window() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("disk");
        fs::File::create(&path).expect("create").set_len(200 << 20).expect("size");
        let ids = GptIds::from_random(&[3; 56]);
        let disk = open_path(&path, OpenOptions::exclusive()).await.expect("open");
        let window = label_whole_disk(disk, &path, &ids).await.expect("label");
        assert_eq!(window.path(), Some(dir.path().join("disk1").as_path()));
        window.write(0, vec![platter_buffer::Buf::copy_from(&[9; 4096])]).await.expect("write");
        drop(window);
        assert_eq!(fs::read(&path).expect("file")[1 << 20], 9);
    }
}
