//! A block's place in a top-level vdev, and what is known about it.

use platter_ondisk::Txg;

/// Decides whether a block's bytes are what was written (its checksum matches).
pub type Verify<'a> = &'a (dyn Fn(&[u8]) -> bool + Sync);

/// A block's place in a top-level vdev. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset as in the block pointer.
    pub offset: u64,
    /// Size on disk without parity.
    pub psize: u64,
    /// The group in which the block was (physically) born: children that missed it are not asked first.
    pub birth: Txg,
    /// Whether the block may well not be there (the end of an intent log): then nobody is blamed.
    pub speculative: bool,
    /// Whether `verify` can tell right bytes from wrong ones. Of a block without checksum, bytes of a child that missed
    /// its group are not believed.
    pub checked: bool,
}
