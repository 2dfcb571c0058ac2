//! Requests, from the kernel's bytes to checked types.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::types::{NodeId, OpenFlags, Time};
use crate::wire::{self, InHeader, fattr, opcode};

/// What the kernel asks, for whom.
#[derive(Debug)]
pub struct Request<'a> {
    /// The node that it is about.
    pub node: NodeId,
    /// The caller's user for file access; [`Request::UNTOLD`] where ids may be mapped and nothing is made.
    pub uid: u32,
    /// The caller's group for file access; as `uid`.
    pub gid: u32,
    /// The caller's thread; 0 when it cannot be seen from here.
    pub pid: u32,
    /// What is to be done.
    pub operation: Operation<'a>,
}

impl Request<'_> {
    /// A user or group that the kernel does not tell (`FUSE_INVALID_UIDGID`).
    pub const UNTOLD: u32 = u32::MAX;
}

/// What is to be done with a request's node. Names and values are bytes of the request. Modes, flags and commands
/// are the system's.
#[derive(Debug, PartialEq)]
#[allow(missing_docs)] // The fields are the arguments of the system calls of these names.
pub enum Operation<'a> {
    Lookup {
        name: &'a [u8],
    },
    GetAttr,
    SetAttr(SetAttr),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    Mknod {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    },
    Mkdir {
        name: &'a [u8],
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a [u8],
    },
    Rmdir {
        name: &'a [u8],
    },
    Rename {
        name: &'a [u8],
        new_parent: NodeId,
        new_name: &'a [u8],
        flags: u32,
    },
    /// The request's node is the directory; `target` gets the name.
    Link {
        target: NodeId,
        name: &'a [u8],
    },
    Open {
        flags: i32,
    },
    Create {
        name: &'a [u8],
        mode: u32,
        umask: u32,
        flags: i32,
    },
    /// A file without a name (`O_TMPFILE`), in the file system of the request's directory.
    TmpFile {
        mode: u32,
        umask: u32,
        flags: i32,
    },
    /// `direct`: past the kernel's page cache; `fills_cache`: though the file was opened past it (it is mapped).
    Read {
        offset: u64,
        size: u32,
        direct: bool,
        fills_cache: bool,
    },
    /// `drop_privileges`: the caller may not keep set-id bits. `stable`: it is to be stable when it is answered, as the
    /// kernel does not ask for that itself where a file was opened past its page cache.
    Write {
        offset: u64,
        data: &'a [u8],
        drop_privileges: bool,
        direct: bool,
        stable: bool,
    },
    /// `flags` of the opening, and `how` it was answered.
    Release {
        flags: i32,
        how: OpenFlags,
    },
    Flush,
    Fsync {
        data_only: bool,
    },
    StatFs,
    /// `clear_set_gid`: what is set is an access list that takes the set-gid bit away; `None` when the kernel cannot
    /// tell.
    SetXattr {
        name: &'a [u8],
        value: &'a [u8],
        flags: u32,
        clear_set_gid: Option<bool>,
    },
    /// `size` 0 asks how long the value is.
    GetXattr {
        name: &'a [u8],
        size: u32,
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    OpenDir {
        flags: i32,
    },
    ReadDir {
        offset: u64,
        size: u32,
    },
    ReadDirPlus {
        offset: u64,
        size: u32,
    },
    ReleaseDir,
    FsyncDir {
        data_only: bool,
    },
    Access {
        mask: u32,
    },
    Ioctl {
        command: u32,
        data: &'a [u8],
        answer_max: u32,
    },
    Fallocate {
        offset: u64,
        length: u64,
        mode: i32,
    },
    Lseek {
        offset: u64,
        whence: u32,
    },
    /// `wide`: the answer's count has 64 bits.
    CopyFileRange {
        offset: u64,
        to: NodeId,
        to_offset: u64,
        length: u64,
        wide: bool,
    },
    Statx,
    /// The node is not known to the kernel any more as often as this. Not answered.
    Forget {
        times: u64,
    },
    /// The same for several. Not answered.
    BatchForget(Vec<(NodeId, u64)>),
    SyncFs,
}

