//! Moving names: from one directory to another, over something that is there, in exchange for it, or leaving a whiteout
//! (`zfs_rename`).
//!
//! Invariant: no directory comes to lie below itself; whoever moves something to another directory holds the rename
//! lock, so that no directory changes its parent while ancestors are looked at.

use std::sync::Arc;

use platter_dmu::Tx;
use platter_ondisk::ObjectId;
use platter_ondisk::zil::record::NewObject;
use platter_ondisk::znode::flags;
use platter_zio::ZioError;

use crate::attr::{FileKind, RenameFlags, Timestamp};
use crate::dir::missing_object;
use crate::error::{Result, ZplError};
use crate::fs::Zpl;
use crate::log;
use crate::namespace::{CREATE_COST, check_alive, dirent, lock_all, sorted};
use crate::projects::check_same_project;
use crate::znode::Znode;

/// What somebody wants to be moved.
struct Wish<'a> {
    from: Arc<Znode>,
    name: &'a [u8],
    to: Arc<Znode>,
    new_name: &'a [u8],
    flags: RenameFlags,
    /// Whether the name found is the one to be changed.
    is_case_change: bool,
    /// The whiteout as it was made before a crash.
    replayed: Option<&'a NewObject>,
}

/// What a wish comes to, all of it locked.
struct Move<'a> {
    wish: &'a Wish<'a>,
    /// As the name is stored.
    name: Vec<u8>,
    /// As the name that is there already is stored.
    to_stored: Option<Vec<u8>>,
    moved: &'a Arc<Znode>,
    replaced: Option<&'a Arc<Znode>>,
}

/// How many names and directories a directory gains.
#[derive(Clone, Copy, Default)]
struct Gain {
    size: i64,
    links: i64,
}

impl Wish<'_> {
    fn is_within_one(&self) -> bool {
        self.from.object == self.to.object
    }
}

/// One when it is a directory.
fn link_of(znode: &Znode) -> i64 {
    i64::from(znode.kind() == FileKind::Directory)
}

fn entry_of(znode: &Znode) -> u64 {
    dirent(znode.object, znode.kind())
}

