//! The file system as the kernel calls it: each request is turned into one call of [`Zpl`] and its answer.
//!
//! Invariants:
//! - the kernel's node 1 is the root directory; every other node number is an object number;
//! - a request is answered exactly once, after the engine is done with it;
//! - every node that an answer names is remembered in [`Zpl`] before the kernel can know it, and until it forgets it;
//! - every `open` counted in [`Zpl`] is counted in `opens` too, so that those the kernel never released (it went away)
//!   are given back at the end;
//! - bytes are copied at most once on their way: from the kernel's request into a block buffer, and from block buffers
//!   into the answer only when a read touches more than one block.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_ondisk::ObjectId;
use platter_zpl::{Attr, DirEntry, Fallocate, FileKind, NewFile, RenameFlags, SeekFor, SetAttr, Zpl, ZplError};

use crate::attr::{ENTRY_TTL, attr_ttl, blank_attr, errno, file_attr, file_type, set_specific_time, set_time};

/// Largest request of either direction, bytes.
pub(crate) const REQUEST_MAX: u32 = 1 << 20;
/// Requests that nobody waits for (readahead) in flight.
const BACKGROUND_MAX: u16 = 64;
/// Directory entries asked for at once, without and with attributes.
const DIR_BATCH: usize = 128;
const DIR_PLUS_BATCH: usize = 32;

const PERMISSIONS: u32 = 0o7777;
const O_EXCL: i32 = 0o200;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;

