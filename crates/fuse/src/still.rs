//! Files that never change and come from anywhere, as the kernel sees them.
//!
//! Invariants:
//! - numbers are the tree's, so that nothing has to be remembered for the kernel but what it has open, which the tree
//!   keeps;
//! - a serving thread does not wait for the tree: whatever looks at it is done on a thread that may wait.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use platter_transport::{
    Directory, Entry, Errno, FileAttr, Filesystem, Kernel, NodeId, OpenFlags, Operation, Reply, Request,
};

use crate::terms::opening;

/// Nothing changes: the kernel may keep what it was told.
const TTL: Duration = Duration::from_secs(3600);
/// Longest name.
const NAME_MAX: u32 = 255;
/// Unit of `statfs`, in bytes.
const UNIT: u32 = 4096;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// The number of what it stands for.
    pub number: u64,
    /// The kind of that, as in `st_mode`.
    pub mode: u32,
}

/// A tree of files and directories that never change, each with a number of its own. Calls may wait for a disk.
pub trait StillTree: Send + Sync + 'static {
    /// The number of the topmost directory.
    fn root(&self) -> u64;

    /// What the file or directory of this number is. Its node is filled in by who asks.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    fn attributes(&self, number: u64) -> io::Result<FileAttr>;

    /// What is in the directory of this number, always in the same order.
    ///
    /// # Errors
    /// As above.
    fn entries(&self, number: u64) -> io::Result<Arc<Vec<StillEntry>>>;

    /// Where the symbolic link of this number leads.
    ///
    /// # Errors
    /// As above; it is none.
    fn target(&self, number: u64) -> io::Result<Vec<u8>>;

    /// The file of this number is open once more.
    ///
    /// # Errors
    /// It cannot be read.
    fn open(&self, number: u64) -> io::Result<()>;

    /// The file of this number was closed once.
    fn close(&self, number: u64);

    /// Up to `size` bytes of an open file from `offset` on; fewer at its end only.
    ///
    /// # Errors
    /// They cannot be read.
    fn read(&self, number: u64, offset: u64, size: u32) -> io::Result<Vec<u8>>;
}

/// See the module text.
pub(crate) struct StillFs {
    served: Arc<Served>,
    runtime: tokio::runtime::Handle,
    pub kernel: Arc<OnceLock<Kernel>>,
    /// Told `true` when the kernel's side is gone.
    ended: tokio::sync::watch::Sender<bool>,
}

struct Served {
    tree: Arc<dyn StillTree>,
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()))
}

impl StillFs {
    pub fn new(
        tree: Arc<dyn StillTree>,
        runtime: tokio::runtime::Handle,
        ended: tokio::sync::watch::Sender<bool>,
    ) -> Self {
        Self { served: Arc::new(Served { tree }), runtime, kernel: Arc::default(), ended }
    }

    /// Has it done on a thread that may wait.
    fn later(&self, answer: impl FnOnce(&Served) + Send + 'static) {
        let served = self.served.clone();
        drop(self.runtime.spawn_blocking(move || answer(&served)));
    }
}

impl Served {
    fn number(&self, node: NodeId) -> u64 {
        if node == NodeId::ROOT { self.tree.root() } else { node.0 }
    }

    fn attr(&self, number: u64) -> io::Result<FileAttr> {
        let node = if number == self.tree.root() { NodeId::ROOT } else { NodeId(number) };
        Ok(FileAttr { node, ..self.tree.attributes(number)? })
    }

    fn entry(&self, number: u64) -> io::Result<Entry> {
        let attr = self.attr(number)?;
        Ok(Entry { node: attr.node, generation: 0, attr, entry_ttl: TTL, attr_ttl: TTL })
    }

