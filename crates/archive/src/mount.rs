//! The files of a stream in a directory, until somebody unmounts it.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_fuse::still::{StillEntry, StillTree};
use platter_fuse::{KernelFlags, MountOptions, mount_still};
use platter_ondisk::Sectors;
use platter_stream::attributes::FileAttributes;
use platter_stream::contents::EntryKind;
use platter_stream::one_file::OneFile;
use platter_stream::{ObjectId, device_for_users};
use platter_transport::{FileAttr, NodeId, Time};

use crate::error::{ArchiveError, Result};
use crate::tree::Tree;

/// `EIO`.
const EIO: i32 = 5;
/// What a program had better read at a time.
const BLOCK_SIZE: u32 = 128 << 10;
/// Kinds of files, as in `st_mode`.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
/// Directories whose entries are kept in memory.
const KEPT_MAX: usize = 256;

/// A file that somebody has open.
struct Opened {
    file: Arc<OneFile>,
    size: u64,
    times: u64,
}

struct Shown {
    tree: Tree,
    root: u64,
    open: Mutex<BTreeMap<u64, Opened>>,
    entries: Mutex<BTreeMap<u64, Arc<Vec<StillEntry>>>>,
}

/// Programs get an error; what it is about is said on standard error.
fn failed(error: ArchiveError) -> io::Error {
    eprintln!("platter: {error}");
    io::Error::from_raw_os_error(EIO)
}

fn time([seconds, nanoseconds]: [u64; 2]) -> Time {
    Time { seconds: seconds as i64, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

fn attr(number: u64, found: &FileAttributes) -> FileAttr {
    let [atime, mtime, ctime, btime] = found.times.map(time);
    FileAttr {
        node: NodeId(number),
        size: found.size,
        blocks: Sectors::holding(found.size).0,
        atime,
        mtime,
        ctime,
        btime,
        mode: found.mode,
        links: u32::try_from(found.links).unwrap_or(u32::MAX),
        uid: found.uid,
        gid: found.gid,
        rdev: device_for_users(found.device),
        block_size: BLOCK_SIZE,
        flags: 0,
    }
}

impl Shown {
    /// An open file, and its size.
    fn opened(&self, number: u64) -> io::Result<(Arc<OneFile>, u64)> {
        let open = self.open.lock();
        let found = open.get(&number).map(|opened| (opened.file.clone(), opened.size));
        found.ok_or_else(|| io::Error::from_raw_os_error(EIO))
    }
}

impl StillTree for Shown {
    fn root(&self) -> u64 {
        self.root
    }

    fn attributes(&self, number: u64) -> io::Result<FileAttr> {
        self.tree.check_unchanged().map_err(failed)?;
        let found = self.tree.attributes(ObjectId(number)).map_err(failed)?;
        Ok(attr(number, &found))
    }

    fn entries(&self, number: u64) -> io::Result<Arc<Vec<StillEntry>>> {
        let lock = || self.entries.lock();
        if let Some(known) = lock().get(&number) {
            return Ok(known.clone());
        }
        let mode = |kind| match kind {
            EntryKind::Directory => DIRECTORY,
            EntryKind::File => REGULAR,
            EntryKind::Other => 0,
        };
        self.tree.check_unchanged().map_err(failed)?;
        let read = self.tree.entries(ObjectId(number)).map_err(failed)?;
        let shown = read.into_iter().map(|entry| StillEntry {
            mode: mode(entry.kind),
            number: entry.object.0,
            name: entry.name,
        });
        let entries = Arc::new(shown.collect::<Vec<_>>());
        let mut known = lock();
        if known.len() >= KEPT_MAX {
            known.clear();
        }
        known.insert(number, entries.clone());
        Ok(entries)
    }

    fn target(&self, number: u64) -> io::Result<Vec<u8>> {
        let found = self.tree.attributes(ObjectId(number)).map_err(failed)?;
        found.target.ok_or_else(|| io::Error::from_raw_os_error(EIO))
    }

    fn open(&self, number: u64) -> io::Result<()> {
        let file = Arc::new(self.tree.one_file(ObjectId(number)).map_err(failed)?);
        let size = self.tree.attributes(ObjectId(number)).map_err(failed)?.size;
        let mut open = self.open.lock();
        open.entry(number).or_insert(Opened { file, size, times: 0 }).times += 1;
        Ok(())
    }

    fn close(&self, number: u64) {
        let mut open = self.open.lock();
        if let Some(opened) = open.get_mut(&number) {
            opened.times -= 1;
            if opened.times == 0 {
                open.remove(&number);
            }
        }
    }

    fn read(&self, number: u64, offset: u64, size: u32) -> io::Result<Vec<u8>> {
        let (file, length) = self.opened(number)?;
        self.tree.check_unchanged().map_err(failed)?;
        let until = offset.saturating_add(size.into()).min(length);
        let mut bytes = Vec::new();
        if offset < until {
            let read = self.tree.read(&file, offset, until, |part| {
                bytes.extend_from_slice(part);
                Ok(())
            });
            read.map_err(failed)?;
        }
        Ok(bytes)
    }
}

/// Shows the stream in the file `path` at the directory `at` until somebody unmounts it, or a signal asks for that.
/// `began` is called with the number of files and directories once it is there.
///
/// # Errors
/// It is no full stream of a file system, or damaged; it cannot be mounted there, or unmounted when a signal asks for
/// that.
pub fn show(path: &Path, at: &Path, began: impl FnOnce(usize)) -> Result<()> {
    let tree = Tree::of(path)?;
    let root = tree.root()?.0;
    let files = tree.count();
    let shown = Arc::new(Shown { tree, root, open: Mutex::default(), entries: Mutex::default() });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(ArchiveError::Start)?;
    // Files come from a stream of anybody: no device and no set-id bit of theirs works.
    let flags = KernelFlags { read_only: true, devices: false, setuid: false, ..KernelFlags::default() };
    let source = path.display().to_string();
    let options = MountOptions { source, flags, allow_other: false, ..MountOptions::default() };
    let mounted = mount_still(shown, at, options, runtime.handle().clone())?;
    began(files);
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
        let terminated = async {
            match &mut terminate {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = mounted.gone() => {}
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
    });
    if mounted.is_alive() { Ok(mounted.unmount(false)?) } else { Ok(()) }
}
