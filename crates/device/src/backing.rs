//! What lies behind a loop device, to any depth: files and devices that may themselves be a pool's. Whoever opens two
//! of one such pile for writing would write one pool's blocks over another's, and no lock of the upper one knows of the
//! lower one.
//!
//! What is told of a device:
//! - what is found is what the kernel has behind the device, not what got its path since (`struct loop_info64` in
//!   `include/uapi/linux/loop.h` has its number);
//! - that something lies behind a device and cannot be opened is an error, never "nothing": the file may be deleted, or
//!   be in another mount name space.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, major, makedev};
use rustix::io::Errno;
use rustix::ioctl::{Getter, ioctl};

use crate::sector::SECTOR;
use crate::sysfs::{device_number, sysfs};

/// `LOOP_GET_STATUS64`.
const LOOP_GET_STATUS64: u32 = 0x4C05;
/// Major number of loop devices.
const LOOP_MAJOR: u32 = 7;
/// Devices may lie on each other so deep.
const DEPTH_MAX: usize = 16;

/// `struct loop_info64`: device, inode, of a block device its own number, and the offset come first.
type LoopInfo = [u64; 29];
const _: () = assert!(size_of::<LoopInfo>() == 232, "the kernel fills in so much");

/// A file or block device behind another one, open for reading, and its path.
#[derive(Debug)]
pub struct Backing {
    /// The file, or the block device.
    pub file: File,
    /// Where the kernel says that it is, or where it was found.
    pub path: PathBuf,
    /// What of it the upper device uses.
    pub part: Part,
}

/// What of a file or device lies under the one above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// As far as the upper one is concerned, all of it.
    Whole,
    /// These bytes, first and length: there is a partition between. Others may use the rest.
    Bytes(u64, u64),
    /// Nobody can say: there is a mapped device between. Others may use the rest.
    Unknown,
}

impl Part {
    /// The same bytes, as seen from below a window that begins at `offset`.
    fn moved_by(self, offset: u64) -> Self {
        match self {
            Self::Bytes(first, length) => first.checked_add(offset).map_or(Self::Unknown, |at| Self::Bytes(at, length)),
            part => part,
        }
    }

    /// What this is of the disk that has the partition with `/sys` folder `partition`.
    fn in_disk(self, partition: &Path) -> Self {
        let bytes = |name: &str| {
            let sectors: u64 = fs::read_to_string(partition.join(name)).ok()?.trim().parse().ok()?;
            sectors.checked_mul(SECTOR)
        };
        match (self, bytes("start"), bytes("size")) {
            (Self::Whole, Some(start), Some(size)) => Self::Bytes(start, size),
            (part @ Self::Bytes(..), Some(start), _) => part.moved_by(start),
            _ => Self::Unknown,
        }
    }
}

/// There is something behind a device, and it cannot be had.
#[derive(Debug)]
pub struct Unreachable(pub String);

/// Everything that lies behind the block device with this number, nearest first; nothing when it is a device of its
/// own.
///
/// # Errors
/// What cannot be opened, and why.
pub fn behind(device: u64) -> Result<Vec<Backing>, Unreachable> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut pending = vec![(device, Part::Whole, 0)];
    while let Some((device, part, depth)) = pending.pop() {
        if !seen.insert((device, part)) {
            continue;
        }
        if depth > DEPTH_MAX {
            let text = format!("more than {DEPTH_MAX} devices lie on each other below it; use the lowest one");
            return Err(Unreachable(text));
        }
        let Ok(own) = fs::canonicalize(sysfs(device)) else {
            if major(device) == LOOP_MAJOR {
                return Err(Unreachable("what is behind a loop device is not known without /sys; mount it".into()));
            }
            continue;
        };
        // A loop device's partition has nothing of its own behind it.
        let (folder, part) = match own.parent() {
            Some(disk) if own.join("partition").exists() => (disk.to_path_buf(), part.in_disk(&own)),
            _ => (own, part),
        };
        for slave in fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
            let number = fs::read_to_string(slave.path().join("dev")).ok();
            let number = number.and_then(|text| device_number(&text));
            pending.extend(number.map(|number| (number, Part::Unknown, depth + 1)));
        }
        let Some(wanted) = Wanted::of_loop(&folder)? else { continue };
        let part = part.moved_by(wanted.offset);
        let (file, path) = wanted.find(part)?;
        pending.extend(wanted.block_device.map(|number| (number, part, depth + 1)));
        found.push(Backing { file, path, part });
    }
    Ok(found)
}

/// What a loop device has behind it, as the kernel tells.
struct Wanted {
    /// The loop device.
    above: PathBuf,
    path: PathBuf,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Its own number, when it is a block device.
    block_device: Option<u64>,
    /// Where in it the loop device begins.
    offset: u64,
}

