//! Reading directories: names to objects, and listing (`zfs_dirlook`, `zfs_readdir`).

use std::sync::Arc;

use futures::stream::{self, StreamExt};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::DirentValue;

use crate::attr::NAME_MAX;
use crate::attr::{Attr, DirEntry, FileKind};
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::znode::Znode;

/// Longest name that can be found, in bytes (`ZAP_MAXNAMELEN_NEW - 1`, feature `longname`).
const LONG_NAME_MAX: usize = 1023;

/// Cursors 1 and 2 come after `.` and `..`; the ZAP's own are moved out of their way, and out of [`FREE_CURSOR`]'s.
const CURSOR_SHIFT: u64 = FREE_CURSOR;
/// The cursor of no entry, after `.` and `..` and before all others: a server's, for an entry of its own (OpenZFS
/// lists `.zfs` there).
pub const FREE_CURSOR: u64 = 3;
/// Attributes read at a time while listing.
const ATTRIBUTES_WIDTH: usize = 32;

/// An entry as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it names.
    pub object: ObjectId,
}

impl Zpl {
    /// The object called `name` in directory `parent`; `..` works too, and `.` of whatever has a name.
    ///
    /// # Errors
    /// [`ZplError::NotFound`], [`ZplError::NotDirectory`], [`ZplError::NameTooLong`], damage; of `.`
    /// [`ZplError::Stale`] when there is no such file, or none any more.
    pub async fn lookup(&self, parent: ObjectId, name: &[u8]) -> Result<Attr> {
        if name == b"." {
            return self.of_handle(parent).await;
        }
        let directory = self.znode(parent).await?;
        directory.check_directory()?;
        let object = match name {
            b".." => ObjectId(directory.state.lock().phys.parent),
            _ => {
                // The entry cannot be removed, nor its object's number be used again, before the znode is in hand.
                let _shared = directory.lock.read().await;
                let object = self.find(&directory, name).await?.ok_or(ZplError::NotFound)?;
                return self.getattr(object).await.map_err(missing_object(parent, object));
            }
        };
        self.getattr(object).await
    }

    /// The object that entry `name` of `directory` names. The caller holds the directory's lock.
    pub(crate) async fn find(&self, directory: &Znode, name: &[u8]) -> Result<Option<ObjectId>> {
        Ok(self.find_entry(directory, name).await?.map(|entry| entry.object))
    }

    /// The entry that `name` means in `directory`, with its name as it is stored: another one where the file system
    /// compares names without regard to case or normal form. The caller holds the directory's lock.
    pub(crate) async fn find_entry(&self, directory: &Znode, name: &[u8]) -> Result<Option<Entry>> {
        if name.len() > LONG_NAME_MAX {
            return Err(ZplError::NameTooLong);
        }
        let zap = directory.zap();
        let found = if self.names.normalization == 0 {
            zap.get_u64(name).await?.map(|value| (name.to_vec(), value))
        } else {
            let found = zap.get_normalized(name, self.names.match_case).await?;
            // Only damage gives an entry another shape.
            found.and_then(|(stored, value)| Some((stored, value.integers.first().copied()?)))
        };
        match found {
            // Pools with feature `longname` may hold longer names; elsewhere they are refused like new ones.
            None if name.len() > NAME_MAX => Err(ZplError::NameTooLong),
            None => Ok(None),
            Some((stored, value)) => {
                Ok(Some(Entry { name: stored, object: ObjectId(DirentValue::decode(value).object) }))
            }
        }
    }

    /// Up to `limit` entries after `cursor` (0 starts), `.` and `..` included. An empty answer is the end.
    ///
    /// # Errors
    /// [`ZplError::NotDirectory`], damage.
    pub async fn readdir(
        &self,
        object: ObjectId,
        cursor: u64,
        limit: usize,
        with_attributes: bool,
    ) -> Result<Vec<DirEntry>> {
        let directory = self.znode(object).await?;
        directory.check_directory()?;
        let mut entries = Vec::new();
        let parent = ObjectId(directory.state.lock().phys.parent);
        for (after, name, to) in [(1, &b"."[..], object), (2, &b".."[..], parent)] {
            if cursor < after && entries.len() < limit {
                let kind = Some(FileKind::Directory);
                entries.push(DirEntry { name: name.to_vec(), object: to, kind, cursor: after, attr: None });
            }
        }
        if entries.len() < limit {
            let from = cursor.saturating_sub(CURSOR_SHIFT);
            let found = {
                let _shared = directory.lock.read().await;
                directory.zap().entries(from, limit - entries.len()).await?
            };
            for entry in found {
                // Only damage gives an entry another shape; the others stay reachable.
                let [value] = entry.value.integers[..] else { continue };
                let value = DirentValue::decode(value);
                entries.push(DirEntry {
                    name: entry.name,
                    object: ObjectId(value.object),
                    kind: FileKind::from_mode(u64::from(value.kind) << 12),
                    cursor: entry.cursor.saturating_add(CURSOR_SHIFT),
                    attr: None,
                });
            }
        }
        if with_attributes {
            let reads: Vec<_> = entries.iter().map(|entry| self.getattr(entry.object)).collect();
            let attributes: Vec<_> = stream::iter(reads).buffered(ATTRIBUTES_WIDTH).collect().await;
            for (entry, attr) in entries.iter_mut().zip(attributes) {
                entry.attr = attr.ok();
            }
        }
        self.accessed(&directory).await;
        Ok(entries)
    }

    /// Attributes of the `object` of a file handle, which somebody may have had for long: what has no name any more is
    /// gone for him, though it may be open (`zfs_vget`, `module/os/linux/zfs/zfs_vfsops.c`).
    async fn of_handle(&self, object: ObjectId) -> Result<Attr> {
        let attr = self.getattr(object).await?;
        if attr.links == 0 { Err(ZplError::Stale) } else { Ok(attr) }
    }

    /// The directory `object` for changing it.
    pub(crate) async fn directory(&self, object: ObjectId) -> Result<Arc<Znode>> {
        let znode = self.znode(object).await?;
        znode.check_directory()?;
        Ok(znode)
    }
}

/// An entry whose object does not exist is damage, not a stale handle.
pub(crate) fn missing_object(parent: ObjectId, object: ObjectId) -> impl Fn(ZplError) -> ZplError {
    move |error| match error {
        ZplError::Stale => ZplError::Zio(platter_zio::ZioError::corrupt(
            "directory",
            format!("directory {parent} names object {object}, which is no file"),
        )),
        other => other,
    }
}

pub(crate) fn check_length(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX { Err(ZplError::NameTooLong) } else { Ok(()) }
}
