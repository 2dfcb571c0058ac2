//! Operations that open and close.
//!
//! What is open in the table is counted as open in the file system first, and given back there last, so that it is not
//! freed in between.

use platter_ondisk::ObjectId;
use platter_ondisk::znode::flags;
use platter_zpl::{Attr, NewFile};

use crate::access::{Access, Rights};
use crate::control::is_control;
use crate::error::{Result, VfsError};
use crate::event::Operation;
use crate::opens::{Caching, Opening, Passing};
use crate::vfs::Vfs;

/// What was closed and may have to be freed by that: the second half of closing, for which no client need wait.
#[derive(Debug)]
#[must_use = "what is closed is given back with `Vfs::released`"]
pub struct Closed {
    object: ObjectId,
}

impl Vfs {
    /// Opens a file; how the client shall cache it.
    ///
    /// # Errors
    /// [`VfsError::NotPermitted`] for writing to an immutable file, or elsewhere than at the end of one that is only
    /// appended to; those of [`platter_zpl::Zpl::open`]; of access.
    pub async fn open(&self, access: Access<'_>, object: ObjectId, opening: Opening) -> Result<Caching> {
        let opened = async {
            let reads = if opening.reads { Rights::READ } else { Rights::NONE };
            let wanted = if opening.writes { reads.and(Rights::WRITE) } else { reads };
            self.admit(access, object, wanted).await?;
            let attr = self.zpl.open(object).await?;
            let how = check_flags(&attr, opening).and_then(|()| self.enter(&attr, opening));
            if how.is_err() {
                self.zpl.release(object).await?;
            }
            how
        };
        self.ended(Operation::Open, object, opened.await, |_| 0)
    }

    /// Opens a directory; how the client shall cache what it lists.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::open`]; of access.
    pub async fn open_directory(&self, access: Access<'_>, object: ObjectId) -> Result<Caching> {
        let opened = async {
            self.admit(access, object, Rights::READ).await?;
            if is_control(object) {
                return Ok(Caching::Anew);
            }
            self.zpl.open(object).await?;
            if self.opens.add(object, DIRECTORY, Passing::default()).is_none() {
                self.zpl.release(object).await?;
                return Err(VfsError::Over);
            }
            let is_old = self.control.changed_list(object);
            Ok(if is_old || self.zpl.notes_every_read() { Caching::Anew } else { Caching::Kept })
        };
        self.ended(Operation::OpenDir, object, opened.await, |_| 0)
    }

    /// Makes a file and opens it.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::create`]; of access.
    pub async fn create(
        &self,
        access: Access<'_>,
        parent: ObjectId,
        name: &[u8],
        new: NewFile,
        opening: Opening,
    ) -> Result<(Attr, Caching)> {
        let made = async {
            self.may_add(access, parent, name).await?;
            let attr = self.zpl.create(parent, name, NewFile { open: true, ..new }).await?;
            self.enter_new(attr, opening).await
        };
        self.ended(Operation::Create, parent, made.await, |_| 0)
    }

    /// Makes a file without a name, as if it were in `parent`, and opens it. Unless it is `linkable` it never gets one.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::tmpfile`]; of access.
    pub async fn tmpfile(
        &self,
        access: Access<'_>,
        parent: ObjectId,
        new: NewFile,
        linkable: bool,
        opening: Opening,
    ) -> Result<(Attr, Caching)> {
        let made = async {
            self.may_add_nameless(access, parent).await?;
            let attr = self.zpl.tmpfile(parent, NewFile { open: true, ..new }, linkable).await?;
            self.enter_new(attr, opening).await
        };
        self.ended(Operation::TmpFile, parent, made.await, |_| 0)
    }

    /// Closes what was opened for this, `past` the client's cache or not. What that has to free is freed by
    /// [`released`](Self::released), later. Whoever has opened something may close it.
    ///
    /// # Errors
    /// [`VfsError::NotOpen`].
    pub fn close(&self, object: ObjectId, opening: Opening, past: bool) -> Result<Closed> {
        if self.opens.remove(object, opening, past) {
            return Ok(Closed { object });
        }
        self.ended(Operation::Release, object, Err(VfsError::NotOpen), |_| 0)
    }

    /// As [`Self::close`], a directory; `None` when there is nothing to free.
    ///
    /// # Errors
    /// [`VfsError::NotOpen`].
    pub fn close_directory(&self, object: ObjectId) -> Result<Option<Closed>> {
        if is_control(object) { Ok(None) } else { self.close(object, DIRECTORY, false).map(Some) }
    }

    /// The second half of closing: frees what nobody has and nobody can reach any more. What fails is logged.
    pub async fn released(&self, closed: Closed) {
        let object = closed.object;
        let _ = self.ended(Operation::Release, object, self.zpl.release(object).await.map_err(Into::into), |()| 0);
    }

    /// A new file is open.
    async fn enter_new(&self, attr: Attr, opening: Opening) -> Result<(Attr, Caching)> {
        let how = self.enter(&attr, opening);
        if how.is_err() {
            self.zpl.release(attr.object).await?;
        }
        how.map(|how| (attr, how))
    }

    /// A file with these attributes, which the file system counts as open, is open for this.
    fn enter(&self, attr: &Attr, opening: Opening) -> Result<Caching> {
        let can_pass = self.caches().is_some_and(|caches| caches.can_be_passed());
        // Clients know the size of an empty file, so a reader past the cache is the only one that we hear of.
        let is_hidden = attr.size == 0 && !opening.writes && self.zpl.read_moves_atime(attr);
        let every_read = opening.reads && (is_hidden || self.zpl.notes_every_read());
        self.opens.add(attr.object, opening, Passing { can_pass, every_read }).ok_or(VfsError::Over)
    }
}

/// How directories are open: they have no contents that anybody caches as he likes.
const DIRECTORY: Opening = Opening { reads: true, writes: false, appends: false, direct: false };

/// Fails when a file with these attributes may not be opened this way (`zfs_open`; whoever checks permissions need not
/// know the flags).
fn check_flags(attr: &Attr, opening: Opening) -> Result<()> {
    let guarded = attr.flags & flags::IMMUTABLE != 0 || attr.flags & flags::APPENDONLY != 0 && !opening.appends;
    if opening.writes && guarded { Err(VfsError::NotPermitted) } else { Ok(()) }
}