impl Wanted {
    /// Of the loop device that `/sys` has in `folder`; `None` when it is none, or has nothing behind it.
    fn of_loop(folder: &Path) -> Result<Option<Self>, Unreachable> {
        let mut text = match fs::read(folder.join("loop/backing_file")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Unreachable(format!("{}/loop/backing_file: {error}", folder.display()))),
        };
        text.pop_if(|last| *last == b'\n');
        let path = PathBuf::from(std::ffi::OsString::from_vec(text));
        let name = folder.file_name().unwrap_or_default();
        let above = Path::new("/dev").join(name);
        let refused = |why: String| {
            let (above, path) = (above.display(), path.display());
            Unreachable(format!(
                "whether '{path}' behind {above} is in use cannot be known: {above} {why}; use '{path}' itself"
            ))
        };
        let node = open(&above, OFlags::empty()).map_err(|error| refused(format!("cannot be opened ({error})")))?;
        let is_it = node.metadata().is_ok_and(|data| {
            let named = fs::read_to_string(folder.join("dev")).ok().and_then(|text| device_number(&text));
            data.file_type().is_block_device() && major(data.rdev()) == LOOP_MAJOR && named == Some(data.rdev())
        });
        if !is_it {
            return Err(refused("is another device here".into()));
        }
        // SAFETY: it fills in a `struct loop_info64`, which is 232 bytes, and the descriptor is a loop device's.
        match unsafe { ioctl(node.as_fd(), Getter::<LOOP_GET_STATUS64, LoopInfo>::new()) } {
            Ok(info) => {
                // Of a file the third number is 0, or, in older kernels, the first once more.
                let block_device = (info[2] != 0 && info[2] != info[0]).then_some(info[2]);
                Ok(Some(Self { above, path, identity: (info[0], info[1]), block_device, offset: info[3] }))
            }
            // It was taken down just now.
            Err(Errno::NXIO) => Ok(None),
            Err(error) => Err(refused(format!("does not tell ({error})"))),
        }
    }

    /// Whether what is open is it, without asking a server.
    fn is(&self, file: impl AsFd) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(file, "", flags, StatxFlags::BASIC_STATS).is_ok_and(|found| self.is_described(&found))
    }

    fn is_described(&self, found: &rustix::fs::Statx) -> bool {
        let is_block = rustix::fs::FileType::from_raw_mode(found.stx_mode.into()).is_block_device();
        match self.block_device {
            Some(number) => is_block && makedev(found.stx_rdev_major, found.stx_rdev_minor) == number,
            None => !is_block && (makedev(found.stx_dev_major, found.stx_dev_minor), found.stx_ino) == self.identity,
        }
    }

    /// Opens it at `path`, when it is there. Nothing else is opened: to open some things is to use them.
    fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<Option<File>> {
        let look: OwnedFd = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        if !self.is(&look) {
            return Ok(None);
        }
        open(Path::new(&format!("/proc/self/fd/{}", look.as_raw_fd())), flags).map(Some)
    }

    /// Opens it where the kernel says that it is; else through a process that has it open, or sees it there.
    fn find(&self, part: Part) -> Result<(File, PathBuf), Unreachable> {
        // Of a block device the claim counts, as it holds for all of its nodes.
        let flags = if self.block_device.is_some() && part == Part::Whole { OFlags::EXCL } else { OFlags::empty() };
        let mut why = format!("'{}' is another file here", self.path.display());
        let mut places = vec![self.path.clone()];
        if let Some(number) = self.block_device {
            let name = fs::canonicalize(sysfs(number)).ok();
            places.extend(name.as_deref().and_then(Path::file_name).map(|name| Path::new("/dev").join(name)));
        }
        for place in &places {
            match self.open_at(place, flags) {
                Ok(Some(file)) => return Ok((file, place.clone())),
                Ok(None) => {}
                Err(error) if Errno::from_io_error(&error) == Some(Errno::BUSY) => {
                    let place = place.display();
                    return Err(Unreachable(format!("{place} behind it is in use: the kernel or a process holds it")));
                }
                Err(error) => why = format!("'{}': {error}", place.display()),
            }
        }
        let elsewhere = processes().find_map(|process| self.open_by(&process, flags));
        elsewhere.map(|file| (file, self.path.clone())).ok_or_else(|| {
            let (above, path) = (self.above.display(), self.path.display());
            Unreachable(format!(
                "whether '{path}' behind {above} is in use cannot be known, as it cannot be opened ({why})\nIt was \
                 deleted, or is in another mount name space: use it there, or by a path of its own."
            ))
        })
    }

    /// Through a process that has it open, or at its path as that process sees it.
    fn open_by(&self, process: &Path, flags: OFlags) -> Option<File> {
        let root = self.path.strip_prefix("/").ok().map(|path| process.join("root").join(path));
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
        let held = descriptors.filter(|path| {
            let found = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS);
            found.is_ok_and(|found| self.is_described(&found))
        });
        held.chain(root).find_map(|path| self.open_at(&path, flags).ok().flatten())
    }
}

/// `/proc/1` and so on.
fn processes() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit()).map(|entry| entry.path())
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = (OFlags::CLOEXEC | OFlags::NONBLOCK | flags).bits() as i32;
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}
