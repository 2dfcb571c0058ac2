//! What differs between two states of one file system (`dmu_diff`, `module/zfs/dmu_diff.c`; what is told of it,
//! `lib/libzfs/libzfs_diff.c`): files that came, went, changed or were renamed, by object number.
//!
//! Objects are compared where the blocks that hold their dnodes were written since: nothing else of the tree is read,
//! and what differs is told as it is found.
//!
//! Invariants: each number is looked at once; a file that is in both states is told of when its time of change differs,
//! or it is another file with the same number.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::changes::{Change as Changed, ChangeVisitor, changed_objects};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result, ZioError};
use platter_ondisk::znode::{DirentValue, MASTER_NODE_OBJECT, flags};
use platter_ondisk::{ObjectId, ObjectType};
use tokio::sync::{Mutex, mpsc};

use crate::attr::{FileKind, Timestamp};
use crate::fs::Master;
use crate::path::DEPTH_MAX;
use crate::sa_table::SaTable;
use crate::stored;

/// Of more numbers in a row without an object only those are looked at that had one.
const MANY: u64 = 1024;
/// Paths of folders that are remembered.
const PATHS_MAX: usize = 1 << 16;
/// Directory entries looked at in one go.
const ENTRIES: usize = 1024;
/// The master node's entry of the folder `.zfs/shares`, which some systems make.
const SHARES: &[u8] = b"SHARES";
/// What a file is called that is open, but has no name any more.
const NAMELESS: &[u8] = b"(on_delete_queue)";

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It was changed.
    Modified,
    /// It was changed, and has so many names more (or fewer).
    Links(i64),
    /// It has another name.
    Renamed {
        /// The path that it has now.
        to: Vec<u8>,
    },
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What became of it.
    pub change: Change,
    /// Its kind.
    pub kind: FileKind,
    /// When it was last changed; what is gone, as it was.
    pub ctime: Timestamp,
    /// Path from the root of the file system, `/` first; of what was renamed the old one.
    pub path: Vec<u8>,
}

/// What is told of a file.
struct File {
    kind: FileKind,
    generation: u64,
    links: u64,
    ctime: [u64; 2],
    /// None where the name that it remembers is gone: it has had several.
    path: Option<Vec<u8>>,
}

impl File {
    fn difference(&self, change: Change) -> Difference {
        let path = self.path.clone().unwrap_or_default();
        Difference { change, kind: self.kind, ctime: Timestamp::from_words(self.ctime), path }
    }
}

/// One of the two states.
struct Side<'a> {
    os: &'a Arc<Objset>,
    table: SaTable,
    root: ObjectId,
    /// Paths of folders.
    paths: BTreeMap<ObjectId, Vec<u8>>,
    /// The names in one folder.
    names: Option<(ObjectId, BTreeMap<u64, Vec<u8>>)>,
}

impl<'a> Side<'a> {
    async fn new(os: &'a Arc<Objset>) -> Result<Self> {
        let master = Master::read(os).await?;
        let table = SaTable::load(os, master.sa).await?;
        Ok(Self { os, table, root: master.root, paths: BTreeMap::new(), names: None })
    }

