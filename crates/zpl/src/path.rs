//! From an object back to its path (`zfs_obj_to_path`): each file knows the directory of one of its names.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, ZioError};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::{DirentValue, flags};

use crate::error::Result;
use crate::fs::{Master, Zpl};
use crate::sa_table::SaTable;
use crate::stored;

/// Deepest path followed; a deeper one is a loop made by damage.
pub(crate) const DEPTH_MAX: usize = 4096;
/// Directory entries looked at in one go.
const ENTRIES: usize = 1024;

impl Zpl {
    /// Path of `object` from the root of the file system, `/` first.
    ///
    /// # Errors
    /// [`ZioError::NotFound`] when the object is no file or has no name; damage.
    pub async fn object_path(&self, object: ObjectId) -> Result<String> {
        Ok(object_path(&self.os, object).await?)
    }
}

/// Path of `object` from the root of the file system in `os`, mounted or not, `/` first. Bytes that are not UTF-8 come
/// out as U+FFFD.
///
/// # Errors
/// [`ZioError::NotFound`] when the object is no file or has no name; damage.
pub async fn object_path(os: &Arc<Objset>, object: ObjectId) -> platter_zio::Result<String> {
    let master = Master::read(os).await?;
    let table = SaTable::load(os, master.sa).await?;
    let mut names: Vec<String> = Vec::new();
    let mut at = object;
    while at != master.root {
        if names.len() >= DEPTH_MAX {
            return Err(ZioError::corrupt("directory tree", format!("object {object} is below itself")));
        }
        let dnode = os.dnode(at).await?;
        let phys = stored::read(os, &dnode, &table).await?;
        if phys.links == 0 {
            return Err(ZioError::NotFound(format!("name of object {at}, which is unlinked")));
        }
        let parent = ObjectId(phys.parent);
        if phys.is_directory() && phys.flags & flags::XATTR != 0 {
            names.push("<xattrdir>".into());
        } else {
            names.push(name_in(os, parent, at).await?);
        }
        at = parent;
    }
    names.reverse();
    Ok(format!("/{}", names.join("/")))
}

async fn name_in(os: &Arc<Objset>, directory: ObjectId, object: ObjectId) -> platter_zio::Result<String> {
    let zap = Zap::open(os, directory).await?;
    let mut cursor = 0;
    loop {
        let entries = zap.entries(cursor, ENTRIES).await?;
        let Some(last) = entries.last() else {
            return Err(ZioError::NotFound(format!("name of object {object} in directory {directory}")));
        };
        cursor = last.cursor;
        let found = entries
            .iter()
            .find(|e| e.value.integers.first().is_some_and(|&value| DirentValue::decode(value).object == object.0));
        if let Some(entry) = found {
            return Ok(String::from_utf8_lossy(&entry.name).into_owned());
        }
    }
}
