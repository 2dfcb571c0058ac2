//! One door to a file system, for every protocol that serves it.
//!
//! # The problem
//! A file system is served to a kernel (FUSE) today, to NFS and SMB clients tomorrow. Each protocol has its own words,
//! but all need the same beside files and directories themselves: who is allowed what, files that are open and have no
//! name any more, names of files that outlive a restart, caches on the other side that must not keep what is wrong,
//! somebody who counts and records what is done. Where each server does that for itself, each does it a little
//! differently, and a file is read through one that is kept from the same user by another.
//!
//! # The idea
//! ```text
//! FUSE ── kernel has checked ──┐                        ┌─► access: mode, list, sticky bit
//!                              ├─► Vfs: one operation ──┼─► zpl: files and directories
//! NFS, SMB ─ with credentials ─┘        │      │        └─► opens, reaper: what is open, what is to be freed
//!                  caches ◄── forget ───┘      └── one event ─► observer, log of failures
//! ```
//! A server translates requests into operations of [`Vfs`] and answers into its protocol, and does nothing else. Each
//! operation takes an [`Access`]: either the server says that somebody has checked it, or it names the [`Credentials`]
//! to check; there is no way to ask for one without saying which (but for closing and forgetting, which whoever has
//! opened or been told may do). It ends in one [`Event`], with or without success.
//!
//! Files are named by object number while a server has [remembered](Vfs::remember) them, and by [`Handle`] when
//! somebody kept the name and the server did not. What the server's clients keep of files is told through [`Caches`]
//! when it is wrong.
//!
//! The words are those of `zpl`, which are handed on: attributes, times, kinds, what a change is.
//!
//! # Invariants
//! - Nothing is done for credentials that access does not allow, and nothing is checked twice.
//! - What is open is not freed. What was opened is closed once: by the server, or, when it has gone away, by
//!   [`Vfs::give_back`]; from then on nothing is opened.
//! - A client that has been answered does not find in its cache what the operation has changed.
//! - Nothing on the way of a read or a write locks, allocates or copies for the sake of this crate.
//!
//! # Where to start
//! `vfs` has what all operations share; `contents` reads and writes, `names` and `directories` are about entries,
//! `opening` about opening and closing, `attributes` about the rest. `access` decides who may, without waiting for
//! anything; `opens` who goes past caches.
//!
//! One server at a time serves a [`Vfs`]. A second one beside it would need its own count of what it knows, and to be
//! told through its [`Caches`] of what the other changes.
#![forbid(unsafe_code)]

pub mod access;
mod attributes;
pub mod caches;
mod contents;
mod control;
mod directories;
pub mod error;
pub mod event;
mod events;
mod failures;
pub mod handle;
mod names;
mod opening;
mod opens;
mod reaper;
mod vfs;
pub mod volume;

pub use access::{Access, Caller, Credentials, Rights};
pub use caches::Caches;
pub use contents::{Reading, Writing, Written};
pub use control::{ControlDirectory, SNAPSHOT_FOLDER, is_control, is_snapshot_folder};
pub use error::{Result, VfsError};
pub use event::{Event, Observer, Operation};
pub use handle::{Handle, ObjectSetId};
pub use opening::Closed;
pub use opens::{Caching, Opening};
pub use platter_zpl::{
    AtimeMode, Attr, DirEntry, Fallocate, FileKind, NewFile, RenameFlags, SeekFor, SetAttr, SetTime, SetXattr, StatFs,
    Timestamp,
};
pub use vfs::{ServeOptions, Vfs};
