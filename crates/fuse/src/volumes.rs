//! Volumes as the kernel sees them: files of their very size in folders that are the pool's file systems.
//!
//! Invariants:
//! - sizes and names are the pool's: nothing here changes them, and whoever tries is refused, but for O_TRUNC, which
//!   has no effect, as on a device;
//! - what is open here is open in the pool, until the kernel has closed it or is gone;
//! - a serving thread waits for no device: what makes something stable, or clears ranges, goes on as a task.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::RwLock;
use platter_ondisk::Sectors;
use platter_transport::{
    Directory, Entry, Errno, FileAttr, Filesystem, Kernel, NodeId, OpenFlags, Operation, Reply, Request, Time,
};
use platter_vfs::volume::{Keeper, SeekFor, Volume, VolumeError};

use crate::contents::{FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_ZERO_RANGE, SEEK_DATA, SEEK_HOLE};
use crate::terms::opening;
use crate::volume_tree::{Item, ItemKind, VolumeTree};

const S_IFDIR: u32 = 0o040_000;
const S_IFREG: u32 = 0o100_000;
/// Names and sizes change behind the kernel's back: it asks each time.
const TTL: Duration = Duration::ZERO;
/// Longest name (`ZFS_MAX_DATASET_NAME_LEN`).
const NAME_MAX: u32 = 255;
/// Unit of `statfs`.
const UNIT: u64 = 4096;

/// A volume that the kernel has open.
struct Opened {
    volume: Arc<Volume>,
    times: u64,
}

/// See the module text.
pub(crate) struct VolumesFs {
    tree: Arc<dyn VolumeTree>,
    runtime: tokio::runtime::Handle,
    pub kernel: Arc<OnceLock<Kernel>>,
    open: Arc<RwLock<BTreeMap<u64, Opened>>>,
    owner: (u32, u32),
    /// Told `true` when the kernel's side is gone.
    ended: tokio::sync::watch::Sender<bool>,
}

