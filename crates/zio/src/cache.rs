//! The block cache: logical contents by physical identity.
//!
//! Invariants:
//! - an entry's contents matched its pointer's checksum when it was inserted, and are as long as that says;
//! - entries are keyed by address *and* birth, so that space which was freed and reused can never give old contents;
//! - the weight is the memory that the contents take; at least half of what the cache may hold stays its own.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use platter_buffer::Buf;
use platter_ondisk::{BlkPtr, ObjectId};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use rustc_hash::FxBuildHasher;

/// Property `primarycache`: which of an object set's blocks are worth remembering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Caching {
    /// All.
    #[default]
    All,
    /// Metadata: indirect blocks, and level 0 of all but files and volumes.
    Metadata,
    /// None.
    Nothing,
}

/// A block by where it is and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) vdev: u32,
    pub(crate) offset: u64,
    pub(crate) birth: u64,
}

/// The part of the cache that a block is in comes from bits in the middle of its hash, and those of [`FxBuildHasher`]
/// come from the lowest that went in, which offsets do not have: all blocks of a group would share a part. So the
/// bits are mixed before.
impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = (self.offset ^ u64::from(self.vdev) << 48 ^ self.birth.rotate_right(20)).wrapping_mul(ODD);
        mixed = (mixed ^ mixed >> 32).wrapping_mul(ODD);
        hasher.write_u64(mixed ^ mixed >> 32);
    }
}

/// A block as it is remembered.
#[derive(Clone)]
struct Entry {
    contents: Buf,
    /// The object set that it was last written or read for.
    objset: ObjectId,
    is_metadata: bool,
    /// Bytes of memory.
    weight: u64,
}

/// What an entry takes beside its contents, bytes.
const OVERHEAD: u64 = 128;

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Entry> for ByBytes {
    fn weight(&self, _key: &Key, entry: &Entry) -> u64 {
        entry.weight
    }
}

impl Caching {
    pub(crate) fn keeps(self, is_metadata: bool) -> bool {
        match self {
            Self::All => true,
            Self::Metadata => is_metadata,
            Self::Nothing => false,
        }
    }
}

/// Which part of the cache a block is in, and so what has to go for it, depends on the block alone: with the usual
/// hasher it would be chance, and no simulation would replay.
type Hashing = FxBuildHasher;

/// Bytes that a cache may hold at least.
const CAPACITY_LEAST: u64 = 1 << 20;
/// Bytes that share a lock. A block must fit in several times: it is not kept if its part is too small for it.
const PART: u64 = 64 << 20;
/// More parts than this are of no use to any number of processors.
const PARTS_MAX: u64 = 64;

/// A cache bounded in bytes, resistant to scans (S3-FIFO).
pub struct BlockCache {
    entries: Cache<Key, Entry, ByBytes, Hashing>,
    /// Object sets of which not everything is remembered.
    choosy: RwLock<BTreeMap<u64, Caching>>,
    /// Bytes that were ever taken in.
    taken_in: AtomicU64,
    share: Mutex<Share>,
}

/// What the cache may hold, in bytes.
#[derive(Clone, Copy, Debug)]
struct Share {
    whole: u64,
    /// What of it others have for the time being.
    given: u64,
    /// What of it the index of cache devices has.
    index: u64,
}

