//! A FUSE file system without storage: what the transport alone can do on this machine.
//!
//! Reads are answered from one buffer that never changes, writes are swallowed; names and sizes are a table in memory.
//! Everything that the kernel is told (sizes of requests, capabilities, how long it may trust an answer) is what
//! Platter's mounts tell it, so that the difference between the two is what lies behind the transport.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use platter_fuse::terms::{self, ATTR_TTL, ENTRY_TTL, REQUEST_MAX};
use platter_ondisk::Sectors;
use platter_transport::{
    DEVICE, Directory, Entry, Errno, FileAttr, Filesystem, NodeId, OpenFlags, Operation, Reply, Request, Session,
    SetAttr, SetTime, Time,
};
use rustix::mount::MountFlags;

use crate::error::{Result, While};

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

/// Mounts the file system at `mountpoint` and serves it until it is unmounted.
///
/// # Errors
/// What the system said to the mount, or what ended serving.
pub fn serve(mountpoint: &Path) -> Result<()> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).on(|| format!("opening {DEVICE}"))?;
    let data = terms::mount_data(&device, true);
    rustix::mount::mount("platter-bench-null", mountpoint, "fuse.benchnull", MountFlags::NOATIME, data.as_c_str())
        .on(|| format!("mounting at {}", mountpoint.display()))?;
    let runtime = tokio::runtime::Runtime::new().on(|| "starting threads".into())?;
    let session = Session::start(NullFs::new(), device.into(), terms::config(0, false), runtime.handle().clone());
    let session = session.on(|| "serving the mount".into())?;
    if let Ok(found) = mountpoint.metadata() {
        let (major, minor) = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        terms::set_readahead(&format!("{major}:{minor}"));
    }
    session.join().on(|| "serving the mount".into())
}

/// A file or a directory.
#[derive(Debug, Default)]
struct Node {
    mode: u32,
    size: u64,
    mtime: Time,
    links: u32,
    /// Of a directory: names with their place in the order of listing.
    names: HashMap<Vec<u8>, (u64, NodeId)>,
    order: BTreeMap<u64, (Vec<u8>, NodeId)>,
    next_place: u64,
}

#[derive(Debug)]
struct Table {
    nodes: HashMap<u64, Node>,
    next_node: u64,
}

/// The table of names, and what every file contains.
#[derive(Debug)]
struct NullFs {
    table: Mutex<Table>,
    contents: Vec<u8>,
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }
}

impl Table {
    fn node(&mut self, node: NodeId) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&node.0).ok_or(Errno::NOENT)
    }

    fn attr(&mut self, node: NodeId) -> Result<FileAttr, Errno> {
        let found = self.node(node)?;
        let time = found.mtime;
        Ok(FileAttr {
            node,
            size: found.size,
            blocks: Sectors::holding(found.size).0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            mode: found.mode,
            links: found.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            block_size: 128 << 10,
            flags: 0,
        })
    }

    fn entry(&mut self, node: NodeId) -> Result<Entry, Errno> {
        Ok(Entry { node, generation: 0, attr: self.attr(node)?, entry_ttl: ENTRY_TTL, attr_ttl: ATTR_TTL })
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        self.node(parent)?.names.get(name).map(|&(_, node)| node).ok_or(Errno::NOENT)
    }

    fn enter(&mut self, parent: NodeId, name: &[u8], node: NodeId) -> Result<(), Errno> {
        let parent = self.node(parent)?;
        if parent.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let place = parent.next_place;
        parent.next_place += 1;
        parent.names.insert(name.to_vec(), (place, node));
        parent.order.insert(place, (name.to_vec(), node));
        Ok(())
    }

    fn make(&mut self, parent: NodeId, name: &[u8], mode: u32) -> Result<Entry, Errno> {
        let node = NodeId(self.next_node);
        self.enter(parent, name, node)?;
        self.next_node += 1;
        self.nodes.insert(node.0, Node { mode, mtime: now(), links: 1, next_place: 1, ..Node::default() });
        self.entry(node)
    }

    fn remove(&mut self, parent: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        let parent = self.node(parent)?;
        let (place, node) = parent.names.remove(name).ok_or(Errno::NOENT)?;
        parent.order.remove(&place);
        Ok(node)
    }

    fn unlink(&mut self, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
        let node = self.remove(parent, name)?;
        // A file that is open is still asked for; the cases here have none, so it can go with its name.
        self.nodes.remove(&node.0);
        Ok(())
    }

    fn rename(&mut self, parent: NodeId, name: &[u8], new_parent: NodeId, new_name: &[u8]) -> Result<(), Errno> {
        let node = self.remove(parent, name)?;
        let _ = self.unlink(new_parent, new_name);
        self.enter(new_parent, new_name, node)
    }

    fn list(&mut self, node: NodeId, after: u64, size: u32, plus: bool) -> Result<Directory, Errno> {
        let mut listing = Directory::new(size);
        let children: Vec<(u64, Vec<u8>, NodeId)> = self
            .node(node)?
            .order
            .range(after + 1..)
            // More do not fit in the largest answer's part that the kernel asks for.
            .take(size as usize / 24)
            .map(|(&place, (name, node))| (place, name.clone(), *node))
            .collect();
        for (place, name, child) in children {
            let entry = self.entry(child)?;
            let full = if plus {
                listing.add_entry(&entry, place, &name)
            } else {
                listing.add(child, place, entry.attr.mode, &name)
            };
            if full {
                break;
            }
        }
        Ok(listing)
    }
}

