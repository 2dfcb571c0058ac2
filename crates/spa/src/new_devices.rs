//! Devices that are to become a pool's: opened, partitioned where they are whole disks, measured.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use platter_device::BlockDevice;
use platter_ondisk::Guid;
use platter_vdev::TopVdev;

use crate::config::VdevConfig;
use crate::environment::Environment;
use crate::labels::DEVICE_SIZE_MIN;
use crate::labels::LabelTarget;
use crate::open_vdevs;
use crate::open_vdevs::NewDevices;
use platter_dsl::error::{PoolError, Result};

/// Makes vdevs of the planned ones' devices, whole disks partitioned, and fills in their sizes. The result is indexed
/// by id.
///
/// # Errors
/// The first device that cannot be had.
pub async fn open(
    environment: &Environment,
    root: &mut VdevConfig,
    mut devices: NewDevices,
    ashift: u64,
) -> Result<Vec<Option<Arc<TopVdev>>>> {
    for top in &mut root.children {
        let mut disks = Vec::new();
        top.walk_mut(&mut |v| {
            if v.whole_disk == Some(1) {
                disks.push(v.guid);
            }
        });
        for guid in disks {
            label_disk(environment, top, guid, &mut devices).await?;
        }
        top.ashift = ashift;
    }
    let vdevs = open_vdevs::open_all(root, &devices, true).await.map_err(|e| PoolError::Busy(e.to_string()))?;
    for (config, vdev) in root.children.iter_mut().zip(vdevs.iter().flatten()) {
        for leaf in vdev.leaves() {
            if !leaf.is_usable() {
                let condition = leaf.condition();
                let reason = condition.detail.unwrap_or_else(|| "one or more devices is currently unavailable".into());
                return Err(PoolError::Busy(format!("{}: {reason}", leaf.name())));
            }
            if leaf.psize() < DEVICE_SIZE_MIN {
                return Err(PoolError::invalid(format!(
                    "one or more devices is less than the minimum size (64M): {} has {} bytes",
                    leaf.name(),
                    leaf.psize()
                )));
            }
        }
        config.ashift = u64::from(vdev.ashift());
        config.asize = vdev.asize();
        config.metaslab_shift = open_vdevs::metaslab_shift(vdev.asize());
    }
    Ok(vdevs)
}

/// Partitions a whole disk and points the configuration to the partition.
async fn label_disk(
    environment: &Environment,
    top: &mut VdevConfig,
    guid: Guid,
    devices: &mut NewDevices,
) -> Result<()> {
    let mut random = [0; 56];
    for chunk in random.chunks_exact_mut(8) {
        chunk.copy_from_slice(&environment.random_u64().to_le_bytes());
    }
    let mut path = None;
    top.walk_mut(&mut |v| {
        if v.guid == guid {
            path = v.path.clone();
        }
    });
    let path = path.unwrap_or_default();
    let ids = platter_device::gpt::GptIds::from_random(&random);
    let disk = devices.0.remove(&guid.0).ok_or_else(|| PoolError::Busy(format!("{path} was not opened")))?;
    let device = platter_device::label_whole_disk(disk, Path::new(&path), &ids)
        .await
        .map_err(|e| PoolError::Busy(e.to_string()))?;
    let partition = device.path().map(|p| p.display().to_string()).unwrap_or(path);
    devices.0.insert(guid.0, device);
    top.walk_mut(&mut |v| {
        if v.guid == guid {
            v.path = Some(partition.clone());
        }
    });
    Ok(())
}

/// New leaves, to be labelled.
pub fn label_targets(root: &VdevConfig, devices: &BTreeMap<u64, Arc<dyn BlockDevice>>) -> Vec<LabelTarget> {
    let leaves = root
        .children
        .iter()
        .enumerate()
        .flat_map(|(top, vdev)| vdev.leaves().into_iter().map(move |leaf| (top, vdev.ashift, leaf.guid)));
    leaves
        .filter_map(|(top, ashift, guid)| {
            let device = devices.get(&guid.0)?.clone();
            Some(LabelTarget { device, guid, top, ashift: ashift as u32 })
        })
        .collect()
}
