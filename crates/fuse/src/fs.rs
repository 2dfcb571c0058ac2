//! The file system as the kernel calls it: each request is turned into one call of [`Zpl`] and its answer.
//!
//! Invariants:
//! - a request is answered exactly once, after the engine is done with it;
//! - bytes are copied at most once on their way: from the kernel's request into a block buffer, and from block buffers
//!   into the answer only when a read touches more than one block.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use platter_zpl::{Fallocate, FileKind, NewFile, RenameFlags, SeekFor, SetAttr, SetXattr};

use crate::attr::{ENTRY_TTL, attr_ttl, blank_attr, file_attr, file_type, set_specific_time, set_time};
use crate::control::Control;
use crate::file_flags;
use crate::server::{PlatterFs, answer_empty, answer_pieces, answer_value};

/// Largest request of either direction, bytes.
pub(crate) const REQUEST_MAX: u32 = 1 << 20;
/// Requests that nobody waits for (readahead) in flight.
const BACKGROUND_MAX: u16 = 64;

const PERMISSIONS: u32 = 0o7777;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

impl Filesystem for PlatterFs {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_ASYNC_READ,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_EXPORT_SUPPORT,
            // Contents change through the kernel only, so it need not guess from times when to drop its pages.
            InitFlags::FUSE_EXPLICIT_INVAL_DATA,
            // Otherwise the kernel asks for capabilities before each write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ];
        // The kernel checks access by the lists; what new files inherit is decided here, so the umask is too.
        let lists = [InitFlags::FUSE_POSIX_ACL, InitFlags::FUSE_DONT_MASK];
        for flag in wanted.into_iter().chain(lists.into_iter().filter(|_| self.zpl.has_posix_acl())) {
            // What this kernel lacks it does without.
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.give_back();
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if Control::has(parent) || (parent == INodeNo::ROOT && name.as_bytes() == Control::NAME) {
            return match self.control.lookup(parent, name.as_bytes()) {
                Some(attr) => reply.entry(&ENTRY_TTL, &attr, Generation(0)),
                None => reply.error(Errno::ENOENT),
            };
        }
        match self.run("lookup", self.zpl.lookup(self.object(parent), name.as_bytes())) {
            Err(error) if error.code() == Errno::ENOENT.code() && self.cache_absent => {
                // Node 0 says that there is no such name, for as long as the entry lives.
                let absent = blank_attr(0, fuser::FileType::RegularFile);
                reply.entry_with_ttls(&Duration::ZERO, &ENTRY_TTL, &absent, Generation(0));
            }
            result => self.answer_entry(result, reply),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, times: u64) {
        let object = self.object(ino);
        // Nobody waits for an answer; what cannot be freed now stays in the unlinked set.
        let _ = self.run("forget", self.zpl.forget(object, times));
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if let Some(attr) = self.control.attr(ino) {
            return reply.attr(&ENTRY_TTL, &attr);
        }
        self.answer_attr(self.run("getattr", self.zpl.getattr(self.object(ino))), reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if Control::has(ino) {
            return reply.error(Errno::EPERM);
        }
        if size.is_some()
            && let Err(error) = self.drop_privileges(self.object(ino), request.uid() != 0)
        {
            return reply.error(error);
        }
        let change = SetAttr {
            mode: mode.map(|mode| mode & PERMISSIONS),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(set_specific_time),
            flags: None,
        };
        self.answer_attr(self.run("setattr", self.zpl.setattr(self.object(ino), change)), reply);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.run("readlink", self.zpl.readlink(self.object(ino))) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(error),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = if mode >> 12 == 0 { Some(FileKind::Regular) } else { FileKind::from_mode(mode.into()) };
        let Some(kind) = kind else { return reply.error(Errno::EINVAL) };
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        let new = self.new_file(request, mode, umask);
        let work = self.zpl.mknod(parent, name.as_bytes(), kind, rdev, new);
        self.answer_entry(self.run("mknod", work), reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        let new = self.new_file(request, mode, umask);
        self.answer_entry(self.run("mkdir", self.zpl.mkdir(parent, name.as_bytes(), new)), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        answer_empty(self.run("unlink", self.zpl.unlink(parent, name.as_bytes())), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        answer_empty(self.run("rmdir", self.zpl.rmdir(parent, name.as_bytes())), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        let new = self.new_file(request, 0o777, 0);
        let target = target.as_os_str().as_bytes();
        let work = self.zpl.symlink(parent, name.as_bytes(), target, new);
        self.answer_entry(self.run("symlink", work), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let known = fuser::RenameFlags::RENAME_NOREPLACE
            | fuser::RenameFlags::RENAME_EXCHANGE
            | fuser::RenameFlags::RENAME_WHITEOUT;
        if !known.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
            whiteout: flags.contains(fuser::RenameFlags::RENAME_WHITEOUT),
        };
        let (Ok(from), Ok(to)) = (self.changeable(parent, name), self.changeable(new_parent, new_name)) else {
            return reply.error(Errno::EPERM);
        };
        let work = self.zpl.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags);
        answer_empty(self.run("rename", work), reply);
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        let work = self.zpl.link(self.object(ino), parent, name.as_bytes());
        self.answer_entry(self.run("link", work), reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.open_node(ino, FopenFlags::FOPEN_KEEP_CACHE, reply, |attr| file_flags::check_open(attr, flags));
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.run("read", self.zpl.read(self.object(ino), offset, size.into())) {
            Ok(pieces) => answer_pieces(&pieces, reply),
            Err(error) => reply.error(error),
        }
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let object = self.object(ino);
        if let Err(error) = self.drop_privileges(object, write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)) {
            return reply.error(error);
        }
        // The kernel knows the file's size, so the offset of an appending write is right already.
        match self.run("write", self.zpl.write(object, offset, data, false)) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _fh: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Nothing to do at a close; said this way the kernel asks only once.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.release_node(ino, reply);
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.answer_when_stable("fsync", self.object(ino), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if Control::has(ino) {
            return reply.opened(FileHandle(0), FopenFlags::empty());
        }
        self.open_node(ino, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR, reply, |_| Ok(()));
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if let Some(entries) = self.control.entries(ino, offset) {
            for (node, cursor, name) in entries {
                if reply.add(node, cursor, fuser::FileType::Directory, name) {
                    break;
                }
            }
            return reply.ok();
        }
        let result = self.list(self.object(ino), offset, false, |entry| {
            let kind = entry.kind.map_or(fuser::FileType::RegularFile, file_type);
            reply.add(INodeNo(entry.object.0), entry.cursor, kind, OsStr::from_bytes(&entry.name))
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        if let Some(entries) = self.control.entries(ino, offset) {
            for (node, cursor, name) in entries {
                let attr = self.control.attr(node).unwrap_or_else(|| blank_attr(node.0, fuser::FileType::Directory));
                if reply.add(node, cursor, name, &ENTRY_TTL, &attr, Generation(0)) {
                    break;
                }
            }
            return reply.ok();
        }
        let now = SystemTime::now();
        let result = self.list(self.object(ino), offset, true, |entry| {
            let (attr, ttl, generation) = match &entry.attr {
                Some(attr) => (file_attr(attr, attr.object.0), attr_ttl(attr, now), attr.generation),
                // Unreadable: the kernel learns the error when somebody asks for the attributes.
                None => {
                    let kind = entry.kind.map_or(fuser::FileType::RegularFile, file_type);
                    (blank_attr(entry.object.0, kind), Duration::ZERO, 0)
                }
            };
            let name = OsStr::from_bytes(&entry.name);
            let full = reply.add(attr.ino, entry.cursor, name, &self.entry_ttl(ttl), &attr, Generation(generation));
            // Each entry counts as looked up, but not these two.
            if !full && !matches!(&entry.name[..], b"." | b"..") {
                self.zpl.remember(entry.object);
            }
            full
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error),
        }
    }

    fn releasedir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        if Control::has(ino) {
            return reply.ok();
        }
        self.release_node(ino, reply);
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.answer_when_stable("fsyncdir", self.object(ino), reply);
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let stat = self.zpl.statfs();
        reply.statfs(
            stat.blocks,
            stat.available,
            stat.available,
            stat.files,
            stat.files_free,
            stat.block_size,
            stat.name_max,
            stat.block_size,
        );
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself.
        reply.ok();
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let Ok(parent) = self.changeable(parent, name) else { return reply.error(Errno::EPERM) };
        let new = NewFile { open: true, ..self.new_file(request, mode, umask) };
        match self.create_and_open(parent, name.as_bytes(), new, flags) {
            Ok(attr) => {
                self.opened(attr.object);
                self.zpl.remember(attr.object);
                let ttl = attr_ttl(&attr, SystemTime::now());
                let answer = file_attr(&attr, self.node(attr.object));
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&self.entry_ttl(ttl), &answer, Generation(attr.generation), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & FALLOC_KEEP_SIZE != 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            FALLOC_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            FALLOC_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        if let Err(error) = self.drop_privileges(self.object(ino), request.uid() != 0) {
            return reply.error(error);
        }
        answer_empty(self.run("fallocate", self.zpl.fallocate(self.object(ino), what, offset, length)), reply);
    }

    fn lseek(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let what = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        match self.run("lseek", self.zpl.seek(self.object(ino), offset, what)) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(error),
        }
    }

    fn ioctl(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        answer_max: u32,
        reply: ReplyIoctl,
    ) {
        if Control::has(ino) {
            return reply.error(Errno::ENOTTY);
        }
        match file_flags::ioctl(self, ino, command, data) {
            Ok(answer) => reply.ioctl(0, &answer[..answer.len().min(answer_max as usize)]),
            Err(error) => reply.error(error),
        }
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _from_fh: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_fh: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (self.object(from), self.object(to));
        if let Err(error) = self.drop_privileges(to, request.uid() != 0) {
            return reply.error(error);
        }
        match self.run("copy_file_range", self.zpl.copy_range(from, from_offset, to, to_offset, length)) {
            Ok(copied) => reply.written(copied as u32),
            Err(error) => reply.error(error),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        if Control::has(ino) {
            return reply.error(Errno::EPERM);
        }
        let object = self.object(ino);
        let result = self.run("setxattr", async {
            // Whether the caller is in the file's group is known of his first group only.
            let attr = self.zpl.getattr(object).await?;
            let keep_set_gid = request.uid() == 0 || request.gid() == attr.gid;
            self.zpl.setxattr(object, name.as_bytes(), value, how, keep_set_gid).await
        });
        answer_empty(result, reply);
    }

    fn getxattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if Control::has(ino) {
            return reply.error(Errno::ENODATA);
        }
        answer_value(self.run("getxattr", self.zpl.getxattr(self.object(ino), name.as_bytes())), size, reply);
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        if Control::has(ino) {
            return answer_value(Ok(Vec::new()), size, reply);
        }
        let names = self.run("listxattr", self.zpl.listxattr(self.object(ino), request.uid() == 0));
        let joined = names.map(|names| names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect());
        answer_value(joined, size, reply);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if Control::has(ino) {
            return reply.error(Errno::EPERM);
        }
        answer_empty(self.run("removexattr", self.zpl.removexattr(self.object(ino), name.as_bytes())), reply);
    }
}
