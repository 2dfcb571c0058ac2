//! Bytes between an object's blocks and whoever reads or writes them.
//!
//! Invariant: bytes are copied at most once, into a block that is written; what is read is handed out from where the
//! cache has it.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{FuturesOrdered, TryStreamExt};
use parking_lot::Mutex;
use platter_buffer::{Buf, BufMut};
use platter_zio::{Priority, Result, Tx, ZioError};

use super::streams::Streams;
use crate::core::Dnode;

/// Who has a copy of what is read or written, so that it need not be cached here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// Nobody that is known of.
    Nobody,
    /// Whoever calls: the kernel, in its page cache.
    Caller,
}

/// Where data goes.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// The block size that the object has by then.
    pub block_size: u32,
    /// Where the object's contents end before.
    pub size: u64,
}

/// An object's bytes, and the readers that were noticed in them.
#[derive(Clone, Copy)]
pub struct ByteRange<'a> {
    /// The object.
    pub dnode: &'a Arc<Dnode>,
    /// Who reads it in order.
    pub streams: &'a Mutex<Streams>,
}

impl ByteRange<'_> {
    /// The bytes `range`, which is not empty and ends in contents of `size` bytes, as pieces of cached blocks.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn read(&self, range: Range<u64>, size: u64, keeper: Keeper) -> Result<Vec<Buf>> {
        assert!(range.start < range.end && range.end <= size, "it ends within the contents");
        let Range { start: offset, end } = range;
        let block_size = u64::from(self.dnode.block_size());
        let is_stream = self.fetch_ahead(offset..end, size, block_size);
        let piece = |blkid: u64, block: Buf| {
            let start = blkid * block_size;
            let from = offset.saturating_sub(start);
            let to = (end - start).min(block_size);
            if from == 0 && to == block_size { block } else { block.slice(from as usize..to as usize) }
        };
        let (first, last) = (offset / block_size, (end - 1) / block_size);
        // What a long stream leaves behind is not asked for again soon; where only a part is read, the rest follows.
        let passing = keeper == Keeper::Caller && is_stream;
        let read = async |blkid: u64| {
            if passing && (blkid + 1) * block_size <= end {
                self.dnode.read_passing_block(blkid, Priority::SyncRead).await
            } else {
                self.dnode.read_block(blkid, Priority::SyncRead).await
            }
        };
        if first == last {
            return Ok(vec![piece(first, read(first).await?)]);
        }
        let reads: FuturesOrdered<_> = (first..=last).map(&read).collect();
        let blocks: Vec<Buf> = reads.try_collect().await?;
        Ok(blocks.into_iter().zip(first..).map(|(block, blkid)| piece(blkid, block)).collect())
    }

    /// `range` of contents of `size` bytes, not empty, is being read: what will probably be wanted next is fetched.
    /// Whether that goes on for a while already.
    fn fetch_ahead(&self, range: Range<u64>, size: u64, block_size: u64) -> bool {
        let (ahead, is_long) = {
            let mut streams = self.streams.lock();
            (streams.read(range.start, range.end, size), streams.is_long(range.end))
        };
        for range in ahead {
            let first = range.start / block_size;
            self.dnode.prefetch(first, range.end.div_ceil(block_size) - first);
        }
        is_long
    }

    /// Writes `data` block by block; returns the bytes written and what stopped it.
    pub async fn write(&self, tx: &Tx, extent: Extent, data: &[u8], keeper: Keeper) -> (usize, Option<ZioError>) {
        let Extent { offset, size, .. } = extent;
        let block_size = u64::from(extent.block_size);
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (blkid, within) = (at / block_size, (at % block_size) as usize);
            let piece = &data[done..done + (data.len() - done).min(block_size as usize - within)];
            let whole = piece.len() as u64 == block_size;
            // Nothing of the block is worth reading when the piece covers all of it that lies inside the contents.
            let covers = within == 0 && at + piece.len() as u64 >= size;
            let beyond = blkid * block_size >= size;
            let result = if whole && keeper == Keeper::Caller {
                self.dnode.write_passing_block(tx, blkid, Buf::copy_from(piece)).await
            } else if whole {
                self.dnode.write_block(tx, blkid, Buf::copy_from(piece)).await
            } else if covers || beyond {
                let mut block = BufMut::zeroed(block_size as usize);
                block[within..within + piece.len()].copy_from_slice(piece);
                self.dnode.write_block(tx, blkid, block.freeze()).await
            } else {
                // A program that overwrites a file from memory that is not on pages leaves a part of each MiB to its
                // next request: the rest of that block is needed again and again, in equal steps.
                let start = blkid * block_size;
                self.fetch_ahead(start..(start + block_size).min(size), size, block_size);
                self.dnode.write(tx, at, piece).await
            };
            if let Err(error) = result {
                return (done, Some(error));
            }
            done += piece.len();
        }
        (done, None)
    }
}
