//! What the layers above ask of a pool's blocks, without knowing vdevs, allocation or caching.

use futures::future::BoxFuture;
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, Txg};
use platter_vdev::Priority;

use crate::cache::BlockCache;
use crate::error::Result;
use crate::in_flight::Memory;
use crate::policy::{Bookmark, WritePolicy};

/// What can be read of a pool's blocks.
///
/// Invariant every implementation keeps: what [`read`](Self::read) returns matched the pointer's checksum and is the
/// logical (decompressed) contents, exactly `bp.lsize()` bytes, already in native byte order of its `object_type`; so
/// are those in the cache.
pub trait BlockReader: Send + Sync + 'static {
    /// What memory has, which takes no waiting: whoever can is to ask it before [`read`](Self::read), which asks it
    /// too.
    fn cache(&self) -> &BlockCache;

    /// Reads a block that is neither hole nor (necessarily) on disk: embedded pointers are decoded too.
    /// A hole is an error of the caller ([`crate::ZioError::Corrupt`]).
    fn read<'a>(&'a self, bp: &'a BlkPtr, bookmark: Bookmark, priority: Priority) -> BoxFuture<'a, Result<Buf>>;

    /// How much may be fetched ahead of a reader at most.
    fn ahead_max(&self) -> Memory {
        Memory { bytes: u64::MAX }
    }
}

/// A pool's blocks.
///
/// Invariants every implementation keeps:
/// - a pointer that [`write`](Self::write) returned is readable at once;
/// - space given to [`free`](Self::free) is not reused before the group's uberblock is on stable storage.
pub trait BlockStore: BlockReader {
    /// Compresses, checksums, allocates and writes `data` (logical contents), and returns the new pointer with
    /// `policy.fill` set. All-zero level-0 data with compression on becomes a hole (born in `policy.txg`).
    ///
    /// `previous` is the pointer that the new one will replace (or a hole). The store does **not** free it; the caller
    /// does, through its space accounting, unless the returned pointer has the same first DVA (the store rewrites in
    /// place a block that was born in this very txg during a later sync pass, so that sync converges).
    fn write<'a>(&'a self, data: Buf, policy: WritePolicy, previous: &'a BlkPtr) -> BoxFuture<'a, Result<BlkPtr>>;

    /// Gives a block's space back in group `txg` (sync context only). Holes and embedded pointers are ignored.
    fn free(&self, txg: Txg, bp: &BlkPtr);

    /// The space a pointer is charged for, in deflated bytes (`bp_get_dsize`).
    fn dsize(&self, bp: &BlkPtr) -> u64;

    /// The space in use, in deflated bytes: no blocks that are there, each counted once, take more. Whoever follows
    /// pointers and meets more of them than that goes in circles ([`crate::SpaceMet`]).
    fn space_used(&self) -> u64 {
        u64::MAX
    }

    /// The most space, in deflated bytes, that one copy of a block of up to `size` bytes takes on any of the pool's
    /// vdevs.
    fn most_space(&self, size: u64) -> u64 {
        size
    }
}