impl Zpl {
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
        let wish = Wish { from, name, to, new_name, flags, is_case_change, replayed };
        while !self.try_move(&wish).await? {}
        Ok(())
    }

    /// Whether it came to an end: names that mean something else once everything is locked have to be looked up anew.
    async fn try_move(&self, wish: &Wish<'_>) -> Result<bool> {
        let &Wish { ref from, name, ref to, new_name, flags, is_case_change, .. } = wish;
        let source = self.find(from, name).await?.ok_or(ZplError::NotFound)?;
        // The name found is the one to be changed when only its case is.
        let target = self.find(to, new_name).await?.filter(|_| !is_case_change);
        let Some(moved) = self.entry_znode(from, name, source).await? else { return Ok(false) };
        let replaced = match target {
            Some(object) => match self.entry_znode(to, new_name, object).await? {
                Some(znode) => Some(znode),
                None => return Ok(false),
            },
            None => None,
        };
        let all = sorted([from, to, &moved].into_iter().chain(&replaced));
        let _guards = lock_all(&all).await;
        check_alive(from)?;
        check_alive(to)?;
        let (from_entry, to_entry) = (self.find_entry(from, name).await?, self.find_entry(to, new_name).await?);
        let Some(from_entry) = from_entry.filter(|entry| entry.object == source) else { return Ok(false) };
        if is_case_change && self.names.differ_in_case_only(name, &from_entry.name) {
            // Only who says the name as it is stored changes its case.
            return Err(ZplError::NotFound);
        }
        let to_entry = to_entry.filter(|_| !is_case_change);
        if to_entry.as_ref().map(|entry| entry.object) != target {
            return Ok(false);
        }
        if flags.no_replace && replaced.is_some() {
            return Err(ZplError::Exists);
        }
        if flags.exchange && replaced.is_none() {
            return Err(ZplError::NotFound);
        }
        if target == Some(source) {
            return Ok(true);
        }
        let to_stored = to_entry.map(|entry| entry.name);
        let change = Move { wish, name: from_entry.name, to_stored, moved: &moved, replaced: replaced.as_ref() };
        self.check_move(&change).await?;
        self.reserve(CREATE_COST).await?;
        self.carry_out(&change).await?;
        Ok(true)
    }

    /// Everything that can be refused.
    async fn check_move(&self, change: &Move<'_>) -> Result<()> {
        let Move { wish: Wish { from, to, flags, .. }, moved, replaced, .. } = change;
        if !change.wish.is_within_one() {
            self.check_ancestry(moved, to).await?;
            let returned = replaced.filter(|_| flags.exchange);
            if let Some(returned) = returned {
                self.check_ancestry(returned, from).await?;
            }
            // The flags of directories may be younger than what is replayed.
            if !self.is_replaying() {
                check_same_project(to, moved)?;
                returned.map_or(Ok(()), |returned| check_same_project(from, returned))?;
            }
        }
        self.check_movable(moved)?;
        self.check_entries_removable(from)?;
        self.check_entries_addable(to)?;
        let Some(replaced) = replaced else { return Ok(()) };
        self.check_entries_removable(to)?;
        if flags.exchange {
            return self.check_movable(replaced);
        }
        match (moved.kind() == FileKind::Directory, replaced.kind() == FileKind::Directory) {
            (true, false) => Err(ZplError::NotDirectory),
            (false, true) => Err(ZplError::IsDirectory),
            _ => self.check_removable(replaced).await,
        }
    }

    async fn carry_out(&self, change: &Move<'_>) -> Result<()> {
        let Move { wish, name, moved, replaced, .. } = change;
        let &Wish { ref from, ref to, new_name, flags, replayed, .. } = *wish;
        let tx = self.begin().await?;
        let now = self.now();
        let whiteout = match flags.whiteout {
            true => Some(self.make_whiteout(from, &tx, replayed).await?),
            false => None,
        };
        enter_new_name(change, &tx).await?;
        let (from_gain, to_gain) = self.leave_old_name(change, &tx, whiteout.as_deref(), now).await?;
        self.moved(moved, &tx, to, now).await?;
        if wish.is_within_one() {
            let (size, links) = (from_gain.size + to_gain.size, from_gain.links + to_gain.links);
            self.entries_changed(to, &tx, size, links, now).await?;
        } else {
            self.entries_changed(from, &tx, from_gain.size, from_gain.links, now).await?;
            self.entries_changed(to, &tx, to_gain.size, to_gain.links, now).await?;
        }
        if let Some(other) = replaced.filter(|_| !flags.exchange) {
            self.drop_link(other, &tx, now).await?;
        }
        if self.table.is_legacy() && (flags.exchange || flags.whiteout) {
            // Whoever else reads such old file systems does not know these records.
            tx.has_no_record();
        }
        let (from, to) = ((from.object, name.as_slice()), (to.object, new_name));
        log::renamed(&tx, moved.object, from, to, flags, whiteout.as_deref());
        Ok(())
    }

    /// What becomes of the name that it had. Returns what both directories gain.
    async fn leave_old_name(
        &self,
        change: &Move<'_>,
        tx: &Tx,
        whiteout: Option<&Znode>,
        now: Timestamp,
    ) -> Result<(Gain, Gain)> {
        let Move { wish: Wish { from, flags, .. }, name, moved, replaced, .. } = change;
        let mut from_gain = Gain { size: -1, links: -link_of(moved) };
        let mut to_gain = Gain { size: 1, links: link_of(moved) };
        if let Some(other) = replaced {
            to_gain.links -= link_of(other);
            to_gain.size = 0;
        }
        let successor = whiteout.or(replaced.map(|other| &**other).filter(|_| flags.exchange));
        match successor {
            Some(successor) => {
                from.zap().put_u64(tx, name, entry_of(successor)).await?;
                from_gain.size = 0;
            }
            None => {
                from.zap().remove(tx, name).await?;
            }
        }
        if let Some(other) = replaced.filter(|_| flags.exchange) {
            from_gain.links += link_of(other);
            self.moved(other, tx, from, now).await?;
        }
        Ok((from_gain, to_gain))
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
}

async fn enter_new_name(change: &Move<'_>, tx: &Tx) -> Result<()> {
    let &Wish { ref to, new_name, flags, .. } = change.wish;
    let stored = change.to_stored.as_deref().filter(|stored| *stored != new_name);
    let name = match stored {
        // An exchange changes no names.
        Some(stored) if flags.exchange => stored,
        Some(stored) => {
            to.zap().remove(tx, stored).await?;
            new_name
        }
        None => new_name,
    };
    to.zap().put_u64(tx, name, entry_of(change.moved)).await?;
    Ok(())
}
