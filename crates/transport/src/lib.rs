//! The kernel's FUSE protocol: requests from `/dev/fuse` or over io_uring as checked types, and their answers. It knows
//! nothing of ZFS; what a request means is the business of whoever implements [`Filesystem`].
//!
//! Numbers and layouts are those of the kernel's interface (`include/uapi/linux/fuse.h`, which is under a BSD licence
//! too). They are stated once, in `wire`; everything outside sees [`Request`], [`Operation`] and [`Reply`].
//!
//! Invariants:
//! - each request that waits for an answer gets just one: a [`Reply`] that is dropped unanswered says `EIO`;
//! - a request that cannot be understood is answered with an error and never reaches the file system;
//! - a mount has no thread, and without requests no buffer; where the kernel has io_uring's rings it has places there,
//!   as long as there is room for them (`rings`);
//! - an answer to `/dev/fuse` is written with one system call, from where its bytes lie; over io_uring its bytes are
//!   copied once, and many answers and requests share a system call.

mod buffers;
mod config;
mod connection;
mod fusermount;
mod handshake;
mod lease;
mod mailbox;
mod mount;
mod operation;
mod pages;
mod readers;
mod reply;
mod ring;
mod rings;
mod seat;
mod serve;
mod session;
mod tasks;
mod types;
mod wire;

pub use config::Config;
pub use connection::DEVICE;
pub use fusermount::{HelperError, mount_with_helper};
pub use operation::{Operation, Request, SetAttr, SetTime};
pub use readers::set_waiting_bytes;
pub use reply::{Directory, Entry, Reply, XattrAnswer};
pub use rings::set_ring_bytes;
pub use rustix::io::Errno;
pub use serve::{Filesystem, Kernel};
pub use session::Session;
pub use types::{FileAttr, InitFlags, NodeId, OpenFlags, Time};
