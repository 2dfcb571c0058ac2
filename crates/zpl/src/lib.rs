//! POSIX files and directories on a DMU object set (`module/os/linux/zfs/zfs_vnops_os.c`, `zfs_znode_os.c`,
//! `zfs_dir.c`, `module/zfs/sa.c`).
//!
//! # The problem
//! What a program knows as a file is several things on disk: an object with its bytes, attributes in its bonus, an
//! entry in some directory's ZAP, a line in the list of files without a name, records in the intent log. One call must
//! change all of them or none, many calls come at once, and a crash must leave what one of them at a time would have
//! left.
//!
//! # The idea
//! ```text
//! call ─► locks (names, files, ranges) ─► transaction ─► znode, directory, log record ─► locks released
//!                                           └ its group makes it durable; fsync asks the log
//! ```
//! Every operation locks what it names, joins one transaction, makes all its changes in it and notes them for the log.
//! The group it joined carries them to disk together, so that nothing has to be mended after a crash; the log is only
//! for those who want to be sure earlier.
//!
//! Files are named by object number; names are bytes. Permission checks are the caller's (FUSE mounts with
//! `default_permissions`).
//!
//! # Locks, in the order they are taken
//! 1. the rename lock (only a directory that changes its parent needs it: it keeps the ancestry still);
//! 2. znode locks, by ascending object number;
//! 3. byte-range locks of one file;
//! 4. a transaction (`begin`), which may wait for a sync: nothing of 1 to 3 is ever waited for while one is held;
//! 5. the lock of the attribute layouts (its holders hold a transaction already);
//! 6. a znode's attribute mutex: never held across an await.
//!
//! # Where to start
//! `fs` is a mounted file system and `znode` an open file; `file` reads and writes, `namespace` and `rename` change
//! directories, `setattr` attributes; `log` and `replay` are the two ends of the intent log.
#![forbid(unsafe_code)]

mod acl;
pub mod attr;
mod cache;
mod copy;
mod create;
pub mod diff;
mod dir;
pub mod error;
mod file;
pub mod fs;
mod known;
mod log;
mod log_source;
mod nameless;
mod namespace;
mod new_object;
pub mod options;
mod path;
mod phys;
pub mod posix_acl;
mod projects;
mod quotas;
mod rename;
mod replay;
mod rewrite;
mod sa_table;
mod salt;
mod setattr;
mod shards;
mod stored;
mod unlinked;
pub mod user_quota;
mod xattr;
mod znode;
mod znode_legacy;

pub use attr::{
    Attr, DirEntry, Fallocate, FileKind, NewFile, RenameFlags, SeekFor, SetAttr, SetTime, SetXattr, StatFs, Timestamp,
};
pub use dir::FREE_CURSOR;
pub use error::{Result, ZplError};
pub use fs::Zpl;
pub use options::{AtimeMode, CreateOptions, MountOptions, XattrMode};
pub use path::object_path;
pub use platter_dmu::bytes::{Keeper, SpaceInfo, UnlimitedSpace};
pub use posix_acl::{AclWho, PosixAcl};
