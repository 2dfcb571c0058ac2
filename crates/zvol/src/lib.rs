//! Volumes: object sets that are one long array of bytes, to be used as a disk (`module/zfs/zvol.c`).
//!
//! # The problem
//! Whoever has a disk writes blocks wherever he likes, asks for some of them to be stable, and says which he needs no
//! more. Nothing but the size is agreed on, and that may change while the disk is in use.
//!
//! # The idea
//! ```text
//! call ─► range of blocks locked ─► room ─► transaction ─► blocks, log record ─► unlocked
//!                                              └ its group makes it durable; fsync asks the log
//! ```
//! A volume is object 1 of its object set, with blocks of one size for ever, and a size in the ZAP that is object 2.
//! It is read and written as a file is (`platter_dmu::bytes`), and told to the intent log in records of writes and of
//! ranges that became zeros. Nothing else is in it: no names, no times.
//!
//! # Invariants
//! - Nothing is read or written behind the size: what a smaller size cuts off is freed, and reads as zeros when it
//!   grows again.
//! - A range is locked before a transaction is begun, and nothing is waited for with one.
//! - What a crash left in the log is done again before anybody reads.
//!
//! # Where to start
//! `volume` is an open volume; `io` reads, writes and clears; `replay` and `log_source` are the two ends of the log.
#![forbid(unsafe_code)]

pub mod error;
mod io;
mod log_source;
mod replay;
mod volume;

pub use error::{Result, VolumeError};
pub use platter_dmu::bytes::{Keeper, SpaceInfo, UnlimitedSpace};
pub use volume::{OpenOptions, SeekFor, Volume};
