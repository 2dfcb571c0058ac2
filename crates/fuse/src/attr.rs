//! Attributes, times and errors in the kernel's words.

use std::time::Duration;

use platter_transport::{self as transport, Errno, FileAttr, NodeId, Time};
use platter_vfs::{Attr, FileKind, SetAttr, SetTime, Timestamp, VfsError, is_control};

use crate::flag_words;
use crate::terms::{ATTR_TTL, ENTRY_TTL};

/// The bits of a mode beside the type.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Attributes of a file whose blocks are on their way to disk are asked for again soon: the space they take becomes
/// known when they are there. Whatever else changes, the kernel knows of.
const UNSETTLED_TTL: Duration = Duration::from_secs(1);

pub(crate) fn time(time: Timestamp) -> Time {
    Time { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

fn timestamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

pub(crate) fn set_time(time: transport::SetTime) -> SetTime {
    match time {
        transport::SetTime::Now => SetTime::Now,
        transport::SetTime::At(time) => SetTime::At(timestamp(time)),
    }
}

/// What the kernel wants changed.
pub(crate) fn set_attr(change: &transport::SetAttr) -> SetAttr {
    SetAttr {
        mode: change.mode.map(|mode| mode & PERMISSIONS),
        uid: change.uid,
        gid: change.gid,
        size: change.size,
        atime: change.atime.map(set_time),
        mtime: change.mtime.map(set_time),
        ctime: change.ctime.map(|time| SetTime::At(timestamp(time))),
        flags: None,
        project: None,
    }
}

/// The mode's type bits; those of a plain file where the kind is not known.
pub(crate) fn type_bits(kind: Option<FileKind>) -> u32 {
    kind.unwrap_or(FileKind::Regular).mode_bits() as u32
}

/// The kernel's form of `attr`. Its number is the object's, also for the root, which is the kernel's node 1.
pub(crate) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        node: NodeId(attr.object.0),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: time(attr.crtime),
        mode: type_bits(Some(attr.kind)) | attr.mode & PERMISSIONS,
        links: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        block_size: attr.block_size,
        // `STATX_ATTR_*` are the bits of `FS_*_FL`.
        flags: flag_words::shown(attr, |flag| flag.plain).into(),
    }
}

/// Attributes that say nothing but number and type.
pub(crate) fn blank_attr(node: NodeId, mode: u32) -> FileAttr {
    FileAttr {
        node,
        size: 0,
        blocks: 0,
        atime: Time::default(),
        mtime: Time::default(),
        ctime: Time::default(),
        btime: Time::default(),
        mode,
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        block_size: 4096,
        flags: 0,
    }
}

/// How long the kernel may trust `attr`.
pub(crate) fn attr_ttl(attr: &Attr) -> Duration {
    match attr.settled {
        false => UNSETTLED_TTL,
        true if is_control(attr.object) => ENTRY_TTL,
        true => ATTR_TTL,
    }
}

/// The `errno` to answer with.
pub(crate) fn errno(error: &VfsError) -> Errno {
    match error {
        VfsError::Denied => Errno::ACCESS,
        VfsError::NotPermitted => Errno::PERM,
        VfsError::NotOpen => Errno::BADF,
        VfsError::File(error) => Errno::from_raw_os_error(error.errno()),
        // Whoever still asks has lost his mount.
        VfsError::Over => Errno::NOTCONN,
    }
}
