//! Files that are made without a name (`O_TMPFILE`; `zfs_tmpfile` in `module/os/linux/zfs/zfs_vnops_os.c`).
//!
//! Invariants:
//! - such a file is in the unlinked set from the beginning, so that a crash leaves nothing of it;
//! - what happens to it without a name needs no record in the intent log; the change that gives it the first one has
//!   none either, so that whoever makes it stable waits for the whole group, with all the data.

use std::sync::Arc;

use platter_ondisk::ObjectId;

use crate::attr::{Attr, FileKind, NewFile};
use crate::error::Result;
use crate::fs::Zpl;
use crate::log::LoggedTx;
use crate::namespace::{CREATE_COST, check_alive};
use crate::new_object::New;
use crate::znode::Znode;

impl Zpl {
    /// Makes a regular file without a name, which owner, group and access list come from as if it were in `parent`.
    /// Unless it is `linkable`, it never gets one.
    ///
    /// # Errors
    /// The usual ones.
    pub async fn tmpfile(&self, parent: ObjectId, new: NewFile, linkable: bool) -> Result<Attr> {
        self.check_writable()?;
        let directory = self.directory(parent).await?;
        let _guard = directory.lock.read().await;
        check_alive(&directory)?;
        let lists = self.inherited_acl(&directory, &new, FileKind::Regular).await?;
        self.reserve(CREATE_COST).await?;
        self.check_quotas_of_new(&directory, &new).await?;

        let tx = self.begin().await?;
        let what = New { kind: FileKind::Regular, rdev: 0, target: None, replayed: None };
        let znode = self.make_filled(&directory, &tx, None, new, &what, &lists).await?;
        tx.needs_no_record();
        {
            let mut state = znode.state.lock();
            state.opens = u64::from(new.open);
            state.linkable = linkable;
        }
        let attr = self.shown(znode.attr());
        self.cache.insert(znode, self.os.params().gate.synced_txg());
        Ok(attr)
    }

    /// Puts a new object into the unlinked set instead of a directory.
    pub(crate) async fn enter_unlinked(&self, znode: &Arc<Znode>, tx: &LoggedTx) -> Result<()> {
        self.touch(znode, tx, |phys| phys.links = 0).await?;
        self.join_set(tx, znode.object);
        Ok(())
    }

    /// Takes an object out of the unlinked set that got its first name in `tx`.
    pub(crate) fn leave_unlinked(&self, znode: &Znode, tx: &LoggedTx) {
        tx.has_no_record();
        znode.state.lock().linkable = false;
        self.known.remove_orphan(znode.object);
        self.leave_set(tx, znode.object);
    }
}
