//! Which fields of a record of set attributes count (`lr_mask`; `zfs_log_setattr` in `module/zfs/zfs_log.c`).
//!
//! The record holds the mask of the system it was made on, and there are two: Linux's `ATTR_*`
//! (`include/os/linux/spl/sys/vnode.h`), and Solaris's `AT_*`, which illumos, FreeBSD
//! (`include/os/freebsd/spl/sys/vnode.h`), macOS and zfs-fuse have. Nothing in the log says which; ZFS for Linux made
//! its first log in a pool of version 28.

#![allow(missing_docs, reason = "the names are the systems' own")]

pub const MODE: u64 = 1 << 0;
pub const UID: u64 = 1 << 1;
pub const GID: u64 = 1 << 2;
pub const SIZE: u64 = 1 << 3;
pub const ATIME: u64 = 1 << 4;
pub const MTIME: u64 = 1 << 5;
pub const CTIME: u64 = 1 << 6;

/// Linux's bit, and Solaris's.
const PAIRS: [(u64, u64); 7] =
    [(MODE, 0x2), (UID, 0x4), (GID, 0x8), (SIZE, 0x80), (ATIME, 0x100), (MTIME, 0x200), (CTIME, 0x400)];

/// Linux's mask from Solaris's.
pub fn from_solaris(mask: u64) -> u64 {
    PAIRS.iter().filter(|(_, theirs)| mask & theirs != 0).fold(0, |all, (ours, _)| all | ours)
}

/// Solaris's mask from Linux's.
pub fn to_solaris(mask: u64) -> u64 {
    PAIRS.iter().filter(|(ours, _)| mask & ours != 0).fold(0, |all, (_, theirs)| all | theirs)
}

/// Linux's mask from a record in a pool that any system may have written; `size` is the record's.
///
/// Linux sets the time of change along, except when a file is cut by its path; Solaris has nothing to set at that bit.
/// What is left is Linux cutting a file or Solaris giving it to a group: then there is no size.
pub fn guess(mask: u64, size: u64) -> u64 {
    let cut_by_path = mask & !(MODE | SIZE) == 0 && mask & SIZE != 0 && size <= i64::MAX as u64;
    if mask & CTIME != 0 || cut_by_path { mask } else { from_solaris(mask) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_systems_masks_are_told_apart() {
        for mask in [MODE, UID | GID, ATIME | MTIME, MODE | UID | GID | SIZE | ATIME | MTIME] {
            let mask = mask | CTIME;
            assert_eq!(from_solaris(to_solaris(mask)), mask);
            assert_eq!(guess(mask, 0), mask, "Linux's own");
            assert_eq!(guess(to_solaris(mask), u64::MAX), mask, "Solaris's");
        }
        // truncate(2) on Linux, chgrp on FreeBSD, chmod and utimes on Solaris.
        assert_eq!(guess(SIZE, 100), SIZE);
        assert_eq!(guess(0x8, u64::MAX), GID);
        assert_eq!(guess(0x2, u64::MAX), MODE);
        assert_eq!(guess(0x300, 0), ATIME | MTIME);
    }
}
