//! Extended attributes (`module/os/linux/zfs/zpl_xattr.c`): small ones in the file's own attribute `DXATTR`, an encoded
//! list of names and values (`xattr=sa`), others as files of a hidden directory (`xattr=dir`). Both kinds are read.
//!
//! Invariants:
//! - a name is in one of the two places only;
//! - whoever reads or changes attributes of a file holds the file's lock: the hidden objects have no other way in, so
//!   their own locks are not taken;
//! - names are stored with their namespace (`user.`, ...); those of other systems, without one, are shown as `user.`.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_dmu::bytes::{Extent, Keeper};
use platter_nvlist::{NvList, Value};
use platter_ondisk::ObjectId;
use platter_ondisk::zil::record::NewObject;
use platter_ondisk::znode::{DirentValue, flags};
use platter_zio::ZioError;

use crate::attr::{FileKind, SetAttr, SetXattr};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log::{self, LoggedTx};
use crate::namespace::{CREATE_COST, dirent};
use crate::options::XattrMode;
use crate::phys::Phys;
use crate::posix_acl::{self, PosixAcl};
use crate::projects::new_objects_have_projects;
use crate::znode::Znode;

/// Capabilities of a program: they go when it is written or given away.
const CAPABILITY: &[u8] = b"security.capability";
const USER: &[u8] = b"user.";
/// Names that begin so are stored as they are; all others belong to `user.`.
const NAMESPACES: [&[u8]; 5] = [USER, b"trusted.", b"security.", b"system.", b"freebsd:"];
/// Largest value in the list, in bytes (`DXATTR_MAX_ENTRY_SIZE`).
const LIST_VALUE_MAX: usize = 32 << 10;
/// Largest list, in bytes: its length is stored in 16 bits (`SA_ATTR_MAX_LEN`).
const LIST_MAX: usize = u16::MAX as usize;
/// Largest value that can be set, in bytes (`XATTR_SIZE_MAX` of Linux).
const VALUE_MAX: usize = 64 << 10;
/// Mode of the hidden directory and of the files in it (`zfs_make_xattrdir`, `zpl_xattr_set_dir`).
const DIRECTORY_MODE: u64 = 0o1777;
const FILE_MODE: u64 = 0o644;

/// The list in attribute `DXATTR`.
struct List {
    pairs: NvList,
    /// It has names that are not UTF-8, which the list cannot give back as they were: it must not be rewritten.
    lossy: bool,
}

impl List {
    fn of(phys: &Phys, object: ObjectId) -> Result<Self> {
        let damaged = |error: platter_nvlist::Error| {
            ZplError::Zio(ZioError::corrupt("extended attributes", format!("object {object}: {error}")))
        };
        let pairs = match phys.dxattr.as_deref() {
            None | Some([]) => NvList::new(),
            Some(bytes) => NvList::decode(bytes).map_err(damaged)?,
        };
        let lossy = pairs.iter().any(|(name, _)| name.contains('\u{fffd}'));
        Ok(Self { pairs, lossy })
    }

    fn get(&self, name: &[u8]) -> Option<&[u8]> {
        match self.pairs.get(std::str::from_utf8(name).ok()?) {
            Some(Value::ByteArray(value)) => Some(value),
            _ => None,
        }
    }

    /// The encoded list with the pair; `None` when it does not fit or cannot be stored so.
    fn with(mut self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let name = std::str::from_utf8(name).ok().filter(|name| !name.contains('\u{fffd}'))?;
        if self.lossy || value.len() > LIST_VALUE_MAX {
            return None;
        }
        self.pairs.add(name, Value::ByteArray(value.to_vec()));
        Some(self.pairs.encode_xdr()).filter(|bytes| bytes.len() <= LIST_MAX)
    }

    /// The encoded list without the pair; inside, `None` when nothing is left.
    fn without(mut self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        if self.lossy {
            return Err(ZplError::NotSupported("changing attributes next to names that are not UTF-8"));
        }
        if let Ok(name) = std::str::from_utf8(name) {
            self.pairs.remove(name);
        }
        Ok((!self.pairs.is_empty()).then(|| self.pairs.encode_xdr()))
    }
}

/// The names under which `name` may be stored; new values go to the first.
fn stored_names(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let bare = name.strip_prefix(USER).filter(|bare| !NAMESPACES.iter().any(|space| bare.starts_with(space)));
    std::iter::once(name).chain(bare)
}