/// Goes on with the value, or hands error and reply back to be brought together.
macro_rules! check {
    ($value:expr, $reply:expr) => {
        match $value {
            Ok(value) => value,
            Err(error) => return Err((error, $reply)),
        }
    };
}

impl NullFs {
    fn new() -> Self {
        let root = Node { mode: DIRECTORY | 0o755, links: 2, next_place: 1, mtime: now(), ..Node::default() };
        let table = Table { nodes: HashMap::from([(NodeId::ROOT.0, root)]), next_node: 2 };
        Self { table: Mutex::new(table), contents: vec![0x5a; REQUEST_MAX as usize] }
    }

    fn answer(&self, request: Request<'_>, reply: Reply) -> Result<(), (Errno, Reply)> {
        let node = request.node;
        match request.operation {
            Operation::Lookup { name } => return self.lookup(node, name, reply),
            Operation::GetAttr => {
                let attr = check!(self.table.lock().attr(node), reply);
                reply.attr(&attr, ATTR_TTL);
            }
            Operation::Statx => {
                let attr = check!(self.table.lock().attr(node), reply);
                reply.statx(&attr, ATTR_TTL);
            }
            Operation::SetAttr(change) => return self.set_attr(node, &change, reply),
            Operation::Create { name, mode, flags, .. } => {
                let entry = check!(self.table.lock().make(node, name, FILE | mode & 0o7777), reply);
                reply.created(&entry, terms::how_alone(flags));
            }
            Operation::Mknod { name, mode, .. } => {
                let entry = check!(self.table.lock().make(node, name, mode), reply);
                reply.entry(&entry);
            }
            Operation::Mkdir { name, mode, .. } => {
                let entry = check!(self.table.lock().make(node, name, DIRECTORY | mode & 0o7777), reply);
                reply.entry(&entry);
            }
            Operation::Unlink { name } | Operation::Rmdir { name } => {
                check!(self.table.lock().unlink(node, name), reply);
                reply.ok();
            }
            Operation::Rename { name, new_parent, new_name, .. } => {
                check!(self.table.lock().rename(node, name, new_parent, new_name), reply);
                reply.ok();
            }
            Operation::Open { flags } => reply.opened(terms::how_alone(flags)),
            Operation::OpenDir { .. } => reply.opened(OpenFlags::KEEP_CACHE | OpenFlags::CACHE_DIR),
            Operation::Read { offset, size, .. } => {
                let end = check!(self.table.lock().node(node).map(|node| node.size), reply);
                let length = end.saturating_sub(offset).min(size.into()) as usize;
                reply.data(&[&self.contents[..length.min(self.contents.len())]]);
            }
            Operation::Write { offset, data, .. } => {
                return self.write(node, offset + data.len() as u64, data.len() as u32, reply);
            }
            Operation::ReadDir { offset, size } => {
                let listing = check!(self.table.lock().list(node, offset, size, false), reply);
                reply.directory(&listing);
            }
            Operation::ReadDirPlus { offset, size } => {
                let listing = check!(self.table.lock().list(node, offset, size, true), reply);
                reply.directory(&listing);
            }
            Operation::StatFs => reply.statfs(4096, 1 << 28, 1 << 28, 1 << 28, 1 << 28, 255),
            Operation::Fsync { .. } | Operation::FsyncDir { .. } | Operation::SyncFs => reply.ok(),
            Operation::Release { .. } | Operation::ReleaseDir | Operation::Access { .. } => reply.ok(),
            Operation::GetXattr { .. } => reply.error(Errno::NODATA),
            _ => reply.error(Errno::NOSYS),
        }
        Ok(())
    }

