//! Attributes, times and errors in the kernel's words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use platter_transport::{self as transport, Errno, FileAttr, NodeId, Time};
use platter_zpl::{Attr, FileKind, SetAttr, SetTime, Timestamp, ZplError};

use crate::file_flags;
use crate::terms::ATTR_TTL;

/// The bits of a mode beside the type.
pub(crate) const PERMISSIONS: u32 = 0o7777;

/// Attributes of a file changed less than this ago are asked for again soon: the space it takes becomes known only when
/// its transaction group is on disk.
const UNSETTLED: Duration = Duration::from_secs(30);
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
        flags: file_flags::shown(attr, |flag| flag.plain).into(),
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

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

/// How long the kernel may trust `attr`, told at `now`.
pub(crate) fn attr_ttl(attr: &Attr, now: SystemTime) -> Duration {
    let changed = system_time(attr.ctime.max(attr.mtime));
    match now.duration_since(changed) {
        Ok(age) if age > UNSETTLED => ATTR_TTL,
        _ => UNSETTLED_TTL,
    }
}

pub(crate) fn errno(error: &ZplError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}
