//! How a stream begins: of what it is, and since when (`struct drr_begin`).

use platter_ondisk::{Guid, ObjsetType};

use crate::features::StreamFeatures;

/// `drr_flags` of a BEGIN record (`DRR_FLAG_*`).
pub mod begin_flags {
    /// Of a clone: who receives it has the origin.
    pub const CLONE: u32 = 1 << 0;
    /// Names compare without case.
    pub const CI_DATA: u32 = 1 << 1;
    /// A full stream that also says what is free.
    pub const FREE_RECORDS: u32 = 1 << 2;
    /// The flags about spill blocks mean something.
    pub const SPILL_BLOCK: u32 = 1 << 3;
}

/// Largest list behind a BEGIN record, in bytes (`ZFS_SENDRECV_MAX_NVLIST`, `lib/libzfs/libzfs_sendrecv.c`).
pub(crate) const LIST_MAX: u32 = 64 << 20;

/// Bytes for a name with its NUL (`MAXNAMELEN`).
pub(crate) const NAME_SIZE: usize = 256;

/// `DMU_GET_STREAM_HDRTYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderKind {
    /// One snapshot.
    Substream,
    /// A list of file systems and snapshots, whose substreams follow.
    Compound,
}

/// A BEGIN record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begin {
    /// One snapshot, or a package of several.
    pub kind: HeaderKind,
    /// What it takes to receive it.
    pub features: StreamFeatures,
    /// When the snapshot was taken, seconds since 1970.
    pub creation_time: u64,
    /// What the object set holds.
    pub objset_type: ObjsetType,
    /// [`begin_flags`].
    pub flags: u32,
    /// The snapshot's guid.
    pub to_guid: Guid,
    /// That of the snapshot that who receives it has already; zero for a full stream.
    pub from_guid: Guid,
    /// The snapshot's full name where it was sent; bytes that are not UTF-8 are replaced.
    pub to_name: String,
    /// Length of the list that follows, in bytes; 0 for none.
    pub list_length: u32,
}

impl Begin {
    /// Whether it is of a file system.
    pub fn is_filesystem(&self) -> bool {
        self.objset_type == ObjsetType::ZFS
    }
}
