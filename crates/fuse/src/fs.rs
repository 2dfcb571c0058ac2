//! The file system as the kernel calls it: each request is turned into one call of [`Zpl`] and its answer.
//!
//! Invariants:
//! - a request is answered exactly once, after the engine is done with it;
//! - bytes are copied at most once on their way: from the kernel's request into a block buffer; an answer is sent from
//!   where they lie.
//!
//! [`Zpl`]: platter_zpl::Zpl

use platter_transport::{
    Errno, Filesystem, Kernel, NodeId, OpenFlags, Operation, Reply, Request, SetAttr as ChangeAttr,
};

use crate::attr::set_attr;
use crate::control::Control;
use crate::server::{Caller, PlatterFs, new_file, told_attr};

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
            Operation::ReadLink => self.readlink(node, reply).await,
            Operation::Mknod { name, mode, umask, rdev } => {
                self.mknod(node, name, rdev, mode, new_file(caller, mode, umask), reply).await;
            }
            Operation::Mkdir { name, mode, umask } => {
                self.mkdir(node, name, new_file(caller, mode, umask), reply).await;
            }
            Operation::Symlink { name, target } => {
                self.symlink(node, name, target, new_file(caller, 0o777, 0), reply).await;
            }
            Operation::Unlink { name } => self.unlink(node, name, reply).await,
            Operation::Rmdir { name } => self.rmdir(node, name, reply).await,
            Operation::Rename { name, new_parent, new_name, flags } => {
                self.rename(node, name, new_parent, new_name, flags, reply).await;
            }
            Operation::Link { target, name } => self.link(node, name, target, reply).await,
            Operation::Open { flags } => self.open_file(node, flags, reply).await,
            Operation::Create { name, mode, umask, flags } => {
                self.create(node, name, new_file(caller, mode, umask), flags, reply).await;
            }
            Operation::TmpFile { mode, umask, flags } => {
                self.tmpfile(node, new_file(caller, mode, umask), flags, reply).await;
            }
            Operation::Release { flags, how } => self.release_node(node, flags, how, reply).await,
            // Nothing to do at a close; said this way the kernel asks only once.
            Operation::Flush => reply.error(Errno::NOSYS),
            Operation::SyncFs => self.answer_when_all_stable(reply),
            Operation::Fsync { .. } => self.answer_when_stable("fsync", self.object(node), reply),
            Operation::FsyncDir { .. } => self.answer_when_stable("fsyncdir", self.object(node), reply),
            Operation::StatFs => self.statfs(node, reply).await,
            Operation::OpenDir { .. } if Control::has(node) => reply.opened(OpenFlags::default()),
            Operation::OpenDir { .. } => self.open_directory(node, reply).await,
            Operation::ReadDir { offset, size } => self.readdir(node, offset, size, reply).await,
            Operation::ReadDirPlus { offset, size } => self.readdirplus(node, offset, size, reply).await,
            Operation::ReleaseDir if Control::has(node) => reply.ok(),
            Operation::ReleaseDir => self.release_node(node, 0, OpenFlags::default(), reply).await,
            // The kernel checks permissions itself.
            Operation::Access { .. } => reply.ok(),
            // These come without a reply.
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.error(Errno::INVAL),
            operation @ (Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }) => self.serve_xattrs(node, caller, operation, reply).await,
            operation @ (Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Fallocate { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. }
            | Operation::Ioctl { .. }) => self.serve_contents(node, caller, operation, reply).await,
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
}
