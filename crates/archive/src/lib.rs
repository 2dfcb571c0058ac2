//! Streams of `zfs send` that lie in files: which files are in one, shown in a directory and compared with one, without
//! a pool.
//!
//! # The problem
//! Many keep streams in files, and wish to know what is in one, to get one file out of it, or to know that a restored
//! copy is the same, without room for all of it in a pool.
//!
//! # The idea
//! A stream is read once from its beginning to its end, with every checksum looked at ([`reader`]). Of directories and
//! files it is remembered where their records are ([`tree`]); what somebody wants to see is read there again. Memory
//! is taken for each file once, and not for its blocks until it is open.
//!
//! # Where to start
//! [`tree::Tree::of`]; [`mount`] shows one, [`diff`] compares one.
#![forbid(unsafe_code)]

pub mod diff;
mod error;
pub mod mount;
pub mod reader;
pub mod tree;

pub use error::{ArchiveError, Result};
