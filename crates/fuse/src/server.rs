//! What serving a mount takes besides the requests themselves: nodes and objects, errors, answers, and what is open.
//!
//! Invariants:
//! - the kernel's node 1 is the root directory; every other node number is an object number, or one of the control
//!   directory's;
//! - every node that an answer names is remembered in [`Zpl`] before the kernel can know it, and until it forgets it;
//! - every `open` counted in [`Zpl`] is counted in `opens` too, so that those the kernel never released (it went away)
//!   are given back at the end.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use platter_ondisk::ObjectId;
use platter_transport::{Entry, Errno, FileAttr, InitFlags, Kernel, NodeId, OpenFlags, Reply, Request, XattrAnswer};
use platter_zpl::{Attr, DirEntry, NewFile, Timestamp, Zpl, ZplError};

use crate::attr::{PERMISSIONS, attr_ttl, file_attr, time};
use crate::control::Control;
use crate::failures::Failures;
use crate::flag_words;
use crate::opens::{Opens, Passing};
use crate::reaper::Reaper;
use crate::terms::{ENTRY_TTL, may_read, may_write};

/// Directory entries asked for at once, without and with attributes.
const DIR_BATCH: usize = 128;
const DIR_PLUS_BATCH: usize = 32;

pub(crate) const O_EXCL: i32 = 0o200;

/// Who asks.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Caller {
    /// Whether it is root. Where the kernel does not tell (`FUSE_ALLOW_IDMAP`) the system is asked, which takes longer
    /// than most requests. Who cannot be seen, or is gone, is not root.
    pub fn is_root(self) -> bool {
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
    pub zpl: Arc<Zpl>,
    pub root: ObjectId,
    pub control: Control,
    pub runtime: tokio::runtime::Handle,
    pub cache_absent: bool,
    pub opens: Opens,
    reaper: Reaper,
    pub failures: Failures,
    pub kernel: Arc<OnceLock<Kernel>>,
    /// Told `true` when the kernel's side is gone.
    ended: tokio::sync::watch::Sender<bool>,
}

