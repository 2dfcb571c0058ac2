//! The block cache: logical contents by physical identity.
//!
//! Invariants: an entry's contents matched its pointer's checksum when it was inserted; entries are keyed by address
//! *and* birth, so that space which was freed and reused can never give old contents; the weight is the contents'
//! bytes.

use platter_buffer::Buf;
use platter_ondisk::BlkPtr;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    vdev: u32,
    offset: u64,
    birth: u64,
}

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Buf> for ByBytes {
    fn weight(&self, _key: &Key, contents: &Buf) -> u64 {
        contents.len() as u64 + 128
    }
}

/// A cache bounded in bytes, resistant to scans (S3-FIFO).
pub struct BlockCache {
    entries: Cache<Key, Buf, ByBytes>,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        let items = (bytes / (32 << 10)).clamp(64, 1 << 20) as usize;
        Self { entries: Cache::with_weighter(items, bytes.max(1 << 20), ByBytes) }
    }

    fn key(bp: &BlkPtr) -> Option<Key> {
        let dva = bp.dvas().next()?;
        Some(Key { vdev: dva.vdev, offset: dva.offset, birth: bp.physical_birth().0 })
    }

    /// The contents, when cached.
    pub fn get(&self, bp: &BlkPtr) -> Option<Buf> {
        self.entries.get(&Self::key(bp)?)
    }

    /// Remembers verified or just written contents.
    pub fn insert(&self, bp: &BlkPtr, contents: Buf) {
        if let Some(key) = Self::key(bp) {
            self.entries.insert(key, contents);
        }
    }

    /// Forgets a freed block.
    pub fn remove(&self, bp: &BlkPtr) {
        if let Some(key) = Self::key(bp) {
            self.entries.remove(&key);
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }
}
