//! What the kernel keeps of a file and we have changed behind it, or have not been told of yet.
//!
//! Invariants:
//! - what is answered is true for whoever learns of the answer: pages and attributes that a request has made wrong are
//!   taken from the kernel before it is answered, and pages that a mapping has changed are written back before it is
//!   said that there is a hole;
//! - the kernel waits for its pages, and so for READ and WRITE requests to us, before it forgets them: that is asked of
//!   it on threads that serve nothing, and while nothing of the file is locked. Who only has it forget attributes waits
//!   for nobody.

use std::ops::Range;
use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_transport::{Errno, Kernel, NodeId, Reply};
use platter_zpl::{SeekFor, Zpl, ZplError};

use crate::server::{Caller, PlatterFs};

/// `S_ISUID` and `S_ISGID`.
const SET_ID: u32 = 0o6000;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// How often a hole is looked for again because it has turned out to be none.
const HOLES_TRIED: usize = 8;

impl PlatterFs {
    /// What everybody but the owner of all privileges loses for a file by writing to it. The kernel leaves that to us
    /// (`FUSE_HANDLE_KILLPRIV_V2`) and tells for a write; elsewhere we go by the user. It would go by the mode that it
    /// knows until that is too old: whoever runs the file would have its owner's rights.
    pub async fn drop_privileges(&self, node: NodeId, set_id: bool) -> Result<(), Errno> {
        let object = self.object(node);
        let changed = self.zpl.drop_privileges(object, set_id).await;
        let changed = self.told_of(changed, object, "clearing privileges")?;
        if let Some(kernel) = self.kernel.get().filter(|_| changed) {
            kernel.forget_attributes(node);
        }
        Ok(())
    }

    /// As [`Self::drop_privileges`], where the kernel does not say whether set-id bits go: root keeps them.
    pub async fn drop_privileges_of(&self, node: NodeId, caller: Caller) -> Result<(), Errno> {
        let object = self.object(node);
        let attr = self.told_of(self.zpl.getattr(object).await, object, "clearing privileges")?;
        self.drop_privileges(node, attr.mode & SET_ID != 0 && !caller.is_root()).await
    }

    /// Answers a write of so many bytes, `direct` past the page cache; when they are stable if it has to be.
    ///
    /// Pages that were read while they were written have what was there before. The kernel drops them after a write
    /// that it waits for itself, but neither after one that it does not wait for (`O_DIRECT` with io_submit(2) or
    /// io_uring) nor where a mapping has read them.
    pub fn answer_written(&self, node: NodeId, offset: u64, written: u32, direct: bool, stable: bool, reply: Reply) {
        let object = self.object(node);
        let kernel = self.kernel.get().filter(|_| direct && self.opens.leaves_stale_pages(object)).cloned();
        if kernel.is_none() && !stable {
            return reply.written(written);
        }
        let (zpl, failures) = (self.zpl.clone(), self.failures.clone());
        self.runtime.spawn(async move {
            if let Some(kernel) = kernel {
                forget_pages(kernel, node, offset..offset + u64::from(written)).await;
            }
            let done = if stable { zpl.fsync(object).await } else { Ok(()) };
            match failures.told(done, &zpl, object, "synchronous write") {
                Ok(()) => reply.written(written),
                Err(error) => reply.error(error),
            }
        });
    }

    /// `lseek` to data or a hole.
    pub async fn lseek(&self, node: NodeId, offset: u64, whence: u32, reply: Reply) {
        let what = match whence {
            SEEK_DATA => SeekFor::Data,
            SEEK_HOLE => SeekFor::Hole,
            _ => return reply.error(Errno::INVAL),
        };
        if i64::try_from(offset).is_err() {
            return reply.error(Errno::NXIO);
        }
        let object = self.object(node);
        let (zpl, failures) = (self.zpl.clone(), self.failures.clone());
        let answer = move |found, reply: Reply| match failures.told(found, &zpl, object, "lseek") {
            Ok(found) => reply.offset(found),
            Err(error) => reply.error(error),
        };
        let kernel = self.kernel.get().filter(|_| self.opens.may_have_changed_pages(object));
        match kernel.cloned() {
            None => answer(self.zpl.seek(object, offset, what).await, reply),
            Some(kernel) => {
                let file = Mapped { zpl: self.zpl.clone(), kernel, node, object };
                self.runtime.spawn(async move { answer(file.seek(offset, what).await, reply) });
            }
        }
    }
}

/// Has the kernel write back and forget its pages of these bytes, and waits until it has.
async fn forget_pages(kernel: Kernel, node: NodeId, bytes: Range<u64>) {
    if bytes.is_empty() {
        return;
    }
    // Only a runtime that shuts down has no thread for it; then the mount is gone too.
    let _ = tokio::task::spawn_blocking(move || kernel.forget_pages(node, bytes.start, bytes.end - bytes.start)).await;
}

/// A file of which the kernel may have pages that were changed through a mapping, and that we know nothing of.
struct Mapped {
    zpl: Arc<Zpl>,
    kernel: Kernel,
    node: NodeId,
    object: ObjectId,
}

impl Mapped {
    /// As [`Zpl::seek`], once what we take for a hole is written back: the rest is data in any case, and its pages stay
    /// where they are.
    async fn seek(&self, offset: u64, what: SeekFor) -> platter_zpl::Result<u64> {
        for _ in 0..HOLES_TRIED {
            let found = self.zpl.seek(self.object, offset, what).await;
            let size = self.zpl.getattr(self.object).await?.size;
            let data_at = |found: platter_zpl::Result<u64>| match found {
                Err(ZplError::NoSuchOffset) => Ok(size),
                found => found,
            };
            let hole = match (what, &found) {
                (SeekFor::Data, _) if offset >= size => return found,
                (SeekFor::Data, Ok(data)) => offset..*data,
                (SeekFor::Data, Err(ZplError::NoSuchOffset)) => offset..size,
                (SeekFor::Hole, Ok(hole)) => *hole..data_at(self.zpl.seek(self.object, *hole, SeekFor::Data).await)?,
                (_, Err(_)) => return found,
            };
            if hole.is_empty() {
                return found;
            }
            forget_pages(self.kernel.clone(), self.node, hole).await;
            let again = self.zpl.seek(self.object, offset, what).await;
            match (&found, &again) {
                // A hole that was none is looked for behind that; data came nearer at most.
                (Ok(before), Ok(now)) if what == SeekFor::Hole && before != now => {}
                _ => return again,
            }
        }
        // Somebody fills one hole after the other. To call them data is never wrong.
        self.zpl.getattr(self.object).await.map(|attr| attr.size)
    }
}
