//! Disks that take the time of turning platters: the files of a folder, shown in a mount where each is as slow as a
//! drive of its size whose data sheet is [`Parameters::green_4k`]'s. What is measured on them costs seeks, rotations
//! and transfers, wherever the files are (`bench/resilver.sh`).
//!
//! Invariants:
//! - a drive does one thing at a time, the one next that its head reaches first (of those that wait), and answers when
//!   the model says that it is done, not before;
//! - what is written goes to its cache while there is room, and from there to the platters when nobody waits for
//!   anything else, when half of it is full, or when a flush asks for it;
//! - time that this machine takes to wake up is not added up: a drive that has work goes on from when it was done.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, Request, WriteFlags,
};
use parking_lot::{Condvar, Mutex};
use platter_model::disk::{Parameters, Platters as Medium};

use crate::error::{Result, While};

/// The drive.
const SHEET: Parameters = Parameters::green_4k();
const TTL: Duration = Duration::from_secs(60);
/// Most bytes of a request: what Platter joins at most.
const REQUEST_MAX: u32 = 1 << 20;
/// Requests that the kernel may have under way: more than a drive's queue holds.
const UNDER_WAY_MAX: u16 = 256;
/// A request that has waited so long is next, however far away.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the kernel waits for.
enum Job {
    Read(u32, ReplyData),
    Write(Vec<u8>, ReplyWrite),
    /// From the cache.
    Destage(u64),
}

impl Job {
    fn length(&self) -> u64 {
        match self {
            Job::Read(length, _) => (*length).into(),
            Job::Write(bytes, _) => bytes.len() as u64,
            Job::Destage(length) => *length,
        }
    }

    fn is_destage(&self) -> bool {
        matches!(self, Job::Destage(_))
    }
}

struct Waiting {
    /// In the order in which they came.
    number: u64,
    offset: u64,
    arrived: Instant,
    job: Job,
}

/// What a drive has to do.
#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    came: u64,
    /// What is on its way from the cache to the platters.
    destaging: Option<u64>,
    /// Bytes in the cache.
    cached: u64,
    /// Flushes, each with the number of what came last before it.
    flushes: Vec<(u64, ReplyEmpty)>,
}

impl Queue {
    fn push(&mut self, offset: u64, job: Job) {
        // The drive's electronics deal with it while others are served.
        let arrived = Instant::now() + Duration::from_nanos(SHEET.overhead);
        self.came += 1;
        self.waiting.push(Waiting { number: self.came, offset, arrived, job });
    }

    /// Whether the cache is to be emptied although somebody waits for something else.
    fn is_urgent(&self) -> bool {
        !self.flushes.is_empty() || self.cached > SHEET.write_cache / 2
    }

    /// Takes into the cache what waits for room there.
    fn take_in(&mut self, file: &File) {
        let is_write = |waiting: &Waiting| matches!(waiting.job, Job::Write(..));
        loop {
            let waits = (0..self.waiting.len()).filter(|index| is_write(&self.waiting[*index]));
            let Some(first) = waits.min_by_key(|index| self.waiting[*index].number) else { return };
            let Waiting { offset, ref mut job, .. } = self.waiting[first];
            let length = job.length();
            if self.cached + length > SHEET.write_cache {
                return;
            }
            let Job::Write(bytes, reply) = std::mem::replace(job, Job::Destage(length)) else {
                unreachable!("it was looked for")
            };
            match file.write_all_at(&bytes, offset) {
                Ok(()) => {
                    self.cached += length;
                    reply.written(bytes.len() as u32);
                }
                Err(_) => {
                    self.waiting.swap_remove(first);
                    reply.error(Errno::EIO);
                }
            }
        }
    }

    /// Answers flushes whose writes are all on the platters.
    fn answer_flushes(&mut self) {
        let waiting = self.waiting.iter().filter(|waiting| waiting.job.is_destage()).map(|waiting| waiting.number);
        let oldest = waiting.chain(self.destaging).min().unwrap_or(u64::MAX);
        for (_, reply) in self.flushes.extract_if(.., |(last, _)| *last < oldest) {
            reply.ok();
        }
    }
}

/// One drive.
struct Drive {
    name: String,
    file: File,
    size: u64,
    queue: Mutex<Queue>,
    came: Condvar,
}

