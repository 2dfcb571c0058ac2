//! The directory `.zfs/snapshot` of a mount (`zfsctl_snapdir_lookup`, `module/os/linux/zfs/zfs_ctldir.c`): a name leads
//! into the snapshot at once, and what is gone or has another name is not found by the old one, since the kernel keeps
//! nothing of this directory.

use std::time::Duration;

use platter_ondisk::ObjectId;
use platter_transport::{Directory, Entry, Errno, FileAttr, NodeId, Operation, Reply};
use platter_vfs::{Access, Attr, FileKind, SNAPSHOT_FOLDER, Timestamp, is_snapshot_folder};

use crate::attr::{blank_attr, errno, file_attr, type_bits};
use crate::names::RENAME_NOREPLACE;
use crate::server::{Caller, PlatterFs};
use crate::snapshots::{ChangeRefused, SnapshotChange};

/// Numbers that the entries are listed with count down from here (`ZFSCTL_INO_SNAPDIRS`).
const FIRST: u64 = 0x0000_FFFF_FFFF_FFFC;

impl PlatterFs {
    /// Whether `node` is the directory of snapshots, and there is somebody to ask for them.
    pub(crate) fn shows_snapshots(&self, node: NodeId) -> bool {
        is_snapshot_folder(self.object(node)) && self.source.is_some()
    }

    /// Attributes of the directory: it changes with the snapshots (`zfsctl_snapdir_getattr`).
    pub(crate) async fn snapshot_folder(&self, access: Access<'_>) -> Result<FileAttr, Errno> {
        let attr = self.vfs.getattr(access, SNAPSHOT_FOLDER).await.map_err(|error| errno(&error))?;
        let changed = match &self.source {
            Some(source) => source.changed().await,
            None => None,
        };
        let since = changed.unwrap_or(Timestamp { seconds: 0, nanoseconds: 0 });
        Ok(file_attr(&Attr { mtime: since, ctime: since, ..attr }))
    }

    /// Looks a snapshot up, and opens it.
    pub(crate) async fn lookup_snapshot(&self, access: Access<'_>, name: &[u8], reply: Reply) {
        match self.open_snapshot(access, name).await {
            Ok(entry) => reply.entry(&entry),
            Err(error) => reply.error(error),
        }
    }

    async fn open_snapshot(&self, access: Access<'_>, name: &[u8]) -> Result<Entry, Errno> {
        let name = std::str::from_utf8(name).map_err(|_| Errno::NOENT)?;
        let source = self.source.as_ref().ok_or(Errno::NOENT)?;
        let number = source.find(name).await.ok_or(Errno::NOENT)?;
        // Before it can be forgotten by others.
        let told = |snapshot: &Self| snapshot.remember(snapshot.vfs.root());
        let snapshot = match self.shelf.find(number, told) {
            Some(snapshot) => snapshot,
            None => {
                let vfs = source.open(name).await.ok_or(Errno::IO)?;
                self.shelf.add(number, |place| self.snapshot(vfs, place), told).ok_or(Errno::NFILE)?
            }
        };
        let attr = snapshot.vfs.getattr(access, snapshot.vfs.root()).await.map_err(|error| errno(&error))?;
        Ok(snapshot.told_entry(&attr, Duration::ZERO))
    }

    /// `mkdir`, `rmdir` and `mv` in the directory (`zfsctl_snapdir_mkdir`, `_remove` and `_rename`).
    pub(crate) async fn change_snapshots(&self, caller: Caller, node: NodeId, operation: Operation<'_>, reply: Reply) {
        let text = |name: &[u8]| String::from_utf8(name.to_vec()).map_err(|_| Errno::ILSEQ);
        let change = match operation {
            Operation::Mkdir { name, .. } => text(name).map(SnapshotChange::Take),
            Operation::Rmdir { name } => text(name).map(SnapshotChange::Destroy),
            Operation::Rename { new_parent, .. } if new_parent != node => Err(Errno::XDEV),
            Operation::Rename { flags, .. } if flags & !RENAME_NOREPLACE != 0 => Err(Errno::INVAL),
            Operation::Rename { name, new_name, .. } => {
                text(name).and_then(|from| Ok(SnapshotChange::Rename(from, text(new_name)?)))
            }
            // Nothing else can be there.
            _ => Err(Errno::ROFS),
        };
        let made = match &change {
            Ok(SnapshotChange::Take(name)) => Some(name.clone()),
            _ => None,
        };
        if let Err(error) = self.carry_out(caller, change).await {
            return reply.error(error);
        }
        match made {
            Some(name) => self.lookup_snapshot(Access::Checked(&caller), name.as_bytes(), reply).await,
            None => reply.ok(),
        }
    }

    async fn carry_out(&self, caller: Caller, change: Result<SnapshotChange, Errno>) -> Result<(), Errno> {
        let change = change?;
        let source = self.source.as_ref().filter(|_| platter_vfs::Caller::is_root(&caller)).ok_or(Errno::PERM)?;
        source.change(change).await.map_err(|refused| match refused {
            ChangeRefused::Forbidden => Errno::ACCESS,
            ChangeRefused::Exists => Errno::EXIST,
            ChangeRefused::Missing => Errno::NOENT,
            ChangeRefused::Busy => Errno::BUSY,
            ChangeRefused::Invalid => Errno::INVAL,
            ChangeRefused::Failed => Errno::IO,
        })
    }

    /// Lists the snapshots after the entry `offset`.
    pub(crate) async fn list_snapshots(&self, offset: u64, size: u32, with_attributes: bool, reply: Reply) {
        let snapshots = match &self.source {
            Some(source) => source.list().await,
            None => Vec::new(),
        };
        let here = [(".".to_owned(), 0), ("..".to_owned(), 0)];
        let mode = type_bits(Some(FileKind::Directory));
        let mut entries = Directory::new(size);
        for ((name, number), cursor) in here.into_iter().chain(snapshots).zip(1u64..) {
            if cursor <= offset {
                continue;
            }
            let shown = self.node(ObjectId(FIRST.saturating_sub(number)));
            let full = match with_attributes {
                // Node 0: the kernel does not know it by that.
                true => {
                    let attr = blank_attr(shown, mode);
                    let (entry_ttl, attr_ttl) = (Duration::ZERO, Duration::ZERO);
                    let entry = Entry { node: NodeId(0), generation: 0, attr, entry_ttl, attr_ttl };
                    entries.add_entry(&entry, cursor, name.as_bytes())
                }
                false => entries.add(shown, cursor, mode, name.as_bytes()),
            };
            if full {
                break;
            }
        }
        reply.directory(&entries);
    }
}
