//! What a vdev with children does with one block. There are two kinds: a [mirror](crate::mirror), of which a single
//! device is one of one side, and a [RAID-Z group](crate::raidz). `replacing` and `spare` vdevs are arrangements of
//! these: below a mirror their leaves are sides of it, below RAID-Z they are one [child](crate::child) of several
//! leaves.

use std::future::Future;
use std::sync::Arc;

use platter_buffer::Buf;

use crate::error::Result;
use crate::extent::{Extent, Verify};
use crate::leaf::Leaf;
use crate::outcome::{ReadOutcome, ScrubOutcome};
use crate::priority::Priority;
use crate::purpose::Purpose;

/// A vdev with children, in the shape on which one operation works.
pub(crate) trait Interior {
    /// Reads a block with as few transfers as possible, and with as many as needed; rewrites what is proven wrong.
    fn read(
        self,
        extent: Extent,
        priority: Priority,
        verify: Verify<'_>,
    ) -> impl Future<Output = Result<(Buf, ReadOutcome)>> + Send;

    /// Reads all that the leaves hold of a block, and rewrites what is wrong.
    fn scrub(self, extent: Extent, verify: Verify<'_>) -> impl Future<Output = Result<ScrubOutcome>> + Send;

    /// Writes a block of whole sectors. When enough children took it, those that did not lack it from then on.
    fn write(
        self,
        offset: u64,
        data: Buf,
        purpose: Purpose,
        priority: Priority,
    ) -> impl Future<Output = Result<()>> + Send;
}

/// Notes for leaves that did not take a block that they lack it. A block that is written again was dealt with for each
/// leaf by [`Leaf::write_for`].
pub(crate) fn note_lacking<'a>(purpose: Purpose, leaves: impl Iterator<Item = &'a Arc<Leaf>>) {
    if let Purpose::New { txg } = purpose {
        leaves.for_each(|leaf| leaf.note_missing(txg));
    }
}