    /// The file with this number; `None` when there is none.
    async fn file(&mut self, object: ObjectId) -> Result<Option<File>> {
        let dnode = match self.os.dnode(object).await {
            Ok(dnode) => dnode,
            Err(ZioError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = dnode.info().object_type;
        if kind != ObjectType::PLAIN_FILE_CONTENTS && kind != ObjectType::DIRECTORY_CONTENTS {
            return Ok(None);
        }
        let phys = stored::read(self.os, &dnode, &self.table).await?;
        let path = match phys.links {
            0 => Some(NAMELESS.to_vec()),
            _ => match self.path(object).await {
                Ok(path) => Some(path),
                Err(ZioError::NotFound(_)) => None,
                Err(error) => return Err(error),
            },
        };
        let (kind, generation, links, ctime) = (phys.kind(), phys.generation, phys.links, phys.ctime);
        Ok(Some(File { kind, generation, links, ctime, path }))
    }

    /// The path of a file from the root on.
    async fn path(&mut self, object: ObjectId) -> Result<Vec<u8>> {
        let (mut parts, mut at): (Vec<(ObjectId, Vec<u8>)>, _) = (Vec::new(), object);
        let mut path = loop {
            if at == self.root {
                break Vec::new();
            }
            if let Some(known) = self.paths.get(&at) {
                break known.clone();
            }
            if parts.len() >= DEPTH_MAX {
                return Err(ZioError::corrupt("directory tree", format!("object {object} is below itself")));
            }
            let dnode = self.os.dnode(at).await?;
            let phys = stored::read(self.os, &dnode, &self.table).await?;
            let parent = ObjectId(phys.parent);
            let is_hidden = phys.is_directory() && phys.flags & flags::XATTR != 0;
            let name = if is_hidden { b"<xattrdir>".to_vec() } else { self.name(parent, at).await? };
            parts.push((at, name));
            at = parent;
        };
        if self.paths.len() + parts.len() > PATHS_MAX {
            self.paths.clear();
        }
        while let Some((part, name)) = parts.pop() {
            path.push(b'/');
            path.extend_from_slice(&name);
            if part != object {
                self.paths.insert(part, path.clone());
            }
        }
        Ok(if path.is_empty() { b"/".to_vec() } else { path })
    }

    /// The name of `object` in a folder.
    async fn name(&mut self, folder: ObjectId, object: ObjectId) -> Result<Vec<u8>> {
        if self.names.as_ref().is_none_or(|(known, _)| *known != folder) {
            let (zap, mut names, mut cursor) = (Zap::open(self.os, folder).await?, BTreeMap::new(), 0);
            loop {
                let entries = zap.entries(cursor, ENTRIES).await?;
                let Some(last) = entries.last() else { break };
                cursor = last.cursor;
                for entry in &entries {
                    let value = entry.value.integers.first().copied().unwrap_or(0);
                    names.entry(DirentValue::decode(value).object).or_insert_with(|| entry.name.to_vec());
                }
            }
            self.names = Some((folder, names));
        }
        let found = self.names.as_ref().and_then(|(_, names)| names.get(&object.0).cloned());
        found.ok_or_else(|| ZioError::NotFound(format!("name of object {object} in directory {folder}")))
    }
}

/// What became of one object (`write_inuse_diffs_one`, `describe_free`). A state in which it has no path is as one that
/// lacks it, but for the number of its names.
fn compare(old: Option<&File>, new: Option<&File>) -> Vec<Difference> {
    let more = match (old, new) {
        (Some(old), Some(new)) if old.kind != FileKind::Directory && new.kind != FileKind::Directory => {
            let is_named = old.links != 0 && new.links != 0;
            new.links.checked_signed_diff(old.links).filter(|_| is_named).unwrap_or(0)
        }
        _ => 0,
    };
    let has_path = |file: &&File| file.path.is_some();
    let (old, new, is_gone) = (old.filter(has_path), new.filter(has_path), new.is_none());
    let (old, new) = match (old, new) {
        (None, None) => return Vec::new(),
        (None, Some(file)) | (Some(file), None) if more != 0 => return vec![file.difference(Change::Links(more))],
        (None, Some(new)) => return vec![new.difference(Change::Added)],
        (Some(old), None) if is_gone && old.links == 0 => return Vec::new(),
        (Some(old), None) => return vec![old.difference(Change::Removed)],
        (Some(old), Some(new)) => (old, new),
    };
    if old.generation != new.generation || old.kind != new.kind {
        return vec![old.difference(Change::Removed), new.difference(Change::Added)];
    }
    if old.ctime == new.ctime {
        return Vec::new();
    }
    let told = |change, file: &File| {
        let path = file.path.clone().unwrap_or_default();
        vec![Difference { path, ..new.difference(change) }]
    };
    match more {
        1.. => told(Change::Links(more), old),
        ..=-1 => told(Change::Links(more), new),
        _ if old.path == new.path => told(Change::Modified, old),
        _ => told(Change::Renamed { to: new.path.clone().unwrap_or_default() }, old),
    }
}

/// Compares what changed, one object after the other.
struct Comparison<'a> {
    /// The old state, the new one, and the first number that was not looked at yet.
    sides: Mutex<(Side<'a>, Side<'a>, u64)>,
    /// The object of the folder `.zfs/shares`.
    shares: Option<u64>,
    found: mpsc::Sender<Difference>,
}

impl Comparison<'_> {
    /// Tells what became of these numbers, of which only the old state can have objects where `is_gone`.
    async fn compare(&self, first: u64, count: u64, is_gone: bool) -> Result<()> {
        let (old, new, next) = &mut *self.sides.lock().await;
        let (end, mut object) = (first.saturating_add(count), first.max(*next));
        while object < end {
            if is_gone && count > MANY {
                match old.os.next_object(ObjectId(object - 1)).await? {
                    Some(next) if next.0 < end => object = next.0,
                    _ => break,
                }
            }
            assert!(*next <= object, "what became of a file is told once");
            if Some(object) != self.shares {
                let before = old.file(ObjectId(object)).await?;
                let after = if is_gone { None } else { new.file(ObjectId(object)).await? };
                for difference in compare(before.as_ref(), after.as_ref()) {
                    let nobody_listens = |_| ZioError::Invalid("nobody listens".into());
                    self.found.send(difference).await.map_err(nobody_listens)?;
                }
            }
            object += 1;
            *next = object;
        }
        Ok(())
    }
}