impl PlatterFs {
    pub fn new(
        zpl: Arc<Zpl>,
        source: &str,
        runtime: tokio::runtime::Handle,
        cache_absent: bool,
        ended: tokio::sync::watch::Sender<bool>,
    ) -> Self {
        let root = zpl.root();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mounted = Timestamp { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
        let control = Control::new(time(mounted));
        let failures = Failures::new(source, runtime.clone());
        let reaper = Reaper::new(zpl.clone(), failures.clone());
        let (opens, kernel) = (Opens::default(), Arc::default());
        Self { zpl, root, control, runtime, cache_absent, opens, reaper, failures, kernel, ended }
    }

    /// A failure with the file `object` as the `errno` to answer with. (Of a result and not of what leads to it: handed
    /// on, that would be part of each request twice. First, so that nothing else waits with it.)
    pub fn told_of<T>(&self, result: platter_zpl::Result<T>, object: ObjectId, what: &'static str) -> Result<T, Errno> {
        self.failures.told(result, &self.zpl, object, what)
    }

    pub fn object(&self, node: NodeId) -> ObjectId {
        if node == NodeId::ROOT { self.root } else { ObjectId(node.0) }
    }

    /// The directory `parent` for a change of its entry `name`; the control directory takes none.
    pub fn changeable(&self, parent: NodeId, name: &[u8]) -> Result<ObjectId, Errno> {
        let object = self.object(parent);
        let is_control = Control::has(parent) || (object == self.root && name == Control::NAME);
        if is_control { Err(Errno::PERM) } else { Ok(object) }
    }

    /// Changes the entry `name` of the directory `parent`.
    pub async fn change<T, W: Future<Output = platter_zpl::Result<T>>>(
        &self,
        what: &'static str,
        parent: NodeId,
        name: &[u8],
        work: impl FnOnce(ObjectId) -> W,
    ) -> Result<T, Errno> {
        let parent = self.changeable(parent, name)?;
        self.told_of(work(parent).await, parent, what)
    }

    pub fn node(&self, object: ObjectId) -> NodeId {
        if object == self.root { NodeId::ROOT } else { NodeId(object.0) }
    }

    /// Makes an object stable, and answers then. No serving thread waits for that: whoever else wants to be served is,
    /// and however many wait share a flush.
    pub fn answer_when_stable(&self, what: &'static str, object: ObjectId, reply: Reply) {
        let (zpl, failures) = (self.zpl.clone(), self.failures.clone());
        self.runtime.spawn(async move {
            let stable = zpl.fsync(object).await;
            answer_empty(failures.told(stable, &zpl, object, what), reply);
        });
    }

    /// As [`Self::answer_when_stable`], for everything there is.
    pub fn answer_when_all_stable(&self, reply: Reply) {
        let (zpl, failures, root) = (self.zpl.clone(), self.failures.clone(), self.root);
        self.runtime.spawn(async move {
            let stable = zpl.sync_all().await;
            answer_empty(failures.told(stable, &zpl, root, "syncfs"), reply);
        });
    }

    /// Frees what has no name and nobody knows any more, soon.
    pub fn reap(&self, orphans: impl Iterator<Item = ObjectId>) {
        self.reaper.add(orphans, &self.runtime);
    }

    /// How long the kernel may remember a name. Where names fold, the same file has several, and the kernel would not
    /// know that all of them go with one.
    pub fn entry_ttl(&self, ttl: Duration) -> Duration {
        if self.cache_absent { ttl } else { Duration::ZERO }
    }

    /// A node to answer with. The kernel counts it as looked up once more.
    pub fn entry(&self, attr: &Attr, entry_ttl: Duration) -> Entry {
        self.zpl.remember(attr.object);
        Entry {
            node: self.node(attr.object),
            generation: attr.generation,
            attr: file_attr(attr),
            entry_ttl: self.entry_ttl(entry_ttl),
            attr_ttl: attr_ttl(attr),
        }
    }

    pub fn answer_entry(&self, result: Result<Attr, Errno>, reply: Reply) {
        match result {
            Ok(attr) => reply.entry(&self.entry(&attr, ENTRY_TTL)),
            Err(error) => reply.error(error),
        }
    }

    /// A node's attributes, and how long the kernel may trust them.
    pub async fn attr(&self, what: &'static str, node: NodeId) -> Result<(FileAttr, Duration), Errno> {
        match self.control.attr(node) {
            Some(attr) => Ok((attr, ENTRY_TTL)),
            None => self
                .told_of(self.zpl.getattr(self.object(node)).await, self.object(node), what)
                .map(|attr| told_attr(&attr)),
        }
    }

    /// The kernel's side of the mount.
    pub fn set_kernel(&self, kernel: Kernel) {
        let _ = self.kernel.set(kernel);
    }

    /// Counts a file as open that was opened with these `flags`; how to answer that.
    pub fn opened(&self, attr: &Attr, flags: i32) -> OpenFlags {
        let can_pass = self.kernel.get().is_some_and(|kernel| kernel.has(InitFlags::DIRECT_IO_ALLOW_MMAP));
        // The kernel knows the size of an empty file, so a reader past the cache is the only one that we hear of.
        let is_hidden = attr.size == 0 && !may_write(flags) && self.zpl.read_moves_atime(attr);
        let every_read = may_read(flags) && (is_hidden || self.zpl.notes_every_read());
        self.opens.add(attr.object, flags, Passing { can_pass, every_read })
    }

    pub async fn open_file(&self, node: NodeId, flags: i32, reply: Reply) {
        let object = self.object(node);
        match self.told_of(self.zpl.open(object).await, object, "open") {
            Ok(attr) => {
                if let Err(error) = flag_words::check_open(&attr, flags) {
                    let _ = self.told_of(self.zpl.release(object).await, object, "closing what may not be opened");
                    return reply.error(error);
                }
                reply.opened(self.opened(&attr, flags));
            }
            Err(error) => reply.error(error),
        }
    }

    pub async fn open_directory(&self, node: NodeId, reply: Reply) {
        let object = self.object(node);
        match self.told_of(self.zpl.open(object).await, object, "opendir") {
            Ok(_) => {
                self.opens.add(object, 0, Passing::default());
                let cached = OpenFlags::KEEP_CACHE | OpenFlags::CACHE_DIR;
                reply.opened(if self.zpl.notes_every_read() { OpenFlags::default() } else { cached });
            }
            Err(error) => reply.error(error),
        }
    }

    /// An open file, which was opened with these `flags` and answered so, or a directory is closed.
    pub async fn release_node(&self, node: NodeId, flags: i32, how: OpenFlags, reply: Reply) {
        let object = self.object(node);
        if !self.opens.remove(object, flags, how) {
            return reply.error(Errno::BADF);
        }
        // Nobody waits for what this may have to free, but until it is answered the kernel keeps the inode (and refuses
        // to remount read-only because of one without a name).
        reply.ok();
        let _ = self.told_of(self.zpl.release(object).await, object, "release");
    }

    pub async fn create_and_open(
        &self,
        parent: ObjectId,
        name: &[u8],
        new: NewFile,
        flags: i32,
    ) -> Result<Attr, Errno> {
        let made = match self.zpl.create(parent, name, new).await {
            // The kernel believed that it does not exist, so it has not checked who may open it. Told so, it looks the
            // name up again.
            Err(ZplError::Exists) if flags & O_EXCL == 0 => Err(ZplError::Stale),
            other => other,
        };
        self.told_of(made, parent, "create")
    }

    /// Hands directory entries after `cursor` to `add` until it says that its buffer is full.
    pub async fn list(
        &self,
        directory: ObjectId,
        mut cursor: u64,
        with_attributes: bool,
        mut add: impl FnMut(&DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let batch = if with_attributes { DIR_PLUS_BATCH } else { DIR_BATCH };
        loop {
            let entries =
                self.told_of(self.zpl.readdir(directory, cursor, batch, with_attributes).await, directory, "readdir")?;
            let Some(last) = entries.last() else { return Ok(()) };
            cursor = last.cursor;
            if entries.iter().any(&mut add) {
                return Ok(());
            }
        }
    }

    /// Gives back all that the kernel, which is gone, had open or knew. Blocks.
    pub fn give_back(&self) {
        // A panic would leave whoever waits for the end waiting for good.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(self.give_back_all())));
        if outcome.is_err() {
            tracing::error!("giving back what was open when its mount went away panicked; this is a bug");
        }
        self.ended.send_replace(true);
    }

    async fn give_back_all(&self) {
        // They are orphans all the same, and freed with the others.
        self.reaper.clear();
        for (object, count) in self.opens.take() {
            for _ in 0..count {
                let _ = self.told_of(
                    self.zpl.release(object).await,
                    object,
                    "giving back what was open when its mount went away",
                );
            }
        }
        let freed = self.zpl.forget_all().await;
        let _ = self.told_of(freed, self.root, "freeing what was unlinked when its mount went away");
    }
}

/// Attributes to answer with, and how long the kernel may trust them.
pub(crate) fn told_attr(attr: &Attr) -> (FileAttr, Duration) {
    (file_attr(attr), attr_ttl(attr))
}

pub(crate) fn answer_empty(result: Result<(), Errno>, reply: Reply) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

/// What a caller makes.
pub(crate) fn new_file(caller: Caller, mode: u32, umask: u32) -> NewFile {
    NewFile { mode: mode & PERMISSIONS, umask, uid: caller.uid, gid: caller.gid, open: false }
}

/// Answers with a value that the kernel may only have asked the size of.
pub(crate) fn answer_value(result: Result<Vec<u8>, Errno>, size: u32, reply: Reply) {
    match result {
        Ok(value) if size == 0 => reply.xattr(XattrAnswer::Size(value.len() as u32)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE),
        Ok(value) => reply.xattr(XattrAnswer::Value(&value)),
        Err(error) => reply.error(error),
    }
}
