//! The locks of a device that is opened for writing: its own, and those of what lies behind it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::backing::{self, Unreachable};
use crate::busy;
use crate::error::{DeviceError, Result};

/// Takes the lock. Device probes (udev), and whoever only looks ([`busy::writer`]), hold a shared one for
/// moments, hence the patience.
///
/// # Errors
/// [`DeviceError::InUse`] with the holder's name.
pub fn lock(file: &File, path: &Path, is_block: bool, operation: FlockOperation) -> Result<()> {
    let attempts = if is_block { 10 } else { 3 };
    for attempt in 1..=attempts {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if attempt < attempts => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(Errno::WOULDBLOCK) => {
                let holder = file.metadata().ok().and_then(|data| busy::lock_holder(data.dev(), data.ino()));
                let reason = match holder {
                    Some(holder) => format!("in use by another process ({holder})"),
                    None => "in use by another process".into(),
                };
                return Err(DeviceError::InUse { path: path.into(), reason });
            }
            // A file system without locks: nothing to hold on to.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK) => return Ok(()),
            Err(error) => return Err(DeviceError::open(path, error)),
        }
    }
    Ok(())
}

/// Locks what lies behind the block device with this number, to whatever depth.
///
/// # Errors
/// As [`lock`]; [`DeviceError::NotLockable`].
pub fn lock_behind(device: u64, path: &Path) -> Result<Vec<File>> {
    let found = backing::behind(device)
        .map_err(|Unreachable(detail)| DeviceError::NotLockable { path: path.into(), detail })?;
    for layer in &found {
        let operation = match layer.is_shared {
            true => FlockOperation::NonBlockingLockShared,
            false => FlockOperation::NonBlockingLockExclusive,
        };
        lock(&layer.file, path, false, operation).map_err(|error| match error {
            DeviceError::InUse { path, reason } => {
                DeviceError::InUse { path, reason: format!("{} behind it is {reason}", layer.path.display()) }
            }
            error => error,
        })?;
    }
    Ok(found.into_iter().map(|layer| layer.file).collect())
}
