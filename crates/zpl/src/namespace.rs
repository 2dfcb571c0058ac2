//! Changing directories: making, linking, removing and moving (`module/os/linux/zfs/zfs_vnops_os.c`, `zfs_dir.c`).
//!
//! An operation finds the objects it concerns, locks them all by ascending number, looks again whether the names still
//! mean the same, checks everything that can be refused, and only then begins its transaction.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::znode::{DirentValue, flags};
use tokio::sync::RwLockWriteGuard;

use crate::attr::{Attr, FileKind, NewFile, Timestamp};
use crate::dir::{check_length, missing_object};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log::{self, LoggedTx};
use crate::new_object::New;
use crate::posix_acl::{self, PosixAcl};
use crate::projects::check_same_project;
use crate::znode::Znode;

/// Most links of one object.
const LINKS_MAX: u64 = (1 << 31) - 1;
/// Longest target of a symbolic link, in bytes (`PATH_MAX - 1`).
const TARGET_MAX: usize = 4095;
/// Bytes on disk that a new object costs about: dnode, directory entry, and their way up the trees.
pub(crate) const CREATE_COST: u64 = 8 << 10;

/// The lists of a new object as attribute values, and its permission bits.
#[derive(Default)]
pub(crate) struct InheritedAcl {
    mode: u32,
    access: Option<Vec<u8>>,
    default: Option<Vec<u8>>,
}

