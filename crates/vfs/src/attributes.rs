//! Operations on attributes, extended ones too, and the file system's own.

use platter_ondisk::ObjectId;
use platter_zpl::{Attr, FileKind, SetAttr, SetXattr, StatFs, ZplError, posix_acl};

use crate::access::{Access, Caller, Credentials, Rights, check_change, check_owner};
use crate::control::is_control;
use crate::error::{Result, VfsError};
use crate::event::Operation;
use crate::vfs::Vfs;

const STICKY: u32 = 0o1000;
/// Names of extended attributes that only root sees.
const TRUSTED: &[u8] = b"trusted.";
const USER: &[u8] = b"user.";

impl Vfs {
    /// Attributes.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::getattr`].
    pub async fn getattr(&self, access: Access<'_>, object: ObjectId) -> Result<Attr> {
        let attr = async {
            self.admit(access, object, Rights::NONE).await?;
            self.attr_of(object).await
        };
        self.ended(Operation::GetAttr, object, attr.await, |_| 0)
    }

    /// Changes attributes and returns the new ones. With `drops_set_id` a new size takes the file's set-id bits away.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::setattr`]; of access.
    pub async fn setattr(
        &self,
        access: Access<'_>,
        object: ObjectId,
        change: SetAttr,
        drops_set_id: bool,
    ) -> Result<Attr> {
        let changed = async {
            let change = self.may_set(access, object, change).await?;
            if change.size.is_some() {
                self.drop_privileges(object, drops_set_id || access.is_ordinary()).await?;
            }
            Ok(self.zpl.setattr(object, change).await?)
        };
        self.ended(Operation::SetAttr, object, changed.await, |_| 0)
    }

    /// Changes file flags (`ZFS_*`) and, if one is given, the project.
    ///
    /// # Errors
    /// As for [`Self::setattr`].
    pub async fn set_flags(
        &self,
        access: Access<'_>,
        object: ObjectId,
        flags: u64,
        project: Option<u64>,
    ) -> Result<Attr> {
        let changed = async {
            let change = SetAttr { flags: Some(flags), project, ..SetAttr::default() };
            let change = self.may_set(access, object, change).await?;
            Ok(self.zpl.setattr(object, change).await?)
        };
        self.ended(Operation::SetFlags, object, changed.await, |_| 0)
    }

    /// Sizes of the file system, as its part with `object` has them (a project's quota may bound it).
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::statfs_of`].
    pub async fn statfs(&self, access: Access<'_>, object: ObjectId) -> Result<StatFs> {
        let told = async {
            self.admit(access, object, Rights::NONE).await?;
            let object = if is_control(object) { self.root() } else { object };
            Ok(self.zpl.statfs_of(object).await?)
        };
        self.ended(Operation::StatFs, object, told.await, |_| 0)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::getxattr`]; of access.
    pub async fn getxattr(&self, access: Access<'_>, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        let value = async {
            self.admit(access, object, if name.starts_with(USER) { Rights::READ } else { Rights::NONE }).await?;
            let is_hidden = name.starts_with(TRUSTED) && access.is_ordinary();
            if is_control(object) || is_hidden {
                return Err(ZplError::NoAttribute.into());
            }
            Ok(self.zpl.getxattr(object, name).await?)
        };
        self.ended(Operation::GetXattr, object, value.await, |_| 0)
    }

    /// The names of the extended attributes that the caller sees. Few files have any that only root does, and it may
    /// take long to find out whether he is.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::listxattr`].
    pub async fn listxattr(&self, access: Access<'_>, object: ObjectId) -> Result<Vec<Vec<u8>>> {
        let names = async {
            self.admit(access, object, Rights::NONE).await?;
            if is_control(object) {
                return Ok(Vec::new());
            }
            let mut names = self.zpl.listxattr(object, true).await?;
            let is_trusted = |name: &Vec<u8>| name.starts_with(TRUSTED);
            if names.iter().any(is_trusted) && !access.is_root() {
                names.retain(|name| !is_trusted(name));
            }
            Ok(names)
        };
        self.ended(Operation::ListXattr, object, names.await, |_| 0)
    }

    /// Sets an extended attribute. A new access list changes the mode with it; unless `keep_set_gid`, that clears the
    /// set-gid bit.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::setxattr`]; of access.
    pub async fn setxattr(
        &self,
        access: Access<'_>,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        keep_set_gid: bool,
    ) -> Result<()> {
        let set = async {
            let is_member = self.may_change_xattr(access, object, name).await?;
            Ok(self.zpl.setxattr(object, name, value, how, keep_set_gid && is_member).await?)
        };
        self.ended(Operation::SetXattr, object, set.await, |()| 0)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::removexattr`]; of access.
    pub async fn removexattr(&self, access: Access<'_>, object: ObjectId, name: &[u8]) -> Result<()> {
        let removed = async {
            self.may_change_xattr(access, object, name).await?;
            Ok(self.zpl.removexattr(object, name).await?)
        };
        self.ended(Operation::RemoveXattr, object, removed.await, |()| 0)
    }

    /// What may become of the `change`.
    async fn may_set(&self, access: Access<'_>, object: ObjectId, change: SetAttr) -> Result<SetAttr> {
        if is_control(object) {
            return Err(VfsError::NotPermitted);
        }
        self.admit(access, object, Rights::NONE).await?;
        match access {
            Access::Checked(_) => Ok(change),
            Access::Of(who) => Box::pin(self.may_set_for(who, object, change)).await,
        }
    }

    async fn may_set_for(&self, who: &Credentials, object: ObjectId, change: SetAttr) -> Result<SetAttr> {
        let attr = self.attr_of(object).await?;
        let (change, needed) = check_change(who, &attr, &change)?;
        self.check(who, object, needed).await?;
        Ok(change)
    }

    /// Fails unless the caller may change this extended attribute; whether he may keep a set-gid bit.
    async fn may_change_xattr(&self, access: Access<'_>, object: ObjectId, name: &[u8]) -> Result<bool> {
        if is_control(object) {
            return Err(VfsError::NotPermitted);
        }
        self.admit(access, object, Rights::NONE).await?;
        match access {
            Access::Checked(_) => Ok(true),
            Access::Of(who) => Box::pin(self.may_change_xattr_for(who, object, name)).await,
        }
    }

    /// `xattr_permission` (`fs/xattr.c`): contents of a kind in `user.`, access lists as modes, all else for root.
    async fn may_change_xattr_for(&self, who: &Credentials, object: ObjectId, name: &[u8]) -> Result<bool> {
        let attr = self.attr_of(object).await?;
        if name == posix_acl::ACCESS || name == posix_acl::DEFAULT {
            check_owner(who, &attr)?;
        } else if !name.starts_with(USER) {
            if !who.is_root() {
                return Err(VfsError::NotPermitted);
            }
        } else if !matches!(attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(VfsError::NotPermitted);
        } else {
            if attr.kind == FileKind::Directory && attr.mode & STICKY != 0 {
                check_owner(who, &attr)?;
            }
            self.check(who, object, Rights::WRITE).await?;
        }
        Ok(who.is_root() || who.is_in(attr.gid))
    }
}