impl Share {
    /// Half of it at least.
    fn left(self) -> u64 {
        let left = self.whole.saturating_sub(self.given.saturating_add(self.index));
        let left = left.max(self.whole / 2).max(CAPACITY_LEAST);
        assert!(left <= self.whole, "a cache never holds more than its share");
        left
    }
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        let bytes = bytes.max(CAPACITY_LEAST);
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / (32 << 10)).clamp(64, 1 << 20) as usize)
            .weight_capacity(bytes)
            // Not by the number of processors: a simulation is the same on every machine.
            .shards((bytes / PART).clamp(1, PARTS_MAX) as usize)
            .build()
            .expect("both capacities are given");
        let entries = Cache::with_options(options, ByBytes, FxBuildHasher, DefaultLifecycle::default());
        Self {
            entries,
            choosy: RwLock::default(),
            taken_in: AtomicU64::new(0),
            share: Mutex::new(Share { whole: bytes, given: 0, index: 0 }),
        }
    }

    /// What is remembered of object set `objset` from now on; what no longer is worth it is forgotten.
    pub fn set_caching(&self, objset: ObjectId, caching: Caching) {
        let old = {
            let mut choosy = self.choosy.write();
            match caching {
                Caching::All => choosy.remove(&objset.0),
                caching => choosy.insert(objset.0, caching),
            }
        };
        // One that is written or read just now may come in after this. It is forgotten as any other.
        if old.unwrap_or_default() != caching && caching != Caching::All {
            self.entries.retain(|_, entry| entry.objset != objset || caching.keeps(entry.is_metadata));
        }
    }

    /// Whether all of an object set's blocks are remembered, data too.
    pub fn keeps_data(&self, objset: ObjectId) -> bool {
        !self.choosy.read().contains_key(&objset.0)
    }

    /// Whether such blocks of an object set are remembered.
    pub(crate) fn keeps(&self, objset: ObjectId, is_metadata: bool) -> bool {
        self.choosy.read().get(&objset.0).copied().unwrap_or_default().keeps(is_metadata)
    }

    pub(crate) fn key(bp: &BlkPtr) -> Option<Key> {
        let dva = bp.dvas().next()?;
        Some(Key { vdev: dva.vdev, offset: dva.offset, birth: bp.physical_birth().0 })
    }

    /// The contents, when cached. A damaged pool may have another pointer to the same address, of another length.
    pub fn get(&self, bp: &BlkPtr) -> Option<Buf> {
        let entry = self.entries.get(&Self::key(bp)?)?;
        (entry.contents.len() as u64 == bp.lsize()).then_some(entry.contents)
    }

    /// Remembers verified or just written contents of a block of object set `objset`.
    pub fn insert(&self, objset: ObjectId, bp: &BlkPtr, contents: Buf) {
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let caching = self.choosy.read().get(&objset.0).copied().unwrap_or_default();
        if let Some(key) = Self::key(bp).filter(|_| caching.keeps(is_metadata)) {
            assert_eq!(contents.len() as u64, bp.lsize(), "what is remembered of a block is the whole of it");
            // An object set has several indirect blocks that are all zeros but for a pointer or two.
            let length = contents.len();
            let (contents, bytes) =
                if bp.level() > 0 { platter_device::without_zeros(contents) } else { (contents, length) };
            debug_assert!(bytes <= length, "a block takes no more memory than it is long");
            let weight = bytes as u64 + OVERHEAD;
            self.taken_in.fetch_add(weight, Ordering::Relaxed);
            self.entries.insert(key, Entry { contents, objset, is_metadata, weight });
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

    /// Bytes that may be held, those included that others have for the time being.
    pub fn capacity(&self) -> u64 {
        self.share.lock().whole
    }

    /// Lets it hold at most `bytes` from now on; what is too much goes at once.
    pub fn set_capacity(&self, bytes: u64) {
        let mut share = self.share.lock();
        share.whole = bytes.max(CAPACITY_LEAST);
        self.entries.set_capacity(share.left());
    }

    /// Holds `bytes` less than it may, but half of that at least, until this is called again; what is too much goes at
    /// once.
    pub fn give_way(&self, bytes: u64) {
        let mut share = self.share.lock();
        if std::mem::replace(&mut share.given, bytes) != bytes {
            self.entries.set_capacity(share.left());
        }
    }

    /// Holds less by what the index of the cache devices takes, as [`give_way`](Self::give_way).
    pub(crate) fn make_room_for_index(&self, bytes: u64) {
        let mut share = self.share.lock();
        if std::mem::replace(&mut share.index, bytes) != bytes {
            self.entries.set_capacity(share.left());
        }
    }

    /// Bytes that were ever taken in, which tells how much the cache is used: what was not there, and what was written.
    pub fn taken_in(&self) -> u64 {
        self.taken_in.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_one_group_have_the_whole_cache() {
        const BLOCK: u64 = 128 << 10;
        const PARTS: u64 = 16;
        let cache = BlockCache::new(PARTS * PART);
        let contents = Buf::zeroed(BLOCK as usize);
        let count = PARTS * PART / BLOCK * 7 / 10;
        let key = |index| Key { vdev: 0, offset: index * BLOCK * 7 / 6 / 4096 * 4096, birth: 7 };
        let entry = Entry { contents, objset: ObjectId(54), is_metadata: false, weight: BLOCK + OVERHEAD };
        (0..count).for_each(|index| cache.entries.insert(key(index), entry.clone()));
        let there = (0..count).filter(|&index| cache.entries.get(&key(index)).is_some()).count();
        assert_eq!(there as u64, count);
        assert!(cache.bytes() > count * BLOCK);
        cache.give_way(PARTS * PART / 4 * 3);
        assert!(cache.bytes() <= PARTS * PART / 2 && cache.bytes() > PARTS * PART / 3, "{}", cache.bytes());
        // Another pool needs it more.
        cache.set_capacity(2 * PART);
        assert!(cache.bytes() <= PART && cache.capacity() == 2 * PART, "{}", cache.bytes());
        cache.give_way(0);
        assert_eq!(cache.entries.capacity(), 2 * PART);
    }
}
