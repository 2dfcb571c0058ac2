//! What the kernel does with pages of a file that is open past its page cache. Skipped, saying so, where mounting is
//! not possible.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use platter_transport::{
    DEVICE, Entry, Errno, FileAttr, Filesystem, InitFlags, Kernel, NodeId, OpenFlags, Operation, Reply, Request,
    Session, Time,
};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::mount::{MountFlags, UnmountFlags};

const FILE: NodeId = NodeId(2);
const LENGTH: usize = 4096;
const PAST_CACHE: OpenFlags = OpenFlags(OpenFlags::DIRECT_IO.0 | OpenFlags::PARALLEL_DIRECT_WRITES.0);

/// A directory with one file, all of whose bytes are the same.
#[derive(Default)]
struct OneFile {
    kernel: OnceLock<Kernel>,
    byte: AtomicU64,
    /// How files were closed: the flags of the opening, and its answer.
    closed: Mutex<Vec<(i32, OpenFlags)>>,
    /// Of each read, whether it filled the page cache.
    fills: Mutex<Vec<bool>>,
}

fn attr(node: NodeId) -> FileAttr {
    let (mode, size) = if node == FILE { (0o100_644, LENGTH as u64) } else { (0o040_755, 0) };
    let time = Time::default();
    let (blocks, block_size, links) = (8, 4096, 1);
    FileAttr {
        node,
        size,
        blocks,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        mode,
        links,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size,
        flags: 0,
    }
}

struct Shared(Arc<OneFile>);

impl Filesystem for Shared {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        const LONG: Duration = Duration::from_secs(3600);
        let Some(reply) = reply else { return };
        match request.operation {
            Operation::Lookup { name: b"file" } => {
                reply.entry(&Entry { node: FILE, generation: 0, attr: attr(FILE), entry_ttl: LONG, attr_ttl: LONG });
            }
            Operation::Lookup { .. } => reply.error(Errno::NOENT),
            Operation::GetAttr | Operation::Statx => reply.attr(&attr(request.node), LONG),
            Operation::Open { .. } => reply.opened(PAST_CACHE),
            Operation::Release { flags, how } => {
                self.0.closed.lock().expect("no panic").push((flags, how));
                reply.ok();
            }
            Operation::Read { size, direct, fills_cache, .. } => {
                assert!(direct, "the file was opened so");
                self.0.fills.lock().expect("no panic").push(fills_cache);
                reply.data(&[vec![self.0.byte.load(Ordering::SeqCst) as u8; LENGTH.min(size as usize)]]);
            }
            _ => reply.error(Errno::NOSYS),
        }
    }

    fn started(&self, kernel: Kernel) {
        let _ = self.0.kernel.set(kernel);
    }

    fn gone(&self) {}
}

/// Mounts the file at `at`; `None`, and why, where that cannot be done.
fn mounted(file: &Arc<OneFile>, at: &Path, runtime: &tokio::runtime::Runtime) -> Option<Session> {
    if !rustix::process::geteuid().is_root() || !Path::new(DEVICE).exists() {
        eprintln!("skipped: mounting needs root and {DEVICE}");
        return None;
    }
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).expect("the device");
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,max_read=131072", device.as_raw_fd());
    let data = CString::new(data).expect("no zero byte");
    rustix::mount::mount("one-file", at, "fuse.onefile", MountFlags::empty(), data.as_c_str()).expect("mounted");
    let config = platter_transport::Config {
        threads: 2,
        wanted: InitFlags::DIRECT_IO_ALLOW_MMAP | InitFlags::OVER_IO_URING,
        request_max: 128 << 10,
        readahead_max: 128 << 10,
        background_max: 16,
    };
    Some(Session::start(Shared(file.clone()), device.into(), config, runtime.handle().clone()).expect("served"))
}

/// A byte of a page that another process may change.
fn look(map: *const u8) -> u8 {
    // SAFETY: the caller's mapping has a page; it is only read, and any value is a `u8`.
    unsafe { map.read_volatile() }
}

#[test]
fn pages_of_a_mapping_are_told_from_reads_and_forgotten_when_told() {
    let (directory, file) = (tempfile::tempdir().expect("a folder"), Arc::new(OneFile::default()));
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let Some(session) = mounted(&file, directory.path(), &runtime) else { return };
    let kernel = file.kernel.get().expect("told at the start").clone();
    file.byte.store(b'a'.into(), Ordering::SeqCst);

    let open = File::open(directory.path().join("file")).expect("opened");
    let mut byte = [0];
    open.read_exact_at(&mut byte, 7).expect("read");
    assert_eq!((byte, file.fills.lock().expect("no panic").pop()), ([b'a'], Some(false)));
    // Read past the cache, it is read again each time.
    file.byte.store(b'b'.into(), Ordering::SeqCst);
    open.read_exact_at(&mut byte, 7).expect("read");
    assert_eq!(byte, [b'b']);

    if kernel.has(InitFlags::DIRECT_IO_ALLOW_MMAP) {
        // SAFETY: a new mapping where the kernel likes; it is read through `look` alone and unmapped below.
        let map = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), LENGTH, ProtFlags::READ, MapFlags::SHARED, &open, 0).expect("mapped")
        };
        file.fills.lock().expect("no panic").clear();
        assert_eq!(look(map.cast()), b'b');
        assert_eq!(*file.fills.lock().expect("no panic"), [true]);
        file.byte.store(b'c'.into(), Ordering::SeqCst);
        assert_eq!(look(map.cast()), b'b', "the page is in the cache");
        kernel.forget_pages(FILE, 0, LENGTH as u64);
        assert_eq!(look(map.cast()), b'c');
        // SAFETY: nothing refers to the mapping any more.
        unsafe { rustix::mm::munmap(map, LENGTH).expect("unmapped") };
    } else {
        eprintln!("the kernel does not map files that are open past its cache");
    }

    drop(open);
    let closing = async {
        while file.closed.lock().expect("no panic").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), closing).await }).expect("closed");
    let closed = file.closed.lock().expect("no panic").clone();
    let [(flags, PAST_CACHE)] = closed[..] else { panic!("closed as {closed:?}") };
    assert_eq!(flags & 0o3, 0, "opened for reading");
    rustix::mount::unmount(directory.path(), UnmountFlags::empty()).expect("unmounted");
    session.join().expect("served to the end");
    // Nobody is there to be told.
    kernel.forget_pages(FILE, 0, 1);
}
