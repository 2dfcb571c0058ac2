//! Operations on what files hold.
//!
//! Invariants:
//! - bytes are copied at most once on their way: from the caller's into a block buffer; what is read is handed out from
//!   where it lies;
//! - what is answered is true for whoever learns of the answer: contents and attributes that an operation has made
//!   wrong are taken from clients' caches before it is over, and what a mapping has changed in one is written back
//!   before it is said that there is a hole;
//! - caches are waited for on threads that serve nothing, and while nothing of the file is locked: to give contents up
//!   they may have to read and write first.

use std::ops::Range;

use platter_buffer::Buf;
use platter_ondisk::ObjectId;
use platter_zpl::{Fallocate, Keeper, SeekFor, ZplError};

use crate::access::{Access, Rights};
use crate::error::Result;
use crate::event::Operation;
use crate::vfs::Vfs;

/// `S_ISUID` and `S_ISGID`.
const SET_ID: u32 = 0o6000;

/// How often a hole is looked for again because it has turned out to be none.
const HOLES_TRIED: usize = 8;

/// How a client reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Past its cache: it does not keep what it gets.
    pub direct: bool,
    /// Into its cache.
    pub fills_cache: bool,
}

/// How a client writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Writing {
    /// Past its cache: it does not keep what it writes.
    pub direct: bool,
    /// The write is over when it is stable.
    pub stable: bool,
    /// The file's set-id bits go.
    pub drops_set_id: bool,
}

/// A write that is done, and what is left to do before the client may hear of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a write that is not settled has not ended"]
pub struct Written {
    /// Bytes written.
    pub bytes: usize,
    object: ObjectId,
    offset: u64,
    /// Caches may have what was there before.
    stale: bool,
    /// It has to be stable.
    stable: bool,
}

impl Written {
    /// Whether nothing is left to do; else [`Vfs::settle`] does it.
    pub fn is_settled(&self) -> bool {
        !self.stale && !self.stable
    }
}

impl Vfs {
    /// Up to `length` bytes from `offset`, as pieces of cached blocks; fewer at the end of the file.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::read_for`]; of access.
    pub async fn read(
        &self,
        access: Access<'_>,
        object: ObjectId,
        offset: u64,
        length: u64,
        how: Reading,
    ) -> Result<Vec<Buf>> {
        let read = async {
            self.admit(access, object, Rights::READ).await?;
            if how.fills_cache {
                self.opens.note_cached(object);
            }
            Ok(self.zpl.read_for(object, offset, length, keeper(how.direct)).await?)
        };
        let read = read.await;
        debug_assert!(read.as_ref().map_or(0, |pieces| bytes_of(pieces)) <= length, "no more than was asked for");
        self.ended(Operation::Read, object, read, |pieces| bytes_of(pieces))
    }

    /// Writes `data` at `offset`. What is left to do then may wait for clients and devices, so it is not for the thread
    /// that serves.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::write_for`]; of access.
    pub async fn write(
        &self,
        access: Access<'_>,
        object: ObjectId,
        offset: u64,
        data: &[u8],
        how: Writing,
    ) -> Result<Written> {
        let written = async {
            self.admit(access, object, Rights::WRITE).await?;
            self.drop_privileges(object, how.drops_set_id || access.is_ordinary()).await?;
            let bytes = self.zpl.write_for(object, Some(offset), data, keeper(how.direct)).await?;
            // Caches drop what is written through them, but not after a write past them that they do not wait for
            // (`O_DIRECT` with io_submit(2) or io_uring), nor where a mapping has read it.
            let stale = how.direct && self.opens.leaves_stale_contents(object) && self.caches().is_some();
            Ok(Written { bytes, object, offset, stale, stable: how.stable })
        };
        let written = written.await;
        assert!(written.as_ref().map_or(0, |written| written.bytes) <= data.len(), "no more than there was");
        self.ended(Operation::Write, object, written, |written| written.bytes as u64)
    }