thread_local! {
    /// Where answers of several pieces are put together. Kept, because fresh memory costs more than the copy.
    static ASSEMBLY: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct PlatterFs {
    zpl: Arc<Zpl>,
    root: ObjectId,
    runtime: tokio::runtime::Handle,
    cache_absent: bool,
    opens: Mutex<BTreeMap<ObjectId, u64>>,
    /// Told `true` when the kernel's side is gone.
    ended: tokio::sync::watch::Sender<bool>,
}

impl PlatterFs {
    pub fn new(
        zpl: Arc<Zpl>,
        runtime: tokio::runtime::Handle,
        cache_absent: bool,
        ended: tokio::sync::watch::Sender<bool>,
    ) -> Self {
        let root = zpl.root();
        Self { zpl, root, runtime, cache_absent, opens: Mutex::default(), ended }
    }

    fn object(&self, ino: INodeNo) -> ObjectId {
        if ino == INodeNo::ROOT { self.root } else { ObjectId(ino.0) }
    }

    fn node(&self, object: ObjectId) -> u64 {
        if object == self.root { INodeNo::ROOT.0 } else { object.0 }
    }

    /// Runs `work` to its end; a failure becomes the `errno` to answer with.
    fn run<T>(&self, what: &'static str, work: impl Future<Output = platter_zpl::Result<T>>) -> Result<T, Errno> {
        // A panic would take the serving thread along, and after a few of them the mount would hang.
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| self.runtime.block_on(work)));
        let Ok(result) = outcome else {
            tracing::error!("{what}: the request failed with a panic; this is a bug");
            return Err(Errno::EIO);
        };
        result.map_err(|error| {
            if error.errno() == platter_zpl::error::errno::EIO {
                tracing::warn!("{what}: {error}");
            }
            errno(&error)
        })
    }

    /// Answers with a node. The kernel counts it as looked up once more.
    fn answer_entry(&self, result: Result<Attr, Errno>, reply: ReplyEntry) {
        match result {
            Ok(attr) => {
                self.zpl.remember(attr.object);
                reply.entry_with_ttls(
                    &attr_ttl(&attr, SystemTime::now()),
                    &ENTRY_TTL,
                    &file_attr(&attr, self.node(attr.object)),
                    Generation(attr.generation),
                );
            }
            Err(error) => reply.error(error),
        }
    }

    fn answer_attr(&self, result: Result<Attr, Errno>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&attr_ttl(&attr, SystemTime::now()), &file_attr(&attr, attr.object.0)),
            Err(error) => reply.error(error),
        }
    }

    fn opened(&self, object: ObjectId) {
        *self.opens.lock().entry(object).or_insert(0) += 1;
    }

    fn open_node(&self, ino: INodeNo, flags: FopenFlags, reply: ReplyOpen) {
        let object = self.object(ino);
        match self.run("open", self.zpl.open(object)) {
            Ok(_) => {
                self.opened(object);
                reply.opened(FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn release_node(&self, ino: INodeNo, reply: ReplyEmpty) {
        let object = self.object(ino);
        {
            let mut opens = self.opens.lock();
            match opens.get_mut(&object) {
                Some(1) => drop(opens.remove(&object)),
                Some(count) => *count -= 1,
                None => return reply.error(Errno::EBADF),
            }
        }
        answer_empty(self.run("release", self.zpl.release(object)), reply);
    }

    fn create_and_open(&self, parent: ObjectId, name: &[u8], new: NewFile, flags: i32) -> Result<Attr, Errno> {
        self.run("create", async {
            match self.zpl.create(parent, name, new).await {
                // The kernel believed that it does not exist, so it has not checked who may open it. Told so, it looks
                // the name up again.
                Err(ZplError::Exists) if flags & O_EXCL == 0 => Err(ZplError::Stale),
                other => other,
            }
        })
    }

    /// Hands directory entries after `cursor` to `add` until it says that its buffer is full.
    fn list(
        &self,
        directory: ObjectId,
        mut cursor: u64,
        with_attributes: bool,
        mut add: impl FnMut(&DirEntry) -> bool,
    ) -> Result<(), Errno> {
        let batch = if with_attributes { DIR_PLUS_BATCH } else { DIR_BATCH };
        loop {
            let entries = self.run("readdir", self.zpl.readdir(directory, cursor, batch, with_attributes))?;
            let Some(last) = entries.last() else { return Ok(()) };
            cursor = last.cursor;
            if entries.iter().any(&mut add) {
                return Ok(());
            }
        }
    }

    fn new_file(&self, request: &Request, mode: u32) -> NewFile {
        NewFile { mode: mode & PERMISSIONS, uid: request.uid(), gid: request.gid(), open: false }
    }
}

fn answer_empty(result: Result<(), Errno>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn answer_pieces(pieces: &[Buf], reply: ReplyData) {
    if let [piece] = pieces {
        return reply.data(piece);
    }
    ASSEMBLY.with_borrow_mut(|assembly| {
        assembly.clear();
        pieces.iter().for_each(|piece| assembly.extend_from_slice(piece));
        reply.data(assembly);
    });
}

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
        ];
        for flag in wanted {
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
        let left = std::mem::take(&mut *self.opens.lock());
        for (object, count) in left {
            for _ in 0..count {
                if let Err(error) = self.runtime.block_on(self.zpl.release(object)) {
                    tracing::warn!("giving back object {object}, which was open when its mount went away: {error}");
                }
            }
        }
        if let Err(error) = self.runtime.block_on(self.zpl.forget_all()) {
            tracing::warn!("freeing what was unlinked while its mount went away: {error}");
        }
        self.ended.send_replace(true);
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
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
        self.answer_attr(self.run("getattr", self.zpl.getattr(self.object(ino))), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
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
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let kind = if mode >> 12 == 0 { Some(FileKind::Regular) } else { FileKind::from_mode(mode.into()) };
        let Some(kind) = kind else { return reply.error(Errno::EINVAL) };
        let new = self.new_file(request, mode);
        let work = self.zpl.mknod(self.object(parent), name.as_bytes(), kind, rdev, new);
        self.answer_entry(self.run("mknod", work), reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let new = self.new_file(request, mode);
        self.answer_entry(self.run("mkdir", self.zpl.mkdir(self.object(parent), name.as_bytes(), new)), reply);
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.run("unlink", self.zpl.unlink(self.object(parent), name.as_bytes())), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(self.run("rmdir", self.zpl.rmdir(self.object(parent), name.as_bytes())), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = self.new_file(request, 0o777);
        let target = target.as_os_str().as_bytes();
        let work = self.zpl.symlink(self.object(parent), name.as_bytes(), target, new);
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
        let known = fuser::RenameFlags::RENAME_NOREPLACE | fuser::RenameFlags::RENAME_EXCHANGE;
        if !known.contains(flags) {
            return reply.error(Errno::EINVAL);
        }
        let flags = RenameFlags {
            no_replace: flags.contains(fuser::RenameFlags::RENAME_NOREPLACE),
            exchange: flags.contains(fuser::RenameFlags::RENAME_EXCHANGE),
        };
        let (from, to) = (self.object(parent), self.object(new_parent));
        let work = self.zpl.rename(from, name.as_bytes(), to, new_name.as_bytes(), flags);
        answer_empty(self.run("rename", work), reply);
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let work = self.zpl.link(self.object(ino), self.object(parent), name.as_bytes());
        self.answer_entry(self.run("link", work), reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.open_node(ino, FopenFlags::FOPEN_KEEP_CACHE, reply);
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
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // The kernel knows the file's size, so the offset of an appending write is right already.
        match self.run("write", self.zpl.write(self.object(ino), offset, data, false)) {
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
        answer_empty(self.run("fsync", self.zpl.fsync(self.object(ino))), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.open_node(ino, FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR, reply);
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
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
            let full = reply.add(attr.ino, entry.cursor, name, &ttl, &attr, Generation(generation));
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
        self.release_node(ino, reply);
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer_empty(self.run("fsyncdir", self.zpl.fsync(self.object(ino))), reply);
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
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let new = NewFile { open: true, ..self.new_file(request, mode) };
        match self.create_and_open(self.object(parent), name.as_bytes(), new, flags) {
            Ok(attr) => {
                self.opened(attr.object);
                self.zpl.remember(attr.object);
                let ttl = attr_ttl(&attr, SystemTime::now());
                let answer = file_attr(&attr, self.node(attr.object));
                let flags = FopenFlags::FOPEN_KEEP_CACHE;
                reply.created(&ttl, &answer, Generation(attr.generation), FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
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

    // Extended attributes come later. ENOSYS makes the kernel remember that there are none and tell processes
    // EOPNOTSUPP by itself; any other answer would cost a request before each write (security.capability).

    fn setxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn getxattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, _size: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _request: &Request, _ino: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }
}
