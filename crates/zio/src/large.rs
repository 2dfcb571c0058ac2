//! Large blocks on their way from and to the devices: a record of 16 MiB takes three times as much while it is
//! compressed and written, a small machine's whole allowance. What such blocks take together is bounded, and the cache
//! gives way to them.
//!
//! Invariant: blocks up to [`SMALL`], and so all metadata that is made here, wait for nothing.

use platter_ondisk::dnode::MAX_INDIRECT_SHIFT;
use platter_ondisk::sa::SPILL_SIZE_MAX;
use platter_ondisk::{BlkPtr, Compression};

use crate::cache::BlockCache;
use crate::in_flight::{Admitted, InFlight, Memory};
use crate::policy::WritePolicy;

/// Blocks up to so many bytes are not counted: there are limits to how many are under way.
const SMALL: u64 = 128 << 10;
const _: () = assert!(1 << MAX_INDIRECT_SHIFT <= SMALL && SPILL_SIZE_MAX as u64 <= SMALL, "metadata waits for nothing");
/// The cache gives way once it has to give up one part in so many: it takes all its locks, and with more memory nobody
/// would notice.
const CACHE_PART: u64 = 16;

/// Large blocks under way.
#[derive(Debug)]
pub struct Large {
    all: InFlight,
}

impl Default for Large {
    /// Without a limit.
    fn default() -> Self {
        Self { all: InFlight::new(Memory { bytes: u64::MAX }) }
    }
}

/// A large block under way. Its memory counts until this is dropped.
pub(crate) struct UnderWay<'a> {
    large: &'a Large,
    cache: &'a BlockCache,
    admitted: Option<Admitted<'a>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.admitted.take().is_some() {
            self.large.make_way(self.cache);
        }
    }
}

impl Large {
    /// All of them together may take so much from now on.
    pub fn set_most(&self, most: Memory) {
        self.all.set_most(most);
    }

    /// How much may be fetched ahead of a reader.
    pub(crate) fn ahead_max(&self) -> Memory {
        Memory { bytes: self.all.most().bytes / 2 }
    }

    /// Whether blocks of `length` bytes are counted.
    pub(crate) fn counts(length: u64) -> bool {
        length > SMALL
    }

    /// Waits until the block of `bp` may be read.
    pub(crate) async fn read<'a>(&'a self, cache: &'a BlockCache, bp: &BlkPtr) -> UnderWay<'a> {
        let stored = if bp.compression() == Compression::OFF { 0 } else { bp.psize() };
        self.admit(cache, bp.lsize(), bp.lsize() + stored).await
    }

    /// Waits until a block of `length` bytes may be written.
    pub(crate) async fn write<'a>(&'a self, cache: &'a BlockCache, length: u64, policy: &WritePolicy) -> UnderWay<'a> {
        // Its contents are counted as dirty. Compressed it takes what it saves less than that, and so does the place
        // it is compressed to. Otherwise there may be parity.
        let takes = match policy.compression {
            Compression::OFF => length,
            kind => 2 * length + platter_compress::workspace(kind, policy.compression_level, length),
        };
        self.admit(cache, length, takes).await
    }

    async fn admit<'a>(&'a self, cache: &'a BlockCache, length: u64, bytes: u64) -> UnderWay<'a> {
        let admitted = if Self::counts(length) { Some(self.all.admit(Memory { bytes }).await) } else { None };
        if admitted.is_some() {
            self.make_way(cache);
        }
        UnderWay { large: self, cache, admitted }
    }

    fn make_way(&self, cache: &BlockCache) {
        let taken = self.all.taken().bytes;
        cache.give_way(if taken < cache.capacity() / CACHE_PART { 0 } else { taken });
    }
}
