//! What happens to an object without a name: it is freed at once, or, while somebody has it open or knows it by number
//! (see [`crate::known`]), kept in the unlinked set until then, or until the next mount (`zfs_unlinked_add`,
//! `zfs_unlinked_drain`, `zfs_rmnode`).

use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::znode::{DirentValue, flags};

use crate::attr::Timestamp;
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log::LoggedTx;
use crate::znode::Znode;

impl Zpl {
    /// Takes one link (a directory's last two) from `znode`, whose lock the caller holds, and frees it when that was
    /// the last.
    pub(crate) async fn drop_link(&self, znode: &Arc<Znode>, tx: &LoggedTx, now: Timestamp) -> Result<()> {
        let (gone, open) = {
            let state = znode.state.lock();
            (state.phys.is_directory() || state.phys.links <= 1, state.opens > 0)
        };
        if !gone {
            return self
                .touch(znode, tx, |phys| {
                    phys.links -= 1;
                    phys.ctime = now.to_words();
                })
                .await;
        }
        tx.is_gone(znode.object);
        if !open && self.free(znode, tx).await? {
            return Ok(());
        }
        self.touch(znode, tx, |phys| {
            phys.links = 0;
            phys.ctime = now.to_words();
        })
        .await?;
        self.join_set(tx, znode.object);
        // Whoever let go of it a moment ago could not know that it was the last.
        if self.free(znode, tx).await? {
            self.leave_set(tx, znode.object);
        }
        Ok(())
    }

    /// Somebody outside knows `object` by its number from now on: until he has [forgotten](Self::forget) it as often,
    /// the object stays, with or without a name.
    pub fn remember(&self, object: ObjectId) {
        self.known.remember(object);
    }

    /// Takes back `times` calls of [`remember`](Self::remember). Whether that leaves an object without a name that
    /// nobody knows: [`reap`](Self::reap) frees it.
    #[must_use]
    pub fn forget(&self, object: ObjectId, times: u64) -> bool {
        self.known.forget(object, times) && self.known.is_orphan(object)
    }

    /// Nobody outside knows any object any more.
    ///
    /// # Errors
    /// Those of freeing unlinked ones.
    pub async fn forget_all(&self) -> Result<()> {
        self.known.forget_all();
        self.reap_unopened().await.map(drop)
    }

    /// Frees an object without a name, unless somebody still has it.
    ///
    /// # Errors
    /// Those of freeing; what cannot be freed now stays in the unlinked set.
    pub async fn reap(&self, object: ObjectId) -> Result<()> {
        let znode = match self.znode(object).await {
            Err(ZplError::Stale) => return Ok(()),
            other => other?,
        };
        let _guard = znode.lock.write().await;
        let held = |state: &crate::znode::State| state.freed || state.opens > 0 || state.phys.links > 0;
        if held(&znode.state.lock()) || self.known.is_known(object) {
            return Ok(());
        }
        let tx = self.begin_net_free().await?;
        // It had no name already, so no crash brings it back.
        tx.needs_no_record();
        if self.free(&znode, &tx).await? {
            self.leave_set(&tx, object);
        }
        Ok(())
    }

    /// Frees what has no name and is not open. Returns how many such are left because somebody knows them, who is about
    /// to forget most of them: the kernel tells some time after their last name went.
    ///
    /// # Errors
    /// Those of freeing.
    pub async fn reap_unopened(&self) -> Result<usize> {
        let is_open = |object| self.cache.peek(object).is_some_and(|znode| znode.state.lock().opens > 0);
        let mut known = 0;
        for object in self.known.orphans() {
            if !self.known.is_known(object) {
                self.reap(object).await?;
            } else if !is_open(object) {
                known += 1;
            }
        }
        Ok(known)
    }

    /// Takes back one [`open`](Self::open); the last one frees an unlinked object.
    ///
    /// # Errors
    /// Those of freeing; the count is taken back in any case.
    pub async fn release(&self, object: ObjectId) -> Result<()> {
        let Some(znode) = self.cache.peek(object) else {
            return Err(ZplError::Stale);
        };
        let last = {
            let mut state = znode.state.lock();
            state.opens = state.opens.saturating_sub(1);
            state.opens == 0 && state.phys.links == 0 && !state.freed
        };
        if !last || self.read_only_reason().is_some() {
            return Ok(());
        }
        self.reap(object).await
    }

    /// How many objects have no name any more and wait for whoever has them open (`zfs wait -t deleteq`).
    pub fn waiting_to_be_freed(&self) -> usize {
        self.known.orphans().len()
    }

