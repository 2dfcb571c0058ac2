//! Regular files and block devices as [`BlockDevice`]s.
//!
//! Invariants:
//! - a device opened for writing is locked (`flock` on files and block devices, `O_EXCL` on block devices), and so is
//!   all that lies behind it, so two daemons never write to one pool. What cannot be locked is not written;
//! - `O_DIRECT` is used whenever the kernel accepts it for the transfer's position, length and memory; what it does not
//!   accept goes through a second, buffered descriptor of the same inode (the kernel keeps both coherent) or through an
//!   aligned bounce buffer;
//! - a device's size is what it was when it was opened, or at a later look, if that found more;
//! - a file whose file system may make any call wait for a server (FUSE, NFS and the like) is touched only by threads
//!   of its own once it is open.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use platter_buffer::{Buf, BufMut};
use rustix::fs::{AtFlags, FlockOperation, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::announce::announce;
use crate::block_device::{BlockDevice, Geometry, Presence, TrimKind, TrimSupport, check_range};
use crate::engine::{Engine, EngineKind};
use crate::error::{DeviceError, Operation, Result};
use crate::lease::{Lease, TooLate};
use crate::open_file::OpenFile;
use crate::partition::Partition;
use crate::pool::Pool;
use crate::slot::ReadSlot;
use crate::sysfs::{block_device_exists, is_read_only};
use crate::transfer::Work;
use crate::trim::{self, Trimming};
use crate::{busy, locks};

/// How long closing a file of a server's is waited for.
const CLOSE_WAIT: Duration = Duration::from_secs(1);

/// How to open a file or block device.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// Open for reading and writing.
    pub writable: bool,
    /// Refuse when somebody else uses the device, and keep others from using it.
    pub exclusive: bool,
    /// Try `O_DIRECT`.
    pub direct: bool,
    /// Who carries out the transfers.
    pub engine: EngineKind,
}

impl OpenOptions {
    /// For a pool that is written: exclusive, direct.
    pub const fn exclusive() -> Self {
        Self { writable: true, exclusive: true, direct: true, engine: EngineKind::Auto }
    }

    /// For looking at labels and for read-only imports: no lock.
    pub const fn read_only() -> Self {
        Self { writable: false, exclusive: false, direct: true, engine: EngineKind::Auto }
    }
}

/// What `O_DIRECT` asks of a transfer, in bytes.
#[derive(Clone, Copy, Debug)]
struct DirectRules {
    memory: usize,
    offset: u64,
}

/// An open file or block device.
pub struct FileDevice {
    path: PathBuf,
    is_block: bool,
    /// Whether no call on the descriptors waits for a server.
    is_local: bool,
    size: AtomicU64,
    geometry: Geometry,
    writable: bool,
    /// There until the device is dropped.
    buffered: Option<Arc<OpenFile>>,
    direct: Option<(Arc<OpenFile>, DirectRules)>,
    /// Set when the kernel refused a direct transfer that the rules allow; from then on all go the buffered way.
    direct_refused: AtomicBool,
    engine: Engine,
    trimming: Trimming,
    lease: OnceLock<Arc<Lease>>,
    /// Whether the device was still there when a thread of its own looked, and whether one is looking.
    looked: Arc<Mutex<(Presence, bool)>>,
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileDevice({}, {} bytes)", self.path.display(), self.size())
    }
}

