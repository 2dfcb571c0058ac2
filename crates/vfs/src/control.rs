//! The control directory `.zfs` in the root of each file system (`module/os/linux/zfs/zfs_ctldir.c`). It belongs to
//! root, and nobody can change it. Property `snapdir` says whether it is found by its name, and listed, too.
//!
//! Invariant: its directories have numbers that no object of a file system has, as in OpenZFS.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use platter_ondisk::ObjectId;
use platter_zpl::{Attr, DirEntry, FREE_CURSOR, FileKind, Timestamp};

/// `ZFSCTL_INO_ROOT`.
const ROOT: ObjectId = ObjectId(0x0000_FFFF_FFFF_FFFF);
/// The directory of snapshots (`ZFSCTL_INO_SNAPDIR`).
pub const SNAPSHOT_FOLDER: ObjectId = ObjectId(0x0000_FFFF_FFFF_FFFD);
const NAME: &[u8] = b".zfs";
const SNAPSHOTS_NAME: &[u8] = b"snapshot";

/// Who finds the control directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ControlDirectory {
    /// There is none: in a snapshot.
    Absent,
    /// `snapdir=disabled`: nobody, and its name is nobody else's.
    Disabled,
    /// `snapdir=hidden`: who knows its name.
    Hidden,
    /// `snapdir=visible`: who lists the root, too.
    Visible,
}

/// The control directory of one file system.
pub(crate) struct Control {
    /// The file system's root.
    parent: ObjectId,
    /// Since when it is there.
    since: Timestamp,
    /// A [`ControlDirectory`].
    shown: AtomicU8,
    /// Whether lists of the root that a client keeps may be wrong.
    is_news: AtomicBool,
}

/// Whether `object` is a directory of a control directory, of which nothing ever changes.
pub fn is_control(object: ObjectId) -> bool {
    object == ROOT || object == SNAPSHOT_FOLDER
}

/// Whether `object` is the directory of snapshots.
pub fn is_snapshot_folder(object: ObjectId) -> bool {
    object == SNAPSHOT_FOLDER
}

impl Control {
    pub fn new(parent: ObjectId, since: Timestamp, shown: ControlDirectory) -> Self {
        assert!(!is_control(parent), "no object has the control directory's number");
        Self { parent, since, shown: AtomicU8::new(shown as u8), is_news: AtomicBool::new(false) }
    }

    /// Shows it so from now on.
    pub fn show(&self, shown: ControlDirectory) {
        let before = self.shown.swap(shown as u8, Ordering::AcqRel);
        let absent = ControlDirectory::Absent as u8;
        assert!((before == absent) == (shown as u8 == absent), "a file system has one, a snapshot has none");
        if before != shown as u8 {
            self.is_news.store(true, Ordering::Release);
        }
    }

    fn is(&self, shown: ControlDirectory) -> bool {
        self.shown.load(Ordering::Acquire) == shown as u8
    }

    /// Whether lists of `directory` that a client keeps may be wrong, since it was last asked.
    pub fn changed_list(&self, directory: ObjectId) -> bool {
        directory == self.parent && self.is_news.swap(false, Ordering::AcqRel)
    }

    /// Whether `name` in the directory `parent` is its own.
    pub fn has(&self, parent: ObjectId, name: &[u8]) -> bool {
        !self.is(ControlDirectory::Absent) && (is_control(parent) || (parent == self.parent && name == NAME))
    }

    /// What is called `name` in `parent`, where that is its own: one of its directories, or the file system's root.
    pub fn lookup(&self, parent: ObjectId, name: &[u8]) -> Option<ObjectId> {
        if self.is(ControlDirectory::Disabled) {
            return None;
        }
        match (parent, name) {
            (ROOT | SNAPSHOT_FOLDER, b".") => Some(parent),
            (ROOT, b"..") => Some(self.parent),
            (SNAPSHOT_FOLDER, b"..") => Some(ROOT),
            (ROOT, SNAPSHOTS_NAME) => Some(SNAPSHOT_FOLDER),
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

    /// Its entry in `directory`, where lists after the entry `after` show it.
    pub fn entry(&self, directory: ObjectId, after: u64) -> Option<DirEntry> {
        let is_listed = directory == self.parent && self.is(ControlDirectory::Visible) && after < FREE_CURSOR;
        is_listed.then(|| DirEntry {
            name: NAME.to_vec(),
            object: ROOT,
            kind: Some(FileKind::Directory),
            cursor: FREE_CURSOR,
            attr: self.attr(ROOT),
        })
    }

    /// The entries of one of its directories after the one numbered `after`; `None` when `directory` is not its own.
    pub fn entries(&self, directory: ObjectId, after: u64) -> Option<impl Iterator<Item = DirEntry>> {
        let all: Vec<(ObjectId, &[u8])> = match directory {
            ROOT => vec![(ROOT, b"."), (self.parent, b".."), (SNAPSHOT_FOLDER, SNAPSHOTS_NAME)],
            SNAPSHOT_FOLDER => vec![(SNAPSHOT_FOLDER, b"."), (ROOT, b"..")],
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
