//! The file system as the kernel calls it: each request is turned into one call of [`Zpl`] and its answer.
//!
//! Invariants:
//! - a request is answered exactly once, after the engine is done with it;
//! - bytes are copied at most once on their way: from the kernel's request into a block buffer; an answer is sent from
//!   where they lie.
//!
//! [`Zpl`]: platter_zpl::Zpl

use std::time::Duration;

use platter_transport::{
    Directory, Entry, Errno, Filesystem, Kernel, NodeId, OpenFlags, Operation, Reply, Request, SetAttr as ChangeAttr,
};
use platter_zpl::{Fallocate, FileKind, Keeper, NewFile, RenameFlags, SetXattr};

use crate::attr::{attr_ttl, blank_attr, file_attr, set_attr, type_bits};
use crate::control::Control;
use crate::file_flags;
use crate::server::{Caller, O_EXCL, PlatterFs, answer_empty, answer_value, new_file, told_attr};
use crate::terms::ENTRY_TTL;

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_PUNCH_HOLE: i32 = 2;
const FALLOC_ZERO_RANGE: i32 = 16;
const XATTR_CREATE: u32 = 1;
const XATTR_REPLACE: u32 = 2;
const TRUSTED: &[u8] = b"trusted.";
const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl Filesystem for PlatterFs {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        let Request { node, uid, gid, pid, operation } = request;
        let caller = Caller { uid, gid, pid };
        let Some(reply) = reply else { return self.told(node, operation) };
        match operation {
            Operation::Lookup { name } => self.lookup(node, name, reply).await,
            Operation::GetAttr => self.getattr(node, reply).await,
            Operation::Statx => self.statx(node, reply).await,
            Operation::SetAttr(change) => self.setattr(node, change, reply).await,
            Operation::ReadLink => {
                match self.told_of(self.zpl.readlink(self.object(node)).await, self.object(node), "readlink") {
                    Ok(target) => reply.data(&[target]),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Mknod { name, mode, umask, rdev } => {
                self.mknod(node, name, rdev, mode, new_file(caller, mode, umask), reply).await;
            }
            Operation::Mkdir { name, mode, umask } => {
                let new = new_file(caller, mode, umask);
                self.answer_entry(
                    self.change("mkdir", node, name, |parent| self.zpl.mkdir(parent, name, new)).await,
                    reply,
                );
            }
            Operation::Symlink { name, target } => {
                let new = new_file(caller, 0o777, 0);
                let made =
                    self.change("symlink", node, name, |parent| self.zpl.symlink(parent, name, target, new)).await;
                self.answer_entry(made, reply);
            }
            Operation::Unlink { name } => {
                answer_empty(self.change("unlink", node, name, |parent| self.zpl.unlink(parent, name)).await, reply);
            }
            Operation::Rmdir { name } => {
                answer_empty(self.change("rmdir", node, name, |parent| self.zpl.rmdir(parent, name)).await, reply);
            }
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(node, name, new_parent, new_name, flags, reply).await;
            }
            Operation::Link { target, name } => {
                let target = self.object(target);
                self.answer_entry(
                    self.change("link", node, name, |parent| self.zpl.link(target, parent, name)).await,
                    reply,
                );
            }
            Operation::Open { flags } => {
                self.open_file(node, flags, reply).await;
            }
            Operation::Create { name, mode, umask, flags } => {
                let new = NewFile { open: true, ..new_file(caller, mode, umask) };
                match self.changeable(node, name) {
                    Ok(parent) => {
                        self.answer_created(self.create_and_open(parent, name, new, flags).await, flags, reply);
                    }
                    Err(error) => reply.error(error),
                }
            }
            Operation::TmpFile { mode, umask, flags } => {
                if Control::has(node) {
                    return reply.error(Errno::PERM);
                }
                let new = NewFile { open: true, ..new_file(caller, mode, umask) };
                let work = self.zpl.tmpfile(self.object(node), new, flags & O_EXCL == 0);
                self.answer_created(self.told_of(work.await, self.object(node), "tmpfile"), flags, reply);
            }
            Operation::Read { offset, size, direct, fills_cache } => {
                if fills_cache {
                    self.opens.note_pages(self.object(node));
                }
                match self.told_of(
                    self.zpl.read_for(self.object(node), offset, size.into(), keeper(direct)).await,
                    self.object(node),
                    "read",
                ) {
                    Ok(pieces) => reply.data(&pieces),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Write { offset, data, drop_privileges, direct, stable } => {
                if let Err(error) = self.drop_privileges(node, drop_privileges).await {
                    return reply.error(error);
                }
                // The kernel knows the file's size, so the offset of an appending write is right already.
                match self.told_of(
                    self.zpl.write_for(self.object(node), Some(offset), data, keeper(direct)).await,
                    self.object(node),
                    "write",
                ) {
                    Ok(written) => self.answer_written(node, offset, written as u32, direct, stable, reply),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Release { flags, how } => self.release_node(node, flags, how, reply).await,
            // Nothing to do at a close; said this way the kernel asks only once.
            Operation::Flush => reply.error(Errno::NOSYS),
            Operation::SyncFs => self.answer_when_all_stable(reply),
            Operation::Fsync { .. } => self.answer_when_stable("fsync", self.object(node), reply),
            Operation::FsyncDir { .. } => self.answer_when_stable("fsyncdir", self.object(node), reply),
            Operation::StatFs => self.statfs(node, reply).await,
            Operation::SetXattr { name, value, flags, clear_set_gid } => {
                self.setxattr(node, caller, name, value, flags, clear_set_gid, reply).await;
            }
            Operation::GetXattr { .. } if Control::has(node) => reply.error(Errno::NODATA),
            Operation::GetXattr { name, size } => {
                answer_value(
                    self.told_of(self.zpl.getxattr(self.object(node), name).await, self.object(node), "getxattr"),
                    size,
                    reply,
                );
            }
            Operation::ListXattr { size } if Control::has(node) => answer_value(Ok(Vec::new()), size, reply),
            Operation::ListXattr { size } => {
                let names = self.names_of_xattrs(node, caller).await;
                let joined = names.map(|names| names.into_iter().flat_map(|name| [name, vec![0]].concat()).collect());
                answer_value(joined, size, reply);
            }
            Operation::RemoveXattr { .. } if Control::has(node) => reply.error(Errno::PERM),
            Operation::RemoveXattr { name } => {
                answer_empty(
                    self.told_of(self.zpl.removexattr(self.object(node), name).await, self.object(node), "removexattr"),
                    reply,
                );
            }
            Operation::OpenDir { .. } if Control::has(node) => reply.opened(OpenFlags::default()),
            Operation::OpenDir { .. } => {
                self.open_directory(node, reply).await;
            }
            Operation::ReadDir { offset, size } => self.readdir(node, offset, size, reply).await,
            Operation::ReadDirPlus { offset, size } => self.readdirplus(node, offset, size, reply).await,
            Operation::ReleaseDir if Control::has(node) => reply.ok(),
            Operation::ReleaseDir => self.release_node(node, 0, OpenFlags::default(), reply).await,
            // The kernel checks permissions itself.
            Operation::Access { .. } => reply.ok(),
            Operation::Ioctl { .. } if Control::has(node) => reply.error(Errno::NOTTY),
            Operation::Ioctl { command, data, answer_max } => {
                match file_flags::ioctl(self, node, uid, command, data).await {
                    Ok(answer) => reply.ioctl(&answer[..answer.len().min(answer_max as usize)]),
                    Err(error) => reply.error(error),
                }
            }
            Operation::Fallocate { offset, length, mode } => {
                self.fallocate(node, caller, offset, length, mode, reply).await;
            }
            Operation::Lseek { offset, whence } => self.lseek(node, offset, whence, reply).await,
            Operation::CopyFileRange { offset, to: to_node, to_offset, length, wide } => {
                let (from, to) = (self.object(node), self.object(to_node));
                if let Err(error) = self.drop_privileges_of(to_node, caller).await {
                    return reply.error(error);
                }
                match self.told_of(
                    self.zpl.copy_range(from, offset, to, to_offset, length).await,
                    from,
                    "copy_file_range",
                ) {
                    Ok(copied) => reply.copied(copied, wide),
                    Err(error) => reply.error(error),
                }
            }
            // These come without a reply.
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.error(Errno::INVAL),
        }
    }

    fn started(&self, kernel: Kernel) {
        self.set_kernel(kernel);
    }

    fn gone(&self) {
        self.give_back();
    }
}

impl PlatterFs {
    /// What the kernel waits for no answer to. Nor does who removed a file wait for its space: what has to be freed is
    /// freed away from the serving threads.
    fn told(&self, node: NodeId, operation: Operation<'_>) {
        let all = match operation {
            Operation::Forget { times } => vec![(node, times)],
            Operation::BatchForget(all) => all,
            _ => return,
        };
        let orphans = all
            .into_iter()
            .map(|(node, times)| (self.object(node), times))
            .filter_map(|(object, times)| self.zpl.forget(object, times).then_some(object));
        self.reap(orphans);
    }

    async fn lookup(&self, parent: NodeId, name: &[u8], reply: Reply) {
        if Control::has(parent) || (parent == NodeId::ROOT && name == Control::NAME) {
            return match self.control.lookup(parent, name) {
                Some(attr) => reply.entry(&lasting(attr.node, attr)),
                None => reply.error(Errno::NOENT),
            };
        }
        match self.told_of(self.zpl.lookup(self.object(parent), name).await, self.object(parent), "lookup") {
            Err(Errno::NOENT) if self.cache_absent => {
                // Node 0 says that there is no such name, for as long as the entry lives.
                let absent = blank_attr(NodeId(0), type_bits(None));
                reply.entry(&Entry { attr_ttl: Duration::ZERO, ..lasting(NodeId(0), absent) });
            }
            result => self.answer_entry(result, reply),
        }
    }

    async fn getattr(&self, node: NodeId, reply: Reply) {
        match self.attr("getattr", node).await {
            Ok((attr, ttl)) => reply.attr(&attr, ttl),
            Err(error) => reply.error(error),
        }
    }

    async fn statx(&self, node: NodeId, reply: Reply) {
        match self.attr("statx", node).await {
            Ok((attr, ttl)) => reply.statx(&attr, ttl),
            Err(error) => reply.error(error),
        }
    }

    async fn setattr(&self, node: NodeId, change: ChangeAttr, reply: Reply) {
        if Control::has(node) {
            return reply.error(Errno::PERM);
        }
        let object = self.object(node);
        if change.size.is_some()
            && let Err(error) = self.drop_privileges(node, change.drop_privileges).await
        {
            return reply.error(error);
        }
        match self
            .told_of(self.zpl.setattr(object, set_attr(&change)).await, object, "setattr")
            .map(|attr| told_attr(&attr))
        {
            Ok((attr, ttl)) => reply.attr(&attr, ttl),
            Err(error) => reply.error(error),
        }
    }

    async fn statfs(&self, node: NodeId, reply: Reply) {
        let object = if Control::has(node) { self.zpl.root() } else { self.object(node) };
        match self.told_of(self.zpl.statfs_of(object).await, object, "statfs") {
            Ok(stat) => {
                let (blocks, available) = (stat.blocks, stat.available);
                reply.statfs(stat.block_size, blocks, available, stat.files, stat.files_free, stat.name_max);
            }
            Err(error) => reply.error(error),
        }
    }

    async fn mknod(&self, parent: NodeId, name: &[u8], rdev: u32, mode: u32, new: NewFile, reply: Reply) {
        let kind = if mode >> 12 == 0 { Some(FileKind::Regular) } else { FileKind::from_mode(mode.into()) };
        let Some(kind) = kind else { return reply.error(Errno::INVAL) };
        let made = self.change("mknod", parent, name, |parent| self.zpl.mknod(parent, name, kind, rdev, new)).await;
        self.answer_entry(made, reply);
    }

    async fn rename(&self, parent: NodeId, name: &[u8], new_parent: NodeId, new_name: &[u8], flags: u32, reply: Reply) {
        if flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) != 0 {
            return reply.error(Errno::INVAL);
        }
        let flags = RenameFlags {
            no_replace: flags & RENAME_NOREPLACE != 0,
            exchange: flags & RENAME_EXCHANGE != 0,
            whiteout: flags & RENAME_WHITEOUT != 0,
        };
        let (Ok(from), Ok(to)) = (self.changeable(parent, name), self.changeable(new_parent, new_name)) else {
            return reply.error(Errno::PERM);
        };
        answer_empty(self.told_of(self.zpl.rename(from, name, to, new_name, flags).await, from, "rename"), reply);
    }

    async fn readdir(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        let mut entries = Directory::new(size);
        if let Some(own) = self.control.entries(node, offset) {
            for (attr, cursor, name) in own {
                if entries.add(attr.node, cursor, attr.mode, name) {
                    break;
                }
            }
            return reply.directory(&entries);
        }
        let result = self
            .list(self.object(node), offset, false, |entry| {
                entries.add(NodeId(entry.object.0), entry.cursor, type_bits(entry.kind), &entry.name)
            })
            .await;
        match result {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(error),
        }
    }

    async fn readdirplus(&self, node: NodeId, offset: u64, size: u32, reply: Reply) {
        let mut entries = Directory::new(size);
        if let Some(own) = self.control.entries(node, offset) {
            for (attr, cursor, name) in own {
                if entries.add_entry(&lasting(attr.node, attr), cursor, name) {
                    break;
                }
            }
            return reply.directory(&entries);
        }
        let result = self
            .list(self.object(node), offset, true, |entry| {
                let node = NodeId(entry.object.0);
                let (attr, attr_ttl, generation) = match &entry.attr {
                    Some(attr) => (file_attr(attr), attr_ttl(attr), attr.generation),
                    // Unreadable: the kernel learns the error when somebody asks for the attributes.
                    None => (blank_attr(node, type_bits(entry.kind)), Duration::ZERO, 0),
                };
                let answer = Entry { node, generation, attr, entry_ttl: self.entry_ttl(attr_ttl), attr_ttl };
                let full = entries.add_entry(&answer, entry.cursor, &entry.name);
                // Each entry counts as looked up, but not these two.
                if !full && !matches!(&entry.name[..], b"." | b"..") {
                    self.zpl.remember(entry.object);
                }
                full
            })
            .await;
        match result {
            Ok(()) => reply.directory(&entries),
            Err(error) => reply.error(error),
        }
    }

    async fn fallocate(&self, node: NodeId, caller: Caller, offset: u64, length: u64, mode: i32, reply: Reply) {
        let keep_size = mode & FALLOC_KEEP_SIZE != 0;
        let what = match mode & !FALLOC_KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            FALLOC_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            FALLOC_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            _ => return reply.error(Errno::OPNOTSUPP),
        };
        if let Err(error) = self.drop_privileges_of(node, caller).await {
            return reply.error(error);
        }
        let object = self.object(node);
        answer_empty(self.told_of(self.zpl.fallocate(object, what, offset, length).await, object, "fallocate"), reply);
    }

    /// Only root sees those of name space `trusted`. Few files have any, and who asks may take long to find out.
    async fn names_of_xattrs(&self, node: NodeId, caller: Caller) -> Result<Vec<Vec<u8>>, Errno> {
        let object = self.object(node);
        let names = self.told_of(self.zpl.listxattr(object, true).await, object, "listxattr")?;
        let is_trusted = |name: &Vec<u8>| name.starts_with(TRUSTED);
        if !names.iter().any(is_trusted) || caller.is_root() {
            return Ok(names);
        }
        Ok(names.into_iter().filter(|name| !is_trusted(name)).collect())
    }

    async fn setxattr(
        &self,
        node: NodeId,
        caller: Caller,
        name: &[u8],
        value: &[u8],
        flags: u32,
        clear_set_gid: Option<bool>,
        reply: Reply,
    ) {
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return reply.error(Errno::INVAL),
        };
        if Control::has(node) {
            return reply.error(Errno::PERM);
        }
        let object = self.object(node);
        let keep_set_gid = match clear_set_gid {
            Some(clear) => !clear,
            // An older kernel does not tell whether the caller is in the file's group: his first one has to do.
            None if caller.uid == 0 => true,
            None => match self.told_of(self.zpl.getattr(object).await, object, "setxattr") {
                Ok(attr) => caller.gid == attr.gid,
                Err(error) => return reply.error(error),
            },
        };
        answer_empty(
            self.told_of(self.zpl.setxattr(object, name, value, how, keep_set_gid).await, object, "setxattr"),
            reply,
        );
    }

    /// Answers with a file that was made and is open.
    fn answer_created(&self, result: Result<platter_zpl::Attr, Errno>, flags: i32, reply: Reply) {
        match result {
            Ok(attr) => {
                let entry = self.entry(&attr, ENTRY_TTL);
                reply.created(&entry, self.opened(&attr, flags));
            }
            Err(error) => reply.error(error),
        }
    }
}

/// Who keeps what is read or written: the kernel, unless it was told not to.
fn keeper(direct: bool) -> Keeper {
    if direct { Keeper::Nobody } else { Keeper::Caller }
}

/// A node that does not change, for as long as the kernel likes.
fn lasting(node: NodeId, attr: platter_transport::FileAttr) -> Entry {
    Entry { node, generation: 0, attr, entry_ttl: ENTRY_TTL, attr_ttl: ENTRY_TTL }
}