impl Zpl {
    /// The value of attribute `name` of `object`.
    ///
    /// # Errors
    /// [`ZplError::NoAttribute`]; [`ZplError::NotSupported`] for a namespace this mount does not have; damage.
    pub async fn getxattr(&self, object: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        self.check_xattr_name(name)?;
        let znode = self.znode(object).await?;
        let _shared = znode.lock.read().await;
        znode.check()?;
        for stored in stored_names(name) {
            if let Some(value) = self.xattr_read(&znode, stored).await? {
                return Ok(value);
            }
        }
        Err(ZplError::NoAttribute)
    }

    /// The names of all attributes of `object` that a process may see; `trusted.` ones only a `privileged` one.
    ///
    /// # Errors
    /// Damage.
    pub async fn listxattr(&self, object: ObjectId, privileged: bool) -> Result<Vec<Vec<u8>>> {
        let znode = self.znode(object).await?;
        let _shared = znode.lock.read().await;
        znode.check()?;
        let mut names: Vec<Vec<u8>> = {
            let state = znode.state.lock();
            let list = List::of(&state.phys, object)?;
            list.pairs.iter().map(|(name, _)| name.as_bytes().to_vec()).collect()
        };
        if let Some(directory) = self.xattr_directory(&znode).await? {
            names.extend(directory.zap().all().await?.into_iter().map(|entry| entry.name));
        }
        let shown = names.into_iter().map(|name| {
            if NAMESPACES.iter().any(|space| name.starts_with(space)) { name } else { [USER, &name].concat() }
        });
        let visible =
            |name: &Vec<u8>| self.check_xattr_name(name).is_ok() && (privileged || !name.starts_with(b"trusted."));
        let mut shown: Vec<_> = shown.filter(visible).collect();
        shown.sort();
        shown.dedup();
        Ok(shown)
    }

    /// Sets attribute `name` of `object`. A new access list changes the mode with it; unless `keep_set_gid`, that
    /// clears the set-gid bit.
    ///
    /// # Errors
    /// [`ZplError::Exists`] and [`ZplError::NoAttribute`] as `how` says; [`ZplError::ValueTooLarge`];
    /// [`ZplError::Invalid`] for an access control list that is none; the usual ones.
    pub async fn setxattr(
        &self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        keep_set_gid: bool,
    ) -> Result<()> {
        self.xattr_set(object, name, value, how, keep_set_gid).await?;
        self.settle(object).await
    }

    async fn xattr_set(
        &self,
        object: ObjectId,
        name: &[u8],
        value: &[u8],
        how: SetXattr,
        keep_set_gid: bool,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_xattr_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(ZplError::ValueTooLarge);
        }
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        let kind = self.check_xattr_change(&znode)?;
        let acl = match name {
            posix_acl::ACCESS | posix_acl::DEFAULT => {
                if kind == FileKind::Symlink {
                    return Err(ZplError::NotSupported("a symbolic link has no access control list"));
                }
                if name == posix_acl::DEFAULT && kind != FileKind::Directory {
                    return Err(ZplError::Denied);
                }
                Some(PosixAcl::decode(value).ok_or(ZplError::Invalid("not an access control list"))?)
            }
            _ => None,
        };
        let mut exists = false;
        for stored in stored_names(name) {
            exists |= self.xattr_read(&znode, stored).await?.is_some();
        }
        match how {
            SetXattr::Create if exists => return Err(ZplError::Exists),
            SetXattr::Replace if !exists => return Err(ZplError::NoAttribute),
            _ => {}
        }
        self.reserve(CREATE_COST + value.len() as u64).await?;

