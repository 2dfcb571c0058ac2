//! Whether a device may be taken for a new pool: nothing may be lost by surprise (`check_in_use`,
//! `cmd/zpool/zpool_vdev.c`).

use std::path::Path;

use platter_device::{DeviceSource, OpenOptions, PathKind};

use crate::config::PoolState;
use crate::environment::Environment;
use crate::error::{PoolError, Result};
use crate::{discover, labels};

/// Checks the device at `path`. With `force`, members of exported and of potentially active pools are taken too; what
/// is open somewhere is never.
///
/// # Errors
/// The device with its reason.
pub async fn check(environment: &Environment, path: &Path, force: bool) -> Result<()> {
    let (shown, devices) = (path.display(), &*environment.devices);
    match devices.kind(path) {
        PathKind::Missing(_) => return Err(PoolError::NotFound(format!("cannot resolve path '{shown}'"))),
        PathKind::Folder => {
            return Err(PoolError::invalid(format!("cannot use '{shown}': must be a block device or regular file")));
        }
        PathKind::File(_) | PathKind::BlockDevice | PathKind::Other => {}
    }
    // Opening it exclusively tells whether it is mounted, in another pool or otherwise in use.
    let device = match devices.open_path(path, OpenOptions::exclusive()).await {
        Ok(device) => device,
        Err(error) => return Err(in_use(devices, path, &error.to_string()).await),
    };
    let is_small = device.size() < crate::create::DEVICE_SIZE_MIN;
    let (size, _) = (device.size(), drop(device));
    if is_small {
        return Err(PoolError::invalid(format!(
            "one or more devices is less than the minimum size (64M): {shown} has {size} bytes"
        )));
    }
    let Some((_, found)) = discover::labels_at(devices, path).await else { return Ok(()) };
    let (state, name) = (found.config().state, &found.config().name);
    let what = match state {
        PoolState::Active => "is part of potentially active pool",
        PoolState::Exported => "is part of exported pool",
        PoolState::Destroyed | PoolState::Other(_) => return Ok(()),
    };
    if force {
        return Ok(());
    }
    Err(PoolError::NeedsForce {
        reason: format!("{shown} {what} '{name}'"),
        hint: "use '-f' to override the following errors:".into(),
    })
}

/// Who has a device that cannot be opened: the pool in its label, when there is one.
async fn in_use(devices: &dyn DeviceSource, path: &Path, reason: &str) -> PoolError {
    if let Some((_, found)) = discover::labels_at(devices, path).await
        && found.config().state == PoolState::Active
    {
        let name = &found.config().name;
        return PoolError::Busy(format!("{} is part of active pool '{name}'\n{reason}", path.display()));
    }
    PoolError::Busy(reason.to_owned())
}

/// `zpool labelclear`: zeroes the labels of a device that is in no imported pool. Those of an exported or potentially
/// active pool need `force`.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn clear_label(devices: &dyn DeviceSource, path: &Path, force: bool) -> Result<()> {
    let shown = path.display();
    if let PathKind::Missing(error) = devices.kind(path) {
        return Err(PoolError::NotFound(format!("failed to open {shown}: {error}")));
    }
    let Some((at, found)) = discover::labels_at(devices, path).await else {
        return Err(PoolError::NotFound(format!("failed to read label from {shown}")));
    };
    let (state, name) = (found.config().state, &found.config().name);
    // Whoever has it open keeps it.
    let device = match devices.open_vdev(&at, at != path, OpenOptions::exclusive()).await {
        Ok(device) => device,
        Err(error) => {
            return Err(PoolError::Busy(format!("{shown} is a member (ACTIVE) of pool \"{name}\"\n{error}")));
        }
    };
    let member = match state {
        PoolState::Active => "potentially active pool",
        PoolState::Exported => "exported pool",
        PoolState::Destroyed | PoolState::Other(_) => "",
    };
    if !force && !member.is_empty() {
        return Err(PoolError::NeedsForce {
            reason: format!("{shown} is a member of {member} \"{name}\""),
            hint: "use '-f' to override the following error:".into(),
        });
    }
    labels::clear(&*device)
        .await
        .map_err(|error| PoolError::Unavailable(format!("failed to clear label for {shown}: {error}")))
}