fn errno(error: &VolumeError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn answer_empty(result: Result<(), VolumeError>, reply: Reply) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl VolumesFs {
    pub fn new(
        tree: Arc<dyn VolumeTree>,
        runtime: tokio::runtime::Handle,
        ended: tokio::sync::watch::Sender<bool>,
    ) -> Self {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self { tree, runtime, kernel: Arc::default(), open: Arc::default(), owner, ended }
    }

    fn number(&self, node: NodeId) -> u64 {
        if node == NodeId::ROOT { self.tree.root() } else { node.0 }
    }

    fn volume(&self, node: NodeId) -> Option<Arc<Volume>> {
        self.open.read().get(&node.0).map(|opened| opened.volume.clone())
    }

    fn attr(&self, item: &Item) -> FileAttr {
        let time = Time { seconds: i64::try_from(item.since).unwrap_or(i64::MAX), nanoseconds: 0 };
        let (mode, size, used, block_size, links) = match item.kind {
            ItemKind::Directory => (S_IFDIR | 0o755, 2, 0, UNIT, 2),
            ItemKind::Volume { size, block_size, used, read_only } => {
                let mode = if read_only { 0o400 } else { 0o600 };
                (S_IFREG | mode, size, used, block_size, 1)
            }
        };
        // What is open knows its size first.
        let opened = self.volume(NodeId(item.number));
        let (size, used) = opened.map_or((size, used), |volume| (volume.size(), volume.used_bytes()));
        FileAttr {
            node: NodeId(item.number),
            size,
            blocks: Sectors::holding(used).0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            mode,
            links,
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            block_size: block_size as u32,
            flags: 0,
        }
    }

    fn entry(&self, item: &Item) -> Entry {
        Entry {
            node: NodeId(item.number),
            generation: item.generation,
            attr: self.attr(item),
            entry_ttl: TTL,
            attr_ttl: TTL,
        }
    }

    async fn lookup(&self, node: NodeId, name: &[u8], reply: Reply) {
        let folder = self.number(node);
        let found = match std::str::from_utf8(name) {
            Ok(".") => self.tree.item(folder).await,
            Ok("..") => self.tree.item(self.tree.parent(folder).await).await,
            Ok(name) => self.tree.find(folder, name).await,
            Err(_) => None,
        };
        match found {
            Some(item) => reply.entry(&self.entry(&item)),
            None => reply.error(Errno::NOENT),
        }
    }

    async fn list(&self, node: NodeId, offset: u64, size: u32, with_attributes: bool, reply: Reply) {
        let folder = self.number(node);
        let mut entries = Directory::new(size);
        let here = [(1, ".", folder), (2, "..", self.tree.parent(folder).await)];
        for (cursor, name, number) in here.into_iter().filter(|(cursor, ..)| *cursor > offset) {
            let full = match with_attributes {
                true => match self.tree.item(number).await {
                    // Not looked up by that: node 0.
                    Some(item) => {
                        let entry = Entry { node: NodeId(0), ..self.entry(&item) };
                        entries.add_entry(&entry, cursor, name.as_bytes())
                    }
                    None => continue,
                },
                false => entries.add(NodeId(number), cursor, S_IFDIR, name.as_bytes()),
            };
            if full {
                return reply.directory(&entries);
            }
        }
        // Numbers of data sets stand for places: whatever comes or goes meanwhile, the others are listed once.
        for item in self.tree.list(folder).await {
            let cursor = item.number.saturating_add(2);
            if cursor <= offset {
                continue;
            }
            let full = match with_attributes {
                true => entries.add_entry(&self.entry(&item), cursor, item.name.as_bytes()),
                false => {
                    let attr = self.attr(&item);
                    entries.add(attr.node, cursor, attr.mode, item.name.as_bytes())
                }
            };
            if full {
                break;
            }
        }
        reply.directory(&entries);
    }

    async fn getattr(&self, node: NodeId, is_statx: bool, reply: Reply) {
        let Some(item) = self.tree.item(self.number(node)).await else { return reply.error(Errno::STALE) };
        match is_statx {
            true => reply.statx(&self.attr(&item), TTL),
            false => reply.attr(&self.attr(&item), TTL),
        }
    }

    /// Times are nobody's business, and all else is the pool's.
    async fn setattr(&self, node: NodeId, change: platter_transport::SetAttr, reply: Reply) {
        let Some(item) = self.tree.item(self.number(node)).await else { return reply.error(Errno::STALE) };
        let attr = self.attr(&item);
        let keeps_size = change.size.is_none_or(|size| size == attr.size);
        if !keeps_size || change.mode.is_some() || change.uid.is_some() || change.gid.is_some() {
            return reply.error(Errno::PERM);
        }
        reply.attr(&attr, TTL);
    }

    async fn open(&self, node: NodeId, flags: i32, reply: Reply) {
        let volume = match self.tree.open(node.0).await {
            Ok(volume) => volume,
            Err(error) => return reply.error(error),
        };
        if opening(flags).writes && volume.is_read_only() {
            self.tree.close(node.0).await;
            return reply.error(Errno::ROFS);
        }
        let first = {
            let mut open = self.open.write();
            let opened = open.entry(node.0).or_insert(Opened { volume, times: 0 });
            opened.times += 1;
            opened.times == 1
        };
        // What the kernel has of earlier times may be older than a rollback.
        reply.opened(if first { OpenFlags::default() } else { OpenFlags::KEEP_CACHE });
    }

    fn release(&self, node: NodeId, reply: Reply) {
        {
            let mut open = self.open.write();
            let Some(opened) = open.get_mut(&node.0) else { return reply.error(Errno::BADF) };
            assert!(opened.times > 0, "what the kernel closes is open");
            opened.times -= 1;
            if opened.times == 0 {
                open.remove(&node.0);
            }
        }
        let tree = self.tree.clone();
        self.runtime.spawn(async move {
            tree.close(node.0).await;
            reply.ok();
        });
    }

    async fn read(&self, node: NodeId, offset: u64, size: u32, direct: bool, reply: Reply) {
        let Some(volume) = self.volume(node) else { return reply.error(Errno::BADF) };
        match volume.read(offset, size.into(), keeper(direct)).await {
            Ok(pieces) => reply.data(&pieces),
            Err(error) => reply.error(errno(&error)),
        }
    }

    async fn write(&self, node: NodeId, offset: u64, data: &[u8], direct: bool, stable: bool, reply: Reply) {
        let Some(volume) = self.volume(node) else { return reply.error(Errno::BADF) };
        match volume.write(offset, data, keeper(direct)).await {
            Ok(written) if stable || volume.must_settle() => {
                self.runtime.spawn(async move {
                    match volume.fsync().await {
                        Ok(()) => reply.written(written as u32),
                        Err(error) => reply.error(errno(&error)),
                    }
                });
            }
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// What a disk can do: make ranges zeros, and forget what was there.
    fn fallocate(&self, node: NodeId, offset: u64, length: u64, mode: i32, reply: Reply) {
        let Some(volume) = self.volume(node) else { return reply.error(Errno::BADF) };
        let clears = mode == FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE || mode & !FALLOC_KEEP_SIZE == FALLOC_ZERO_RANGE;
        if !clears {
            return reply.error(Errno::OPNOTSUPP);
        }
        if mode & FALLOC_KEEP_SIZE == 0 && offset.saturating_add(length) > volume.size() {
            return reply.error(Errno::PERM);
        }
        self.runtime.spawn(async move {
            let cleared = match volume.clear(offset, length).await {
                Ok(()) if volume.must_settle() => volume.fsync().await,
                cleared => cleared,
            };
            answer_empty(cleared, reply);
        });
    }

    async fn lseek(&self, node: NodeId, offset: u64, whence: u32, reply: Reply) {
        let Some(volume) = self.volume(node) else { return reply.error(Errno::BADF) };
        let what = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        match volume.seek(offset, what).await {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fsync(&self, node: NodeId, reply: Reply) {
        let Some(volume) = self.volume(node) else { return reply.ok() };
        self.runtime.spawn(async move { answer_empty(volume.fsync().await, reply) });
    }

    fn sync_all(&self, reply: Reply) {
        let all: Vec<Arc<Volume>> = self.open.read().values().map(|opened| opened.volume.clone()).collect();
        self.runtime.spawn(async move {
            for volume in all {
                if let Err(error) = volume.fsync().await {
                    return reply.error(errno(&error));
                }
            }
            reply.ok();
        });
    }

    fn statfs(&self, reply: Reply) {
        let (used, free) = self.tree.space();
        let free = free / UNIT;
        reply.statfs(UNIT as u32, used.div_ceil(UNIT).saturating_add(free), free, 0, 0, NAME_MAX);
    }

    async fn close_all(&self) {
        let all = std::mem::take(&mut *self.open.write());
        for (number, opened) in all {
            for _ in 0..opened.times {
                self.tree.close(number).await;
            }
        }
    }
}

fn keeper(direct: bool) -> Keeper {
    if direct { Keeper::Nobody } else { Keeper::Caller }
}

impl Filesystem for VolumesFs {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        // What is forgotten was not remembered: numbers are the pool's.
        let Some(reply) = reply else { return };
        let node = request.node;
        match request.operation {
            Operation::Read { offset, size, direct, .. } => self.read(node, offset, size, direct, reply).await,
            Operation::Write { offset, data, direct, stable, .. } => {
                self.write(node, offset, data, direct, stable, reply).await;
            }
            Operation::Lookup { name } => self.lookup(node, name, reply).await,
            Operation::GetAttr => self.getattr(node, false, reply).await,
            Operation::Statx => self.getattr(node, true, reply).await,
            Operation::SetAttr(change) => self.setattr(node, change, reply).await,
            Operation::Open { flags } => self.open(node, flags, reply).await,
            Operation::Release { .. } => self.release(node, reply),
            Operation::Fallocate { offset, length, mode } => self.fallocate(node, offset, length, mode, reply),
            Operation::Lseek { offset, whence } => self.lseek(node, offset, whence, reply).await,
            Operation::Fsync { .. } => self.fsync(node, reply),
            Operation::FsyncDir { .. } | Operation::ReleaseDir | Operation::Access { .. } => reply.ok(),
            Operation::SyncFs => self.sync_all(reply),
            Operation::StatFs => self.statfs(reply),
            Operation::OpenDir { .. } => reply.opened(OpenFlags::default()),
            Operation::ReadDir { offset, size } => self.list(node, offset, size, false, reply).await,
            Operation::ReadDirPlus { offset, size } => self.list(node, offset, size, true, reply).await,
            // What exists is the pool's business.
            Operation::Create { .. }
            | Operation::TmpFile { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. } => reply.error(Errno::PERM),
            Operation::ReadLink => reply.error(Errno::INVAL),
            Operation::Ioctl { .. } => reply.error(Errno::NOTTY),
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.error(Errno::INVAL),
            // The kernel does without, and does not ask again.
            Operation::Flush
            | Operation::CopyFileRange { .. }
            | Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. } => reply.error(Errno::NOSYS),
        }
    }

    fn started(&self, kernel: Kernel) {
        let _ = self.kernel.set(kernel);
    }

    fn gone(&self) {
        // A panic would leave whoever waits for the end waiting for good.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.close_all())));
        if outcome.is_err() {
            tracing::error!("closing volumes when their mount went away panicked; this is a bug");
        }
        self.ended.send_replace(true);
    }
}
