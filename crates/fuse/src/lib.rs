//! A ZFS file system under a mount point, through the kernel's FUSE.
//!
//! # The problem
//! Linux lets a process serve a file system, but on its own terms: a device with requests, a kernel that keeps names,
//! attributes and pages and must be told when they are wrong, and mounts that anybody may move, cover, copy into
//! another name space or take away while files are open. A mount must come and go as any other file system's does, and
//! when it is gone nobody may still be at work on the pool behind it.
//!
//! # The idea
//! ```text
//! mount(2), umount(2) ─► mount ── cut, elsewhere, mountinfo
//!                          │
//! kernel ── requests ─► fs, names, contents, directories ── operations ─► vfs
//!    ▲                     │                                               │
//!    └────── answers ──────┘        coherence ◄── what clients must forget ┘
//! ```
//! Each request becomes one operation of [`platter_vfs::Vfs`], and what comes of it one answer. The kernel checks
//! permissions (`default_permissions`), which each operation is told; it keeps names, attributes and pages as long as
//! it likes, since all changes pass through it; it sends requests of up to 1 MiB to several threads at once.
//!
//! # Invariants
//! - A request is answered once.
//! - A node that the kernel knows is remembered in `vfs`, until it says that it has forgotten it or is gone.
//! - When [`Mount::unmount`] succeeded nothing is under way, and nothing is open that the kernel had opened.
//!
//! # Where to start
//! [`mount`] shows a file system at a directory; the returned [`Mount`] unmounts it and tells when somebody else did.
//! `fs` is where requests arrive; `terms` says what is agreed on with the kernel.
#![forbid(unsafe_code)]

mod attr;
mod coherence;
mod contents;
mod cut;
mod directories;
mod elsewhere;
pub mod error;
mod file_flags;
mod flag_words;
mod fs;
pub mod mount;
pub mod mountinfo;
mod names;
mod nodes;
pub mod options;
pub mod place;
mod reading;
mod server;
mod snapshot_folder;
pub mod snapshots;
pub mod still;
pub mod terms;
pub mod volume_tree;
mod volumes;

pub use elsewhere::{Elsewhere, Keeper};
pub use error::{FuseError, Result};
pub use mount::{Mount, mount, mount_still, mount_volumes, users_may_share};
pub use options::{KernelFlags, MountOptions};
pub use place::Place;
pub use platter_transport::{set_ring_bytes, set_waiting_bytes};
