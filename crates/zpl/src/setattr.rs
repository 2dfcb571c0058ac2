//! Changing attributes (`zfs_setattr`).

use platter_ondisk::ObjectId;
use platter_ondisk::znode::flags;

use crate::attr::{Attr, FileKind, SetAttr, SetTime, Timestamp};
use crate::error::{Result, ZplError};
use crate::file::SIZE_MAX;
use crate::fs::Zpl;
use crate::log;
use crate::phys::Phys;
use crate::posix_acl::{self, PosixAcl};
use crate::znode::Znode;

impl Zpl {
    /// Changes attributes and returns the new ones.
    ///
    /// # Errors
    /// [`ZplError::NotPermitted`] for an immutable file, [`ZplError::IsDirectory`] and [`ZplError::Invalid`] when the
    /// size of something else than a regular file is set, no space, damage.
    pub async fn setattr(&self, object: ObjectId, change: SetAttr) -> Result<Attr> {
        let attr = self.set_attributes(object, change).await?;
        self.settle(object).await?;
        Ok(attr)
    }

    async fn set_attributes(&self, object: ObjectId, change: SetAttr) -> Result<Attr> {
        self.check_writable()?;
        let znode = self.znode(object).await?;
        let _alone = znode.lock.write().await;
        let kind = self.check_change(&znode, &change)?;
        let new_takers = new_takers(&znode, &change);
        let owners_change = new_takers != [None; 3];
        if owners_change {
            // Whoever is given a file must have room for it (`zfs_setattr`).
            self.check_quotas(new_takers, true).await?;
        }
        let access = match change.mode {
            Some(mode) if self.posix_acl && kind != FileKind::Symlink => self
                .xattr_read(&znode, posix_acl::ACCESS)
                .await?
                .and_then(|list| PosixAcl::decode(&list))
                .map(|list| list.with_mode(mode)),
            _ => None,
        };
        // Giving a file away ends what running it would allow; so do new contents.
        let given = kind == FileKind::Regular && (change.uid.is_some() || change.gid.is_some());
        let capable = (given || change.size.is_some()) && self.has_capability(&znode).await?;
        let tx = self.begin_net_free().await?;
        if capable {
            self.drop_capability(&znode, &tx).await?;
        }
        if let Some(list) = access {
            self.xattr_put(&znode, &tx, posix_acl::ACCESS, Some(&list.encode())).await?;
        }
        if let Some(size) = change.size {
            znode.touched(tx.txg());
            self.resize(&znode, &tx, size).await?;
        }
        let now = self.now();
        self.update(&znode, &tx, |phys| {
            if given {
                phys.drop_set_id();
            }
            if let Some(project) = new_takers[2] {
                phys.set_project(project, &self.table);
            }
            apply(&change, now, phys);
        })
        .await?;
        if owners_change {
            self.hand_on_owners(&znode, &tx).await?;
        }
        log::attributes_set(&tx, &znode, &change);
        Ok(self.shown(znode.attr()))
    }

    /// What the file's flags and kind forbid. Returns the kind.
    fn check_change(&self, znode: &Znode, change: &SetAttr) -> Result<FileKind> {
        let kind = {
            let state = znode.state.lock();
            if state.freed {
                return Err(ZplError::Stale);
            }
            let own = state.phys.flags;
            let flags_only = SetAttr { flags: change.flags, project: change.project, ..SetAttr::default() };
            let only_flags = *change == SetAttr { ctime: change.ctime, ..flags_only };
            // What is only appended to keeps its owner and mode, and times other than the clock's.
            let set = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
            let keeps = change.size.is_some() || change.mode.is_some() || change.uid.is_some() || change.gid.is_some();
            let against = keeps || set(change.atime) || set(change.mtime);
            self.check_flags(own, if only_flags { 0 } else { flags::IMMUTABLE })?;
            self.check_flags(own, if against { flags::IMMUTABLE | flags::APPENDONLY } else { 0 })?;
            self.check_project_change(&state.phys, change)?;
            state.phys.kind()
        };
        match (change.size, kind) {
            (None, _) => {}
            (Some(size), FileKind::Regular) if size <= SIZE_MAX => {}
            (Some(_), FileKind::Regular) => return Err(ZplError::FileTooLarge),
            (Some(_), FileKind::Directory) => return Err(ZplError::IsDirectory),
            (Some(_), _) => return Err(ZplError::Invalid("only a regular file's size can be set")),
        }
        Ok(kind)
    }
}

/// User, group and project that are to have the file from now on, as far as they did not have it before.
fn new_takers(znode: &Znode, change: &SetAttr) -> [Option<u64>; 3] {
    let phys = &znode.state.lock().phys;
    let new = [change.uid.map(u64::from), change.gid.map(u64::from), change.project];
    let old = [phys.uid, phys.gid, phys.project()];
    std::array::from_fn(|i| new[i].filter(|&id| id != old[i]))
}

/// Notes what was asked for, except the project, whose place may have to be made.
fn apply(change: &SetAttr, now: Timestamp, phys: &mut Phys) {
    let time = |set: SetTime| match set {
        SetTime::Now => now.to_words(),
        SetTime::At(time) => time.to_words(),
    };
    if let Some(size) = change.size {
        phys.size = size;
        phys.mtime = now.to_words();
        phys.flags |= flags::ARCHIVE | flags::AV_MODIFIED;
    }
    if let Some(mode) = change.mode {
        phys.set_mode(u64::from(mode));
    }
    if let Some(uid) = change.uid {
        phys.uid = u64::from(uid);
    }
    if let Some(gid) = change.gid {
        phys.gid = u64::from(gid);
    }
    if let Some(new) = change.flags {
        // Which attributes the file has is not the user's to say.
        let users = flags::USER & !flags::PROJID;
        phys.flags = phys.flags & !users | new & users;
    }
    if let Some(set) = change.atime {
        phys.atime = time(set);
    }
    if let Some(set) = change.mtime {
        phys.mtime = time(set);
    }
    phys.ctime = change.ctime.map_or(now.to_words(), time);
}
