//! Who sees the blocks of a walk ([`crate::traverse`]).

use futures::future::BoxFuture;
use platter_ondisk::BlkPtr;
use platter_zio::{Bookmark, ZioError};

/// What to do after a block was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// Go on, below it first.
    Continue,
    /// Go on, but leave out what is below it.
    Skip,
    /// End the walk.
    Stop,
}

/// Sees the blocks of a walk.
pub trait Visitor: Send + Sync {
    /// Whether there is anything to see at this block or below it: asked where what is below comes first.
    fn enters(&self, _bp: &BlkPtr) -> bool {
        true
    }

    /// Whether a block that was not shown yet is worth reading for what is below it, as far as that can be told: many
    /// are read at once. Asked in any order and any number of times, so nothing is to be concluded from it.
    fn reads_ahead(&self, _bookmark: Bookmark, bp: &BlkPtr) -> bool {
        self.enters(bp)
    }

    /// A block that is referenced: not a hole, possibly embedded.
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit>;

    /// The block just shown has others below it and cannot be read or makes no sense. [`Visit::Stop`] ends the walk.
    fn damaged<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit>;
}