    fn lookup(&self, node: NodeId, name: &[u8], reply: Reply) {
        let found = self.tree.entries(self.number(node)).and_then(|entries| {
            match entries.iter().find(|entry| entry.name == name) {
                Some(entry) => self.entry(entry.number),
                None => Err(io::Error::from_raw_os_error(Errno::NOENT.raw_os_error())),
            }
        });
        match found {
            Ok(entry) => reply.entry(&entry),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// What is listed is looked up one by one, when somebody wants it: a large directory is listed without a look at
    /// each of its files.
    fn list(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        let number = self.number(node);
        let entries = match self.tree.entries(number) {
            Ok(entries) => entries,
            Err(error) => return reply.error(errno(&error)),
        };
        let mut listed = Directory::new(size);
        let directory = 0o040_000;
        let here = [(b".".as_slice(), number, directory), (b"..", number, directory)];
        let all = here.into_iter().chain(entries.iter().map(|entry| (&entry.name[..], entry.number, entry.mode)));
        for (cursor, (name, number, mode)) in (1u64..).zip(all).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if listed.add(NodeId(number), cursor, mode, name) {
                break;
            }
        }
        reply.directory(&listed);
    }

    fn get_attr(&self, node: NodeId, is_statx: bool, reply: Reply) {
        match self.attr(self.number(node)) {
            Ok(attr) if is_statx => reply.statx(&attr, TTL),
            Ok(attr) => reply.attr(&attr, TTL),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn open(&self, node: NodeId, flags: i32, reply: Reply) {
        if opening(flags).writes {
            return reply.error(Errno::ROFS);
        }
        match self.tree.open(node.0) {
            Ok(()) => reply.opened(OpenFlags::KEEP_CACHE),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn close(&self, node: NodeId, reply: Reply) {
        self.tree.close(node.0);
        reply.ok();
    }

    fn read(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        match self.tree.read(node.0, offset, size) {
            Ok(bytes) => {
                assert!(bytes.len() as u64 <= u64::from(size), "a tree gives no more than it was asked for");
                reply.data(&[bytes]);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read_link(&self, node: NodeId, reply: Reply) {
        match self.tree.target(node.0) {
            Ok(target) => reply.data(&[target]),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

impl Filesystem for StillFs {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        let Some(reply) = reply else { return };
        let node = request.node;
        match request.operation {
            Operation::Lookup { name } => {
                let name = name.to_vec();
                self.later(move |served| served.lookup(node, &name, reply));
            }
            Operation::GetAttr => self.later(move |served| served.get_attr(node, false, reply)),
            Operation::Statx => self.later(move |served| served.get_attr(node, true, reply)),
            Operation::Read { offset, size, .. } => self.later(move |served| served.read(node, offset, size, reply)),
            Operation::ReadLink => self.later(move |served| served.read_link(node, reply)),
            Operation::Open { flags } => self.later(move |served| served.open(node, flags, reply)),
            Operation::Release { .. } => self.later(move |served| served.close(node, reply)),
            Operation::OpenDir { .. } => reply.opened(OpenFlags::default()),
            Operation::ReadDir { offset, size } => self.later(move |served| served.list(node, offset, size, reply)),
            Operation::ReleaseDir
            | Operation::Flush
            | Operation::Fsync { .. }
            | Operation::FsyncDir { .. }
            | Operation::SyncFs
            | Operation::Access { .. } => reply.ok(),
            Operation::StatFs => reply.statfs(UNIT, 0, 0, 0, 0, NAME_MAX),
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.error(Errno::INVAL),
            Operation::Ioctl { .. } => reply.error(Errno::NOTTY),
            // The kernel does without, and does not ask again.
            Operation::ReadDirPlus { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. } => reply.error(Errno::NOSYS),
            Operation::SetAttr(_)
            | Operation::Write { .. }
            | Operation::Fallocate { .. }
            | Operation::Create { .. }
            | Operation::TmpFile { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::SetXattr { .. }
            | Operation::RemoveXattr { .. } => reply.error(Errno::ROFS),
        }
    }

    fn started(&self, kernel: Kernel) {
        let _ = self.kernel.set(kernel);
    }

    fn gone(&self) {
        self.ended.send_replace(true);
    }
}
