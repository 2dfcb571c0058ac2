//! What accompanies a block's read or write.

use std::fmt;

use platter_ondisk::{Checksum, Compression, ObjectId, ObjectType, Txg};

/// Names a block logically: whose it is and where in the object (`zbookmark_phys_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bookmark {
    /// The dataset's object number in the MOS; 0 for the MOS itself.
    pub objset: ObjectId,
    /// The object within the object set; 0 is the meta-dnode.
    pub object: ObjectId,
    /// Level: 0 data, above: indirect, -1: the object set's own block, -2: a ZIL block.
    pub level: i8,
    /// Index of the block at its level.
    pub blkid: u64,
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}, {}, {}, {}>", self.objset, self.object, self.level, self.blkid)
    }
}

/// How a block is to be written.
#[derive(Clone, Debug)]
pub struct WritePolicy {
    /// The syncing group.
    pub txg: Txg,
    /// Whose block it is.
    pub bookmark: Bookmark,
    /// Whose block it is, for the pointer.
    pub object_type: ObjectType,
    /// Level for the pointer.
    pub level: u8,
    /// What to use, already resolved from "on".
    pub checksum: Checksum,
    /// What to use, already resolved from "on".
    pub compression: Compression,
    /// Level for gzip and zstd; ignored by the others.
    pub compression_level: i32,
    /// Copies to allocate, 1 to 3.
    pub copies: u8,
    /// Fill count for the new pointer.
    pub fill: u64,
    /// Whether small results may be embedded in the pointer (level 0 of ordinary objects).
    pub embed: bool,
    /// Whether a level-0 block of zeros may become a hole.
    pub hole: bool,
    /// Whether whoever wrote it keeps a copy (the kernel's page cache does), so that it need not be cached.
    pub passing: bool,
}