/// What to change (`setattr`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SetAttr {
    /// New permission bits (with the type).
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New length.
    pub size: Option<u64>,
    /// New time of the last read.
    pub atime: Option<SetTime>,
    /// New time of the last change of contents.
    pub mtime: Option<SetTime>,
    /// New time of the last change.
    pub ctime: Option<Time>,
    /// Whether set-id bits go because of it (`FATTR_KILL_SUIDGID`).
    pub drop_privileges: bool,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// This one.
    At(Time),
}

/// What follows a request's header, in one or two pieces; the first ends where an argument does.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Body<'a>(pub &'a [u8], pub &'a [u8]);

impl<'a> Body<'a> {
    /// Goes on with the second piece when the first has ended.
    fn go_on(&mut self) {
        if self.0.is_empty() {
            self.0 = std::mem::take(&mut self.1);
        }
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Errno> {
        self.go_on();
        let (value, rest) = T::read_from_prefix(self.0).map_err(|_| Errno::INVAL)?;
        self.0 = rest;
        Ok(value)
    }

    /// Bytes up to a zero, which is dropped.
    fn name(&mut self) -> Result<&'a [u8], Errno> {
        self.go_on();
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Errno::INVAL)?;
        let (name, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(name)
    }

    /// So many bytes.
    fn bytes(&mut self, length: u32) -> Result<&'a [u8], Errno> {
        self.go_on();
        let (bytes, rest) = self.0.split_at_checked(length as usize).ok_or(Errno::INVAL)?;
        self.0 = rest;
        Ok(bytes)
    }
}

/// A request's header and what follows it; `None` when the bytes are not even that.
pub(crate) fn split(message: &[u8]) -> Option<(InHeader, Body<'_>)> {
    let (header, body) = InHeader::read_from_prefix(message).ok()?;
    (header.len as usize == message.len()).then_some((header, Body(body, &[])))
}

/// Whether the kernel waits for no answer.
pub(crate) fn is_silent(header: &InHeader) -> bool {
    matches!(header.opcode, opcode::FORGET | opcode::BATCH_FORGET)
}

/// Understands a request. `extended_setxattr`: whether `FUSE_SETXATTR_EXT` was agreed on.
///
/// # Errors
/// `ENOSYS` for a request that is not known (among them the one that takes another back: what was begun is finished,
/// as a change half made would be worse than one that comes late), `EINVAL` for one that is cut short.
pub(crate) fn parse<'a>(header: &InHeader, body: Body<'a>, extended_setxattr: bool) -> Result<Request<'a>, Errno> {
    let operation = operation(header.opcode, body, extended_setxattr)?;
    Ok(Request { node: NodeId(header.nodeid), uid: header.uid, gid: header.gid, pid: header.pid, operation })
}

