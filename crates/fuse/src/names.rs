//! Requests that look names up, make, move and remove them.

use std::time::Duration;

use platter_transport::{Entry, Errno, NodeId, Operation, Reply};
use platter_vfs::{Access, Attr, Caching, FileKind, NewFile, RenameFlags};

use crate::attr::{blank_attr, errno, type_bits};
use crate::server::{Caller, PlatterFs, answer_empty, lasting, new_file};
use crate::terms::{open_flags, opening};

const O_EXCL: i32 = 0o200;
pub(crate) const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl PlatterFs {
    /// Requests that change names, and what asks where one leads.
    pub(crate) async fn serve_names(&self, node: NodeId, caller: Caller, operation: Operation<'_>, reply: Reply) {
        let (access, parent) = (Access::Checked(&caller), self.object(node));
        if self.shows_snapshots(node) && !matches!(operation, Operation::ReadLink) {
            return Box::pin(self.change_snapshots(caller, node, operation, reply)).await;
        }
        match operation {
            Operation::Create { name, mode, umask, flags } => {
                self.create(access, node, name, new_file(caller, mode, umask), flags, reply).await;
            }
            Operation::TmpFile { mode, umask, flags } => {
                let (new, linkable) = (new_file(caller, mode, umask), flags & O_EXCL == 0);
                let made = self.vfs.tmpfile(access, parent, new, linkable, opening(flags)).await;
                self.answer_created(made.map_err(|error| errno(&error)), reply);
            }
            Operation::Mknod { name, mode, umask, rdev } => {
                let kind = if mode >> 12 == 0 { Some(FileKind::Regular) } else { FileKind::from_mode(mode.into()) };
                let Some(kind) = kind else { return reply.error(Errno::INVAL) };
                let new = new_file(caller, mode, umask);
                self.answer_entry(self.vfs.mknod(access, parent, name, kind, rdev, new).await, reply);
            }
            Operation::Mkdir { name, mode, umask } => {
                let made = self.vfs.mkdir(access, parent, name, new_file(caller, mode, umask)).await;
                self.answer_entry(made, reply);
            }
            Operation::Symlink { name, target } => {
                let made = self.vfs.symlink(access, parent, name, target, new_file(caller, 0o777, 0)).await;
                self.answer_entry(made, reply);
            }
            Operation::Link { target, name } => {
                self.answer_entry(self.vfs.link(access, self.object(target), parent, name).await, reply);
            }
            Operation::Unlink { name } => answer_empty(self.vfs.unlink(access, parent, name).await, reply),
            Operation::Rmdir { name } => answer_empty(self.vfs.rmdir(access, parent, name).await, reply),
            Operation::Rename { name, new_parent, new_name, flags } => {
                let Some(flags) = rename_flags(flags) else { return reply.error(Errno::INVAL) };
                let to = (self.object(new_parent), new_name);
                answer_empty(self.vfs.rename(access, (parent, name), to, flags).await, reply);
            }
            Operation::ReadLink => match self.vfs.readlink(access, parent).await {
                Ok(target) => reply.data(&[target]),
                Err(error) => reply.error(errno(&error)),
            },
            // Whatever else there is belongs to `serve`.
            _ => reply.error(Errno::NOSYS),
        }
    }

    pub(crate) async fn lookup(&self, access: Access<'_>, parent: NodeId, name: &[u8], reply: Reply) {
        if self.shows_snapshots(parent) && !matches!(name, b"." | b"..") {
            return Box::pin(self.lookup_snapshot(access, name, reply)).await;
        }
        let parent = self.object(parent);
        match self.vfs.lookup(access, parent, name).await {
            Err(error)
                if errno(&error) == Errno::NOENT && self.cache_absent && !self.vfs.is_controls_name(parent, name) =>
            {
                // Node 0 says that there is no such name, for as long as the entry lives.
                let absent = blank_attr(NodeId(0), type_bits(None));
                reply.entry(&Entry { attr_ttl: Duration::ZERO, ..lasting(absent) });
            }
            result => self.answer_entry(result, reply),
        }
    }

    async fn create(&self, access: Access<'_>, parent: NodeId, name: &[u8], new: NewFile, flags: i32, reply: Reply) {
        let made = self.vfs.create(access, self.object(parent), name, new, opening(flags)).await;
        let made = match made.map_err(|error| errno(&error)) {
            // The kernel believed that it does not exist, so it has not checked who may open it. Told so, it looks the
            // name up again.
            Err(Errno::EXIST) if flags & O_EXCL == 0 => Err(Errno::STALE),
            other => other,
        };
        self.answer_created(made, reply);
    }

    /// Answers with a file that was made and is open.
    fn answer_created(&self, result: Result<(Attr, Caching), Errno>, reply: Reply) {
        match result {
            Ok((attr, caching)) => reply.created(&self.entry(&attr), open_flags(caching)),
            Err(error) => reply.error(error),
        }
    }
}

/// `None` for flags that nobody knows.
fn rename_flags(flags: u32) -> Option<RenameFlags> {
    let known = flags & !(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) == 0;
    known.then_some(RenameFlags {
        no_replace: flags & RENAME_NOREPLACE != 0,
        exchange: flags & RENAME_EXCHANGE != 0,
        whiteout: flags & RENAME_WHITEOUT != 0,
    })
}
