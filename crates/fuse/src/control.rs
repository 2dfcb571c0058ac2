//! The control directory `.zfs` in the root of each mount (`module/os/linux/zfs/zfs_ctldir.c`). It is found by name
//! but not listed (`snapdir=hidden`), belongs to root, and nobody can change it.
//!
//! Invariant: its nodes have numbers that no object can have, as in OpenZFS.

use platter_transport::{FileAttr, NodeId, Time};
use platter_zpl::FileKind;

use crate::attr::{blank_attr, type_bits};

/// `ZFSCTL_INO_ROOT`.
const ROOT: NodeId = NodeId(0x0000_FFFF_FFFF_FFFF);
/// `ZFSCTL_INO_SNAPDIR`.
const SNAPSHOTS: NodeId = NodeId(0x0000_FFFF_FFFF_FFFD);
const SNAPSHOTS_NAME: &[u8] = b"snapshot";

/// The control directory of one mount.
pub(crate) struct Control {
    mounted: Time,
}

impl Control {
    /// Its name in the root directory.
    pub const NAME: &'static [u8] = b".zfs";

    pub fn new(mounted: Time) -> Self {
        Self { mounted }
    }

    /// Whether the node belongs to it.
    pub fn has(node: NodeId) -> bool {
        node == ROOT || node == SNAPSHOTS
    }

    /// Attributes of what is called `name` in `parent`: a node of this directory, or the mount's root.
    pub fn lookup(&self, parent: NodeId, name: &[u8]) -> Option<FileAttr> {
        let found = match (parent, name) {
            (_, b".") => parent,
            (SNAPSHOTS, b"..") => ROOT,
            (ROOT, name) if name == SNAPSHOTS_NAME => SNAPSHOTS,
            (NodeId::ROOT, Self::NAME) => ROOT,
            _ => return None,
        };
        self.attr(found)
    }

    /// Attributes of a node; `None` when it is not of this directory.
    pub fn attr(&self, node: NodeId) -> Option<FileAttr> {
        let time = self.mounted;
        let blank = blank_attr(node, type_bits(Some(FileKind::Directory)) | 0o555);
        let attr = FileAttr { links: 2, size: 2, atime: time, mtime: time, ctime: time, btime: time, ..blank };
        Self::has(node).then_some(attr)
    }

    /// What a node lists after entry number `after`: attributes, number and name; `None` when it is not of this
    /// directory.
    pub fn entries(&self, node: NodeId, after: u64) -> Option<impl Iterator<Item = (FileAttr, u64, &'static [u8])>> {
        let all: Vec<(NodeId, &'static [u8])> = match node {
            ROOT => vec![(ROOT, b"."), (NodeId::ROOT, b".."), (SNAPSHOTS, SNAPSHOTS_NAME)],
            SNAPSHOTS => vec![(SNAPSHOTS, b"."), (ROOT, b"..")],
            _ => return None,
        };
        let attr = |node| self.attr(node).unwrap_or_else(|| blank_attr(node, type_bits(Some(FileKind::Directory))));
        let numbered = all.into_iter().zip(1u64..).map(move |((node, name), number)| (attr(node), number, name));
        Some(numbered.filter(move |&(_, number, _)| number > after))
    }
}