    pub(crate) fn join_set(&self, tx: &Tx, object: ObjectId) {
        if let Some(set) = self.unlinked {
            self.os.join_set(tx, set, object.0);
        }
        self.known.add_orphan(object);
    }

    pub(crate) fn leave_set(&self, tx: &Tx, object: ObjectId) {
        if let Some(set) = self.unlinked {
            self.os.leave_set(tx, set, object.0);
        }
    }

    /// Frees the object with all it owns; `false` when somebody has it open, knows it or freed it meanwhile.
    async fn free(&self, znode: &Arc<Znode>, tx: &Tx) -> Result<bool> {
        let (xattr, external_acl, holds_xattrs) = {
            let mut state = znode.state.lock();
            if state.opens > 0 || state.freed || self.known.is_known(znode.object) {
                return Ok(false);
            }
            state.freed = true;
            state.phys.change_fixed().links = 0;
            state.changed = state.changed.max(tx.txg());
            let holds_xattrs = state.phys.is_directory() && state.phys.flags & flags::XATTR != 0;
            let phys = state.phys.change();
            (phys.xattr.take(), phys.external_acl.take(), holds_xattrs)
        };
        self.forget_atime(znode);
        self.known.remove_orphan(znode.object);
        if holds_xattrs {
            Box::pin(self.free_entries(tx, znode)).await?;
        }
        // It leaves memory last: until then whoever has its number finds that it is freed.
        self.os.free_object(tx, znode.object).await?;
        self.cache.remove(znode);
        if let Some(object) = external_acl {
            self.os.free_object(tx, object).await?;
        }
        if let Some(directory) = xattr.filter(|&object| object != 0) {
            Box::pin(self.free_xattrs(tx, ObjectId(directory))).await?;
        }
        Ok(true)
    }

    /// Frees a hidden directory of extended attributes, each of which is a file.
    pub(crate) async fn free_xattrs(&self, tx: &Tx, directory: ObjectId) -> Result<()> {
        let Some(znode) = self.hidden(directory).await? else { return Ok(()) };
        if znode.state.lock().phys.is_directory() {
            self.free_entries(tx, &znode).await?;
        }
        self.free_hidden(tx, &znode).await
    }

    /// The znode of an object that belongs to extended attributes. `None` when it is gone, or something else: a damaged
    /// pointer must not take a user's file along.
    pub(crate) async fn hidden(&self, object: ObjectId) -> Result<Option<Arc<Znode>>> {
        match self.znode(object).await {
            Ok(znode) if znode.state.lock().phys.flags & flags::XATTR != 0 => Ok(Some(znode)),
            Ok(_) => {
                tracing::warn!(%object, "is named by an extended attribute but belongs to none: left alone");
                Ok(None)
            }
            Err(ZplError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn free_hidden(&self, tx: &Tx, znode: &Arc<Znode>) -> Result<()> {
        if std::mem::replace(&mut znode.state.lock().freed, true) {
            return Ok(());
        }
        self.forget_atime(znode);
        self.os.free_object(tx, znode.object).await?;
        self.cache.remove(znode);
        Ok(())
    }

    async fn free_entries(&self, tx: &Tx, directory: &Znode) -> Result<()> {
        for entry in directory.zap().all().await? {
            let Some(&value) = entry.value.integers.first() else { continue };
            let object = ObjectId(DirentValue::decode(value).object);
            if let Some(znode) = self.hidden(object).await?
                && !znode.state.lock().phys.is_directory()
            {
                self.free_hidden(tx, &znode).await?;
            }
        }
        Ok(())
    }

    /// Frees what was unlinked but still open when the file system was last used.
    pub(crate) async fn drain_unlinked(&self) -> Result<()> {
        let Some(set) = self.unlinked else { return Ok(()) };
        for object in self.os.set_members(set).await?.into_iter().map(ObjectId) {
            let znode = match self.znode(object).await {
                Ok(znode) => Some(znode),
                Err(ZplError::Stale) => None,
                Err(error) => {
                    // It stays in the set; its damage must not keep the other files away.
                    tracing::warn!(%object, %error, "an unlinked file cannot be freed");
                    continue;
                }
            };
            let tx = self.begin_net_free().await?;
            tx.needs_no_record();
            if let Some(znode) = znode {
                // A link count above zero means the set is wrong: the name counts.
                if znode.state.lock().phys.links > 0 {
                    tracing::warn!(%object, "a file with names was in the unlinked set");
                } else {
                    self.free(&znode, &tx).await?;
                }
            }
            self.leave_set(&tx, object);
        }
        Ok(())
    }
}