impl FileDevice {
    /// Opens `path`. Blocks shortly (a few system calls; up to half a second while a device probe holds the lock).
    ///
    /// # Errors
    /// [`DeviceError::Open`], [`DeviceError::WrongKind`], [`DeviceError::InUse`] with the user's name, or
    /// [`DeviceError::NotLockable`].
    pub fn open(path: &Path, options: OpenOptions) -> Result<Self> {
        let metadata = std::fs::metadata(path).map_err(|error| DeviceError::open(path, error))?;
        let kind = metadata.file_type();
        let is_block = kind.is_block_device();
        if !is_block && !kind.is_file() {
            let what = if kind.is_dir() { "a directory" } else { "something else" };
            return Err(DeviceError::WrongKind { path: path.into(), what });
        }
        if options.exclusive
            && is_block
            && let Some(reason) = busy::block_device_user(metadata.rdev())
        {
            return Err(DeviceError::InUse { path: path.into(), reason });
        }
        let exclusive_flag = if options.exclusive && is_block { OFlags::EXCL } else { OFlags::empty() };
        let buffered = std::fs::OpenOptions::new()
            .read(true)
            .write(options.writable)
            .custom_flags((OFlags::CLOEXEC | exclusive_flag).bits() as i32)
            .open(path)
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::BUSY) => {
                    DeviceError::InUse { path: path.into(), reason: "the kernel or another process holds it".into() }
                }
                _ => DeviceError::open(path, error),
            })?;
        let mut backing = Vec::new();
        if options.exclusive {
            locks::lock(&buffered, path, is_block, FlockOperation::NonBlockingLockExclusive)?;
            if is_block {
                backing = locks::lock_behind(metadata.rdev(), path)?;
            }
        }
        let size = size_of(&buffered, is_block).map_err(|error| DeviceError::open(path, error))?;
        let geometry = if is_block { block_geometry(&buffered) } else { Geometry::FILE };
        let buffered = OpenFile::locked(buffered, backing);
        let direct = if options.direct { open_direct(&buffered, options.writable, geometry) } else { None };
        let is_local = is_block || is_local(&buffered);
        // The kernel lets such a device be opened for writing, and fails the writes.
        let writable = options.writable && !(is_block && is_read_only(metadata.rdev()));
        let trimming = Trimming::new(trim::support(&buffered, is_block, writable));
        Ok(Self {
            path: path.into(),
            is_block,
            size: AtomicU64::new(size),
            geometry,
            writable,
            buffered: Some(buffered),
            is_local,
            direct,
            direct_refused: AtomicBool::new(false),
            engine: Engine::get(options.engine, is_local),
            trimming,
            lease: OnceLock::new(),
            looked: Arc::new(Mutex::new((Presence::Present, false))),
        })
    }

    /// Whether this is a block device (else a regular file).
    pub fn is_block_device(&self) -> bool {
        self.is_block
    }

    /// Whether transfers can bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.direct_refused.load(Ordering::Relaxed)
    }

    fn buffered(&self) -> &Arc<OpenFile> {
        self.buffered.as_ref().expect("open until dropped")
    }

    fn failure(&self, operation: Operation, offset: u64, length: u64, source: io::Error) -> DeviceError {
        match (source.kind(), Errno::from_io_error(&source)) {
            (io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero, _) => {
                let size = size_of(self.buffered(), self.is_block).unwrap_or(0);
                DeviceError::Truncated { device: self.name(), operation, offset, length, size }
            }
            _ if source.get_ref().is_some_and(|inner| inner.is::<TooLate>()) => DeviceError::TooLate(self.name()),
            (_, Some(Errno::NODEV | Errno::NXIO)) => {
                DeviceError::Gone { device: self.name(), reason: source.to_string() }
            }
            _ => DeviceError::Io { device: self.name(), operation, offset, length, source: Arc::new(source) },
        }
    }

    /// The direct descriptor, when it takes transfers at this position.
    fn direct_for(&self, offset: u64, length: usize) -> Option<(&Arc<OpenFile>, DirectRules)> {
        let (file, rules) = self.direct.as_ref()?;
        let fits = offset.is_multiple_of(rules.offset) && (length as u64).is_multiple_of(rules.offset);
        (fits && length > 0 && !self.direct_refused.load(Ordering::Relaxed)).then_some((file, *rules))
    }

    /// Runs a transfer directly, and once more buffered when the kernel turns out to refuse that.
    async fn run(&self, direct: Option<&Arc<OpenFile>>, offset: u64, work: Work) -> (Work, io::Result<()>) {
        let lease = match work {
            Work::Write(_) => self.lease.get().filter(|lease| lease.is_timed()).cloned(),
            Work::Read(_) | Work::Flush => None,
        };
        let Some(file) = direct else { return self.engine.run(self.buffered(), offset, work, lease).await };
        match self.engine.run(file, offset, work, lease.clone()).await {
            (work, Err(error)) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                if !self.direct_refused.swap(true, Ordering::Relaxed) {
                    tracing::warn!("'{}' refuses direct I/O; using the page cache", self.path.display());
                }
                self.engine.run(self.buffered(), offset, work, lease).await
            }
            done => done,
        }
    }
}