impl Drive {
    fn open(path: &Path) -> io::Result<Arc<Self>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Arc::new(Self { name, size: file.metadata()?.len(), file, queue: Mutex::default(), came: Condvar::new() }))
    }

    fn read(&self, offset: u64, size: u32, reply: ReplyData) {
        self.queue.lock().push(offset, Job::Read(size, reply));
        self.came.notify_one();
    }

    fn write(&self, offset: u64, bytes: &[u8], reply: ReplyWrite) {
        let length = bytes.len() as u64;
        let mut queue = self.queue.lock();
        if queue.cached + length <= SHEET.write_cache {
            match self.file.write_all_at(bytes, offset) {
                Ok(()) => reply.written(bytes.len() as u32),
                Err(_) => return reply.error(Errno::EIO),
            }
            queue.cached += length;
            queue.push(offset, Job::Destage(length));
        } else {
            queue.push(offset, Job::Write(bytes.to_vec(), reply));
        }
        drop(queue);
        self.came.notify_one();
    }

    fn flush(&self, reply: ReplyEmpty) {
        let mut queue = self.queue.lock();
        let last = queue.came;
        queue.flushes.push((last, reply));
        queue.answer_flushes();
    }

    /// Waits for work; what is next at `free`, when the drive was done with all before.
    fn next(&self, platters: &Medium, since: Instant, free: Instant) -> (Waiting, Instant) {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            self.came.wait(&mut queue);
        }
        let is_urgent = queue.is_urgent() || queue.waiting.iter().all(|waiting| waiting.job.is_destage());
        let may_go = |waiting: &&Waiting| is_urgent || !waiting.job.is_destage();
        let first = queue.waiting.iter().filter(may_go).map(|waiting| waiting.arrived).min().expect("something waits");
        let now = free.max(first);
        let nanoseconds = nanoseconds(since, now);
        let nearest = |index: &usize| {
            let waiting = &queue.waiting[*index];
            let is_late = !waiting.job.is_destage() && now.saturating_duration_since(waiting.arrived) > PATIENCE;
            (!is_late, platters.positioning(nanoseconds, waiting.offset), *index)
        };
        let there = (0..queue.waiting.len())
            .filter(|index| may_go(&&queue.waiting[*index]) && queue.waiting[*index].arrived <= now);
        let chosen = there.min_by_key(nearest).expect("the first is there");
        let chosen = queue.waiting.swap_remove(chosen);
        queue.destaging = chosen.job.is_destage().then_some(chosen.number);
        (chosen, now)
    }

    /// Serves for ever.
    fn serve(&self) {
        let mut platters =
            Medium::new(SHEET.spinning().expect("it turns"), self.size, SHEET.geometry.physical_block.into());
        let since = Instant::now();
        let mut free = since;
        loop {
            let (Waiting { offset, job, .. }, now) = self.next(&platters, since, free);
            let begin = nanoseconds(since, now);
            let length = job.length();
            let done = match &job {
                _ if length == 0 || offset.saturating_add(length) > self.size => begin,
                Job::Read(..) => platters.read(begin, offset, length),
                Job::Write(..) | Job::Destage(_) => platters.write(begin, offset, length),
            };
            free = since + Duration::from_nanos(done);
            assert!(free >= now, "a drive is done after it began");
            match job {
                Job::Read(length, reply) => {
                    let mut bytes = vec![0; length as usize];
                    let read = self.file.read_at(&mut bytes, offset);
                    std::thread::sleep(free.saturating_duration_since(Instant::now()));
                    match read {
                        Ok(read) => reply.data(&bytes[..read]),
                        Err(_) => reply.error(Errno::EIO),
                    }
                }
                Job::Write(bytes, reply) => {
                    let written = self.file.write_all_at(&bytes, offset);
                    std::thread::sleep(free.saturating_duration_since(Instant::now()));
                    match written {
                        Ok(()) => reply.written(bytes.len() as u32),
                        Err(_) => reply.error(Errno::EIO),
                    }
                }
                Job::Destage(length) => {
                    std::thread::sleep(free.saturating_duration_since(Instant::now()));
                    let mut queue = self.queue.lock();
                    queue.cached = queue.cached.checked_sub(length).expect("what is in the cache is counted");
                    queue.destaging = None;
                    queue.take_in(&self.file);
                    queue.answer_flushes();
                }
            }
        }
    }
}

fn nanoseconds(since: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(since).as_nanos()).expect("no benchmark takes centuries")
}

/// Shows the files of folder `files` at `mountpoint`, until that is unmounted.
///
/// # Errors
/// The folder cannot be read, or the system refuses the mount.
pub fn serve(files: &Path, mountpoint: &Path) -> Result<()> {
    let reading = || format!("reading {}", files.display());
    let mut paths: Vec<_> = fs::read_dir(files)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>())
        .on(reading)?;
    paths.sort();
    let drives: Vec<Arc<Drive>> = paths.iter().map(|path| Drive::open(path)).collect::<io::Result<_>>().on(reading)?;
    for drive in &drives {
        let drive = drive.clone();
        std::thread::spawn(move || drive.serve());
    }
    let mut config = Config::default();
    config.n_threads = Some(2);
    fuser::mount(Shown(drives), mountpoint, &config).on(|| format!("mounting at {}", mountpoint.display()))
}

struct Shown(Vec<Arc<Drive>>);

impl Shown {
    fn drive(&self, ino: INodeNo) -> Option<&Arc<Drive>> {
        self.0.get((ino.0 as usize).checked_sub(2)?)
    }

    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let metadata = match self.drive(ino) {
            Some(drive) => Some(drive.file.metadata().ok()?),
            None if ino == INodeNo::ROOT => None,
            None => return None,
        };
        Some(FileAttr {
            ino,
            size: metadata.as_ref().map_or(0, |metadata| metadata.len()),
            blocks: metadata.as_ref().map_or(0, |metadata| metadata.blocks()),
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
}

impl Filesystem for Shown {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel cannot do it does less of.
        let _ = config.set_max_write(REQUEST_MAX);
        let _ = config.set_max_background(UNDER_WAY_MAX);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        Ok(())
    }

    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let index = self.0.iter().position(|drive| OsStr::new(&drive.name) == name);
        match index.and_then(|index| self.attr(INodeNo(index as u64 + 2))) {
            Some(attr) => reply.entry(&TTL, &attr, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(attr) => reply.attr(&TTL, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES);
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
        match self.drive(ino) {
            Some(drive) => drive.read(offset, size, reply),
            None => reply.error(Errno::EISDIR),
        }
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
        match self.drive(ino) {
            Some(drive) => drive.write(offset, data, reply),
            None => reply.error(Errno::EISDIR),
        }
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        match self.drive(ino) {
            Some(drive) => drive.flush(reply),
            None => reply.ok(),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        for (index, drive) in self.0.iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(index as u64 + 2), index as u64 + 1, FileType::RegularFile, &drive.name) {
                break;
            }
        }
        reply.ok();
    }
}
