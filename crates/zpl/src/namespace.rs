//! Changing directories: making, linking, removing and moving (`module/os/linux/zfs/zfs_vnops_os.c`, `zfs_dir.c`).
//!
//! An operation finds the objects it concerns, locks them all by ascending number, looks again whether the names still
//! mean the same, checks everything that can be refused, and only then begins its transaction.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::zil::record::NewObject;
use platter_ondisk::znode::{DirentValue, flags};
use platter_zio::ZioError;
use tokio::sync::RwLockWriteGuard;

use crate::attr::{Attr, FileKind, NewFile, RenameFlags, Timestamp};
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

    /// Moves `parent`/`name` to `new_parent`/`new_name`, replacing what is there as POSIX says.
    ///
    /// # Errors
    /// The usual ones; [`ZplError::Invalid`] when a directory would move below itself.
    pub async fn rename(
        &self,
        parent: ObjectId,
        name: &[u8],
        new_parent: ObjectId,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.move_entry(parent, name, new_parent, new_name, flags, None).await?;
        self.settle(parent).await
    }

    /// `replayed` is the whiteout as it was made before a crash.
    pub(crate) async fn move_entry(
        &self,
        parent: ObjectId,
        name: &[u8],
        new_parent: ObjectId,
        new_name: &[u8],
        flags: RenameFlags,
        replayed: Option<&NewObject>,
    ) -> Result<()> {
        self.check_writable()?;
        if flags.whiteout && flags.exchange {
            return Err(ZplError::Invalid("an exchange leaves no whiteout"));
        }
        if [name, new_name].iter().any(|n| matches!(*n, b"." | b"..")) {
            return Err(ZplError::Invalid("\".\" and \"..\" cannot be renamed"));
        }
        self.check_name(new_name)?;
        let from = self.directory(parent).await?;
        let to = self.directory(new_parent).await?;
        let is_case_change = parent == new_parent && self.names.differ_in_case_only(name, new_name);
        let _ancestry = if parent == new_parent { None } else { Some(self.rename.lock().await) };
        loop {
            let source = self.find(&from, name).await?.ok_or(ZplError::NotFound)?;
            let mut target = self.find(&to, new_name).await?;
            if is_case_change {
                // The name found is the one to be changed.
                target = None;
            }
            let Some(moved) = self.entry_znode(&from, name, source).await? else { continue };
            let replaced = match target {
                Some(object) => match self.entry_znode(&to, new_name, object).await? {
                    Some(znode) => Some(znode),
                    None => continue,
                },
                None => None,
            };
            let all = sorted([&from, &to, &moved].into_iter().chain(&replaced));
            let _guards = lock_all(&all).await;
            check_alive(&from)?;
            check_alive(&to)?;
            let (from_entry, to_entry) = (self.find_entry(&from, name).await?, self.find_entry(&to, new_name).await?);
            let Some(from_entry) = from_entry.filter(|entry| entry.object == source) else { continue };
            if is_case_change && self.names.differ_in_case_only(name, &from_entry.name) {
                // Only who says the name as it is stored changes its case.
                return Err(ZplError::NotFound);
            }
            // As the names are stored.
            let name = from_entry.name.as_slice();
            let to_stored = match &to_entry {
                _ if is_case_change => None,
                entry if entry.as_ref().map(|entry| entry.object) != target => continue,
                entry => entry.as_ref().map(|entry| entry.name.as_slice()),
            };
            if flags.no_replace && replaced.is_some() {
                return Err(ZplError::Exists);
            }
            if flags.exchange && replaced.is_none() {
                return Err(ZplError::NotFound);
            }
            if target == Some(source) {
                return Ok(());
            }
            if parent != new_parent {
                self.check_ancestry(&moved, &to).await?;
                let returned = replaced.as_ref().filter(|_| flags.exchange);
                if let Some(returned) = returned {
                    self.check_ancestry(returned, &from).await?;
                }
                // The flags of directories may be younger than what is replayed.
                if !self.is_replaying() {
                    check_same_project(&to, &moved)?;
                    returned.map_or(Ok(()), |returned| check_same_project(&from, returned))?;
                }
            }
            self.check_movable(&moved)?;
            self.check_entries_removable(&from)?;
            self.check_entries_addable(&to)?;
            if replaced.is_some() {
                self.check_entries_removable(&to)?;
            }
            let moved_is_directory = moved.kind() == FileKind::Directory;
            if let Some(replaced) = &replaced {
                let replaced_is_directory = replaced.kind() == FileKind::Directory;
                if !flags.exchange {
                    match (moved_is_directory, replaced_is_directory) {
                        (true, false) => return Err(ZplError::NotDirectory),
                        (false, true) => return Err(ZplError::IsDirectory),
                        _ => self.check_removable(replaced).await?,
                    }
                } else {
                    self.check_movable(replaced)?;
                }
            }
            self.reserve(CREATE_COST).await?;

            let tx = self.begin().await?;
            let now = self.now();
            let whiteout = match flags.whiteout {
                true => Some(self.make_whiteout(&from, &tx, replayed).await?),
                false => None,
            };
            let entry = |znode: &Znode| dirent(znode.object, znode.kind());
            match to_stored.filter(|stored| *stored != new_name) {
                // An exchange changes no names.
                Some(stored) if flags.exchange => to.zap().put_u64(&tx, stored, entry(&moved)).await?,
                Some(stored) => {
                    to.zap().remove(&tx, stored).await?;
                    to.zap().put_u64(&tx, new_name, entry(&moved)).await?;
                }
                None => to.zap().put_u64(&tx, new_name, entry(&moved)).await?,
            }
            let (mut from_links, mut to_links) = (-i64::from(moved_is_directory), i64::from(moved_is_directory));
            let (mut from_size, mut to_size) = (-1, 1);
            if let Some(whiteout) = &whiteout {
                from.zap().put_u64(&tx, name, entry(whiteout)).await?;
                from_size = 0;
            }
            match &replaced {
                Some(other) if flags.exchange => {
                    from.zap().put_u64(&tx, name, entry(other)).await?;
                    let other_links = i64::from(other.kind() == FileKind::Directory);
                    from_links += other_links;
                    to_links -= other_links;
                    (from_size, to_size) = (0, 0);
                    self.moved(other, &tx, &from, now).await?;
                }
                Some(other) => {
                    if whiteout.is_none() {
                        from.zap().remove(&tx, name).await?;
                    }
                    to_links -= i64::from(other.kind() == FileKind::Directory);
                    to_size = 0;
                }
                None if whiteout.is_none() => {
                    from.zap().remove(&tx, name).await?;
                }
                None => {}
            }
            self.moved(&moved, &tx, &to, now).await?;
            if parent == new_parent {
                self.entries_changed(&to, &tx, from_size + to_size, from_links + to_links, now).await?;
            } else {
                self.entries_changed(&from, &tx, from_size, from_links, now).await?;
                self.entries_changed(&to, &tx, to_size, to_links, now).await?;
            }
            if let Some(other) = replaced.as_ref().filter(|_| !flags.exchange) {
                self.drop_link(other, &tx, now).await?;
            }
            if self.table.is_legacy() && (flags.exchange || flags.whiteout) {
                // Whoever else reads such old file systems does not know these records.
                tx.has_no_record();
            }
            let (from, to) = ((parent, name), (new_parent, new_name));
            log::renamed(&tx, moved.object, from, to, flags, whiteout.as_deref());
            return Ok(());
        }
    }

    /// The znode of an entry found without a lock; `None` when the entry is gone meanwhile.
    async fn entry_znode(&self, directory: &Znode, name: &[u8], object: ObjectId) -> Result<Option<Arc<Znode>>> {
        match self.znode(object).await {
            Err(ZplError::Stale) => {
                if self.find(directory, name).await? == Some(object) {
                    return Err(missing_object(directory.object, object)(ZplError::Stale));
                }
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Fails when `directory` is `moved` itself or lies below it. The caller holds the rename lock, so that no
    /// directory changes its parent meanwhile.
    async fn check_ancestry(&self, moved: &Znode, directory: &Znode) -> Result<()> {
        if moved.kind() != FileKind::Directory {
            return Ok(());
        }
        let mut object = directory.object;
        for _ in 0..crate::path::DEPTH_MAX {
            if object == moved.object {
                return Err(ZplError::Invalid("a directory cannot move below itself"));
            }
            if object == self.root() {
                return Ok(());
            }
            let below = object;
            let znode = self.znode(object).await.map_err(missing_object(below, object))?;
            object = ObjectId(znode.state.lock().phys.parent);
            if object == below {
                return Ok(());
            }
        }
        Err(ZioError::corrupt("directory tree", format!("directory {} is below itself", directory.object)).into())
    }

    async fn moved(&self, znode: &Znode, tx: &Tx, parent: &Znode, now: Timestamp) -> Result<()> {
        let inherited = parent.state.lock().phys.flags & flags::PROJINHERIT;
        self.touch(znode, tx, |phys| {
            phys.parent = parent.object.0;
            phys.ctime = now.to_words();
            phys.flags |= flags::AV_MODIFIED | inherited;
        })
        .await
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

    fn check_movable(&self, znode: &Znode) -> Result<()> {
        self.check_flags(znode.state.lock().phys.flags, flags::IMMUTABLE | flags::APPENDONLY)
    }

    /// Fails when the directory takes no new names.
    fn check_entries_addable(&self, directory: &Znode) -> Result<()> {
        self.check_flags(directory.state.lock().phys.flags, flags::IMMUTABLE)
    }

    /// Fails when no name of the directory may go.
    fn check_entries_removable(&self, directory: &Znode) -> Result<()> {
        self.check_movable(directory)
    }

    async fn check_removable(&self, znode: &Znode) -> Result<()> {
        let is_directory = {
            let state = znode.state.lock();
            self.check_flags(state.phys.flags, flags::IMMUTABLE | flags::APPENDONLY | flags::NOUNLINK)?;
            state.phys.is_directory()
        };
        // The entries themselves are asked, not the size: a wrong one would lose what is below.
        if is_directory && znode.zap().count().await? > 0 { Err(ZplError::NotEmpty) } else { Ok(()) }
    }

    fn check_name(&self, name: &[u8]) -> Result<()> {
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
fn sorted<'a>(znodes: impl IntoIterator<Item = &'a Arc<Znode>>) -> Vec<&'a Arc<Znode>> {
    let mut all: Vec<_> = znodes.into_iter().collect();
    all.sort_by_key(|znode| znode.object);
    all.dedup_by_key(|znode| znode.object);
    all
}

async fn lock_all<'a>(znodes: &[&'a Arc<Znode>]) -> Vec<RwLockWriteGuard<'a, ()>> {
    let mut guards = Vec::with_capacity(znodes.len());
    for znode in znodes {
        guards.push(znode.lock.write().await);
    }
    guards
}
