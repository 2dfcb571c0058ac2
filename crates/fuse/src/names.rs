//! Requests that look names up, make, move and remove them.

use std::time::Duration;

use platter_transport::{Entry, Errno, NodeId, Reply};
use platter_zpl::{FileKind, NewFile, RenameFlags};

use crate::attr::{blank_attr, type_bits};
use crate::control::Control;
use crate::directories::lasting;
use crate::server::{O_EXCL, PlatterFs, answer_empty};
use crate::terms::ENTRY_TTL;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;

impl PlatterFs {
    pub(crate) async fn lookup(&self, parent: NodeId, name: &[u8], reply: Reply) {
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

    pub(crate) async fn readlink(&self, node: NodeId, reply: Reply) {
        match self.told_of(self.zpl.readlink(self.object(node)).await, self.object(node), "readlink") {
            Ok(target) => reply.data(&[target]),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) async fn mknod(&self, parent: NodeId, name: &[u8], rdev: u32, mode: u32, new: NewFile, reply: Reply) {
        let kind = if mode >> 12 == 0 { Some(FileKind::Regular) } else { FileKind::from_mode(mode.into()) };
        let Some(kind) = kind else { return reply.error(Errno::INVAL) };
        let made = self.change("mknod", parent, name, |parent| self.zpl.mknod(parent, name, kind, rdev, new)).await;
        self.answer_entry(made, reply);
    }

    pub(crate) async fn mkdir(&self, parent: NodeId, name: &[u8], new: NewFile, reply: Reply) {
        let made = self.change("mkdir", parent, name, |parent| self.zpl.mkdir(parent, name, new)).await;
        self.answer_entry(made, reply);
    }

    pub(crate) async fn symlink(&self, parent: NodeId, name: &[u8], target: &[u8], new: NewFile, reply: Reply) {
        let made = self.change("symlink", parent, name, |parent| self.zpl.symlink(parent, name, target, new)).await;
        self.answer_entry(made, reply);
    }

    pub(crate) async fn link(&self, parent: NodeId, name: &[u8], target: NodeId, reply: Reply) {
        let target = self.object(target);
        let made = self.change("link", parent, name, |parent| self.zpl.link(target, parent, name)).await;
        self.answer_entry(made, reply);
    }

    pub(crate) async fn unlink(&self, parent: NodeId, name: &[u8], reply: Reply) {
        answer_empty(self.change("unlink", parent, name, |parent| self.zpl.unlink(parent, name)).await, reply);
    }

    pub(crate) async fn rmdir(&self, parent: NodeId, name: &[u8], reply: Reply) {
        answer_empty(self.change("rmdir", parent, name, |parent| self.zpl.rmdir(parent, name)).await, reply);
    }

    pub(crate) async fn rename(
        &self,
        parent: NodeId,
        name: &[u8],
        new_parent: NodeId,
        new_name: &[u8],
        flags: u32,
        reply: Reply,
    ) {
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

    pub(crate) async fn create(&self, parent: NodeId, name: &[u8], new: NewFile, flags: i32, reply: Reply) {
        let new = NewFile { open: true, ..new };
        match self.changeable(parent, name) {
            Ok(parent) => self.answer_created(self.create_and_open(parent, name, new, flags).await, flags, reply),
            Err(error) => reply.error(error),
        }
    }

    pub(crate) async fn tmpfile(&self, parent: NodeId, new: NewFile, flags: i32, reply: Reply) {
        if Control::has(parent) {
            return reply.error(Errno::PERM);
        }
        let new = NewFile { open: true, ..new };
        let made = self.zpl.tmpfile(self.object(parent), new, flags & O_EXCL == 0).await;
        self.answer_created(self.told_of(made, self.object(parent), "tmpfile"), flags, reply);
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