fn operation(code: u32, mut body: Body<'_>, extended_setxattr: bool) -> Result<Operation<'_>, Errno> {
    Ok(match code {
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::GETATTR => Operation::GetAttr,
        opcode::SETATTR => Operation::SetAttr(set_attr(&body.take()?)?),
        opcode::READLINK => Operation::ReadLink,
        opcode::SYMLINK => symlink(body)?,
        opcode::MKNOD => mknod(body)?,
        opcode::MKDIR => mkdir(body)?,
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::Rmdir { name: body.name()? },
        opcode::RENAME => {
            let wire::RenameIn { newdir } = body.take()?;
            rename(newdir, 0, body)?
        }
        opcode::RENAME2 => {
            let wire::Rename2In { newdir, flags, .. } = body.take()?;
            rename(newdir, flags, body)?
        }
        opcode::LINK => link(body)?,
        opcode::OPEN => Operation::Open { flags: body.take::<wire::OpenIn>()?.flags as i32 },
        opcode::OPENDIR => Operation::OpenDir { flags: body.take::<wire::OpenIn>()?.flags as i32 },
        opcode::CREATE => create(body)?,
        opcode::TMPFILE => tmpfile(body)?,
        opcode::READ => read(body)?,
        opcode::READDIR => {
            let wire::ReadIn { offset, size, .. } = body.take()?;
            Operation::ReadDir { offset, size }
        }
        opcode::READDIRPLUS => {
            let wire::ReadIn { offset, size, .. } = body.take()?;
            Operation::ReadDirPlus { offset, size }
        }
        opcode::WRITE => write(body)?,
        opcode::RELEASE => release(body)?,
        opcode::RELEASEDIR => Operation::ReleaseDir,
        opcode::FLUSH => Operation::Flush,
        opcode::FSYNC => Operation::Fsync { data_only: is_data_only(&body.take()?) },
        opcode::FSYNCDIR => Operation::FsyncDir { data_only: is_data_only(&body.take()?) },
        opcode::STATFS => Operation::StatFs,
        opcode::SETXATTR => set_xattr(body, extended_setxattr)?,
        opcode::GETXATTR => get_xattr(body)?,
        opcode::LISTXATTR => Operation::ListXattr { size: body.take::<wire::GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::RemoveXattr { name: body.name()? },
        opcode::ACCESS => Operation::Access { mask: body.take()? },
        opcode::IOCTL => ioctl(body)?,
        opcode::FALLOCATE => fallocate(body)?,
        opcode::LSEEK => seek(body)?,
        opcode::COPY_FILE_RANGE => copy_file_range(body, false)?,
        opcode::COPY_FILE_RANGE_64 => copy_file_range(body, true)?,
        opcode::STATX => {
            // Which values are asked for changes nothing: all are told.
            body.take::<wire::StatxIn>()?;
            Operation::Statx
        }
        opcode::FORGET => Operation::Forget { times: body.take::<wire::ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => batch_forget(body)?,
        opcode::SYNCFS => Operation::SyncFs,
        _ => return Err(Errno::NOSYS),
    })
}

fn symlink(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let name = body.name()?;
    Ok(Operation::Symlink { name, target: body.name()? })
}

fn mknod(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::MknodIn { mode, rdev, umask, .. } = body.take()?;
    Ok(Operation::Mknod { name: body.name()?, mode, umask, rdev })
}

fn mkdir(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::MkdirIn { mode, umask } = body.take()?;
    Ok(Operation::Mkdir { name: body.name()?, mode, umask })
}

fn link(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::LinkIn { oldnodeid } = body.take()?;
    Ok(Operation::Link { target: NodeId(oldnodeid), name: body.name()? })
}

fn create(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::CreateIn { flags, mode, umask, .. } = body.take()?;
    Ok(Operation::Create { name: body.name()?, mode, umask, flags: flags as i32 })
}

fn tmpfile(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::CreateIn { flags, mode, umask, .. } = body.take()?;
    Ok(Operation::TmpFile { mode, umask, flags: flags as i32 })
}

fn read(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::ReadIn { fh, offset, size, read_flags, flags, .. } = body.take()?;
    let fills_cache = read_flags & wire::READ_LOCKOWNER == 0;
    Ok(Operation::Read { offset, size, direct: is_direct(fh, flags), fills_cache })
}

fn write(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::WriteIn { fh, offset, size, write_flags, flags, .. } = body.take()?;
    // Not by `flags`: `O_DIRECT` may have been set since the write began in the page cache.
    let direct = write_flags & wire::WRITE_LOCKOWNER != 0;
    let drop_privileges = write_flags & wire::WRITE_KILL_SUIDGID != 0;
    // `O_SYNC` has the bit of `O_DSYNC`.
    let synchronous = flags & rustix::fs::OFlags::DSYNC.bits() != 0;
    let stable = synchronous && handle(fh).contains(OpenFlags::DIRECT_IO);
    Ok(Operation::Write { offset, data: body.bytes(size)?, drop_privileges, direct, stable })
}

fn release(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::ReleaseIn { fh, flags, .. } = body.take()?;
    Ok(Operation::Release { flags: flags as i32, how: handle(fh) })
}

fn set_xattr(mut body: Body<'_>, extended: bool) -> Result<Operation<'_>, Errno> {
    let wire::SetxattrIn { size, flags } = body.take()?;
    let more: Option<wire::SetxattrInMore> = if extended { Some(body.take()?) } else { None };
    let clear_set_gid = more.map(|more| more.setxattr_flags & wire::SETXATTR_ACL_KILL_SGID != 0);
    let name = body.name()?;
    Ok(Operation::SetXattr { name, value: body.bytes(size)?, flags, clear_set_gid })
}

fn get_xattr(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::GetxattrIn { size, .. } = body.take()?;
    Ok(Operation::GetXattr { name: body.name()?, size })
}

fn ioctl(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::IoctlIn { cmd, in_size, out_size, .. } = body.take()?;
    Ok(Operation::Ioctl { command: cmd, data: body.bytes(in_size)?, answer_max: out_size })
}

fn fallocate(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::FallocateIn { offset, length, mode, .. } = body.take()?;
    Ok(Operation::Fallocate { offset, length, mode: mode as i32 })
}

fn seek(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::LseekIn { offset, whence, .. } = body.take()?;
    Ok(Operation::Lseek { offset, whence })
}

fn copy_file_range(mut body: Body<'_>, wide: bool) -> Result<Operation<'_>, Errno> {
    let wire::CopyFileRangeIn { off_in, nodeid_out, off_out, len, .. } = body.take()?;
    Ok(Operation::CopyFileRange { offset: off_in, to: NodeId(nodeid_out), to_offset: off_out, length: len, wide })
}

fn batch_forget(mut body: Body<'_>) -> Result<Operation<'_>, Errno> {
    let wire::BatchForgetIn { count, .. } = body.take()?;
    let one = |_| body.take().map(|wire::ForgetOne { nodeid, nlookup }| (NodeId(nodeid), nlookup));
    Ok(Operation::BatchForget((0..count).map(one).collect::<Result<_, _>>()?))
}

fn is_data_only(fsync: &wire::FsyncIn) -> bool {
    fsync.fsync_flags & wire::FSYNC_DATA != 0
}

fn rename(new_parent: u64, flags: u32, mut names: Body<'_>) -> Result<Operation<'_>, Errno> {
    let name = names.name()?;
    Ok(Operation::Rename { name, new_parent: NodeId(new_parent), new_name: names.name()?, flags })
}

fn set_attr(wire: &wire::SetAttrIn) -> Result<SetAttr, Errno> {
    let has = |bit: u32| wire.valid & bit != 0;
    let time = |seconds: u64, nanoseconds: u32| match nanoseconds {
        0..1_000_000_000 => Ok(Time { seconds: seconds as i64, nanoseconds }),
        _ => Err(Errno::INVAL),
    };
    let set_time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(set), has(now)) {
        (false, _) => Ok(None),
        (true, true) => Ok(Some(SetTime::Now)),
        (true, false) => time(seconds, nanoseconds).map(|time| Some(SetTime::At(time))),
    };
    Ok(SetAttr {
        mode: has(fattr::MODE).then_some(wire.mode),
        uid: has(fattr::UID).then_some(wire.uid),
        gid: has(fattr::GID).then_some(wire.gid),
        size: has(fattr::SIZE).then_some(wire.size),
        atime: set_time(fattr::ATIME, fattr::ATIME_NOW, wire.atime, wire.atimensec)?,
        mtime: set_time(fattr::MTIME, fattr::MTIME_NOW, wire.mtime, wire.mtimensec)?,
        ctime: has(fattr::CTIME).then(|| time(wire.ctime, wire.ctimensec)).transpose()?,
        drop_privileges: has(fattr::KILL_SUIDGID),
    })
}

/// How a file was opened: an open file's number is what was answered to its opening.
fn handle(number: u64) -> OpenFlags {
    OpenFlags(number as u32)
}

/// Whether a file was opened with `O_DIRECT`, or answered so.
fn is_direct(number: u64, flags: u32) -> bool {
    flags & rustix::fs::OFlags::DIRECT.bits() != 0 || handle(number).contains(OpenFlags::DIRECT_IO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;

    fn parsed(code: u32, body: &[u8]) -> Result<Operation<'_>, Errno> {
        operation(code, Body(body, &[]), true)
    }

    #[test]
    fn names_end_at_their_zero() {
        let body = [wire::Rename2In { newdir: 7, flags: 2, padding: 0 }.as_bytes(), b"old\0new\0"].concat();
        let expected = Operation::Rename { name: b"old", new_parent: NodeId(7), new_name: b"new", flags: 2 };
        assert_eq!(parsed(opcode::RENAME2, &body), Ok(expected));
        assert_eq!(parsed(opcode::RENAME2, &body[..body.len() - 1]), Err(Errno::INVAL));
        assert_eq!(parsed(opcode::LOOKUP, b""), Err(Errno::INVAL));
    }

    #[test]
    fn lengths_beyond_the_message_are_refused() {
        let write = wire::WriteIn { offset: 3, size: 5, write_flags: wire::WRITE_KILL_SUIDGID, ..Default::default() };
        let body = [write.as_bytes(), b"12345"].concat();
        let expected =
            || Operation::Write { offset: 3, data: b"12345", drop_privileges: true, direct: false, stable: false };
        assert_eq!(parsed(opcode::WRITE, &body), Ok(expected()));
        assert_eq!(operation(opcode::WRITE, Body(write.as_bytes(), b"12345"), true), Ok(expected()));
        assert_eq!(parsed(opcode::WRITE, &body[..body.len() - 1]), Err(Errno::INVAL));
        let forgets = wire::BatchForgetIn { count: u32::MAX, dummy: 0 };
        assert_eq!(parsed(opcode::BATCH_FORGET, forgets.as_bytes()), Err(Errno::INVAL));
    }

    #[test]
    fn a_synchronous_write_past_the_cache_is_to_be_stable() {
        let sync = rustix::fs::OFlags::SYNC.bits();
        for (flags, fh, is_stable) in [(sync, 1, true), (sync, 2, false), (0, 1, false)] {
            let write = wire::WriteIn { flags, fh, ..Default::default() };
            let Ok(Operation::Write { stable, .. }) = parsed(opcode::WRITE, write.as_bytes()) else {
                panic!("it is understood")
            };
            assert_eq!(stable, is_stable);
        }
    }

    /// `O_DIRECT` is set and cleared while others write (fcntl(2)): a write whose pages the kernel has locked would
    /// wait for them to be dropped.
    #[test]
    fn a_write_is_past_the_cache_when_the_kernel_made_it_so() {
        let direct_flag = rustix::fs::OFlags::DIRECT.bits();
        for (write_flags, flags, fh) in
            [(0, direct_flag, 2), (wire::WRITE_LOCKOWNER, 0, 2), (wire::WRITE_LOCKOWNER, 0, 1)]
        {
            let write = wire::WriteIn { write_flags, flags, fh, ..Default::default() };
            let Ok(Operation::Write { direct, .. }) = parsed(opcode::WRITE, write.as_bytes()) else {
                panic!("it is understood")
            };
            assert_eq!(direct, write_flags == wire::WRITE_LOCKOWNER);
        }
    }

    #[test]
    fn only_what_is_meant_is_set() {
        let mut set = wire::SetAttrIn {
            valid: fattr::SIZE | fattr::ATIME | fattr::ATIME_NOW | fattr::MTIME | fattr::KILL_SUIDGID,
            size: 12,
            mtime: -2i64 as u64,
            mtimensec: 5,
            ..Default::default()
        };
        let expected = SetAttr {
            size: Some(12),
            atime: Some(SetTime::Now),
            mtime: Some(SetTime::At(Time { seconds: -2, nanoseconds: 5 })),
            drop_privileges: true,
            ..SetAttr::default()
        };
        assert_eq!(parsed(opcode::SETATTR, set.as_bytes()), Ok(Operation::SetAttr(expected)));
        set.mtimensec = 1_000_000_000;
        assert_eq!(parsed(opcode::SETATTR, set.as_bytes()), Err(Errno::INVAL));
    }

    #[test]
    fn what_is_not_known_is_said_so() {
        assert_eq!(parsed(4095, b""), Err(Errno::NOSYS));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_request_or_an_error(
            code in 0u32..60, body in proptest::collection::vec(any::<u8>(), 0..200), extended: bool
        ) {
            let _ = operation(code, Body(&body, &[]), extended);
            let (first, rest) = body.split_at(body.len() / 2);
            let _ = operation(code, Body(first, rest), extended);
            let _ = split(&body);
        }
    }
}
