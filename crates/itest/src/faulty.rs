//! Disks that fail on command: a folder in which the device files of a [`Lab`](crate::Lab) appear once more, served by
//! this process, so that reads, writes and flushes of each can be made to fail, to hang, or to be lost.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::Lab;

/// Attributes change behind the kernel's back.
const TTL: Duration = Duration::ZERO;
/// Two labels and the room for a boot loader (`VDEV_LABEL_START_SIZE`, vdev_impl.h).
const LABELS_IN_FRONT: u64 = 4 << 20;
/// Two labels (`VDEV_LABEL_END_SIZE`).
const LABELS_BEHIND: u64 = 512 << 10;

/// What goes wrong with a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads fail with EIO.
    pub read: bool,
    /// Writes fail with EIO.
    pub write: bool,
    /// Flushes fail with EIO.
    pub flush: bool,
    /// Nothing is answered until this is over, not even what its size is.
    pub hang: bool,
    /// Everything of at least [`late_size`](Self::late_size) is answered so much later.
    pub late: Duration,
    /// Bytes from which on a transfer is late: with 0 all are, and what has no size, too.
    pub late_size: usize,
    /// Reads and writes that begin before this offset work all the same: the labels in front, say.
    pub from: u64,
}

impl Faults {
    /// It works.
    pub const NONE: Self =
        Self { read: false, write: false, flush: false, hang: false, late: Duration::ZERO, late_size: 0, from: 0 };
    /// All transfers fail.
    pub const DEAD: Self = Self { read: true, write: true, flush: true, ..Self::NONE };
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    /// What writes replaced since the last flush, oldest first.
    unflushed: Vec<(u64, Vec<u8>)>,
}

#[derive(Debug)]
struct Disk {
    name: String,
    file: File,
    state: Mutex<State>,
    changed: Condvar,
    /// Reads of data that were asked for.
    reads: AtomicU64,
}

impl Disk {
    /// Waits while it hangs, and as long as it is late with a transfer of this size; what is wrong with it then.
    fn wait(&self, size: usize) -> Faults {
        let mut state = self.state.lock().expect("a disk's state");
        while state.faults.hang {
            state = self.changed.wait(state).expect("a disk's state");
        }
        let faults = state.faults;
        drop(state);
        if size >= faults.late_size {
            std::thread::sleep(faults.late);
        }
        faults
    }

    fn is_slow(&self) -> bool {
        let faults = self.state.lock().expect("a disk's state").faults;
        faults.hang || !faults.late.is_zero()
    }

    fn read(&self, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let end = self.file.metadata().map_err(|_| Errno::EIO)?.len().saturating_sub(LABELS_BEHIND);
        if (LABELS_IN_FRONT..end).contains(&offset) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        let faults = self.wait(size as usize);
        if faults.read && offset >= faults.from {
            return Err(Errno::EIO);
        }
        let mut bytes = vec![0; size as usize];
        let read = self.file.read_at(&mut bytes, offset).map_err(|_| Errno::EIO)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<u32, Errno> {
        let faults = self.wait(data.len());
        if faults.write && offset >= faults.from {
            return Err(Errno::EIO);
        }
        let mut state = self.state.lock().expect("a disk's state");
        let mut old = vec![0; data.len()];
        self.file.read_exact_at(&mut old, offset).map_err(|_| Errno::EIO)?;
        self.file.write_all_at(data, offset).map_err(|_| Errno::EIO)?;
        state.unflushed.push((offset, old));
        Ok(data.len() as u32)
    }

    fn flush(&self) -> Result<(), Errno> {
        if self.wait(0).flush {
            return Err(Errno::EIO);
        }
        self.state.lock().expect("a disk's state").unflushed.clear();
        Ok(())
    }
}

/// The folder with the disks. They work until told otherwise; dropping it unmounts the folder.
pub struct FaultyDisks {
    at: PathBuf,
    disks: Arc<Vec<Disk>>,
    session: Option<BackgroundSession>,
}

impl FaultyDisks {
    /// Shows the first `count` device files of `lab` in a folder of their own.
    ///
    /// # Panics
    /// When it cannot be mounted.
    pub fn over(lab: &Lab, count: usize) -> FaultyDisks {
        let at = lab.root().join("faulty");
        fs::create_dir(&at).expect("a folder");
        let disks: Vec<Disk> = (0..count)
            .map(|index| {
                let path = lab.disk(index);
                let file = OpenOptions::new().read(true).write(true).open(&path).expect("a device file");
                Disk {
                    name: format!("d{index}"),
                    file,
                    state: Mutex::default(),
                    changed: Condvar::new(),
                    reads: AtomicU64::new(0),
                }
            })
            .collect();
        let disks = Arc::new(disks);
        let mut config = Config::default();
        config.n_threads = Some(4);
        let session = fuser::spawn_mount(Served(disks.clone()), &at, &config).expect("a FUSE mount");
        FaultyDisks { at, disks, session: Some(session) }
    }

