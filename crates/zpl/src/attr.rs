//! What a file looks like from outside: kinds, times, attributes and changes to them.

use platter_ondisk::ObjectId;

/// Longest name that is made, in bytes (`ZAP_MAXNAMELEN - 1`).
pub(crate) const NAME_MAX: usize = 255;

/// Seconds and nanoseconds since 1970-01-01 00:00 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds, below 1 000 000 000.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// From the two words stored on disk.
    pub fn from_words(words: [u64; 2]) -> Self {
        Self { seconds: words[0] as i64, nanoseconds: (words[1] % 1_000_000_000) as u32 }
    }

    /// The two words stored on disk.
    pub fn to_words(self) -> [u64; 2] {
        [self.seconds as u64, u64::from(self.nanoseconds)]
    }
}

/// A file's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileKind {
    /// From the upper bits of `st_mode` (or, shifted, from a directory entry's type); `None` for an unknown one.
    pub fn from_mode(mode: u64) -> Option<Self> {
        Some(match (mode >> 12) & 0xf {
            1 => Self::Fifo,
            2 => Self::CharDevice,
            4 => Self::Directory,
            6 => Self::BlockDevice,
            8 => Self::Regular,
            10 => Self::Symlink,
            12 => Self::Socket,
            _ => return None,
        })
    }

    /// The `DT_*` number, as stored in directory entries.
    pub fn dirent_type(self) -> u64 {
        match self {
            Self::Fifo => 1,
            Self::CharDevice => 2,
            Self::Directory => 4,
            Self::BlockDevice => 6,
            Self::Regular => 8,
            Self::Symlink => 10,
            Self::Socket => 12,
        }
    }

    /// The `S_IFMT` bits of `st_mode`.
    pub fn mode_bits(self) -> u64 {
        self.dirent_type() << 12
    }
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Object number (`st_ino`).
    pub object: ObjectId,
    /// Transaction group the object was created in; tells reuses of a number apart.
    pub generation: u64,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits with set-uid, set-gid and sticky (0o7777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes for a file, target length for a symbolic link, entries + 2 for a directory.
    pub size: u64,
    /// Units of 512 bytes allocated on disk, as of the last sync.
    pub blocks: u64,
    /// Whether they stay as they are until the file is changed again: all its blocks are on disk.
    pub settled: bool,
    /// `st_blksize`: the preferred size of an I/O, in bytes.
    pub block_size: u32,
    /// Hard links.
    pub links: u32,
    /// Device number for device nodes, in Linux's user-space encoding (as FUSE and `makedev` have it); else 0.
    pub rdev: u32,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of contents.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Creation.
    pub crtime: Timestamp,
    /// `ZFS_*` file flags (immutable, append-only, ...); see [`platter_ondisk::znode::flags`].
    pub flags: u64,
    /// The project whose space it takes; 0 unless another was set or inherited.
    pub project: u64,
}

/// A time to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The clock's now.
    Now,
    /// This one.
    At(Timestamp),
}

/// Changes to a file's attributes; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (0o7777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes (truncates or extends; regular files only).
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<SetTime>,
    /// Last change of contents.
    pub mtime: Option<SetTime>,
    /// Last change of anything; the clock's now when absent.
    pub ctime: Option<SetTime>,
    /// The upper half of the `ZFS_*` flags (immutable, append-only, no-dump, hidden, ...).
    pub flags: Option<u64>,
    /// The project (regular files and directories only).
    pub project: Option<u64>,
}

/// What an extended attribute's being there means to who sets it (`setxattr` flags).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetXattr {
    /// Nothing.
    #[default]
    Any,
    /// It must be new.
    Create,
    /// It must be there.
    Replace,
}

/// Who and what a new object is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewFile {
    /// Permission bits asked for.
    pub mode: u32,
    /// Permission bits to take away, unless the parent directory has a default access control list.
    pub umask: u32,
    /// Owner.
    pub uid: u32,
    /// Group; a set-gid parent directory overrides it.
    pub gid: u32,
    /// Whether to count the new object as opened once (release it later), so that nobody can free it before its
    /// creator uses it.
    pub open: bool,
}

/// One directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Name, `.` and `..` included.
    pub name: Vec<u8>,
    /// Object number.
    pub object: ObjectId,
    /// Kind; `None` when an old version did not store it.
    pub kind: Option<FileKind>,
    /// Hand this to `readdir` to go on after this entry; never 0.
    pub cursor: u64,
    /// Attributes, when they were asked for and could be read.
    pub attr: Option<Attr>,
}

/// How to rename (`renameat2` flags).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags {
    /// Fail when the new name exists.
    pub no_replace: bool,
    /// Swap the two names.
    pub exchange: bool,
    /// Leave a whiteout (a character device 0:0, the mark of overlay file systems) under the old name.
    pub whiteout: bool,
}

/// What to look for in a sparse file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// Data.
    Data,
    /// A hole (the end of the file counts as one).
    Hole,
}

/// What `fallocate` shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallocate {
    /// Make sure the file is at least that long, unless `keep_size`; space cannot be set aside on a copy-on-write file
    /// system, so only its presence is checked.
    Allocate {
        /// Leave the size as it is.
        keep_size: bool,
    },
    /// Free the range; the size stays.
    PunchHole,
    /// Make the range read as zeros.
    ZeroRange {
        /// Do not let the range lengthen the file.
        keep_size: bool,
    },
}

/// What `statfs` tells; all counts as a user sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Unit of the block counts and preferred size of an I/O, in bytes (`f_frsize`, `f_bsize`): the record size.
    pub block_size: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Blocks that can still be written.
    pub available: u64,
    /// Objects in all.
    pub files: u64,
    /// Objects that can still be made.
    pub files_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Identity of the file system (from the data set).
    pub fsid: u64,
}

impl StatFs {
    /// Bytes that can still be written, in whole blocks.
    pub fn available_bytes(&self) -> u64 {
        self.available * u64::from(self.block_size)
    }
}