/// How long a server may take to say how large a file is.
const SIZE_WITHIN: Duration = Duration::from_secs(5);

fn size_of(file: &File, is_block: bool) -> io::Result<u64> {
    if is_block { (&mut &*file).seek(SeekFrom::End(0)) } else { Ok(file.metadata()?.len()) }
}

fn block_geometry(file: &File) -> Geometry {
    let logical_block = rustix::fs::ioctl_blksszget(file).unwrap_or(512);
    let physical_block = rustix::fs::ioctl_blkpbszget(file).unwrap_or(logical_block);
    Geometry { logical_block, physical_block }
}

/// A second descriptor of the same inode with `O_DIRECT`, or `None` where that is refused (tmpfs).
fn open_direct(locked: &Arc<OpenFile>, writable: bool, geometry: Geometry) -> Option<(Arc<OpenFile>, DirectRules)> {
    let same_inode = format!("/proc/self/fd/{}", locked.as_raw_fd());
    let direct = std::fs::OpenOptions::new()
        .read(true)
        .write(writable)
        .custom_flags((OFlags::CLOEXEC | OFlags::DIRECT).bits() as i32)
        .open(same_inode)
        .ok()?;
    let mut rules = DirectRules { memory: 512, offset: u64::from(geometry.logical_block.max(512)) };
    if let Ok(stat) = rustix::fs::statx(&direct, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        if stat.stx_dio_mem_align == 0 || stat.stx_dio_offset_align == 0 {
            return None;
        }
        rules = DirectRules { memory: stat.stx_dio_mem_align as usize, offset: stat.stx_dio_offset_align.into() };
    }
    Some((OpenFile::beside(direct, locked), rules))
}

#[async_trait]
impl BlockDevice for FileDevice {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn announce(&self, partitions: &[&Partition]) {
        if self.is_block {
            announce(self.buffered(), partitions);
        }
    }

    async fn read_into(&self, offset: u64, mut slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<()>) {
        let length = slots.iter().map(|slot| slot.len()).sum();
        if let Err(error) = check_range(|| self.name(), Operation::Read, offset, length, self.size()) {
            return (slots, Err(error));
        }
        let failed = |error| self.failure(Operation::Read, offset, length as u64, error);
        let direct = self.direct_for(offset, length);
        if let Some((file, rules)) = direct
            && !slots.iter().all(|slot| is_aligned(slot.as_ptr(), slot.len(), rules))
        {
            let (assembly, bounce) = ReadSlot::whole(length);
            let (work, result) = self.run(Some(file), offset, Work::Read(vec![bounce])).await;
            drop(work);
            if let Err(error) = result {
                return (slots, Err(failed(error)));
            }
            let bytes = assembly.finish().expect("a finished transfer keeps no slot");
            let mut rest: &[u8] = &bytes;
            for slot in &mut slots {
                let (part, after) = rest.split_at(slot.len());
                slot.copy_from_slice(part);
                rest = after;
            }
            return (slots, Ok(()));
        }
        let (work, result) = self.run(direct.map(|(file, _)| file), offset, Work::Read(slots)).await;
        let slots = if let Work::Read(slots) = work { slots } else { Vec::new() };
        (slots, result.map_err(failed))
    }

    async fn write(&self, offset: u64, mut data: Vec<Buf>) -> Result<()> {
        if !self.writable {
            return Err(DeviceError::ReadOnly(self.name()));
        }
        let length = data.iter().map(|buf| buf.len()).sum();
        check_range(|| self.name(), Operation::Write, offset, length, self.size())?;
        let direct = self.direct_for(offset, length);
        if let Some((_, rules)) = direct
            && !data.iter().all(|buf| is_aligned(buf.as_ptr(), buf.len(), rules))
        {
            data = vec![gather(&data, length)];
        }
        let (_, result) = self.run(direct.map(|(file, _)| file), offset, Work::Write(data)).await;
        result.map_err(|error| self.failure(Operation::Write, offset, length as u64, error))
    }

