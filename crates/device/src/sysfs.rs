//! What the kernel says about block devices in `/sys`, by their numbers.

use std::path::{Path, PathBuf};

use crate::sector::SECTOR;

use rustix::fs::{major, makedev, minor};

/// What the kernel says about a block device.
pub(crate) fn sysfs(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// The number in a line like `8:1`.
pub(crate) fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether the kernel still knows the block device (always true where there is no `/sys`).
pub(crate) fn block_device_exists(device: u64) -> bool {
    sysfs(device).exists() || !Path::new("/sys/dev/block").exists()
}

/// Whether the kernel refuses every write to the block device (`blockdev --setro`, a loop device of a read-only file).
pub(crate) fn is_read_only(device: u64) -> bool {
    std::fs::read_to_string(sysfs(device).join("ro")).is_ok_and(|text| text.trim() == "1")
}

/// Whether the device number is a partition of something.
pub(crate) fn is_partition_number(device: u64) -> bool {
    sysfs(device).join("partition").exists()
}

/// The disk that the partition of this number is on, as `/dev` calls it, and the byte at which the partition begins.
pub(crate) fn disk_of_partition(device: u64) -> Option<(PathBuf, u64)> {
    let own = std::fs::canonicalize(sysfs(device)).ok().filter(|own| own.join("partition").exists())?;
    let start: u64 = std::fs::read_to_string(own.join("start")).ok()?.trim().parse().ok()?;
    let about = std::fs::read_to_string(own.parent()?.join("uevent")).ok()?;
    let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some((Path::new("/dev").join(name), start * SECTOR))
}
