//! What vdevs are called: by those who show them, and by those who mean one.

use std::path::{Path, PathBuf};

use platter_device::DeviceSource;

use crate::config::VdevConfig;

/// A vdev's name as the commands show it. A leaf that is gone is called by its guid.
pub fn vdev_name(vdev: &VdevConfig, pool: &str, path: Option<&PathBuf>) -> String {
    match &*vdev.kind {
        "root" => pool.to_owned(),
        "raidz" => format!("raidz{}-{}", vdev.nparity.unwrap_or(1), vdev.id),
        "file" | "disk" => match path {
            None => vdev.guid.to_string(),
            Some(path) => leaf_name(vdev, &path.display().to_string()),
        },
        kind => format!("{kind}-{}", vdev.id),
    }
}

/// Disks are shown without their folder (and partition, when the pool has the whole disk); files by their whole path.
pub fn leaf_name(vdev: &VdevConfig, path: &str) -> String {
    if vdev.kind == "file" {
        return path.to_owned();
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if vdev.whole_disk == Some(1) {
        let base = name.strip_suffix("-part1").or_else(|| name.strip_suffix('1'));
        return base.map(|b| b.trim_end_matches('p')).unwrap_or(name).to_owned();
    }
    name.to_owned()
}

/// Whether a command that says `name` means this leaf: its guid, its path, or a short name.
pub fn is_called(leaf: &VdevConfig, devices: &dyn DeviceSource, name: &str) -> bool {
    let path = leaf.path.as_deref().unwrap_or("");
    // Last of all: a device that hangs makes this wait.
    let same = || match (devices.canonical(Path::new(name)), devices.canonical(Path::new(path))) {
        (Some(given), Some(own)) => given == own,
        _ => false,
    };
    leaf.guid.to_string() == name
        || (!path.is_empty() && (path == name || leaf_name(leaf, path) == name))
        || path.rsplit('/').next() == Some(name)
        || (name.starts_with('/') && same())
}
