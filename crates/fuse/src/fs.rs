//! The file system as the kernel calls it: each request is turned into one operation of [`Vfs`] and its answer.
//!
//! A request is answered exactly once, after the engine is done with it: answering takes the reply away. Bytes are
//! copied at most once on their way: from the kernel's request into a block buffer; an answer is sent from where they
//! lie.
//!
//! [`Vfs`]: platter_vfs::Vfs

use std::collections::BTreeMap;
use std::time::Duration;

use platter_transport::{Errno, Filesystem, Kernel, NodeId, Operation, Reply, Request, SetAttr as ChangeAttr};
use platter_vfs::{Access, Reading, Writing};

use crate::attr::{errno, set_attr};
use crate::nodes::{other_node, place_of};
use crate::server::{Caller, PlatterFs};

impl Filesystem for PlatterFs {
    async fn serve(&self, request: Request<'_>, reply: Option<Reply>) {
        let Some(reply) = reply else { return self.told(request.node, request.operation) };
        if place_of(request.node) == 0 && other_node(&request.operation).is_none_or(|other| place_of(other) == 0) {
            return self.serve_own(request, reply).await;
        }
        // In a place of its own: it would be part of every request otherwise.
        Box::pin(self.serve_snapshot(request, reply)).await;
    }

    fn started(&self, kernel: Kernel) {
        self.set_kernel(kernel);
    }

    fn gone(&self) {
        self.give_back();
    }
}

impl PlatterFs {
    /// A request that is about a snapshot.
    async fn serve_snapshot(&self, request: Request<'_>, reply: Reply) {
        let place = place_of(request.node);
        if other_node(&request.operation).is_some_and(|other| place_of(other) != place) {
            // As of another file system.
            return reply.error(Errno::XDEV);
        }
        match self.shelf.get(place) {
            Some(snapshot) => snapshot.serve_own(request, reply).await,
            None => reply.error(Errno::STALE),
        }
    }

    /// A request that is about this file system, or this snapshot.
    async fn serve_own(&self, request: Request<'_>, reply: Reply) {
        let Request { node, uid, gid, pid, operation } = request;
        let caller = Caller { uid, gid, pid };
        let access = Access::Checked(&caller);
        match operation {
            Operation::Read { offset, size, direct, fills_cache } => {
                self.read(caller, node, (offset, size), Reading { direct, fills_cache }, reply).await;
            }
            Operation::Write { offset, data, drop_privileges: drops_set_id, direct, stable } => {
                self.write(access, node, offset, data, Writing { direct, stable, drops_set_id }, reply).await;
            }
            Operation::Lookup { name } => self.lookup(access, node, name, reply).await,
            Operation::GetAttr => self.getattr(access, node, reply).await,
            Operation::Statx => self.statx(access, node, reply).await,
            Operation::SetAttr(change) => self.setattr(access, node, change, reply).await,
            Operation::Open { flags } => self.open_file(access, node, flags, reply).await,
            Operation::Release { flags, how } => self.release(node, flags, how, reply).await,
            // Nothing to do at a close; said this way the kernel asks only once.
            Operation::Flush => reply.error(Errno::NOSYS),
            Operation::SyncFs => self.answer_when_all_stable(caller, reply),
            Operation::Fsync { .. } | Operation::FsyncDir { .. } => {
                self.answer_when_stable(caller, self.object(node), reply);
            }
            Operation::StatFs => self.statfs(access, node, reply).await,
            Operation::OpenDir { .. } => self.open_directory(access, node, reply).await,
            Operation::ReadDir { offset, size } => self.readdir(access, node, offset, size, reply).await,
            Operation::ReadDirPlus { offset, size } => self.readdirplus(access, node, offset, size, reply).await,
            Operation::ReleaseDir => self.release_directory(node, reply).await,
            // The kernel checks permissions itself.
            Operation::Access { .. } => reply.ok(),
            // These come without a reply.
            Operation::Forget { .. } | Operation::BatchForget(_) => reply.error(Errno::INVAL),
            operation @ (Operation::SetXattr { .. }
            | Operation::GetXattr { .. }
            | Operation::ListXattr { .. }
            | Operation::RemoveXattr { .. }) => self.serve_xattrs(node, caller, operation, reply).await,
            operation @ (Operation::Fallocate { .. }
            | Operation::Lseek { .. }
            | Operation::CopyFileRange { .. }
            | Operation::Ioctl { .. }) => self.serve_contents(node, caller, operation, reply).await,
            operation @ (Operation::Create { .. }
            | Operation::TmpFile { .. }
            | Operation::Mknod { .. }
            | Operation::Mkdir { .. }
            | Operation::Symlink { .. }
            | Operation::Link { .. }
            | Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Rename { .. }
            | Operation::ReadLink) => self.serve_names(node, caller, operation, reply).await,
        }
    }