    async fn flush(&self) -> Result<()> {
        let (_, result) = self.engine.run(self.buffered(), 0, Work::Flush, None).await;
        result.map_err(|error| self.failure(Operation::Flush, 0, 0, error))
    }

    fn trim_support(&self) -> TrimSupport {
        self.trimming.support()
    }

    async fn trim(&self, offset: u64, length: u64, kind: TrimKind) -> Result<()> {
        if !self.writable {
            return Err(DeviceError::ReadOnly(self.name()));
        }
        let within = usize::try_from(length).unwrap_or(usize::MAX);
        check_range(|| self.name(), Operation::Trim, offset, within, self.size())?;
        let lease = self.lease.get().filter(|lease| lease.is_timed()).cloned();
        let trimmed = self.trimming.run(self.buffered(), self.is_block, (offset, length), kind, lease).await;
        trimmed.map_err(|error| match trim::is_refusal(&error) {
            true => DeviceError::NotTrimmable(self.name()),
            false => self.failure(Operation::Trim, offset, length, error),
        })
    }

    async fn look_at_size(&self) -> u64 {
        let (file, is_block) = (self.buffered().clone(), self.is_block);
        let (tell, told) = tokio::sync::oneshot::channel();
        let look = move || {
            let found = size_of(&file, is_block);
            drop(file);
            let _ = tell.send(found);
        };
        match threads_for_server(&self.engine, self.is_local) {
            Some(pool) => pool.call(look),
            None => look(),
        }
        // A file that is gone, or on a server that does not answer, has not grown.
        if let Ok(Ok(Ok(found))) = tokio::time::timeout(SIZE_WITHIN, told).await {
            self.size.fetch_max(found, Ordering::Relaxed);
        }
        self.size()
    }

    fn obey(&self, lease: &Arc<Lease>) {
        let is_first = self.lease.set(lease.clone()).is_ok();
        debug_assert!(is_first, "a device is opened for one pool");
    }

    fn presence(&self) -> Presence {
        let Some(pool) = threads_for_server(&self.engine, self.is_local) else {
            return examine(self.buffered(), self.is_block, self.size());
        };
        // Even to look may take as long as a server likes: the answer is that of the look before.
        let mut looked = self.looked.lock();
        if !std::mem::replace(&mut looked.1, true) {
            let (place, file, is_block, size) =
                (self.looked.clone(), self.buffered().clone(), self.is_block, self.size());
            pool.call(move || {
                let found = examine(&file, is_block, size);
                drop(file);
                *place.lock() = (found, false);
            });
        }
        looked.0.clone()
    }
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        let Some(pool) = threads_for_server(&self.engine, self.is_local) else { return };
        // Closing may wait for a server too. The lock must be gone when this returns, or whoever opens the device next
        // finds it in use; but nobody waits for a device that hangs.
        let (closed, wait) = std::sync::mpsc::sync_channel(1);
        let files = (self.buffered.take(), self.direct.take());
        pool.call(move || {
            drop(files);
            let _ = closed.send(());
        });
        let _ = wait.recv_timeout(CLOSE_WAIT);
    }
}

/// The threads for calls that may wait for a server; none when no call does.
fn threads_for_server(engine: &Engine, is_local: bool) -> Option<&Pool> {
    match engine {
        Engine::Pool(pool) if !is_local => Some(pool),
        _ => None,
    }
}

/// What is said of a file that was deleted while it is open: it serves until it is closed.
pub const DELETED: &str = "the file was deleted";

fn examine(file: &File, is_block: bool, size: u64) -> Presence {
    let Ok(metadata) = file.metadata() else { return Presence::Gone("it cannot be examined".into()) };
    if is_block {
        return match block_device_exists(metadata.rdev()) {
            true => Presence::Present,
            false => Presence::Gone("the device was removed".into()),
        };
    }
    if metadata.len() < size {
        Presence::Gone(format!("the file was shortened from {size} to {} bytes", metadata.len()))
    } else if metadata.nlink() == 0 {
        Presence::Unlinked(DELETED.into())
    } else {
        Presence::Present
    }
}