impl Zpl {
    /// Makes a regular file.
    ///
    /// # Errors
    /// [`ZplError::Exists`] and the usual ones.
    pub async fn create(&self, parent: ObjectId, name: &[u8], new: NewFile) -> Result<Attr> {
        self.make(parent, name, new, New { kind: FileKind::Regular, rdev: 0, target: None, replayed: None }).await
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// [`ZplError::Exists`] and the usual ones.
    pub async fn mkdir(&self, parent: ObjectId, name: &[u8], new: NewFile) -> Result<Attr> {
        self.make(parent, name, new, New { kind: FileKind::Directory, rdev: 0, target: None, replayed: None }).await
    }

    /// Makes a fifo, socket, device node (`rdev` in Linux's user-space encoding) or regular file.
    ///
    /// # Errors
    /// [`ZplError::Exists`] and the usual ones; [`ZplError::Invalid`] for another kind.
    pub async fn mknod(&self, parent: ObjectId, name: &[u8], kind: FileKind, rdev: u32, new: NewFile) -> Result<Attr> {
        if matches!(kind, FileKind::Directory | FileKind::Symlink) {
            return Err(ZplError::Invalid("mknod makes neither directories nor symbolic links"));
        }
        self.make(parent, name, new, New { kind, rdev, target: None, replayed: None }).await
    }

    /// Makes a symbolic link to `target`.
    ///
    /// # Errors
    /// [`ZplError::Exists`] and the usual ones; [`ZplError::NameTooLong`] for a target above 4095 bytes.
    pub async fn symlink(&self, parent: ObjectId, name: &[u8], target: &[u8], new: NewFile) -> Result<Attr> {
        if target.len() > TARGET_MAX {
            return Err(ZplError::NameTooLong);
        }
        if target.is_empty() {
            return Err(ZplError::NotFound);
        }
        self.make(parent, name, new, New { kind: FileKind::Symlink, rdev: 0, target: Some(target), replayed: None })
            .await
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// [`ZplError::Invalid`] when it is none.
    pub async fn readlink(&self, object: ObjectId) -> Result<Vec<u8>> {
        let znode = self.znode(object).await?;
        let target = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            state.phys.symlink.clone().filter(|_| state.phys.kind() == FileKind::Symlink)
        };
        let target = target.ok_or(ZplError::Invalid("not a symbolic link"))?;
        self.accessed(&znode).await;
        Ok(target)
    }

    async fn make(&self, parent: ObjectId, name: &[u8], new: NewFile, what: New<'_>) -> Result<Attr> {
        let attr = self.make_entry(parent, name, new, what).await?;
        self.settle(attr.object).await?;
        Ok(attr)
    }

    pub(crate) async fn make_entry(&self, parent: ObjectId, name: &[u8], new: NewFile, what: New<'_>) -> Result<Attr> {
        self.check_writable()?;
        self.check_name(name)?;
        let directory = self.directory(parent).await?;
        let _guard = directory.lock.write().await;
        check_alive(&directory)?;
        if self.find(&directory, name).await?.is_some() {
            return Err(ZplError::Exists);
        }
        self.check_entries_addable(&directory)?;
        if what.kind == FileKind::Directory && directory.state.lock().phys.links >= LINKS_MAX {
            return Err(ZplError::TooManyLinks);
        }
        let lists = match &what.replayed {
            // What it had inherited is in the records that follow.
            Some(_) => InheritedAcl { mode: new.mode, ..InheritedAcl::default() },
            None => self.inherited_acl(&directory, &new, what.kind).await?,
        };
        self.reserve(CREATE_COST).await?;
        self.check_quotas_of_new(&directory, &new).await?;

        let tx = self.begin().await?;
        let znode = self.make_filled(&directory, &tx, Some(name), new, &what, &lists).await?;
        let is_directory = what.kind == FileKind::Directory;
        self.entries_changed(&directory, &tx, 1, i64::from(is_directory), self.now()).await?;
        log::created(&tx, parent, name, &znode);
        znode.state.lock().opens = u64::from(new.open);
        let attr = self.shown(znode.attr());
        self.cache.insert(znode, self.os.params().gate.synced_txg());
        Ok(attr)
    }

    /// Makes an object and enters it in `directory` if it has a name; when that fails, nothing of it stays.
    pub(crate) async fn make_filled(
        &self,
        directory: &Znode,
        tx: &LoggedTx,
        name: Option<&[u8]>,
        new: NewFile,
        what: &New<'_>,
        lists: &InheritedAcl,
    ) -> Result<Arc<Znode>> {
        let new = NewFile { mode: lists.mode, ..new };
        let znode = Arc::new(self.make_object(directory, tx, new, what).await?);
        // What is seldom done has a place of its own, so that it makes no request larger.
        let filled = async {
            for (attribute, list) in [(posix_acl::ACCESS, &lists.access), (posix_acl::DEFAULT, &lists.default)] {
                if let Some(list) = list {
                    Box::pin(self.xattr_put(&znode, tx, attribute, Some(list))).await?;
                }
            }
            self.update(&znode, tx, |phys| phys.parent = directory.object.0).await?;
            match name {
                Some(name) => self.enter(directory, tx, name, znode.object, what.kind).await,
                None => Box::pin(self.enter_unlinked(&znode, tx)).await,
            }
        };
        if let Err(error) = filled.await {
            // Nobody knows the object yet; without a name it must not stay.
            let xattrs = {
                let mut state = znode.state.lock();
                state.freed = true;
                state.phys.xattr.filter(|&object| object != 0)
            };
            self.os.free_object(tx, znode.object).await?;
            if let Some(directory) = xattrs {
                Box::pin(self.free_xattrs(tx, ObjectId(directory))).await?;
            }
            return Err(error);
        }
        Ok(znode)
    }

    /// What a new object gets from its directory's default access control list, and the mode that follows.
    pub(crate) async fn inherited_acl(&self, directory: &Znode, new: &NewFile, kind: FileKind) -> Result<InheritedAcl> {
        let inherited = if self.posix_acl && kind != FileKind::Symlink {
            Box::pin(self.xattr_read(directory, posix_acl::DEFAULT)).await?
        } else {
            None
        };
        let Some(list) = inherited.as_deref().and_then(PosixAcl::decode) else {
            return Ok(InheritedAcl { mode: new.mode & !new.umask, access: None, default: None });
        };
        let access = list.inherited(new.mode);
        Ok(InheritedAcl {
            mode: new.mode & !0o777 | access.mode(),
            access: (!access.is_minimal()).then(|| access.encode()),
            default: inherited.filter(|_| kind == FileKind::Directory),
        })
    }

    /// Gives `object` one more name.
    ///
    /// # Errors
    /// [`ZplError::NotPermitted`] for a directory, [`ZplError::Exists`], [`ZplError::TooManyLinks`] and the usual ones.
    pub async fn link(&self, object: ObjectId, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        let attr = self.add_link(object, parent, name).await?;
        self.settle(object).await?;
        Ok(attr)
    }

    async fn add_link(&self, object: ObjectId, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        self.check_writable()?;
        self.check_name(name)?;
        let directory = self.directory(parent).await?;
        let znode = self.znode(object).await?;
        if znode.kind() == FileKind::Directory {
            return Err(ZplError::NotPermitted);
        }
        let both = sorted([&directory, &znode]);
        let _guards = lock_all(&both).await;
        check_alive(&directory)?;
        // A file that was made without a name gets its first one; any other without one is on its way out.
        let first = znode.is_linkable();
        if !first {
            check_alive(&znode)?;
        }
        if self.find(&directory, name).await?.is_some() {
            return Err(ZplError::Exists);
        }
        self.check_entries_addable(&directory)?;
        self.check_movable(&znode)?;
        if !self.is_replaying() {
            check_same_project(&directory, &znode)?;
        }
        if znode.state.lock().phys.links >= LINKS_MAX {
            return Err(ZplError::TooManyLinks);
        }
        self.reserve(CREATE_COST).await?;

        let tx = self.begin().await?;
        let now = self.now();
        self.enter(&directory, &tx, name, object, znode.kind()).await?;
        self.touch(&znode, &tx, |phys| {
            phys.links += 1;
            phys.parent = parent.0;
            phys.ctime = now.to_words();
        })
        .await?;
        self.entries_changed(&directory, &tx, 1, 0, now).await?;
        if first {
            self.leave_unlinked(&znode, &tx);
        } else {
            log::linked(&tx, object, parent, name);
        }
        Ok(self.shown(znode.attr()))
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// [`ZplError::IsDirectory`] and the usual ones.
    pub async fn unlink(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`ZplError::NotEmpty`], [`ZplError::NotDirectory`] and the usual ones.
    pub async fn rmdir(&self, parent: ObjectId, name: &[u8]) -> Result<()> {
        match name {
            b"." => return Err(ZplError::Invalid("a directory cannot remove itself as \".\"")),
            b".." => return Err(ZplError::NotEmpty),
            _ => {}
        }
        self.remove(parent, name, true).await
    }

    async fn remove(&self, parent: ObjectId, name: &[u8], directories: bool) -> Result<()> {
        self.remove_entry(parent, name, directories).await?;
        self.settle(parent).await
    }

    async fn remove_entry(&self, parent: ObjectId, name: &[u8], directories: bool) -> Result<()> {
        self.check_writable()?;
        let directory = self.directory(parent).await?;
        let mut object = {
            // Mostly the order of the locks is that in which one comes from the name to its object.
            let _first = directory.lock.write().await;
            check_alive(&directory)?;
            let entry = self.find_entry(&directory, name).await?.ok_or(ZplError::NotFound)?;
            if let Some(znode) = self.cache.peek(entry.object).filter(|znode| znode.object > directory.object) {
                let _second = znode.lock.write().await;
                if znode.check().is_ok() {
                    return self.remove_locked(&directory, &znode, &entry.name, directories).await;
                }
            }
            entry.object
        };
        loop {
            match self.znode(object).await {
                // Either the entry is damaged, or somebody removed it a moment ago: looking again tells.
                Err(ZplError::Stale) if self.find(&directory, name).await? == Some(object) => {
                    return Err(missing_object(parent, object)(ZplError::Stale));
                }
                Err(ZplError::Stale) => {}
                other => {
                    let znode = other?;
                    let both = sorted([&directory, &znode]);
                    let _guards = lock_all(&both).await;
                    check_alive(&directory)?;
                    let entry = self.find_entry(&directory, name).await?.filter(|entry| entry.object == object);
                    if let Some(entry) = entry.filter(|_| znode.check().is_ok()) {
                        return self.remove_locked(&directory, &znode, &entry.name, directories).await;
                    }
                }
            }
            object = self.find(&directory, name).await?.ok_or(ZplError::NotFound)?;
        }
    }

    /// Removes the entry `name` of `directory`, as it is stored, which names `znode`. The caller holds both locks.
    async fn remove_locked(&self, directory: &Znode, znode: &Arc<Znode>, name: &[u8], directories: bool) -> Result<()> {
        let is_directory = znode.kind() == FileKind::Directory;
        match (is_directory, directories) {
            (true, false) => return Err(ZplError::IsDirectory),
            (false, true) => return Err(ZplError::NotDirectory),
            _ => {}
        }
        self.check_entries_removable(directory)?;
        self.check_removable(znode).await?;

        let tx = self.begin_net_free().await?;
        let now = self.now();
        directory.zap().remove(&tx, name).await?;
        self.entries_changed(directory, &tx, -1, -i64::from(is_directory), now).await?;
        self.drop_link(znode, &tx, now).await?;
        log::removed(&tx, directory.object, name, is_directory);
        Ok(())
    }

    async fn enter(&self, directory: &Znode, tx: &Tx, name: &[u8], object: ObjectId, kind: FileKind) -> Result<()> {
        directory.zap().put_u64(tx, name, dirent(object, kind)).await?;
        Ok(())
    }

    pub(crate) async fn entries_changed(
        &self,
        directory: &Znode,
        tx: &Tx,
        size: i64,
        links: i64,
        now: Timestamp,
    ) -> Result<()> {
        self.touch(directory, tx, |phys| {
            phys.size = phys.size.saturating_add_signed(size);
            phys.links = phys.links.saturating_add_signed(links);
            phys.mtime = now.to_words();
            phys.ctime = now.to_words();
        })
        .await
    }

    pub(crate) fn check_movable(&self, znode: &Znode) -> Result<()> {
        self.check_flags(znode.state.lock().phys.flags, flags::IMMUTABLE | flags::APPENDONLY)
    }

    /// Fails when the directory takes no new names.
    pub(crate) fn check_entries_addable(&self, directory: &Znode) -> Result<()> {
        self.check_flags(directory.state.lock().phys.flags, flags::IMMUTABLE)
    }

    /// Fails when no name of the directory may go.
    pub(crate) fn check_entries_removable(&self, directory: &Znode) -> Result<()> {
        self.check_movable(directory)
    }

    pub(crate) async fn check_removable(&self, znode: &Znode) -> Result<()> {
        let is_directory = {
            let state = znode.state.lock();
            self.check_flags(state.phys.flags, flags::IMMUTABLE | flags::APPENDONLY | flags::NOUNLINK)?;
            state.phys.is_directory()
        };
        // The entries themselves are asked, not the size: a wrong one would lose what is below.
        if is_directory && znode.zap().count().await? > 0 { Err(ZplError::NotEmpty) } else { Ok(()) }
    }

    pub(crate) fn check_name(&self, name: &[u8]) -> Result<()> {
        check_length(name)?;
        match name {
            b"." | b".." => return Err(ZplError::Exists),
            _ if name.is_empty() || name.contains(&b'/') || name.contains(&0) => {
                return Err(ZplError::Invalid("a name may not be empty or contain \"/\" or zero bytes"));
            }
            _ => {}
        }
        if self.names.utf8_only && std::str::from_utf8(name).is_err() {
            return Err(ZplError::NotUtf8);
        }
        if platter_ondisk::zap::name::normalize(name, self.names.normalization).is_none() {
            // No language writes such a sequence of marks; see there.
            return Err(ZplError::NotUtf8);
        }
        Ok(())
    }
}

pub(crate) fn dirent(object: ObjectId, kind: FileKind) -> u64 {
    DirentValue { kind: kind.dirent_type() as u8, object: object.0 }.encode()
}

/// Fails unless the object still has a name.
pub(crate) fn check_alive(znode: &Znode) -> Result<()> {
    let state = znode.state.lock();
    if state.freed || state.phys.links == 0 { Err(ZplError::NotFound) } else { Ok(()) }
}

/// Each znode once, by object number.
pub(crate) fn sorted<'a>(znodes: impl IntoIterator<Item = &'a Arc<Znode>>) -> Vec<&'a Arc<Znode>> {
    let mut all: Vec<_> = znodes.into_iter().collect();
    all.sort_by_key(|znode| znode.object);
    all.dedup_by_key(|znode| znode.object);
    all
}

pub(crate) async fn lock_all<'a>(znodes: &[&'a Arc<Znode>]) -> Vec<RwLockWriteGuard<'a, ()>> {
    // Two that lock the same ones in different orders would wait for each other.
    debug_assert!(znodes.is_sorted_by(|one, next| one.object < next.object), "locks are taken in the objects' order");
    let mut guards = Vec::with_capacity(znodes.len());
    for znode in znodes {
        guards.push(znode.lock.write().await);
    }
    guards
}