    /// The kernel knows the file's size, so the offset of an appending write is right already.
    async fn write(&self, access: Access<'_>, node: NodeId, offset: u64, data: &[u8], how: Writing, reply: Reply) {
        match self.vfs.write(access, self.object(node), offset, data, how).await {
            Ok(written) if written.is_settled() => reply.written(written.bytes as u32),
            Ok(written) => {
                let vfs = self.vfs.clone();
                self.runtime.spawn(async move {
                    match vfs.settle(written).await {
                        Ok(()) => reply.written(written.bytes as u32),
                        Err(error) => reply.error(errno(&error)),
                    }
                });
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// What the kernel waits for no answer to.
    fn told(&self, node: NodeId, operation: Operation<'_>) {
        let all = match operation {
            Operation::Forget { times } => vec![(node, times)],
            Operation::BatchForget(all) => all,
            _ => return,
        };
        if all.iter().all(|(node, _)| place_of(*node) == 0) {
            return self.forget(all);
        }
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(node, _)| place_of(*node) == 0);
        self.forget(own);
        let mut by_place: BTreeMap<u64, Vec<(NodeId, u64)>> = BTreeMap::new();
        for (node, times) in others {
            by_place.entry(place_of(node)).or_default().push((node, times));
        }
        for (place, nodes) in by_place {
            if let Some(snapshot) = self.shelf.known(place) {
                snapshot.forget(nodes);
                self.shelf.give_up(place, Self::is_unknown);
            }
        }
    }

    async fn getattr(&self, access: Access<'_>, node: NodeId, reply: Reply) {
        if self.shows_snapshots(node) {
            return match Box::pin(self.snapshot_folder(access)).await {
                Ok(attr) => reply.attr(&attr, Duration::ZERO),
                Err(error) => reply.error(error),
            };
        }
        match self.vfs.getattr(access, self.object(node)).await.map(|attr| self.told_attr(&attr)) {
            Ok((attr, ttl)) => reply.attr(&attr, ttl),
            Err(error) => reply.error(errno(&error)),
        }
    }

    async fn statx(&self, access: Access<'_>, node: NodeId, reply: Reply) {
        if self.shows_snapshots(node) {
            return match Box::pin(self.snapshot_folder(access)).await {
                Ok(attr) => reply.statx(&attr, Duration::ZERO),
                Err(error) => reply.error(error),
            };
        }
        match self.vfs.getattr(access, self.object(node)).await.map(|attr| self.told_attr(&attr)) {
            Ok((attr, ttl)) => reply.statx(&attr, ttl),
            Err(error) => reply.error(errno(&error)),
        }
    }

    async fn setattr(&self, access: Access<'_>, node: NodeId, change: ChangeAttr, reply: Reply) {
        let changed = self.vfs.setattr(access, self.object(node), set_attr(&change), change.drop_privileges).await;
        match changed.map(|attr| self.told_attr(&attr)) {
            Ok((attr, ttl)) => reply.attr(&attr, ttl),
            Err(error) => reply.error(errno(&error)),
        }
    }

    async fn statfs(&self, access: Access<'_>, node: NodeId, reply: Reply) {
        match self.vfs.statfs(access, self.object(node)).await {
            Ok(stat) => {
                let (blocks, available) = (stat.blocks, stat.available);
                reply.statfs(stat.block_size, blocks, available, stat.files, stat.files_free, stat.name_max);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }
}
