//! What vdevs are called: by those who show them, and by those who mean one.

use std::path::{Path, PathBuf};

use futures::future::join_all;
use platter_device::DeviceSource;
use platter_ondisk::Guid;

use crate::config::VdevConfig;
use crate::path_look;

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

/// Which of these leaves a command means that says `name`: a guid, a path, or a short name. Only when none has it are
/// the devices behind the paths compared: each that does not answer is waited for, for a while.
pub async fn called(leaves: &[&VdevConfig], devices: &dyn DeviceSource, name: &str) -> Vec<Guid> {
    let path = |leaf: &VdevConfig| leaf.path.clone().unwrap_or_default();
    let is_said = |leaf: &VdevConfig| {
        let path = path(leaf);
        leaf.guid.to_string() == name
            || (!path.is_empty() && (path == name || leaf_name(leaf, &path) == name))
            || path.rsplit('/').next() == Some(name)
    };
    let said: Vec<Guid> = leaves.iter().filter(|leaf| is_said(leaf)).map(|leaf| leaf.guid).collect();
    if !said.is_empty() || !name.starts_with('/') {
        return said;
    }
    let Some(given) = path_look::look(devices, Path::new(name)).await.real else { return Vec::new() };
    let looks = leaves.iter().map(|leaf| async {
        let own = path_look::look(devices, Path::new(&path(leaf))).await.real;
        (own.as_ref() == Some(&given)).then_some(leaf.guid)
    });
    join_all(looks).await.into_iter().flatten().collect()
}