    /// Does what is left to do of a write; waits for clients and devices.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn settle(&self, written: Written) -> Result<()> {
        if written.stale {
            self.forget_contents(written.object, written.offset..written.offset + written.bytes as u64).await;
        }
        if !written.stable {
            return Ok(());
        }
        let stable = self.zpl.fsync(written.object).await;
        self.ended(Operation::Fsync, written.object, stable.map_err(Into::into), |()| 0)
    }

    /// Makes an object stable.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn fsync(&self, access: Access<'_>, object: ObjectId) -> Result<()> {
        let stable = async {
            self.admit(access, object, Rights::NONE).await?;
            Ok(self.zpl.fsync(object).await?)
        };
        self.ended(Operation::Fsync, object, stable.await, |()| 0)
    }

    /// Makes everything there is stable.
    ///
    /// # Errors
    /// The pool stopped.
    pub async fn sync(&self, access: Access<'_>) -> Result<()> {
        let stable = async {
            self.admit(access, self.root(), Rights::NONE).await?;
            Ok(self.zpl.sync_all().await?)
        };
        self.ended(Operation::SyncFs, self.root(), stable.await, |()| 0)
    }

    /// Allocates or empties a range.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::fallocate`]; of access.
    pub async fn fallocate(
        &self,
        access: Access<'_>,
        object: ObjectId,
        what: Fallocate,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let changed = async {
            self.admit(access, object, Rights::WRITE).await?;
            self.drop_privileges_of(access, object).await?;
            Ok(self.zpl.fallocate(object, what, offset, length).await?)
        };
        self.ended(Operation::Fallocate, object, changed.await, |()| 0)
    }

    /// Writes what is in a range anew, up to the end with a `length` of 0; returns how many bytes were written.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::rewrite`]; of access.
    pub async fn rewrite(&self, access: Access<'_>, object: ObjectId, offset: u64, length: u64) -> Result<u64> {
        let written = async {
            self.admit(access, object, Rights::WRITE).await?;
            Ok(self.zpl.rewrite(object, offset, length).await?)
        };
        self.ended(Operation::Rewrite, object, written.await, |&written| written)
    }

    /// Copies up to `length` bytes between files (object and offset); returns how many.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::copy_range`]; of access.
    pub async fn copy_range(
        &self,
        access: Access<'_>,
        from: (ObjectId, u64),
        to: (ObjectId, u64),
        length: u64,
    ) -> Result<u64> {
        let copied = async {
            self.admit(access, from.0, Rights::READ).await?;
            self.admit(access, to.0, Rights::WRITE).await?;
            self.drop_privileges_of(access, to.0).await?;
            Ok(self.zpl.copy_range(from.0, from.1, to.0, to.1, length).await?)
        };
        self.ended(Operation::CopyRange, from.0, copied.await, |&copied| copied)
    }

    /// Whether a client may have changed contents in its cache that we know nothing of: then
    /// [`seek_written_back`](Self::seek_written_back) is the one to ask.
    pub fn may_have_unknown_changes(&self, object: ObjectId) -> bool {
        self.caches().is_some() && self.opens.may_have_changed(object)
    }

    /// The next data or hole at or after `offset`.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::seek`]; of access.
    pub async fn seek(&self, access: Access<'_>, object: ObjectId, offset: u64, what: SeekFor) -> Result<u64> {
        let found = async {
            self.admit(access, object, Rights::READ).await?;
            Ok(self.zpl.seek(object, offset, what).await?)
        };
        self.ended(Operation::Seek, object, found.await, |_| 0)
    }

    /// As [`Self::seek`], once what we take for a hole is written back from clients' caches: waits for them.
    ///
    /// # Errors
    /// As for [`Self::seek`].
    pub async fn seek_written_back(
        &self,
        access: Access<'_>,
        object: ObjectId,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        let found = async {
            self.admit(access, object, Rights::READ).await?;
            Ok(self.sought(object, offset, what).await?)
        };
        self.ended(Operation::Seek, object, found.await, |_| 0)
    }

    /// The rest is data in any case, and what caches have of it stays where it is.
    async fn sought(&self, object: ObjectId, offset: u64, what: SeekFor) -> platter_zpl::Result<u64> {
        for _ in 0..HOLES_TRIED {
            let found = self.zpl.seek(object, offset, what).await;
            let size = self.zpl.getattr(object).await?.size;
            let data_at = |found: platter_zpl::Result<u64>| match found {
                Err(ZplError::NoSuchOffset) => Ok(size),
                found => found,
            };
            let hole = match (what, &found) {
                (SeekFor::Data, _) if offset >= size => return found,
                (SeekFor::Data, Ok(data)) => offset..*data,
                (SeekFor::Data, Err(ZplError::NoSuchOffset)) => offset..size,
                (SeekFor::Hole, Ok(hole)) => *hole..data_at(self.zpl.seek(object, *hole, SeekFor::Data).await)?,
                (_, Err(_)) => return found,
            };
            if hole.is_empty() {
                return found;
            }
            self.forget_contents(object, hole).await;
            let again = self.zpl.seek(object, offset, what).await;
            match (&found, &again) {
                // A hole that was none is looked for behind that; data came nearer at most.
                (Ok(before), Ok(now)) if what == SeekFor::Hole && before != now => {}
                _ => return again,
            }
        }
        // Somebody fills one hole after the other. To call them data is never wrong.
        self.zpl.getattr(object).await.map(|attr| attr.size)
    }

    /// What everybody but the owner of all privileges loses for a file by writing to it. Whoever checks access may
    /// leave that to us (Linux does, with `FUSE_HANDLE_KILLPRIV_V2`) and tells for a write; elsewhere we go by the
    /// user. It is gone by the mode as it is here: what a client knows of it may be too old, and whoever runs the file
    /// would have its owner's rights.
    pub(crate) async fn drop_privileges(&self, object: ObjectId, set_id: bool) -> platter_zpl::Result<()> {
        let changed = self.zpl.drop_privileges(object, set_id).await?;
        if let Some(caches) = self.caches().filter(|_| changed) {
            caches.forget_attributes(object);
        }
        Ok(())
    }

    /// As [`Self::drop_privileges`], where nobody says whether set-id bits go: root keeps them.
    async fn drop_privileges_of(&self, access: Access<'_>, object: ObjectId) -> platter_zpl::Result<()> {
        let attr = self.zpl.getattr(object).await?;
        self.drop_privileges(object, attr.mode & SET_ID != 0 && !access.is_root()).await
    }

    /// Has clients write back and forget these bytes, and waits until they have.
    async fn forget_contents(&self, object: ObjectId, bytes: Range<u64>) {
        let Some(caches) = self.caches().filter(|_| !bytes.is_empty()).cloned() else { return };
        // Only a runtime that shuts down has no thread for it; then nobody is served any more either.
        let _ = tokio::task::spawn_blocking(move || caches.forget_contents(object, bytes)).await;
    }
}

/// Who keeps what is read or written: the client, unless it goes past its cache.
fn keeper(direct: bool) -> Keeper {
    if direct { Keeper::Nobody } else { Keeper::Caller }
}

fn bytes_of(pieces: &[Buf]) -> u64 {
    pieces.iter().map(|piece| piece.len() as u64).sum()
}
