//! What serving a mount takes besides the requests themselves: nodes, callers, answers.
//!
//! Invariants:
//! - every node that an answer names is remembered in [`Vfs`] before the kernel can know it, and until it forgets it;
//! - the kernel has checked access to whatever it asks for (`default_permissions`), unless a request says otherwise.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use platter_ondisk::ObjectId;
use platter_transport::{Entry, Errno, FileAttr, Kernel, NodeId, OpenFlags, Reply, Request, XattrAnswer};
use platter_vfs::{Access, Attr, Caching, NewFile, Result, Vfs, is_control};

use crate::attr::{PERMISSIONS, attr_ttl, errno, file_attr};
use crate::coherence::KernelCaches;
use crate::nodes::Nodes;
use crate::snapshots::{Shelf, Snapshots};
use crate::terms::{ENTRY_TTL, open_flags, opening};

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl platter_vfs::Caller for Caller {
    /// Where the kernel does not tell (`FUSE_ALLOW_IDMAP`) the system is asked, which takes longer than most requests.
    /// Who cannot be seen, or is gone, is not root.
    fn is_root(&self) -> bool {
        if self.uid != Request::UNTOLD {
            return self.uid == 0;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        // Real, effective, saved, for file access (proc_pid_status(5)).
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.and_then(|ids| ids.split_whitespace().nth(3)) == Some("0")
    }
}

/// A file system and what its mount has to know about it.
pub(crate) struct PlatterFs {
    pub vfs: Arc<Vfs>,
    pub runtime: tokio::runtime::Handle,
    pub cache_absent: bool,
    pub kernel: Arc<OnceLock<Kernel>>,
    /// Where the snapshots come from that it shows.
    pub source: Option<Arc<dyn Snapshots>>,
    /// Those that are open.
    pub shelf: Arc<Shelf<PlatterFs>>,
    /// How many nodes of a snapshot the kernel knows.
    known: Option<AtomicU64>,
    nodes: Nodes,
    /// Told `true` when the kernel's side is gone.
    ended: tokio::sync::watch::Sender<bool>,
}

impl PlatterFs {
    pub fn new(
        vfs: Arc<Vfs>,
        runtime: tokio::runtime::Handle,
        cache_absent: bool,
        ended: tokio::sync::watch::Sender<bool>,
    ) -> Self {
        let (nodes, shelf) = (Nodes::new(vfs.root(), 0), Arc::new(Shelf::new()));
        Self { vfs, runtime, cache_absent, kernel: Arc::default(), source: None, shelf, known: None, nodes, ended }
    }

    /// A snapshot of it, `vfs`, at this place of its shelf.
    pub fn snapshot(&self, vfs: Arc<Vfs>, place: u64) -> Self {
        Self {
            nodes: Nodes::new(vfs.root(), place),
            vfs,
            runtime: self.runtime.clone(),
            cache_absent: self.cache_absent,
            kernel: self.kernel.clone(),
            source: None,
            shelf: Arc::new(Shelf::new()),
            known: Some(AtomicU64::new(0)),
            ended: self.ended.clone(),
        }
    }

    /// The kernel knows `object` once more.
    pub fn remember(&self, object: ObjectId) {
        if let Some(known) = &self.known {
            known.fetch_add(1, Ordering::Relaxed);
        }
        self.vfs.remember(object);
    }

    /// The kernel forgets these.
    pub fn forget(&self, all: Vec<(NodeId, u64)>) {
        if let Some(known) = &self.known {
            let times = all.iter().fold(0u64, |sum, (_, times)| sum.saturating_add(*times));
            let _ = known.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |known| Some(known.saturating_sub(times)));
        }
        self.vfs.forget(all.into_iter().map(|(node, times)| (self.object(node), times)));
    }

    /// Whether the kernel knows no node of this snapshot.
    pub fn is_unknown(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.load(Ordering::Relaxed) == 0)
    }

    /// The kernel's form of `attr`.
    pub fn file_attr(&self, attr: &Attr) -> FileAttr {
        FileAttr { node: self.nodes.shown(attr.object), ..file_attr(attr) }
    }

    /// Attributes to answer with, and how long the kernel may trust them.
    pub fn told_attr(&self, attr: &Attr) -> (FileAttr, Duration) {
        (self.file_attr(attr), attr_ttl(attr))
    }

    /// The number that stat(2) tells of an object.
    pub fn node(&self, object: ObjectId) -> NodeId {
        self.nodes.shown(object)
    }

    pub fn object(&self, node: NodeId) -> ObjectId {
        self.nodes.object(node)
    }

    /// The kernel's side of the mount.
    pub fn set_kernel(&self, kernel: Kernel) {
        self.vfs.set_caches(Arc::new(KernelCaches { kernel: kernel.clone(), nodes: self.nodes }));
        let _ = self.kernel.set(kernel);
    }

    /// Makes an object stable, and answers then. No serving thread waits for that: whoever else wants to be served is,
    /// and however many wait share a flush.
    pub fn answer_when_stable(&self, caller: Caller, object: ObjectId, reply: Reply) {
        let vfs = self.vfs.clone();
        self.runtime.spawn(async move { answer_empty(vfs.fsync(Access::Checked(&caller), object).await, reply) });
    }

    /// As [`Self::answer_when_stable`], for everything there is.
    pub fn answer_when_all_stable(&self, caller: Caller, reply: Reply) {
        let vfs = self.vfs.clone();
        self.runtime.spawn(async move { answer_empty(vfs.sync(Access::Checked(&caller)).await, reply) });
    }

    /// How long the kernel may remember a name. Where names fold, the same file has several, and the kernel would not
    /// know that all of them go with one.
    pub fn entry_ttl(&self, ttl: Duration) -> Duration {
        if self.cache_absent { ttl } else { Duration::ZERO }
    }

    /// A node to answer with. The kernel counts it as looked up once more.
    pub fn entry(&self, attr: &Attr) -> Entry {
        if is_control(attr.object) {
            return control_entry(attr);
        }
        self.remember(attr.object);
        self.told_entry(attr, self.entry_ttl(ENTRY_TTL))
    }

    /// The same, of what is remembered already or need not be.
    pub fn told_entry(&self, attr: &Attr, entry_ttl: Duration) -> Entry {
        let handle = self.vfs.handle(attr);
        let node = self.nodes.node(handle.object());
        debug_assert!(self.object(node) == attr.object, "the kernel's number leads back to the object");
        Entry { node, generation: handle.generation(), attr: self.file_attr(attr), entry_ttl, attr_ttl: attr_ttl(attr) }
    }

    pub fn answer_entry(&self, result: Result<Attr>, reply: Reply) {
        match result {
            Ok(attr) => reply.entry(&self.entry(&attr)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub async fn open_file(&self, access: Access<'_>, node: NodeId, flags: i32, reply: Reply) {
        match self.vfs.open(access, self.object(node), opening(flags)).await {
            Ok(caching) => reply.opened(open_flags(caching)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    pub async fn open_directory(&self, access: Access<'_>, node: NodeId, reply: Reply) {
        match self.vfs.open_directory(access, self.object(node)).await {
            Ok(Caching::Kept) => reply.opened(OpenFlags::KEEP_CACHE | OpenFlags::CACHE_DIR),
            Ok(_) => reply.opened(OpenFlags::default()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// An open file, which was opened with these `flags` and answered so, is closed.
    pub async fn release(&self, node: NodeId, flags: i32, how: OpenFlags, reply: Reply) {
        match self.vfs.close(self.object(node), opening(flags), how.contains(OpenFlags::DIRECT_IO)) {
            Err(error) => reply.error(errno(&error)),
            Ok(closed) => {
                // Nobody waits for what this may have to free, but until it is answered the kernel keeps the inode (and
                // refuses to remount read-only because of one without a name).
                reply.ok();
                self.vfs.released(closed).await;
            }
        }
    }

    pub async fn release_directory(&self, node: NodeId, reply: Reply) {
        match self.vfs.close_directory(self.object(node)) {
            Err(error) => reply.error(errno(&error)),
            Ok(closed) => {
                reply.ok();
                if let Some(closed) = closed {
                    self.vfs.released(closed).await;
                }
            }
        }
    }

    async fn give_all_back(&self) {
        for snapshot in self.shelf.take_off(None) {
            snapshot.vfs.give_back().await;
        }
        self.vfs.give_back().await;
    }

    /// Gives back all that the kernel, which is gone, had open or knew. Blocks.
    pub fn give_back(&self) {
        // A panic would leave whoever waits for the end waiting for good.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.give_all_back())));
        if outcome.is_err() {
            tracing::error!("giving back what was open when its mount went away panicked; this is a bug");
        }
        self.ended.send_replace(true);
    }
}

/// A node that does not change, for as long as the kernel likes.
pub(crate) fn lasting(attr: FileAttr) -> Entry {
    Entry { node: attr.node, generation: 0, attr, entry_ttl: ENTRY_TTL, attr_ttl: ENTRY_TTL }
}

/// The control directory's: whether its name is found may change, and its times.
pub(crate) fn control_entry(attr: &Attr) -> Entry {
    Entry { entry_ttl: Duration::ZERO, attr_ttl: Duration::ZERO, ..lasting(file_attr(attr)) }
}

pub(crate) fn answer_empty(result: Result<()>, reply: Reply) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

/// What a caller makes.
pub(crate) fn new_file(caller: Caller, mode: u32, umask: u32) -> NewFile {
    NewFile { mode: mode & PERMISSIONS, umask, uid: caller.uid, gid: caller.gid, open: false }
}

/// Answers with a value that the kernel may only have asked the size of.
pub(crate) fn answer_value(result: Result<Vec<u8>>, size: u32, reply: Reply) {
    match result {
        Ok(value) if size == 0 => reply.xattr(XattrAnswer::Size(value.len() as u32)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE),
        Ok(value) => reply.xattr(XattrAnswer::Value(&value)),
        Err(error) => reply.error(errno(&error)),
    }
}
