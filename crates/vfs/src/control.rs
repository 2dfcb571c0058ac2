//! The control directory `.zfs` in the root of each file system (`module/os/linux/zfs/zfs_ctldir.c`). It is found by
//! name but not listed (`snapdir=hidden`), belongs to root, and nobody can change it.
//!
//! Invariant: its directories have numbers that no object of a file system has, as in OpenZFS.

use platter_ondisk::ObjectId;
use platter_zpl::{Attr, DirEntry, FileKind, Timestamp};

/// `ZFSCTL_INO_ROOT`.
const ROOT: ObjectId = ObjectId(0x0000_FFFF_FFFF_FFFF);
/// `ZFSCTL_INO_SNAPDIR`.
const SNAPSHOTS: ObjectId = ObjectId(0x0000_FFFF_FFFF_FFFD);
const NAME: &[u8] = b".zfs";
const SNAPSHOTS_NAME: &[u8] = b"snapshot";

/// The control directory of one file system.
pub(crate) struct Control {
    /// The file system's root.
    parent: ObjectId,
    /// Since when it is there.
    since: Timestamp,
    /// Whether it is there at all: in a snapshot it is not.
    shown: bool,
}

/// Whether `object` is a directory of a control directory, of which nothing ever changes.
pub fn is_control(object: ObjectId) -> bool {
    object == ROOT || object == SNAPSHOTS
}

/// Whether `object` is the directory of snapshots.
pub fn is_snapshot_folder(object: ObjectId) -> bool {
    object == SNAPSHOTS
}

impl Control {
    pub fn new(parent: ObjectId, since: Timestamp, shown: bool) -> Self {
        assert!(!is_control(parent), "no object has the control directory's number");
        Self { parent, since, shown }
    }

    /// Whether `name` in the directory `parent` is its own.
    pub fn has(&self, parent: ObjectId, name: &[u8]) -> bool {
        self.shown && (is_control(parent) || (parent == self.parent && name == NAME))
    }

    /// What is called `name` in `parent`, where that is its own: one of its directories, or the file system's root.
    pub fn lookup(&self, parent: ObjectId, name: &[u8]) -> Option<ObjectId> {
        match (parent, name) {
            (ROOT | SNAPSHOTS, b".") => Some(parent),
            (ROOT, b"..") => Some(self.parent),
            (SNAPSHOTS, b"..") => Some(ROOT),
            (ROOT, SNAPSHOTS_NAME) => Some(SNAPSHOTS),
            (parent, NAME) if parent == self.parent => Some(ROOT),
            _ => None,
        }
    }

    /// Attributes; `None` when `object` is not its own.
    pub fn attr(&self, object: ObjectId) -> Option<Attr> {
        let time = self.since;
        is_control(object).then_some(Attr {
            object,
            generation: 0,
            kind: FileKind::Directory,
            mode: 0o555,
            uid: 0,
            gid: 0,
            size: 2,
            blocks: 0,
            settled: true,
            block_size: 4096,
            links: 2,
            rdev: 0,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            flags: 0,
            project: 0,
        })
    }

    /// The entries of one of its directories after the one numbered `after`; `None` when `directory` is not its own.
    pub fn entries(&self, directory: ObjectId, after: u64) -> Option<impl Iterator<Item = DirEntry>> {
        let all: Vec<(ObjectId, &[u8])> = match directory {
            ROOT => vec![(ROOT, b"."), (self.parent, b".."), (SNAPSHOTS, SNAPSHOTS_NAME)],
            SNAPSHOTS => vec![(SNAPSHOTS, b"."), (ROOT, b"..")],
            _ => return None,
        };
        let entry = |((object, name), cursor): ((ObjectId, &[u8]), u64)| DirEntry {
            name: name.to_vec(),
            object,
            kind: Some(FileKind::Directory),
            cursor,
            attr: self.attr(object),
        };
        Some(all.into_iter().zip(1..).map(entry).filter(move |entry| entry.cursor > after))
    }
}
