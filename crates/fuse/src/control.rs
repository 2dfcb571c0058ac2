//! The control directory `.zfs` in the root of each mount (`module/os/linux/zfs/zfs_ctldir.c`). It is found by name
//! but not listed (`snapdir=hidden`), belongs to root, and nobody can change it.
//!
//! Invariant: its nodes have numbers that no object can have, as in OpenZFS.

use std::ffi::OsStr;
use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo};

use crate::attr::blank_attr;

/// `ZFSCTL_INO_ROOT`.
const ROOT: INodeNo = INodeNo(0x0000_FFFF_FFFF_FFFF);
/// `ZFSCTL_INO_SNAPDIR`.
const SNAPSHOTS: INodeNo = INodeNo(0x0000_FFFF_FFFF_FFFD);
const SNAPSHOTS_NAME: &str = "snapshot";

/// The control directory of one mount.
pub(crate) struct Control {
    mounted: SystemTime,
}

impl Control {
    /// Its name in the root directory.
    pub const NAME: &'static [u8] = b".zfs";

    pub fn new(mounted: SystemTime) -> Self {
        Self { mounted }
    }

    /// Whether the node belongs to it.
    pub fn has(node: INodeNo) -> bool {
        node == ROOT || node == SNAPSHOTS
    }

    /// Attributes of what is called `name` in `parent`: a node of this directory, or the mount's root.
    pub fn lookup(&self, parent: INodeNo, name: &[u8]) -> Option<FileAttr> {
        let found = match (parent, name) {
            (_, b".") => parent,
            (SNAPSHOTS, b"..") => ROOT,
            (ROOT, name) if name == SNAPSHOTS_NAME.as_bytes() => SNAPSHOTS,
            (INodeNo::ROOT, Self::NAME) => ROOT,
            _ => return None,
        };
        self.attr(found)
    }

    /// Attributes of a node; `None` when it is not of this directory.
    pub fn attr(&self, node: INodeNo) -> Option<FileAttr> {
        let time = self.mounted;
        let blank = blank_attr(node.0, FileType::Directory);
        let attr =
            FileAttr { perm: 0o555, nlink: 2, size: 2, atime: time, mtime: time, ctime: time, crtime: time, ..blank };
        Self::has(node).then_some(attr)
    }

    /// What a node lists after entry number `after`: node, number and name; `None` when it is not of this directory.
    pub fn entries(&self, node: INodeNo, after: u64) -> Option<impl Iterator<Item = (INodeNo, u64, &'static OsStr)>> {
        let all = match node {
            ROOT => vec![(ROOT, "."), (INodeNo::ROOT, ".."), (SNAPSHOTS, SNAPSHOTS_NAME)],
            SNAPSHOTS => vec![(SNAPSHOTS, "."), (ROOT, "..")],
            _ => return None,
        };
        let numbered = all.into_iter().zip(1u64..).map(|((node, name), number)| (node, number, OsStr::new(name)));
        Some(numbered.filter(move |&(_, number, _)| number > after))
    }
}
