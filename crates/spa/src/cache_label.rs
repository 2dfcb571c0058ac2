//! The label of a cache device. Which pool's blocks it has is in its own header, behind the labels.

use platter_device::{BlockDevice, DeviceError};
use platter_ondisk::Guid;
use platter_ondisk::names::config::{ASHIFT, PATH};
use platter_ondisk::names::pool_state;

use crate::aux_label;
use crate::config::VdevConfig;

/// The cache device that the labels of a device say it is, if any.
pub async fn read(device: &dyn BlockDevice) -> Option<Guid> {
    aux_label::read(device, pool_state::L2CACHE).await
}

/// Makes a device the cache device that `config` describes. All else in its labels is lost.
///
/// # Errors
/// What the device says.
pub async fn write(device: &dyn BlockDevice, version: u64, config: &VdevConfig) -> Result<(), DeviceError> {
    let mut list = aux_label::list(version, pool_state::L2CACHE, config.guid);
    list.add_u64(ASHIFT, config.ashift);
    if let Some(path) = &config.path {
        list.add_str(PATH, &**path);
    }
    aux_label::write(device, &list).await
}