/// Whether the file lies on a file system of this machine that never makes the submitter of a transfer wait for it
/// (`FMODE_NOWAIT`, in earnest): what io_uring cannot submit at once there, it gives to threads of its own.
fn is_local(file: &File) -> bool {
    /// ext2 to ext4, XFS, btrfs, F2FS, tmpfs (`include/uapi/linux/magic.h`).
    const KNOWN: [u64; 5] = [0xEF53, 0x5846_5342, 0x9123_683E, 0xF2F5_2010, 0x0102_1994];
    rustix::fs::fstatfs(file).is_ok_and(|found| KNOWN.contains(&(found.f_type as u64)))
}

/// Whether memory of `length` bytes at `start` can be one segment of a direct transfer.
fn is_aligned(start: *const u8, length: usize, rules: DirectRules) -> bool {
    (start as usize).is_multiple_of(rules.memory) && (length as u64).is_multiple_of(rules.offset)
}

fn gather(data: &[Buf], length: usize) -> Buf {
    let mut whole = BufMut::unfilled(length);
    let mut at = 0;
    for buf in data {
        whole[at..at + buf.len()].copy_from_slice(buf);
        at += buf.len();
    }
    assert_eq!(at, length, "no byte is written that nobody gave");
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir, name: &str, size: u64) -> PathBuf {
        let path = dir.path().join(name);
        File::create(&path).expect("create").set_len(size).expect("size");
        path
    }

    fn pattern(length: usize, seed: u8) -> Vec<u8> {
        (0..length).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed).collect()
    }

    /// What a transfer that hangs has of its device: nobody else opens that before it is over.
    #[test]
    fn a_device_stays_locked_until_its_last_transfer_is_over() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 8 << 20);
        let open = || FileDevice::open(&path, OpenOptions { direct: true, ..OpenOptions::exclusive() });
        let device = open().expect("open");
        let Some((hanging, _)) = device.direct_for(0, 4096).map(|(file, rules)| (file.clone(), rules)) else { return };
        drop(device);
        let refused = open().expect_err("a write may still land");
        assert!(matches!(refused, DeviceError::InUse { .. }), "{refused}");
        drop(hanging);
        open().expect("it is over");
    }

    async fn round_trips(engine: EngineKind, direct: bool) {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 8 << 20);
        let device = FileDevice::open(&path, OpenOptions { engine, direct, ..OpenOptions::exclusive() }).expect("open");
        for (offset, length) in [(0, 512), (4096, 4096), (512, 1024), (1 << 20, 1 << 20), (5 << 20, 8704)] {
            let bytes = pattern(length, length as u8);
            let cut = length / 1024 * 512;
            let parts = vec![Buf::copy_from(&bytes[..cut]), Buf::copy_from(&bytes[cut..])];
            device.write(offset, parts).await.expect("write");
            assert_eq!(&device.read(offset, length).await.expect("read")[..], &bytes[..]);
            // Slices that do not begin on a page, and many slots.
            let (assembly, slots) = Assembly::carve(&vec![256; length / 256]);
            device.read_into(offset, slots).await.1.expect("read into slots");
            assert_eq!(&assembly.finish().expect("no slot is left")[..], &bytes[..]);
            let shifted = Buf::copy_from(&[&[0u8; 100][..], &bytes].concat()).slice(100..);
            device.write(offset, vec![shifted]).await.expect("write from odd memory");
            assert_eq!(&device.read(offset, length).await.expect("read")[..], &bytes[..]);
        }
        device.flush().await.expect("flush");
        assert_eq!(&std::fs::read(&path).expect("plain read")[1 << 20..2 << 20], &pattern(1 << 20, 0)[..]);
    }

    use crate::slot::Assembly;

    #[tokio::test]
    async fn the_ring_round_trips() {
        round_trips(EngineKind::Auto, true).await;
        round_trips(EngineKind::Auto, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn threads_round_trip() {
        round_trips(EngineKind::Threads, true).await;
        round_trips(EngineKind::Threads, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_transfers_at_once_do_not_mix() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 16 << 20);
        let device = Arc::new(FileDevice::open(&path, OpenOptions::exclusive()).expect("open"));
        let tasks: Vec<_> = (0..2000u64)
            .map(|index| {
                let device = device.clone();
                tokio::spawn(async move {
                    let bytes = Buf::copy_from(&pattern(4096, index as u8 ^ (index >> 8) as u8));
                    device.write(index * 8192, vec![bytes.clone()]).await.expect("write");
                    assert_eq!(&device.read(index * 8192, 4096).await.expect("read")[..], &bytes[..]);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("task");
        }
    }

    #[tokio::test]
    async fn dropping_a_transfer_in_flight_is_harmless() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 16 << 20);
        let device = FileDevice::open(&path, OpenOptions::exclusive()).expect("open");
        for index in 0..200u64 {
            let read = device.read(index * 65536, 65536);
            let write = device.write(index * 65536, vec![Buf::zeroed(65536)]);
            // Polled once, then dropped.
            let _ = futures::future::select(read, write).await;
        }
        device.flush().await.expect("flush");
        assert_eq!(device.read(0, 4096).await.expect("read").len(), 4096);
    }

    #[tokio::test]
    async fn a_second_user_is_refused_and_a_reader_is_not() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 1 << 20);
        let first = FileDevice::open(&path, OpenOptions::exclusive()).expect("open");
        let refused = FileDevice::open(&path, OpenOptions::exclusive()).expect_err("locked");
        assert!(refused.to_string().contains("in use already, by this very process"), "{refused}");
        FileDevice::open(&path, OpenOptions::read_only()).expect("readers need no lock");
        drop(first);
        FileDevice::open(&path, OpenOptions::exclusive()).expect("free again");
    }

    #[tokio::test]
    async fn a_truncated_file_names_path_and_offset() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 1 << 20);
        for engine in [EngineKind::Auto, EngineKind::Threads] {
            std::fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(1 << 20).expect("size");
            let device = FileDevice::open(&path, OpenOptions { engine, ..OpenOptions::read_only() }).expect("open");
            std::fs::OpenOptions::new().write(true).open(&path).expect("open").set_len(10_000).expect("truncate");
            let error = device.read(8192, 4096).await.expect_err("short");
            let text = error.to_string();
            assert!(text.contains("d0") && text.contains("offset 8192") && text.contains("10000"), "{text}");
            assert!(matches!(device.presence(), Presence::Gone(_)));
        }
    }

    #[tokio::test]
    async fn threads_take_more_segments_than_the_kernel_at_once() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 4 << 20);
        let options = OpenOptions { engine: EngineKind::Threads, ..OpenOptions::exclusive() };
        let device = FileDevice::open(&path, options).expect("open");
        let parts: Vec<Buf> = (0..2500u32).map(|part| Buf::copy_from(&[part as u8; 512])).collect();
        device.write(512, parts).await.expect("write");
        let (assembly, slots) = Assembly::carve(&vec![512; 2500]);
        device.read_into(512, slots).await.1.expect("read");
        let bytes = assembly.finish().expect("no slot is left");
        assert!(bytes.chunks(512).enumerate().all(|(part, bytes)| bytes.iter().all(|byte| *byte == part as u8)));
    }

    #[tokio::test]
    async fn a_deleted_file_is_gone_though_still_open() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = file(&dir, "d0", 1 << 20);
        let device = FileDevice::open(&path, OpenOptions::exclusive()).expect("open");
        assert_eq!(device.presence(), Presence::Present);
        std::fs::remove_file(&path).expect("rm");
        assert_eq!(device.presence(), Presence::Unlinked(DELETED.into()));
    }

    #[test]
    fn directories_and_missing_files_are_refused() {
        let dir = tempfile::tempdir().expect("tempdir");
        let error = FileDevice::open(dir.path(), OpenOptions::exclusive()).expect_err("a directory");
        assert!(error.to_string().contains("a directory"));
        let error = FileDevice::open(&dir.path().join("none"), OpenOptions::exclusive()).expect_err("missing");
        assert!(error.is_not_found());
    }
}
