//! The label of a device that is beside the tree of vdevs: it says what it is and which, and not of what pool
//! (`vdev_aux_label_generate`, `module/zfs/vdev_label.c`).

use std::sync::Arc;

use platter_buffer::BufMut;
use platter_checksum::sha256;
use platter_device::{BlockDevice, DeviceError, WindowDevice, gpt};
use platter_nvlist::NvList;
use platter_ondisk::Guid;
use platter_ondisk::label::{
    VDEV_LABEL_SIZE, VDEV_LABELS, VDEV_PHYS_OFFSET, VDEV_PHYS_SIZE, build_phys, label_offset, read_phys, usable_size,
};
use platter_ondisk::names::config;

/// What every such label says: `state` is what the device is.
pub fn list(version: u64, state: u64, guid: Guid) -> NvList {
    let mut list = NvList::new();
    list.add_u64(config::VERSION, version).add_u64(config::POOL_STATE, state).add_u64(config::GUID, guid.0);
    list
}

/// Which device it is, if any of its labels says that it is what `state` means.
pub async fn read(device: &dyn BlockDevice, state: u64) -> Option<Guid> {
    read_list(device, state).await.map(|(guid, _)| guid)
}

/// As [`read`], with all that the label says.
pub async fn read_list(device: &dyn BlockDevice, state: u64) -> Option<(Guid, NvList)> {
    let size = usable_size(device.size());
    if size < VDEV_LABELS as u64 * VDEV_LABEL_SIZE {
        return None;
    }
    for index in 0..VDEV_LABELS {
        let offset = label_offset(size, index) + VDEV_PHYS_OFFSET;
        let Ok(bytes) = device.read(offset, VDEV_PHYS_SIZE as usize).await else { continue };
        let Ok(list) = read_phys(&bytes, offset, sha256) else { continue };
        let guid = list.get_u64(config::GUID).filter(|&guid| guid != 0);
        if let Some(guid) = guid.filter(|_| list.get_u64(config::POOL_STATE) == Some(state)) {
            return Some((Guid(guid), list));
        }
    }
    None
}

/// As [`read_list`], also in the partition of a disk that is a pool's; whether it is there.
pub async fn search(device: &Arc<dyn BlockDevice>, state: u64) -> Option<(Guid, NvList, bool)> {
    if let Some((guid, list)) = read_list(&**device, state).await {
        return Some((guid, list, false));
    }
    let partition = gpt::zfs_partition(&**device).await.ok()??;
    let window = WindowDevice::new(device.clone(), partition.start, partition.size, partition.number.to_string());
    let (guid, list) = read_list(&window.ok()?, state).await?;
    Some((guid, list, true))
}

/// Gives a device these labels. All else that was in them is lost.
///
/// # Errors
/// What the device says.
pub async fn write(device: &dyn BlockDevice, list: &NvList) -> Result<(), DeviceError> {
    let size = usable_size(device.size());
    for index in 0..VDEV_LABELS {
        let offset = label_offset(size, index);
        let phys = build_phys(list, offset + VDEV_PHYS_OFFSET, sha256).expect("a few numbers and a path fit");
        let mut label = BufMut::zeroed(VDEV_LABEL_SIZE as usize);
        label[VDEV_PHYS_OFFSET as usize..(VDEV_PHYS_OFFSET + VDEV_PHYS_SIZE) as usize].copy_from_slice(&phys);
        device.write(offset, vec![label.freeze()]).await?;
    }
    device.flush().await
}