        let tx = self.begin_writing(0..value.len() as u64, self.os.properties().record_size).await?;
        for other in stored_names(name).skip(1) {
            self.xattr_put(&znode, &tx, other, None).await?;
        }
        let access = acl.as_ref().filter(|_| name == posix_acl::ACCESS);
        // What the mode says by itself needs no list.
        let stored = (!access.is_some_and(PosixAcl::is_minimal)).then_some(value);
        self.xattr_put(&znode, &tx, name, stored).await?;
        let now = self.now();
        let mode = access.map(PosixAcl::mode);
        self.update(&znode, &tx, |phys| {
            if let Some(mode) = mode {
                let kept = if keep_set_gid { 0o7000 } else { 0o5000 };
                phys.set_mode(phys.mode & kept | u64::from(mode));
            }
            phys.ctime = now.to_words();
        })
        .await?;
        match mode {
            Some(_) => log::attributes_set(&tx, &znode, &SetAttr { mode, ..SetAttr::default() }),
            None => log::xattrs_changed(&tx, &znode),
        }
        Ok(())
    }

    /// Removes attribute `name` of `object`.
    ///
    /// # Errors
    /// [`ZplError::NoAttribute`] and the usual ones.
    pub async fn removexattr(&self, object: ObjectId, name: &[u8]) -> Result<()> {
        self.xattr_removed(object, name).await?;
        self.settle(object).await
    }

    async fn xattr_removed(&self, object: ObjectId, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_xattr_name(name)?;
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        self.check_xattr_change(&znode)?;
        let mut found = Vec::new();
        for stored in stored_names(name) {
            if self.xattr_read(&znode, stored).await?.is_some() {
                found.push(stored);
            }
        }
        if found.is_empty() {
            return Err(ZplError::NoAttribute);
        }
        let tx = self.begin_net_free().await?;
        for stored in found {
            self.xattr_put(&znode, &tx, stored, None).await?;
        }
        let now = self.now();
        self.touch(&znode, &tx, |phys| phys.ctime = now.to_words()).await?;
        log::xattrs_changed(&tx, &znode);
        Ok(())
    }

    /// Sets an attribute of the file's own list, or (no value) removes it, as a log record says.
    pub(crate) async fn replay_xattr(&self, object: ObjectId, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        znode.check()?;
        let tx = self.begin().await?;
        self.xattr_put(&znode, &tx, name, value).await?;
        let now = self.now();
        self.touch(&znode, &tx, |phys| phys.ctime = now.to_words()).await
    }

    /// Makes the hidden directory of `owner`, as a log record says.
    pub(crate) async fn replay_xattr_directory(&self, owner: ObjectId, new: &NewObject) -> Result<()> {
        let znode = self.znode(owner).await?;
        let _alone = znode.lock.write().await;
        znode.check()?;
        if self.xattr_directory(&znode).await?.is_some() {
            return Err(ZplError::Exists);
        }
        let tx = self.begin().await?;
        let made = self.make_hidden(&znode, &tx, owner, FileKind::Directory, new.mode & 0o7777, Some(new)).await?;
        let number = made.object;
        self.update(&znode, &tx, |phys| phys.set_xattr(number, &self.table)).await
    }

    /// Takes away what a file must not keep when somebody writes to it: its capabilities and, with `set_id`, its
    /// set-uid bit and (where the group may execute it) set-gid bit. Whether its mode changed by that.
    ///
    /// # Errors
    /// Those of changing attributes.
    pub async fn drop_privileges(&self, object: ObjectId, set_id: bool) -> Result<bool> {
        let znode = self.znode(object).await?;
        let concerned = |znode: &Znode| {
            let state = znode.state.lock();
            (set_id && state.phys.has_set_id()) || state.may_have_capability()
        };
        if self.read_only_reason().is_some() || znode.kind() != FileKind::Regular || !concerned(&znode) {
            return Ok(false);
        }
        let _alone = znode.lock.write().await;
        znode.check()?;
        let capable = self.has_capability(&znode).await?;
        let set_id = set_id && znode.state.lock().phys.has_set_id();
        if !(capable || set_id) {
            return Ok(false);
        }
        let tx = self.begin_net_free().await?;
        if capable {
            self.drop_capability(&znode, &tx).await?;
        }
        let now = self.now();
        self.update(&znode, &tx, |phys| {
            if set_id {
                phys.drop_set_id();
            }
            phys.ctime = now.to_words();
        })
        .await?;
        let mode = set_id.then(|| znode.state.lock().phys.mode as u32 & 0o7777);
        match mode {
            Some(_) => log::attributes_set(&tx, &znode, &SetAttr { mode, ..SetAttr::default() }),
            None => log::xattrs_changed(&tx, &znode),
        }
        Ok(set_id)
    }

    /// Whether the file has capabilities. The caller holds its lock.
    pub(crate) async fn has_capability(&self, znode: &Znode) -> Result<bool> {
        if !znode.state.lock().may_have_capability() {
            return Ok(false);
        }
        let found = self.xattr_read(znode, CAPABILITY).await?.is_some();
        znode.state.lock().no_capability = !found;
        Ok(found)
    }

    /// Takes the file's capabilities away; the caller stores its attributes afterwards.
    pub(crate) async fn drop_capability(&self, znode: &Arc<Znode>, tx: &LoggedTx) -> Result<()> {
        self.xattr_put(znode, tx, CAPABILITY, None).await
    }

    /// The value stored under exactly `name`. The caller holds the file's lock.
    pub(crate) async fn xattr_read(&self, znode: &Znode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        {
            let state = znode.state.lock();
            if let Some(value) = List::of(&state.phys, znode.object)?.get(name) {
                return Ok(Some(value.to_vec()));
            }
        }
        let Some(directory) = self.xattr_directory(znode).await? else { return Ok(None) };
        let Some(file) = self.xattr_file(&directory, name).await? else { return Ok(None) };
        let size = file.state.lock().phys.size;
        if size > VALUE_MAX as u64 {
            return Err(ZplError::ValueTooLarge);
        }
        let mut value = vec![0; size as usize];
        file.dnode.read(0, &mut value).await?;
        Ok(Some(value))
    }

    /// Stores or removes the value of `name` within `tx`. The caller holds the file's lock and stores its attributes
    /// afterwards, and hands the records to the log then.
    pub(crate) async fn xattr_put(
        &self,
        znode: &Arc<Znode>,
        tx: &LoggedTx,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<()> {
        let (list, in_list) = {
            let mut state = znode.state.lock();
            state.no_capability &= name != CAPABILITY;
            let list = List::of(&state.phys, znode.object)?;
            let in_list = list.get(name).is_some();
            (list, in_list)
        };
        if let Some(value) = value {
            let has_room = self.xattr_mode() != XattrMode::Dir && !self.table.is_legacy();
            let fits = if has_room { list.with(name, value) } else { None };
            if let Some(bytes) = fits {
                znode.state.lock().phys.change().set_dxattr(Some(bytes), &self.table);
                tx.xattr_changed(znode.object, name, Some(value));
                return self.xattr_remove_file(znode, tx, name).await;
            }
            self.xattr_write_file(znode, tx, name, value).await?;
        } else {
            self.xattr_remove_file(znode, tx, name).await?;
        }
        if in_list {
            let mut state = znode.state.lock();
            let rest = List::of(&state.phys, znode.object)?.without(name)?;
            state.phys.change().set_dxattr(rest, &self.table);
            tx.xattr_changed(znode.object, name, None);
        }
        Ok(())
    }

    async fn xattr_write_file(&self, owner: &Znode, tx: &LoggedTx, name: &[u8], value: &[u8]) -> Result<()> {
        let directory = match self.xattr_directory(owner).await? {
            Some(directory) => directory,
            None => {
                let made = self.make_hidden(owner, tx, owner.object, FileKind::Directory, DIRECTORY_MODE, None).await?;
                owner.state.lock().phys.change().set_xattr(made.object, &self.table);
                log::hidden_directory_made(tx, owner.object, &made);
                made
            }
        };
        let file = match self.xattr_file(&directory, name).await? {
            Some(file) => {
                file.dnode.free_range(tx, 0, u64::MAX).await?;
                log::hidden_file_emptied(tx, file.object);
                file
            }
            None => {
                let made = self.make_hidden(owner, tx, directory.object, FileKind::Regular, FILE_MODE, None).await?;
                directory.zap().put_u64(tx, name, dirent(made.object, FileKind::Regular)).await?;
                self.entries_changed(&directory, tx, 1, 0, self.now()).await?;
                log::hidden_file_made(tx, directory.object, name, &made);
                made
            }
        };
        log::hidden_file_written(tx, file.object, value);
        let block_size = self.block_size_for(&file, value.len() as u64);
        if block_size != file.dnode.block_size() {
            file.dnode.set_block_size(tx, block_size).await?;
        }
        let extent = Extent { offset: 0, block_size, size: 0 };
        if let (_, Some(error)) = file.bytes().write(tx, extent, value, Keeper::Nobody).await {
            return Err(error.into());
        }
        let now = self.now().to_words();
        self.touch(&file, tx, |phys| {
            phys.size = value.len() as u64;
            phys.mtime = now;
            phys.ctime = now;
        })
        .await
    }

    async fn xattr_remove_file(&self, owner: &Znode, tx: &LoggedTx, name: &[u8]) -> Result<()> {
        let Some(directory) = self.xattr_directory(owner).await? else { return Ok(()) };
        let Some(file) = self.xattr_file(&directory, name).await? else { return Ok(()) };
        log::hidden_file_removed(tx, directory.object, name);
        directory.zap().remove(tx, name).await?;
        self.entries_changed(&directory, tx, -1, 0, self.now()).await?;
        self.free_hidden(tx, &file).await
    }

    /// A hidden directory or file that belongs to whom `owner` belongs to.
    async fn make_hidden(
        &self,
        owner: &Znode,
        tx: &Tx,
        parent: ObjectId,
        kind: FileKind,
        mode: u64,
        replayed: Option<&NewObject>,
    ) -> Result<Arc<Znode>> {
        let (uid, gid, project) = {
            let phys = &owner.state.lock().phys;
            (phys.uid, phys.gid, phys.project())
        };
        let project = new_objects_have_projects(&self.os, &self.table).then_some(project);
        let mut phys = Phys::new(kind, mode, tx.txg().0, self.now(), project, &self.table);
        (phys.uid, phys.gid) = (uid, gid);
        phys.flags |= flags::XATTR;
        phys.parent = parent.0;
        if let Some(old) = replayed {
            (phys.uid, phys.gid, phys.generation) = (old.uid, old.gid, old.generation);
        }
        let dnode = self.allocate(tx, kind, None, replayed).await?;
        let znode = Arc::new(Znode::new(dnode, phys));
        self.update(&znode, tx, |_| {}).await?;
        self.cache.insert(znode.clone(), self.os.params().gate.synced_txg());
        Ok(znode)
    }

    /// The hidden directory of `znode`, if it has one.
    pub(crate) async fn xattr_directory(&self, znode: &Znode) -> Result<Option<Arc<Znode>>> {
        let object = znode.state.lock().phys.xattr.filter(|&object| object != 0);
        let Some(object) = object else { return Ok(None) };
        let found = self.hidden(ObjectId(object)).await?;
        Ok(found.filter(|found| found.kind() == FileKind::Directory))
    }

    pub(crate) async fn xattr_file(&self, directory: &Znode, name: &[u8]) -> Result<Option<Arc<Znode>>> {
        let Some(value) = directory.zap().get_u64(name).await? else { return Ok(None) };
        let found = self.hidden(ObjectId(DirentValue::decode(value).object)).await?;
        Ok(found.filter(|found| found.kind() == FileKind::Regular))
    }

    fn check_xattr_change(&self, znode: &Znode) -> Result<FileKind> {
        let state = znode.state.lock();
        if state.freed {
            return Err(ZplError::Stale);
        }
        // As Linux says for every file system (`xattr_permission`).
        self.check_flags(state.phys.flags, flags::IMMUTABLE | flags::APPENDONLY)?;
        Ok(state.phys.kind())
    }

    /// Fails for a namespace that is unknown or switched off.
    fn check_xattr_name(&self, name: &[u8]) -> Result<()> {
        let known = match name {
            posix_acl::ACCESS | posix_acl::DEFAULT => self.posix_acl,
            _ if name.starts_with(USER) => self.xattr_mode() != XattrMode::Off,
            _ => name.starts_with(b"trusted.") || name.starts_with(b"security."),
        };
        let has_name = name.iter().position(|&byte| byte == b'.').is_some_and(|dot| dot + 1 < name.len());
        match (known, has_name) {
            (false, _) => Err(ZplError::NotSupported("this kind of extended attribute")),
            (true, false) => Err(ZplError::Invalid("an extended attribute without a name")),
            (true, true) if name.len() > crate::attr::NAME_MAX => Err(ZplError::NameTooLong),
            (true, true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_systems_names_are_found_under_user() {
        let all = |name: &'static [u8]| stored_names(name).collect::<Vec<_>>();
        assert_eq!(all(b"user.a"), [&b"user.a"[..], b"a"]);
        assert_eq!(all(b"security.a"), [b"security.a"]);
        assert_eq!(all(b"user.trusted.a"), [b"user.trusted.a"]);
    }
}