impl ChangeVisitor for Comparison<'_> {
    fn change(&self, change: Changed) -> BoxFuture<'_, Result<()>> {
        async move {
            match change {
                // Where it lies now several may have been.
                Changed::Object(object, dnode) => self.compare(object.0, dnode.slots() as u64, false).await,
                Changed::NoObjects(first, count) => self.compare(first, count, true).await,
                Changed::Data { .. } | Changed::Hole { .. } | Changed::Spill(..) => Ok(()),
            }
        }
        .boxed()
    }
}

/// Tells `found` what differs in the state `new` of a file system from the state `old`, which it has come from, by
/// object number. It ends early when nobody listens.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn differences(old: &Arc<Objset>, new: &Arc<Objset>, found: mpsc::Sender<Difference>) -> Result<()> {
    // Nothing that the old state has was written after its root, and everything was that it has not.
    let since = old.root().birth();
    let shares = Zap::open(new, ObjectId(MASTER_NODE_OBJECT)).await?.get_u64(SHARES).await?;
    // Object 0 are the dnodes themselves.
    let sides = Mutex::new((Side::new(old).await?, Side::new(new).await?, 1));
    let comparison = Comparison { sides, shares, found };
    match changed_objects(&new.params().store, new.params().id, &new.root(), since, &comparison).await {
        Err(_) if comparison.found.is_closed() => Ok(()),
        compared => compared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(generation: u64, links: u64, changed: u64, path: &str) -> File {
        File { kind: FileKind::Regular, generation, links, ctime: [changed, 0], path: Some(path.into()) }
    }

    #[test]
    fn what_became_of_a_file_is_told() {
        let old = file(1, 1, 10, "/a");
        let change = |new: &File| compare(Some(&old), Some(new)).into_iter().map(|d| d.change).collect::<Vec<_>>();
        assert_eq!(change(&file(1, 1, 10, "/a")), []);
        assert_eq!(change(&file(1, 1, 11, "/a")), [Change::Modified]);
        assert_eq!(change(&file(1, 3, 11, "/a")), [Change::Links(2)]);
        assert_eq!(change(&file(1, 1, 11, "/b")), [Change::Renamed { to: b"/b".to_vec() }]);
        assert_eq!(change(&file(2, 1, 10, "/b")), [Change::Removed, Change::Added]);
        assert_eq!(compare(None, Some(&old))[0].change, Change::Added);
        assert_eq!(compare(Some(&old), None)[0].change, Change::Removed);
        let lost = |links, changed| File { path: None, ..file(1, links, changed, "") };
        assert_eq!(compare(Some(&lost(1, 10)), Some(&lost(1, 11))), [], "it has no name that could be told");
        let told = compare(Some(&file(1, 2, 10, "/a")), Some(&lost(1, 11)));
        assert_eq!((&told[0].change, &told[0].path[..]), (&Change::Links(-1), &b"/a"[..]));
        assert_eq!(compare(Some(&file(1, 1, 10, "/a")), Some(&lost(1, 11)))[0].change, Change::Removed);
        assert_eq!(compare(Some(&lost(1, 10)), Some(&file(1, 1, 11, "/a")))[0].change, Change::Added);
        assert!(compare(Some(&file(1, 0, 10, "?")), None).is_empty(), "it had no name before");
    }
}
