//! What requests and answers are made of.

use std::ops::BitOr;

/// A node as the kernel names it. 1 is the root; the others are the file system's to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root directory of the mount.
    pub const ROOT: Self = Self(1);
}

/// A point in time: seconds since 1970, which may be negative, and nanoseconds to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds to add, below 1 000 000 000.
    pub nanoseconds: u32,
}

/// What stat(2) and statx(2) tell of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileAttr {
    /// Its number.
    pub node: NodeId,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes on disk.
    pub blocks: u64,
    /// Last read.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node, as the kernel packs it in 32 bits.
    pub rdev: u32,
    /// Preferred size of a read or write, bytes.
    pub block_size: u32,
    /// `STATX_ATTR_*` that are set; those outside of [`FileAttr::FLAGS`] are not told.
    pub flags: u64,
}

impl FileAttr {
    /// `STATX_ATTR_IMMUTABLE`.
    pub const IMMUTABLE: u64 = 0x10;
    /// `STATX_ATTR_APPEND`.
    pub const APPEND: u64 = 0x20;
    /// `STATX_ATTR_NODUMP`.
    pub const NODUMP: u64 = 0x40;
    /// All that a file system may set.
    pub const FLAGS: u64 = Self::IMMUTABLE | Self::APPEND | Self::NODUMP;
}

/// Capabilities that are agreed on at the start (`FUSE_*` of `fuse_init_out`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitFlags(pub u64);

impl InitFlags {
    /// Reads of one file at the same time.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// What is opened to be emptied is not emptied by a request of its own: opening says so.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// Lookups of `.` and `..`, for file handles.
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes of more than a page.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The umask is applied by the file system.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// ioctl on directories.
    pub const HAS_IOCTL_DIR: Self = Self(1 << 11);
    /// Directory entries with attributes.
    pub const DO_READDIRPLUS: Self = Self(1 << 13);
    /// ... when they are likely to be wanted.
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    /// Direct I/O at the same time.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// Lookups and listings of one directory at the same time.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The kernel checks access lists.
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// The number of pages of a request can be told.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Targets of symbolic links are kept.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// Pages are dropped only when told.
    pub const EXPLICIT_INVAL_DATA: Self = Self(1 << 25);
    /// The file system clears set-id bits; the kernel tells when.
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// The kernel tells of a set ACL whether it takes the set-gid bit away.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// There are more than 32 flags.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// Files that are open past the page cache can be mapped too.
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);
    /// Mounts with mapped ids: the kernel maps them, and tells who asks only where something is made.
    pub const ALLOW_IDMAP: Self = Self(1 << 40);
    /// Requests may come over io_uring.
    pub const OVER_IO_URING: Self = Self(1 << 41);

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Those that are not in `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Those in both.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for InitFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What the kernel may do with an open file (`FOPEN_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// Read and write past the page cache.
    pub const DIRECT_IO: Self = Self(1 << 0);
    /// Keep the pages of an earlier open.
    pub const KEEP_CACHE: Self = Self(1 << 1);
    /// Keep the entries of a directory.
    pub const CACHE_DIR: Self = Self(1 << 3);
    /// Past the page cache, several may write inside the file at the same time.
    pub const PARALLEL_DIRECT_WRITES: Self = Self(1 << 6);

    /// Whether all of `other` are in it.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for OpenFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
