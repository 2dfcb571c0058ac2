//! The label of a hot spare that stands in for nothing: it says that the device is a spare and which, and not of what
//! pool, as several may share it (`vdev_label_init` in `module/zfs/vdev_label.c`, `VDEV_LABEL_SPARE`).
//!
//! A spare in use has a label like any other device of its pool.

use std::path::Path;
use std::sync::Arc;

use platter_device::{BlockDevice, DeviceError, DeviceSource, Holding, OpenOptions, signatures};
use platter_nvlist::NvList;
use platter_ondisk::Guid;
use platter_ondisk::names::config::SPARE_RELEASED;

use crate::config::PoolState;
use crate::{aux_label, labels};

/// `POOL_STATE_SPARE` (`include/sys/fs/zfs.h`).
const STATE: u64 = platter_ondisk::names::pool_state::SPARE;

/// What a device that is or was listed as a spare is at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The spare, used by nobody.
    Idle,
    /// As `Idle`, of a pool that was destroyed.
    Released,
    /// A device of this pool, which the spare was until lately: its label was not rewritten when it left.
    Left,
    /// A device of a pool that was destroyed.
    Freed,
    /// A device of another pool, of this name, for which the spare stands in.
    Taken(String),
    /// Something else, in words.
    Stranger(String),
}

/// What the label of a spare says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpareLabel {
    /// Which spare it is.
    pub guid: Guid,
    /// Whether the pool that listed it was destroyed: nobody counts on it any more, and an import of that pool still
    /// knows it.
    pub is_released: bool,
}

impl SpareLabel {
    fn of(guid: Guid, list: &NvList) -> Self {
        Self { guid, is_released: list.get_u64(SPARE_RELEASED) == Some(1) }
    }
}

/// The spare that the labels of a device say it is, if any.
pub async fn read(device: &dyn BlockDevice) -> Option<Guid> {
    read_all(device).await.map(|label| label.guid)
}

/// As [`read`], with all that the label says.
pub async fn read_all(device: &dyn BlockDevice) -> Option<SpareLabel> {
    let (guid, list) = aux_label::read_list(device, STATE).await?;
    Some(SpareLabel::of(guid, &list))
}

/// As [`read_all`], also in the partition of a disk that is a pool's; whether it is there.
pub async fn search(device: &Arc<dyn BlockDevice>) -> Option<(SpareLabel, bool)> {
    let (guid, list, in_partition) = aux_label::search(device, STATE).await?;
    Some((SpareLabel::of(guid, &list), in_partition))
}

/// What the device of the spare `guid` of `pool` is by its labels. Ordinary labels come first: a crash while the spare
/// was taken into use leaves both kinds.
pub async fn examine(device: &dyn BlockDevice, pool: Guid, guid: Guid) -> Found {
    match labels::read(device).await {
        Ok(found) if found.config().device_guid == Some(guid) => match found.config() {
            config if config.guid == pool => Found::Left,
            config if config.state == PoolState::Destroyed => Found::Freed,
            config => Found::Taken(config.name.clone()),
        },
        Ok(found) => Found::Stranger(format!("it is part of pool '{}'", found.config().name)),
        Err(reason) => match read_all(device).await {
            Some(found) if found.guid != guid => Found::Stranger(format!("it is another spare (guid {})", found.guid)),
            Some(found) if found.is_released => Found::Released,
            Some(_) => Found::Idle,
            None => Found::Stranger(reason),
        },
    }
}

/// Opens the device of the spare `guid` of `pool` at `path`, and says what it is.
///
/// # Errors
/// It cannot be opened.
pub async fn open(
    devices: &dyn DeviceSource,
    (path, whole_disk): (&Path, bool),
    options: OpenOptions,
    (pool, guid): (Guid, Guid),
) -> Result<(Arc<dyn BlockDevice>, Found), DeviceError> {
    let device = devices.open_vdev(path, whole_disk, options).await?;
    let found = match disk_is_another(devices, path).await {
        Some(why) => Found::Stranger(why),
        None => examine(&*device, pool, guid).await,
    };
    Ok((device, found))
}

/// What became of the disk that a partition was made on, when the partition is not what counts any more: who takes a
/// whole disk does not look for the labels that still lie inside, and the kernel may keep its partitions.
pub async fn disk_is_another(devices: &dyn DeviceSource, path: &Path) -> Option<String> {
    let Holding { disk: name, start } = devices.disk_of(path).await?;
    let shown = name.display();
    let disk = match devices.open_path(&name, OpenOptions::read_only()).await {
        Ok(disk) => disk,
        Err(error) => return Some(format!("the disk that it is on cannot be looked at: {error}")),
    };
    if let Ok(found) = labels::read(&*disk).await
        && found.config().state != PoolState::Destroyed
    {
        return Some(format!("{shown} as a whole is part of pool '{}'", found.config().name));
    }
    if let Some(guid) = read(&*disk).await {
        return Some(format!("{shown} as a whole is a hot spare (guid {guid})"));
    }
    let has_place = |start| async move { signatures::partitions(&disk).await.iter().any(|part| part.start == start) };
    match start {
        Some(start) if !has_place(start).await => {
            Some(format!("the partition table of {shown} does not tell of it any more"))
        }
        _ => None,
    }
}

/// Makes a device a spare that nobody uses. All else in its labels is lost.
///
/// # Errors
/// What the device says.
pub async fn write(device: &dyn BlockDevice, version: u64, guid: Guid) -> Result<(), DeviceError> {
    aux_label::write(device, &aux_label::list(version, STATE, guid)).await
}

/// As [`write`], of a spare whose pool is destroyed.
///
/// # Errors
/// What the device says.
pub async fn release(device: &dyn BlockDevice, version: u64, guid: Guid) -> Result<(), DeviceError> {
    let mut list = aux_label::list(version, STATE, guid);
    list.add_u64(SPARE_RELEASED, 1);
    aux_label::write(device, &list).await
}

#[cfg(test)]
mod tests {
    use platter_buffer::Buf;
    use platter_device::MemDevice;
    use platter_ondisk::label::{VDEV_LABEL_SIZE, VDEV_LABELS, label_offset};

    use super::*;

    #[tokio::test]
    async fn a_spare_is_known_by_any_of_its_labels() {
        let device = MemDevice::new("d".to_owned(), 64 << 20);
        assert_eq!(read(&device).await, None);
        write(&device, 5000, Guid(7)).await.expect("written");
        for index in 0..VDEV_LABELS - 1 {
            let offset = label_offset(64 << 20, index);
            device.write(offset, vec![Buf::zeroed(VDEV_LABEL_SIZE as usize)]).await.expect("wiped");
            assert_eq!(read(&device).await, Some(Guid(7)));
        }
        assert_eq!(examine(&device, Guid(1), Guid(7)).await, Found::Idle);
        assert!(matches!(examine(&device, Guid(1), Guid(8)).await, Found::Stranger(_)));
        release(&device, 5000, Guid(7)).await.expect("written");
        assert_eq!(read_all(&device).await, Some(SpareLabel { guid: Guid(7), is_released: true }));
        assert_eq!(examine(&device, Guid(1), Guid(7)).await, Found::Released);
        assert!(matches!(examine(&device, Guid(1), Guid(8)).await, Found::Stranger(_)));
        labels::clear(&device).await.expect("cleared");
        assert!(matches!(examine(&device, Guid(1), Guid(7)).await, Found::Stranger(_)));
    }
}
