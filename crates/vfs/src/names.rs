//! Operations that look names up, make, move and remove them.

use platter_ondisk::ObjectId;
use platter_zpl::{Attr, FileKind, NewFile, RenameFlags, ZplError};

use crate::access::{Access, Credentials, Rights, may_remove};
use crate::control::is_control;
use crate::error::{Result, VfsError};
use crate::event::Operation;
use crate::handle::Handle;
use crate::vfs::Vfs;

/// What it takes to change a directory's entries.
const CHANGE: Rights = Rights::WRITE.and(Rights::EXECUTE);

impl Vfs {
    /// The object called `name` in directory `parent`; `..` works too, and `.` of whatever has a name.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::lookup`]; of access.
    pub async fn lookup(&self, access: Access<'_>, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        let found = async {
            self.admit(access, parent, if name == b"." { Rights::NONE } else { Rights::EXECUTE }).await?;
            if !self.control.has(parent, name) {
                return Ok(self.zpl.lookup(parent, name).await?);
            }
            let found = self.control.lookup(parent, name).ok_or(ZplError::NotFound)?;
            self.attr_of(found).await
        };
        self.ended(Operation::Lookup, parent, found.await, |_| 0)
    }

    /// The file of a handle.
    ///
    /// # Errors
    /// [`ZplError::Stale`] when it is gone, or never was here.
    pub async fn find(&self, access: Access<'_>, handle: &Handle) -> Result<Attr> {
        let found = async {
            self.admit(access, handle.object(), Rights::NONE).await?;
            let attr = match self.control.attr(handle.object()) {
                Some(attr) => attr,
                None => self.zpl.lookup(handle.object(), b".").await?,
            };
            if self.handle(&attr) == *handle { Ok(attr) } else { Err(ZplError::Stale.into()) }
        };
        self.ended(Operation::Lookup, handle.object(), found.await, |_| 0)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::readlink`].
    pub async fn readlink(&self, access: Access<'_>, object: ObjectId) -> Result<Vec<u8>> {
        let target = async {
            self.admit(access, object, Rights::NONE).await?;
            Ok(self.zpl.readlink(object).await?)
        };
        self.ended(Operation::ReadLink, object, target.await, |_| 0)
    }

    /// Makes a pipe, a socket, a device node or an empty file.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::mknod`]; of access: nobody but root makes devices.
    pub async fn mknod(
        &self,
        access: Access<'_>,
        parent: ObjectId,
        name: &[u8],
        kind: FileKind,
        rdev: u32,
        new: NewFile,
    ) -> Result<Attr> {
        let made = async {
            self.may_add(access, parent, name).await?;
            let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
            if is_device && access.is_ordinary() {
                return Err(VfsError::NotPermitted);
            }
            Ok(self.zpl.mknod(parent, name, kind, rdev, new).await?)
        };
        self.ended(Operation::Mknod, parent, made.await, |_| 0)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::mkdir`]; of access.
    pub async fn mkdir(&self, access: Access<'_>, parent: ObjectId, name: &[u8], new: NewFile) -> Result<Attr> {
        let made = async {
            self.may_add(access, parent, name).await?;
            Ok(self.zpl.mkdir(parent, name, new).await?)
        };
        self.ended(Operation::Mkdir, parent, made.await, |_| 0)
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::symlink`]; of access.
    pub async fn symlink(
        &self,
        access: Access<'_>,
        parent: ObjectId,
        name: &[u8],
        target: &[u8],
        new: NewFile,
    ) -> Result<Attr> {
        let made = async {
            self.may_add(access, parent, name).await?;
            Ok(self.zpl.symlink(parent, name, target, new).await?)
        };
        self.ended(Operation::Symlink, parent, made.await, |_| 0)
    }

    /// Gives `object` one more name.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::link`]; of access.
    pub async fn link(&self, access: Access<'_>, object: ObjectId, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        let linked = async {
            self.may_add(access, parent, name).await?;
            Ok(self.zpl.link(object, parent, name).await?)
        };
        self.ended(Operation::Link, parent, linked.await, |_| 0)
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::unlink`]; of access.
    pub async fn unlink(&self, access: Access<'_>, parent: ObjectId, name: &[u8]) -> Result<()> {
        let removed = async {
            self.may_remove(access, parent, name).await?;
            Ok(self.zpl.unlink(parent, name).await?)
        };
        self.ended(Operation::Unlink, parent, removed.await, |()| 0)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::rmdir`]; of access.
    pub async fn rmdir(&self, access: Access<'_>, parent: ObjectId, name: &[u8]) -> Result<()> {
        let removed = async {
            self.may_remove(access, parent, name).await?;
            Ok(self.zpl.rmdir(parent, name).await?)
        };
        self.ended(Operation::Rmdir, parent, removed.await, |()| 0)
    }

    /// Moves the name `from` (directory and name) to `to`.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::rename`]; of access.
    pub async fn rename(
        &self,
        access: Access<'_>,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let moved = async {
            self.check_not_control(from.0, from.1)?;
            self.check_not_control(to.0, to.1)?;
            self.admit(access, from.0, Rights::NONE).await?;
            if let Access::Of(who) = access {
                Box::pin(self.may_rename(who, from, to, flags)).await?;
            }
            Ok(self.zpl.rename(from.0, from.1, to.0, to.1, flags).await?)
        };
        self.ended(Operation::Rename, from.0, moved.await, |()| 0)
    }

    /// The control directory and its name are nobody's to change.
    fn check_not_control(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        if self.control.has(parent, name) { Err(VfsError::NotPermitted) } else { Ok(()) }
    }

    /// Fails unless `parent` takes the new entry `name`.
    pub(crate) async fn may_add(&self, access: Access<'_>, parent: ObjectId, name: &[u8]) -> Result<()> {
        self.check_not_control(parent, name)?;
        self.admit(access, parent, CHANGE).await
    }

    /// Fails unless `parent` takes a file that has no name, which could have had one there.
    pub(crate) async fn may_add_nameless(&self, access: Access<'_>, parent: ObjectId) -> Result<()> {
        if is_control(parent) {
            return Err(VfsError::NotPermitted);
        }
        self.admit(access, parent, CHANGE).await
    }

    /// Fails unless the entry `name` of `parent` may be removed.
    async fn may_remove(&self, access: Access<'_>, parent: ObjectId, name: &[u8]) -> Result<()> {
        self.check_not_control(parent, name)?;
        self.admit(access, parent, Rights::NONE).await?;
        match access {
            Access::Checked(_) => Ok(()),
            Access::Of(who) => Box::pin(self.may_remove_for(who, parent, name)).await.map(drop),
        }
    }

    /// Fails unless `who` may remove the entry `name` of `parent`; attributes of what it names.
    async fn may_remove_for(&self, who: &Credentials, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        let directory = self.check(who, parent, CHANGE).await?;
        let victim = self.zpl.lookup(parent, name).await?;
        if may_remove(who, &directory, &victim) { Ok(victim) } else { Err(VfsError::NotPermitted) }
    }

    /// Fails unless `who` may move this name so. What is replaced is removed; a directory that changes its parent is
    /// changed itself, since its `..` is.
    async fn may_rename(
        &self,
        who: &Credentials,
        from: (ObjectId, &[u8]),
        to: (ObjectId, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        let changes_parent = |moved: &Attr| from.0 != to.0 && moved.kind == FileKind::Directory;
        let moved = self.may_remove_for(who, from.0, from.1).await?;
        if changes_parent(&moved) {
            self.check(who, moved.object, Rights::WRITE).await?;
        }
        match self.may_remove_for(who, to.0, to.1).await {
            Ok(replaced) if flags.exchange && changes_parent(&replaced) => {
                self.check(who, replaced.object, Rights::WRITE).await.map(drop)
            }
            // A name that is free takes no more than the right to the directory, which was looked at first.
            Err(VfsError::File(ZplError::NotFound)) => Ok(()),
            other => other.map(drop),
        }
    }
}