    /// Path of disk number `index`.
    pub fn disk(&self, index: usize) -> PathBuf {
        self.at.join(&self.disks[index].name)
    }

    /// All paths, divided by blanks, for a command.
    pub fn all(&self) -> String {
        let paths: Vec<String> = (0..self.disks.len()).map(|index| self.disk(index).display().to_string()).collect();
        paths.join(" ")
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.at
    }

    /// Reads of data, not of labels, that disk `index` was asked for so far.
    pub fn reads(&self, index: usize) -> u64 {
        self.disks[index].reads.load(Ordering::Relaxed)
    }

    /// From now on this is wrong with disk `index`.
    pub fn set(&self, index: usize, faults: Faults) {
        let disk = &self.disks[index];
        disk.state.lock().expect("a disk's state").faults = faults;
        disk.changed.notify_all();
    }

    /// As [`set`](Self::set), of every disk.
    pub fn set_all(&self, faults: Faults) {
        (0..self.disks.len()).for_each(|index| self.set(index, faults));
    }

    /// A new disk is in the place of disk `index`: it works, and there is nothing on it.
    pub fn renew(&self, index: usize) {
        let disk = &self.disks[index];
        self.set(index, Faults::default());
        let mut state = disk.state.lock().expect("a disk's state");
        let size = disk.file.metadata().expect("its size").len();
        disk.file.set_len(0).and_then(|()| disk.file.set_len(size)).expect("a device file can be made anew");
        state.unflushed.clear();
    }

    /// Takes back every write that was not flushed, as a disk does that loses power.
    pub fn lose_power(&self, index: usize) -> usize {
        let disk = &self.disks[index];
        let mut state = disk.state.lock().expect("a disk's state");
        let lost = std::mem::take(&mut state.unflushed);
        for (offset, old) in lost.iter().rev() {
            disk.file.write_all_at(old, *offset).expect("a device file can be written");
        }
        lost.len()
    }
}

impl Drop for FaultyDisks {
    fn drop(&mut self) {
        self.set_all(Faults::default());
        // The daemon may still have them open: not waited for. The lab unmounts what is left.
        drop(self.session.take());
    }
}

/// What the kernel asks.
struct Served(Arc<Vec<Disk>>);

impl Served {
    fn index(&self, ino: INodeNo) -> Option<usize> {
        let index = (ino.0 as usize).checked_sub(2)?;
        (index < self.0.len()).then_some(index)
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let metadata = match self.index(ino) {
            Some(index) => Some(self.0[index].file.metadata().ok()?),
            None if ino == INodeNo::ROOT => None,
            None => return None,
        };
        Some(FileAttr {
            ino,
            size: metadata.as_ref().map_or(0, |m| m.len()),
            blocks: metadata.as_ref().map_or(0, |m| m.blocks()),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if metadata.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: 0o700,
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Answers at once, or, while the disk hangs or is late, from a thread that waits: others must still be served.
    fn with(&self, ino: INodeNo, answer: impl FnOnce(&Disk) + Send + 'static) {
        let (disks, Some(index)) = (self.0.clone(), self.index(ino)) else { return };
        if disks[index].is_slow() {
            std::thread::spawn(move || answer(&disks[index]));
        } else {
            answer(&disks[index]);
        }
    }
}

impl Filesystem for Served {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = self.0.iter().position(|disk| OsStr::new(&disk.name) == name);
        let found = index.map(|index| INodeNo(index as u64 + 2)).and_then(|ino| Some((ino, self.attr(ino)?)));
        match found {
            Some((ino, attr)) => self.with(ino, move |disk| {
                disk.wait(0);
                reply.entry(&TTL, &attr, Generation(0));
            }),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) if ino == INodeNo::ROOT => reply.attr(&TTL, &attr),
            Some(attr) => self.with(ino, move |disk| {
                disk.wait(0);
                reply.attr(&TTL, &attr);
            }),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.with(ino, move |disk| match disk.read(offset, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error),
        });
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let data = data.to_vec();
        self.with(ino, move |disk| match disk.write(offset, &data) {
            Ok(written) => reply.written(written),
            Err(error) => reply.error(error),
        });
    }

    fn flush(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        self.with(ino, move |disk| {
            disk.wait(0);
            reply.ok();
        });
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.with(ino, move |disk| match disk.flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        });
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (index, disk) in self.0.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(index as u64 + 2), index as u64 + 1, FileType::RegularFile, &disk.name) {
                break;
            }
        }
        reply.ok();
    }
}
