//! Listing directories.

use platter_ondisk::ObjectId;
use platter_zpl::DirEntry;

use crate::access::{Access, Rights};
use crate::error::Result;
use crate::event::Operation;
use crate::vfs::Vfs;

/// Entries asked for at once, without and with attributes.
const BATCH: usize = 128;
const BATCH_WITH_ATTRIBUTES: usize = 32;

impl Vfs {
    /// Hands the entries of `directory` after `cursor` (0 starts) to `add`, until that says that it has no room.
    /// Whoever has opened it may list it, so the right is asked for again only where nobody has looked.
    ///
    /// # Errors
    /// Those of [`platter_zpl::Zpl::readdir`]; of access.
    pub async fn list(
        &self,
        access: Access<'_>,
        directory: ObjectId,
        cursor: u64,
        with_attributes: bool,
        add: impl FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        let listed = async {
            self.admit(access, directory, Rights::READ).await?;
            self.list_all(directory, cursor, with_attributes, add).await
        };
        self.ended(Operation::ReadDir, directory, listed.await, |()| 0)
    }

    async fn list_all(
        &self,
        directory: ObjectId,
        mut cursor: u64,
        with_attributes: bool,
        mut add: impl FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        if let Some(mut entries) = self.control.entries(directory, cursor) {
            entries.any(|entry| add(&entry));
            return Ok(());
        }
        let batch = if with_attributes { BATCH_WITH_ATTRIBUTES } else { BATCH };
        loop {
            let mut entries = self.zpl.readdir(directory, cursor, batch, with_attributes).await?;
            if let Some(control) = self.control.entry(directory, cursor) {
                let place = entries.partition_point(|entry| entry.cursor < control.cursor);
                entries.insert(place, control);
            }
            let Some(last) = entries.last() else { return Ok(()) };
            cursor = last.cursor;
            if entries.iter().any(&mut add) {
                return Ok(());
            }
        }
    }
}
