//! What the kernel says about block devices in `/sys`, by their numbers.

use std::path::{Path, PathBuf};

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

/// Whether the device number is a partition of something.
pub(crate) fn is_partition_number(device: u64) -> bool {
    sysfs(device).join("partition").exists()
}
