//! The locks of a device that is opened for writing: its own, and those of what lies behind it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, major, minor};
use rustix::io::Errno;

use crate::backing::{self, Part, Unreachable};
use crate::error::{DeviceError, Result};
use crate::holder::{self, Holder};

/// Takes the lock. Device probes (udev), and whoever only looks (`busy::writer`), hold a shared one for
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
                let holder = file.metadata().ok().and_then(|data| lock_holder(data.dev(), data.ino()));
                let reason = match holder {
                    Some(Holder::ThisProcess) => {
                        let own = std::process::id();
                        let name = holder::name_of(own as i32);
                        format!("in use already, by this very process ({name}, pid {own})")
                    }
                    other => format!("in use by {}", other.unwrap_or(Holder::SOMEBODY)),
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
    let mut held = Vec::new();
    for layer in found {
        let operation = match layer.part {
            Part::Whole => FlockOperation::NonBlockingLockExclusive,
            Part::Bytes(..) | Part::Unknown => FlockOperation::NonBlockingLockShared,
        };
        let in_use = |reason: &str| DeviceError::InUse {
            path: path.into(),
            reason: format!("{} behind it is {reason}", layer.path.display()),
        };
        lock(&layer.file, path, false, operation).map_err(|error| match error {
            DeviceError::InUse { reason, .. } => in_use(&reason),
            error => error,
        })?;
        if let Part::Bytes(first, length) = layer.part {
            match lock_bytes(&layer.file, first, length) {
                Ok(Some(file)) => held.push(file),
                Ok(None) => {}
                Err(Errno::AGAIN | Errno::ACCESS) => {
                    return Err(in_use("in use by another process, by way of another device, where it lies"));
                }
                Err(error) => return Err(DeviceError::open(&layer.path, error)),
            }
        }
        held.push(layer.file);
    }
    Ok(held)
}

/// The process that holds a `flock` on an inode, from `/proc/locks`.
pub fn lock_holder(device: u64, inode: u64) -> Option<Holder> {
    let wanted = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let pid = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&wanted.as_str())).then(|| fields[4].to_owned())
    })?;
    // Of another name space it has no number here.
    Some(pid.parse().ok().filter(|pid| *pid > 0).map_or(Holder::SOMEBODY, Holder::of))
}

/// The fields of `struct flock` that are not 0 for bytes counted from a file's begin.
fn bytes_lock(first: u64, length: u64) -> libc::flock {
    // SAFETY: a structure of integers, for which zeroes are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = first.try_into().unwrap_or(libc::off_t::MAX);
    lock.l_len = length.try_into().unwrap_or(0);
    lock
}

/// Locks these bytes of a regular file, as long as what is returned is open; nothing for what cannot be written at all
/// and for devices, whose partitions the kernel keeps apart.
fn lock_bytes(file: &File, first: u64, length: u64) -> std::result::Result<Option<File>, Errno> {
    if !file.metadata().is_ok_and(|data| data.is_file()) {
        return Ok(None);
    }
    // A lock for writing needs a descriptor for writing.
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    let writable = match File::options().read(true).write(true).open(own) {
        Ok(file) => file,
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::ROFS) => return Ok(None),
            error => return Err(error.unwrap_or(Errno::IO)),
        },
    };
    let lock = bytes_lock(first, length);
    // SAFETY: the descriptor is open and the structure lives during the call.
    match unsafe { libc::fcntl(writable.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } {
        0 => Ok(Some(writable)),
        _ => match Errno::from_io_error(&io::Error::last_os_error()) {
            // A file system without locks: nothing to hold on to.
            Some(Errno::NOTSUP | Errno::NOSYS | Errno::NOLCK | Errno::INVAL) => Ok(Some(writable)),
            error => Err(error.unwrap_or(Errno::IO)),
        },
    }
}

/// Whether somebody has locked any of these bytes for writing.
pub fn are_bytes_locked(file: &File, first: u64, length: u64) -> bool {
    let mut lock = bytes_lock(first, length);
    // SAFETY: the descriptor is open and the structure lives during the call.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    asked == 0 && lock.l_type != libc::F_UNLCK as libc::c_short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_locked_against_those_who_overlap() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::open(file.path()).expect("readable");
        let held = lock_bytes(&open(), 4096, 8192).expect("free").expect("a regular file");
        assert_eq!(lock_bytes(&open(), 8192, 8192).err(), Some(Errno::AGAIN));
        assert!(are_bytes_locked(&open(), 0, 4097) && !are_bytes_locked(&open(), 0, 4096));
        let beside = lock_bytes(&open(), 12288, 4096).expect("free");
        drop((held, beside));
        assert!(lock_bytes(&open(), 0, 1 << 20).is_ok_and(|lock| lock.is_some()));
    }
}
