//! Numbers and layouts of the protocol, as in the kernel's `include/uapi/linux/fuse.h` (version 7.31 and later).

use std::time::Duration;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::types::{FileAttr, Time};

/// Version of the protocol that is spoken.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version known.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version whose layouts are these (Linux 5.4).
pub(crate) const MINOR_LEAST: u32 = 31;

/// Bytes that a request may have beside the data of a write.
pub(crate) const REQUEST_EXTRA: usize = 4096;

/// What a request asks for.
pub(crate) mod opcode {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const ACCESS: u32 = 34;
    pub const CREATE: u32 = 35;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const SYNCFS: u32 = 50;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Which parts of a `fuse_setattr_in` are meant.
pub(crate) mod fattr {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}

/// `FUSE_WRITE_LOCKOWNER`: somebody writes past the page cache; without it the kernel writes from there, and keeps the
/// pages locked until it is answered.
pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_WRITE_KILL_SUIDGID`.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `FUSE_READ_LOCKOWNER`: somebody reads; without it the kernel fills its page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `FUSE_NOTIFY_INVAL_INODE`, where an answer has its error.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// `FUSE_SETXATTR_ACL_KILL_SGID`.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FUSE_FSYNC_FDATASYNC`.
pub(crate) const FSYNC_DATA: u32 = 1 << 0;
/// What statx is told: `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_MASK: u32 = 0x7ff | 0x800;

/// `FUSE_IO_URING_CMD_REGISTER` and `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const RING_REGISTER: u32 = 1;
pub(crate) const RING_COMMIT_AND_FETCH: u32 = 2;

/// The layouts. All integers are the machine's; there is no padding that is not named.
macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $kind),* }
    )*};
}

layouts! {
    /// Before each request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Before each answer.
    OutHeader { len: u32, error: i32, unique: u64 }

    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    /// What follows with `FUSE_INIT_EXT`.
    InitInMore { flags2: u32, unused: [u32; 11] }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }

    ForgetIn { nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    SetAttrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32 }
    /// What follows with `FUSE_SETXATTR_EXT`.
    SetxattrInMore { setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    IoctlIn { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    CopyFileRangeIn {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }

    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    WriteOut { size: u32, padding: u32 }
    CopyFileRangeOut { bytes_copied: u64 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    GetxattrOut { size: u32, padding: u32 }
    LseekOut { offset: u64 }
    IoctlOut { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    /// Before a directory entry's name, which is padded to 8 bytes.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    SxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: SxTime, btime: SxTime, ctime: SxTime, mtime: SxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }

    /// What a command on a ring is about (`struct fuse_uring_cmd_req`).
    RingCommand { flags: u64, commit_id: u64, queue: u16, padding: [u8; 6] }
    /// `struct fuse_uring_ent_in_out`.
    RingPlace { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64 }
}

/// A request's or answer's headers in a place of a ring (`struct fuse_uring_req_header`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct RingHeaders {
    /// [`InHeader`] of a request, [`OutHeader`] of an answer.
    pub in_out: [u8; 128],
    /// The first part of a request, where its operation has one of a known size.
    pub operation: [u8; 128],
    pub place: RingPlace,
}

/// How long something is valid, in the kernel's two words.
pub(crate) fn validity(time: Duration) -> (u64, u32) {
    (time.as_secs(), time.subsec_nanos())
}

impl From<&FileAttr> for Attr {
    fn from(attr: &FileAttr) -> Self {
        Self {
            ino: attr.node.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime.seconds as u64,
            mtime: attr.mtime.seconds as u64,
            ctime: attr.ctime.seconds as u64,
            atimensec: attr.atime.nanoseconds,
            mtimensec: attr.mtime.nanoseconds,
            ctimensec: attr.ctime.nanoseconds,
            mode: attr.mode,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: attr.block_size,
            flags: 0,
        }
    }
}

impl From<Time> for SxTime {
    fn from(time: Time) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
    }
}

impl From<&FileAttr> for Statx {
    fn from(attr: &FileAttr) -> Self {
        Self {
            mask: STATX_MASK,
            blksize: attr.block_size,
            attributes: attr.flags & FileAttr::FLAGS,
            nlink: attr.links,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            spare0: 0,
            ino: attr.node.0,
            size: attr.size,
            blocks: attr.blocks,
            attributes_mask: FileAttr::FLAGS,
            atime: attr.atime.into(),
            btime: attr.btime.into(),
            ctime: attr.ctime.into(),
            mtime: attr.mtime.into(),
            rdev_major: rustix::fs::major(attr.rdev.into()),
            rdev_minor: rustix::fs::minor(attr.rdev.into()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_kernels_sizes() {
        let sizes = [
            (size_of::<InHeader>(), 40),
            (size_of::<OutHeader>(), 16),
            (size_of::<InitIn>() + size_of::<InitInMore>(), 64),
            (size_of::<InitOut>(), 64),
            (size_of::<SetAttrIn>(), 88),
            (size_of::<Attr>(), 88),
            (size_of::<EntryOut>(), 128),
            (size_of::<AttrOut>(), 104),
            (size_of::<OpenOut>(), 16),
            (size_of::<StatfsOut>(), 80),
            (size_of::<ReadIn>(), 40),
            (size_of::<WriteIn>(), 40),
            (size_of::<ReleaseIn>(), 24),
            (size_of::<NotifyInvalInodeOut>(), 24),
            (size_of::<IoctlIn>(), 32),
            (size_of::<CopyFileRangeIn>(), 56),
            (size_of::<Dirent>(), 24),
            (size_of::<Statx>(), 256),
            (size_of::<StatxOut>(), 288),
            (size_of::<RingCommand>(), 24),
            (size_of::<RingHeaders>(), 288),
        ];
        for (index, (size, expected)) in sizes.into_iter().enumerate() {
            assert_eq!(size, expected, "layout number {index}");
        }
    }

    #[test]
    fn device_numbers_are_unpacked() {
        let blank = FileAttr {
            node: crate::NodeId(9),
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time { seconds: -5, nanoseconds: 7 },
            mode: 0o020_644,
            links: 1,
            uid: 0,
            gid: 0,
            // Major 259, minor 0x12345.
            rdev: 0x45 | 259 << 8 | 0x123 << 20,
            block_size: 512,
            flags: FileAttr::APPEND | 1,
        };
        let statx = Statx::from(&blank);
        assert_eq!((statx.rdev_major, statx.rdev_minor), (259, 0x12345));
        assert_eq!((statx.btime.seconds, statx.btime.nanoseconds), (-5, 7));
        assert_eq!(statx.attributes, FileAttr::APPEND);
    }
}
