//! What lies behind a loop device: a file that may itself be a device of a pool. Whoever opens both for writing would
//! write one pool's blocks over another's, and neither lock knows of the other.
//!
//! Invariant: the file that is found is the one behind the device, not one that got its path since
//! (`struct loop_info64` in `include/uapi/linux/loop.h` has its number).

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, major, minor};
use rustix::ioctl::{Getter, ioctl};

/// `LOOP_GET_STATUS64`.
const LOOP_GET_STATUS64: u32 = 0x4C05;
/// Major number of loop devices.
const LOOP_MAJOR: u32 = 7;

/// `struct loop_info64`: device and inode of the file come first.
type LoopInfo = [u64; 29];

/// The file behind a loop device or one of its partitions, open for reading, and its path.
#[derive(Debug)]
pub struct Backing {
    /// The file, or the block device.
    pub file: File,
    /// Where it was when the loop device was made.
    pub path: PathBuf,
    /// Whether the device is a partition: others may use other ones.
    pub is_shared: bool,
}

/// What the kernel says about a block device.
pub(crate) fn sysfs(device: u64) -> PathBuf {
    PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)))
}

/// The loop device itself: `/sys/dev/block/7:0`, also of its partitions.
fn whole(device: u64) -> Option<(PathBuf, bool)> {
    let own = fs::canonicalize(sysfs(device)).ok()?;
    if own.join("loop/backing_file").exists() {
        return Some((own, false));
    }
    let parent = own.parent()?.to_path_buf();
    (own.join("partition").exists() && parent.join("loop/backing_file").exists()).then_some((parent, true))
}

/// What lies behind the block device with this number; `None` when it is no loop device, or its file cannot be found
/// any more.
pub fn behind(device: u64) -> Option<Backing> {
    let (folder, is_shared) = whole(device)?;
    let mut text = fs::read(folder.join("loop/backing_file")).ok()?;
    text.pop_if(|last| *last == b'\n');
    let path = PathBuf::from(std::ffi::OsString::from_vec(text));
    let node = Path::new("/dev").join(folder.file_name()?);
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK).bits() as i32;
    let open = |path: &Path| fs::OpenOptions::new().read(true).custom_flags(flags).open(path).ok();
    let node = open(&node).filter(|node| {
        let found = node.metadata();
        found.is_ok_and(|found| found.file_type().is_block_device() && major(found.rdev()) == LOOP_MAJOR)
    })?;
    // SAFETY: it fills in a `struct loop_info64`, which is 232 bytes, and the descriptor is a loop device's.
    let info = unsafe { ioctl(node.as_fd(), Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) }.ok()?;
    let file = open(&path)?;
    let found = file.metadata().ok()?;
    ((found.dev(), found.ino()) == (info[0], info[1])).then_some(Backing { file, path, is_shared })
}
