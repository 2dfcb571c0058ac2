//! Who may do what with a file: permission bits, access lists (acl(5)), the sticky bit, ownership.
//!
//! These are the decisions alone, from attributes that somebody has read; nothing here waits. Linux takes the same ones
//! in `fs/namei.c` (`generic_permission`, `check_sticky`), `fs/posix_acl.c` and `fs/attr.c` (`setattr_prepare`). They
//! are taken at one moment and the operation follows, as there: who loses a right meanwhile has used it before.

use platter_ondisk::znode::flags;
use platter_zpl::{AclWho, Attr, FileKind, PosixAcl, SetAttr, SetTime};

use crate::error::{Result, VfsError};

const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;

/// Whose operation it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User.
    pub uid: u32,
    /// First group.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Whether he is in this group.
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.contains(&group)
    }
}

/// Whoever asks, as far as it matters after access was checked.
pub trait Caller: Sync {
    /// Whether it is root, for whom all privileges stand. Asked only where something depends on it, since to know it
    /// may take long.
    fn is_root(&self) -> bool;
}

impl Caller for Credentials {
    fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// Who has checked, or is to check, that the caller may do what he asks for. Each operation takes one, so that none is
/// done by somebody who has not thought of it.
#[derive(Clone, Copy)]
pub enum Access<'a> {
    /// The server, or somebody in front of it (a kernel): it is done without another look.
    Checked(&'a dyn Caller),
    /// To be checked here, for these.
    Of(&'a Credentials),
}

impl Access<'_> {
    /// See [`Caller::is_root`].
    pub fn is_root(self) -> bool {
        match self {
            Self::Checked(caller) => caller.is_root(),
            Self::Of(credentials) => credentials.is_root(),
        }
    }

    /// Whether it is to be checked here, and for somebody who is not root.
    pub(crate) fn is_ordinary(self) -> bool {
        matches!(self, Self::Of(credentials) if !credentials.is_root())
    }
}

/// What somebody wants to do with a file, as the bits of one class of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(u32);

impl Rights {
    /// Nothing that takes a right.
    pub const NONE: Self = Self(0);
    /// Read contents, list a directory.
    pub const READ: Self = Self(4);
    /// Change contents, or a directory's entries.
    pub const WRITE: Self = Self(2);
    /// Run a program, look names up in a directory.
    pub const EXECUTE: Self = Self(1);

    /// These and the `other` ones.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn are_in(self, bits: u32) -> bool {
        bits & self.0 == self.0
    }
}

/// Whether `who` has the rights to a file with these attributes and this access list, if it has one.
pub fn allows(who: &Credentials, attr: &Attr, list: Option<&PosixAcl>, wanted: Rights) -> bool {
    if who.is_root() {
        // What nobody may run is no program.
        let runs = wanted.0 & Rights::EXECUTE.0 != 0 && attr.kind != FileKind::Directory;
        return !runs || attr.mode & 0o111 != 0;
    }
    if who.uid == attr.uid {
        return wanted.are_in(attr.mode >> 6);
    }
    match list {
        Some(list) => list_allows(who, attr, list, wanted),
        None if who.is_in(attr.gid) => wanted.are_in(attr.mode >> 3),
        None => wanted.are_in(attr.mode),
    }
}

/// The access check algorithm of acl(5), for who does not own the file.
fn list_allows(who: &Credentials, attr: &Attr, list: &PosixAcl, wanted: Rights) -> bool {
    let entries = || list.entries();
    let mask = entries().find(|(whom, _)| *whom == AclWho::Mask).map_or(7, |(_, bits)| bits);
    if let Some((_, bits)) = entries().find(|(whom, _)| *whom == AclWho::User(who.uid)) {
        return wanted.are_in(bits & mask);
    }
    let is_his = |whom: AclWho| match whom {
        AclWho::OwningGroup => who.is_in(attr.gid),
        AclWho::Group(gid) => who.is_in(gid),
        _ => false,
    };
    // One entry must give all that is wanted: two of which each gives a part do not.
    let mut groups = entries().filter(|(whom, _)| is_his(*whom)).peekable();
    if groups.peek().is_some() {
        return groups.any(|(_, bits)| wanted.are_in(bits & mask));
    }
    entries().any(|(whom, bits)| whom == AclWho::Others && wanted.are_in(bits))
}

/// Whether `who`, who may write to `directory`, may take the name of the file `victim` away: not anybody's where the
/// sticky bit is set.
pub fn may_remove(who: &Credentials, directory: &Attr, victim: &Attr) -> bool {
    directory.mode & STICKY == 0 || who.is_root() || who.uid == victim.uid || who.uid == directory.uid
}

/// Fails unless `who` owns the file or is root.
pub fn check_owner(who: &Credentials, attr: &Attr) -> Result<()> {
    if who.is_root() || who.uid == attr.uid { Ok(()) } else { Err(VfsError::NotPermitted) }
}

/// The change to make when `who` asks for `change`, and the rights that he must have for it beside being who he is.
/// Whoever is not in a file's group cannot have it run with that group's rights.
///
/// # Errors
/// [`VfsError::NotPermitted`] for what only the owner, or only root, may change.
pub fn check_change(who: &Credentials, attr: &Attr, change: &SetAttr) -> Result<(SetAttr, Rights)> {
    let mut change = *change;
    let mut needed = if change.size.is_some() { Rights::WRITE } else { Rights::NONE };
    if who.is_root() {
        return Ok((change, Rights::NONE));
    }
    let owns = who.uid == attr.uid;
    let stays = change.uid.is_none_or(|uid| owns && uid == attr.uid)
        && change.gid.is_none_or(|gid| owns && (gid == attr.gid || who.is_in(gid)));
    if !stays {
        return Err(VfsError::NotPermitted);
    }
    let times = [change.atime, change.mtime, change.ctime];
    let sets_a_time = times.iter().flatten().any(|time| matches!(time, SetTime::At(_)));
    if change.mode.is_some() || sets_a_time {
        check_owner(who, attr)?;
    }
    // Whoever may write a file may say that he has done so now.
    if !owns && times.iter().any(Option::is_some) {
        needed = Rights::WRITE;
    }
    if !who.is_in(change.gid.unwrap_or(attr.gid)) {
        change.mode = change.mode.map(|mode| mode & !SET_GID);
    }
    if change.flags.is_some() || change.project.is_some() {
        check_flags(who, attr, change.flags.unwrap_or(attr.flags))?;
    }
    Ok((change, needed))
}

/// Fails when `who` may not change the flags of a file to `new` (`ZFS_*`). Its project and whether that is inherited
/// are the owner's to change; what guards a file is root's.
fn check_flags(who: &Credentials, attr: &Attr, new: u64) -> Result<()> {
    let guarded = flags::IMMUTABLE | flags::APPENDONLY;
    check_owner(who, attr)?;
    if who.is_root() || (attr.flags ^ new) & guarded == 0 { Ok(()) } else { Err(VfsError::NotPermitted) }
}

#[cfg(test)]
mod tests;
