//! The unit of every buffer's memory.
//!
//! Invariant: a page begins where devices can transfer it from and to without a copy.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of every buffer, in bytes.
pub const PAGE_SIZE: usize = 4096;

/// One page.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub(crate) struct Page(pub [u8; PAGE_SIZE]);

const _: () = assert!(size_of::<Page>() == PAGE_SIZE);
