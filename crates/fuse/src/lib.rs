//! A ZFS file system under a mount point, through the kernel's FUSE.
//!
//! [`mount`] shows a [`platter_zpl::Zpl`] at a directory; the returned [`Mount`] unmounts it and tells when somebody
//! else did. The kernel checks permissions (`default_permissions`), keeps names, attributes and pages as long as it
//! likes (all changes pass through it), and sends requests of up to 1 MiB to several threads at once.
#![forbid(unsafe_code)]

mod attr;
mod coherence;
mod contents;
mod control;
mod cut;
mod directories;
mod elsewhere;
pub mod error;
mod failures;
mod file_flags;
mod flag_words;
mod fs;
pub mod mount;
pub mod mountinfo;
mod names;
mod opens;
pub mod options;
mod reaper;
mod server;
pub mod terms;

pub use elsewhere::{Elsewhere, Keeper};
pub use error::{FuseError, Result};
pub use mount::{Mount, mount, users_may_share};
pub use options::{KernelFlags, MountOptions};
pub use platter_transport::{set_ring_bytes, set_waiting_bytes};