    fn lookup(&self, node: NodeId, name: &[u8], reply: Reply) -> Result<(), (Errno, Reply)> {
        let mut table = self.table.lock();
        let found = table.child(node, name).and_then(|child| table.entry(child));
        drop(table);
        match found {
            Ok(entry) => reply.entry(&entry),
            // Node 0: the kernel may remember that there is no such name.
            Err(Errno::NOENT) => {
                let attr = check!(self.table.lock().attr(NodeId::ROOT), reply);
                let attr = FileAttr { node: NodeId(0), ..attr };
                let (entry_ttl, attr_ttl) = (ENTRY_TTL, Duration::ZERO);
                reply.entry(&Entry { node: NodeId(0), generation: 0, attr, entry_ttl, attr_ttl });
            }
            Err(error) => return Err((error, reply)),
        }
        Ok(())
    }

    fn set_attr(&self, node: NodeId, change: &SetAttr, reply: Reply) -> Result<(), (Errno, Reply)> {
        let mut table = self.table.lock();
        let found = check!(table.node(node), reply);
        found.size = change.size.unwrap_or(found.size);
        if let Some(mode) = change.mode {
            found.mode = found.mode & 0o170_000 | mode & 0o7777;
        }
        match change.mtime {
            Some(SetTime::At(time)) => found.mtime = time,
            Some(SetTime::Now) => found.mtime = now(),
            None => {}
        }
        let attr = check!(table.attr(node), reply);
        drop(table);
        reply.attr(&attr, ATTR_TTL);
        Ok(())
    }

    /// Notes that a node's contents reach to `end`, after `length` bytes were written.
    fn write(&self, node: NodeId, end: u64, length: u32, reply: Reply) -> Result<(), (Errno, Reply)> {
        let mut table = self.table.lock();
        let found = check!(table.node(node), reply);
        found.size = found.size.max(end);
        found.mtime = now();
        drop(table);
        reply.written(length);
        Ok(())
    }
}

impl Filesystem for NullFs {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        // Nodes go with their names, so what the kernel forgets needs no counting.
        let Some(reply) = reply else { return };
        if let Err((error, reply)) = self.answer(request, reply) {
            reply.error(error);
        }
    }

    fn gone(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_listed_moved_and_removed() {
        let fs = NullFs::new();
        let mut table = fs.table.lock();
        let file = table.make(NodeId::ROOT, b"a", FILE | 0o644).expect("a new name").node;
        assert_eq!(table.make(NodeId::ROOT, b"a", FILE).err(), Some(Errno::EXIST));
        assert_eq!(table.child(NodeId::ROOT, b"a"), Ok(file));
        table.rename(NodeId::ROOT, b"a", NodeId::ROOT, b"b").expect("it is there");
        assert_eq!(table.child(NodeId::ROOT, b"a"), Err(Errno::NOENT));
        assert_eq!(table.child(NodeId::ROOT, b"b"), Ok(file));
        assert!(table.list(NodeId::ROOT, 0, 4096, true).is_ok());
        table.unlink(NodeId::ROOT, b"b").expect("it is there");
        assert_eq!(table.attr(file).err(), Some(Errno::NOENT));
    }
}
