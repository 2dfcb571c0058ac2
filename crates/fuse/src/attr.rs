//! Attributes, times and errors in the kernel's words.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{Errno, FileAttr, FileType, INodeNo, TimeOrNow};
use platter_zpl::{Attr, FileKind, SetTime, Timestamp, ZplError};

/// How long the kernel may trust names: nobody but it changes them.
pub(crate) const ENTRY_TTL: Duration = Duration::from_secs(24 * 3600);
/// How long the kernel may trust attributes of a file at rest.
const ATTR_TTL: Duration = Duration::from_secs(3600);
/// Attributes of a file changed less than this ago are asked for again soon: the space it takes becomes known only when
/// its transaction group is on disk.
const UNSETTLED: Duration = Duration::from_secs(30);
const UNSETTLED_TTL: Duration = Duration::from_secs(1);

pub(crate) fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Fifo => FileType::NamedPipe,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Directory => FileType::Directory,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Regular => FileType::RegularFile,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Socket => FileType::Socket,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 { UNIX_EPOCH.checked_sub(seconds) } else { UNIX_EPOCH.checked_add(seconds) };
    whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanoseconds.into()))).unwrap_or(UNIX_EPOCH)
}

/// The time that the kernel sent and the library turned into `time`.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanoseconds: after.subsec_nanos() },
        // Before 1970 the library subtracts the nanoseconds that the kernel means to be added; undo just that.
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: -(before.as_secs() as i64), nanoseconds: before.subsec_nanos() }
        }
    }
}

pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp(time)),
    }
}

pub(crate) fn set_specific_time(time: SystemTime) -> SetTime {
    SetTime::At(timestamp(time))
}

/// The kernel's form of `attr`, with inode number `ino`.
pub(crate) fn file_attr(attr: &Attr, ino: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: system_time(attr.crtime),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.block_size,
        flags: 0,
    }
}

/// Attributes that say nothing but number and kind.
pub(crate) fn blank_attr(ino: u64, kind: FileType) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind,
        perm: 0,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// How long the kernel may trust `attr`, told at `now`.
pub(crate) fn attr_ttl(attr: &Attr, now: SystemTime) -> Duration {
    let changed = system_time(attr.ctime.max(attr.mtime));
    match now.duration_since(changed) {
        Ok(age) if age > UNSETTLED => ATTR_TTL,
        _ if attr.kind != FileKind::Regular => ATTR_TTL,
        _ => UNSETTLED_TTL,
    }
}

pub(crate) fn errno(error: &ZplError) -> Errno {
    Errno::from_i32(error.errno())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let time = Timestamp { seconds: -2, nanoseconds: 800_000_000 };
        let expected = UNIX_EPOCH.checked_sub(Duration::from_millis(1_200)).unwrap();
        assert_eq!(system_time(time), expected);
        // What the library makes of (-2, 800 000 000).
        let misread = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp(misread), time);
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(5, 7)), Timestamp { seconds: 5, nanoseconds: 7 });
    }
}
