//! A block's place in a top-level vdev, and what is known about it.

use platter_ondisk::Txg;

/// What whoever reads a block knows about it.
pub trait Knowledge: Sync {
    /// Whether these bytes are what was written (the block's checksum matches).
    fn is_right(&self, bytes: &[u8]) -> bool;

    /// Whether the block is still somebody's. Where one lay that has been freed another may lie by now, of which a copy
    /// that is not written yet still holds what this block held: nothing is rewritten there, and nobody is blamed for
    /// other bytes. Asked just before each rewrite.
    fn is_in_use(&self) -> bool {
        true
    }
}

/// A block that nobody frees while it is read.
impl<F: Fn(&[u8]) -> bool + Sync> Knowledge for F {
    fn is_right(&self, bytes: &[u8]) -> bool {
        self(bytes)
    }
}

/// Decides whether a block's bytes are what was written, and whether they may be set right.
pub type Verify<'a> = &'a dyn Knowledge;

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
