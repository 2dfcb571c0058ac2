//! The second level of the block cache, on devices of its own (L2ARC; `module/zfs/arc.c`).
//!
//! # The problem
//! Memory is small and the pool's disks are slow; a fast device between them can hold what memory has no room for. But
//! it is one device without redundancy, of any quality: it may lie, fail, hang or vanish, and nobody must notice.
//!
//! # The idea
//! ```text
//! read   memory? ─► index? ─► cache device ─► the pointer's checksum? ─► contents
//!           │          └ no ───────┴ slow, failed ─────┴ wrong ─► the pool's devices ─┐
//!           └ contents                                                        ┌───────┤
//! feed                                              leaves memory soon ◄── memory    waiting ─► round ─► device, index
//! ```
//! A block lies on the device as it is stored in the pool: compressed, under the same checksum. So it can be verified
//! with the pointer that the reader has, and is worth as much as a copy in the pool. What the device or its log says is
//! believed no further than that it tells where to look.
//!
//! What comes into memory is what leaves it: the memory cache has a newcomer go first unless it is asked for again
//! (S3-FIFO). As it comes its stored form is at hand, which later had to be compressed anew, and need not come out the
//! same, as other implementations compress to other bytes. So blocks are offered then; they wait in a bounded queue,
//! from which each device writes so many a second as OpenZFS does. What is offered meanwhile is left out: writing
//! never slows what is read or written, and what was left out comes again when it is read again.
//!
//! A device is a ring ([`ring`]): what is oldest is written over. Where a block lies is in memory ([`index`]), and in a
//! log on the device, by which it is found again after an import ([`rebuild`]).
//!
//! # Invariants
//! - Nothing that came from a cache device is handed on unless it matched the pool's checksum.
//! - The pool waits for a cache device for a moment at most, and for its failure not at all.
//! - Blocks without a checksum that can tell are neither written there nor read from there.

mod device;
mod feed;
mod index;
mod rebuild;
mod ring;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use platter_buffer::Buf;
use platter_hooks::Canary;
use platter_ondisk::l2arc::LOGGED_SIZE_MIN;
use platter_ondisk::{BlkPtr, Guid, ObjectId};
use platter_vdev::{Leaf, Priority};

pub use self::device::CacheDevice;
pub(crate) use self::feed::Origin;
pub use self::index::BLOCK_COST;
pub use self::rebuild::Rebuilt;

use self::feed::{Candidate, Feed};
use self::index::Index;
use crate::cache::{BlockCache, Caching};

/// What a device writes in a round, bytes, and what it may write beyond that until memory is full for the first time
/// (`l2arc_write_max`, `l2arc_write_boost`).
const ROUND: u64 = 32 << 20;
const BOOST: u64 = 32 << 20;
/// Time between two rounds, and after one that wrote more than half of what it may or did not keep up
/// (`l2arc_feed_secs`, `l2arc_feed_min_ms`).
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LEAST: Duration = Duration::from_millis(200);
/// Of the memory cache the index may take one part in so many, and what waits to be written another.
const INDEX_PART: u64 = 8;
const WAITING_PART: u64 = 16;
/// What may wait at most, bytes.
const WAITING_MAX: u64 = ROUND + BOOST;

/// What happened at the cache devices since the pool was opened.
#[derive(Debug, Default)]
pub struct Counters {
    /// Blocks that were found there (`l2_hits`).
    pub hits: AtomicU64,
    /// Blocks that were not (`l2_misses`).
    pub misses: AtomicU64,
    /// Blocks that did not match their checksum, and were read from the pool (`l2_cksum_bad`).
    pub wrong: AtomicU64,
    /// Reads that failed, or came to nothing in time (`l2_io_error`).
    pub unanswered: AtomicU64,
    /// Blocks that were written (`l2_writes_sent`).
    pub written: AtomicU64,
    /// Rounds of writes that failed (`l2_writes_error`).
    pub failed_rounds: AtomicU64,
}

/// The cache devices of a pool.
pub struct L2arc {
    index: RwLock<Index>,
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    /// Whether there are any: without, reading and writing take no lock here.
    is_there: AtomicBool,
    feed: Feed,
    /// Object sets of which not everything goes there.
    choosy: RwLock<BTreeMap<u64, Caching>>,
    numbers: AtomicU32,
    /// Whether memory was full once.
    is_warm: AtomicBool,
    /// Rings that end before have no log, bytes.
    logged_least: AtomicU64,
    /// The index may have no more, bytes.
    index_max: AtomicU64,
    counters: Counters,
}

impl Default for L2arc {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            devices: RwLock::default(),
            is_there: AtomicBool::new(false),
            feed: Feed::default(),
            choosy: RwLock::default(),
            numbers: AtomicU32::new(0),
            is_warm: AtomicBool::new(false),
            logged_least: AtomicU64::new(LOGGED_SIZE_MIN),
            index_max: AtomicU64::new(u64::MAX),
            counters: Counters::default(),
        }
    }
}

impl L2arc {
    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Blocks that can be found, and bytes of memory that it takes to know where, about.
    pub fn known(&self) -> (u64, u64) {
        let index = self.index.read();
        (index.blocks() as u64, index.bytes())
    }

    /// Gives devices that end before `bytes` no log, for tests.
    pub fn set_logged_least(&self, bytes: u64) {
        self.logged_least.store(bytes, Ordering::Relaxed);
    }

    /// Lets the index have `bytes` at most, if that is less than its part of memory, for tests.
    pub fn set_index_max(&self, bytes: u64) {
        self.index_max.store(bytes, Ordering::Relaxed);
    }

    /// Which of an object set's blocks go there (property `secondarycache`). What is there stays until it is written
    /// over, as in OpenZFS.
    pub fn set_caching(&self, objset: ObjectId, caching: Caching) {
        let mut choosy = self.choosy.write();
        match caching {
            Caching::All => choosy.remove(&objset.0),
            caching => choosy.insert(objset.0, caching),
        };
    }

    /// A device of pool `pool` joins, with sectors of `1 << ashift` bytes. It is used once
    /// [`rebuild`](Self::rebuild) has been called for it.
    pub fn add(&self, pool: Guid, leaf: Arc<Leaf>, ashift: u32) -> Arc<CacheDevice> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let least = self.logged_least.load(Ordering::Relaxed);
        let device = Arc::new(CacheDevice::new(number, pool, leaf, ashift, least));
        self.devices.write().push(device.clone());
        self.is_there.store(true, Ordering::Release);
        device
    }

    /// Reads what a device knows from before.
    pub async fn rebuild(&self, device: &Arc<CacheDevice>, cache: &BlockCache) -> Rebuilt {
        self.follow(cache);
        let rebuilt = device.rebuild(&self.index).await;
        self.settle(cache);
        rebuilt
    }

    /// The pool is called otherwise from now on: so say the devices' headers with what is written next.
    pub fn set_pool(&self, pool: Guid) {
        self.devices.read().iter().for_each(|device| device.set_pool(pool));
    }

    /// A device leaves: nothing is read from it or written there any more, but for what is under way.
    pub fn remove(&self, device: &CacheDevice, cache: &BlockCache) {
        device.leave();
        let mut devices = self.devices.write();
        devices.retain(|other| other.number != device.number);
        self.is_there.store(!devices.is_empty(), Ordering::Release);
        if devices.is_empty() {
            self.feed.clear();
        }
        drop(devices);
        self.index.write().forget_device(device.number);
        self.settle(cache);
    }

    /// Waits until nothing is being written to a device.
    pub async fn at_rest(&self, device: &CacheDevice) {
        drop(device.written.lock().await);
    }

    /// A block was freed.
    pub(crate) fn forget(&self, bp: &BlkPtr) {
        if self.is_there()
            && let Some(key) = BlockCache::key(bp)
        {
            self.index.write().remove(&key);
        }
    }

    /// Whether there are any.
    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// The stored bytes of a block, if a cache device has them soon, and `is_right` of them.
    pub(crate) async fn read(
        &self,
        bp: &BlkPtr,
        priority: Priority,
        is_right: &(dyn Fn(&[u8]) -> bool + Sync),
    ) -> Option<Buf> {
        if !self.is_there() {
            return None;
        }
        let key = BlockCache::key(bp)?;
        let found = self.index.read().get(&key, bp.psize());
        let Some(place) = found else {
            self.counters.misses.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let device = self.devices.read().iter().find(|device| device.number == place.device).cloned()?;
        let Some(bytes) = device.read(place, priority).await else {
            self.counters.unanswered.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        assert_eq!(bytes.len() as u64, bp.psize(), "what is read there is as long as the block");
        if !is_right(&bytes) && !Canary::CacheUnverified.sings() {
            // What was written over meanwhile is no fault.
            if self.index.write().remove_from(&key, place) {
                self.counters.wrong.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(device = device.leaf().name(), "{bp:?} is not what the cache device has");
            }
            return None;
        }
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
        Some(bytes)
    }

    /// Memory (`cache`) has taken in a block of object set `objset`, stored as `stored`, whose checksum can tell. Waits
    /// for nothing.
    pub(crate) fn offer(&self, cache: &BlockCache, objset: ObjectId, bp: &BlkPtr, stored: &Buf, origin: Origin) {
        if !self.is_there() || !self.is_wanted(cache, objset, bp) {
            return;
        }
        // The MOS is written in several passes, each over the last one.
        let may_change = origin == Origin::Written && objset == ObjectId::NONE;
        let Some(key) = BlockCache::key(bp).filter(|_| !may_change) else { return };
        if stored.len() as u64 == bp.psize() && !self.index.read().contains(&key) {
            let candidate = Candidate { key, bp: *bp, objset, stored: stored.clone() };
            self.feed.offer(candidate, origin);
        }
    }

    /// Whether a block is to be on a cache device, and may be.
    fn is_wanted(&self, cache: &BlockCache, objset: ObjectId, bp: &BlkPtr) -> bool {
        let is_metadata = bp.level() > 0 || bp.object_type().is_metadata();
        let caching = self.choosy.read().get(&objset.0).copied().unwrap_or_default();
        caching.keeps(is_metadata)
            && cache.keeps(objset, is_metadata)
            && !bp.is_protected()
            && u32::try_from(bp.psize()).is_ok()
    }

    /// Follows what memory may hold.
    fn follow(&self, cache: &BlockCache) {
        let capacity = cache.capacity();
        let most = (capacity / INDEX_PART).min(self.index_max.load(Ordering::Relaxed));
        self.index.write().set_most(most);
        self.feed.set_most((capacity / WAITING_PART).min(WAITING_MAX));
        if cache.bytes() >= capacity / 8 * 7 {
            self.is_warm.store(true, Ordering::Relaxed);
        }
    }

    /// The memory cache gives up what the index takes.
    fn settle(&self, cache: &BlockCache) {
        cache.make_room_for_index(self.index.read().bytes());
    }

    /// Writes what waits to a device, as much as it may in a round; when to come again.
    pub async fn round(&self, cache: &BlockCache, device: &Arc<CacheDevice>) -> Duration {
        self.follow(cache);
        if !device.is_ready() || !device.leaf().is_writable() || device.has_left() {
            return PAUSE;
        }
        let began = tokio::time::Instant::now();
        let boost = if self.is_warm.load(Ordering::Relaxed) { 0 } else { BOOST };
        let (blocks, taken, most) = self.gather(cache, device, ROUND + boost).await;
        assert!(taken <= most, "a round takes no more than it may");
        if blocks.is_empty() {
            return PAUSE;
        }
        let count = blocks.len() as u64;
        let give_up = |from, to| self.index.write().give_up(device.number, from, to);
        match device.write(blocks, give_up).await {
            Some(placed) if !device.has_left() => {
                let mut index = self.index.write();
                placed.into_iter().for_each(|(key, place)| index.add_newest(key, place));
                self.counters.written.fetch_add(count, Ordering::Relaxed);
            }
            Some(_) => {}
            None => {
                self.counters.failed_rounds.fetch_add(1, Ordering::Relaxed);
            }
        }
        if device.has_left() {
            self.index.write().forget_device(device.number);
        }
        self.settle(cache);
        // Where little may wait, it must not wait for long.
        let is_behind = taken > most / 2 || self.feed.was_short();
        let pause = if is_behind { PAUSE_LEAST } else { PAUSE };
        pause.saturating_sub(began.elapsed())
    }

    /// Takes blocks for one round of `wanted` bytes; with them what they take there, and what they might have.
    async fn gather(&self, cache: &BlockCache, device: &CacheDevice, wanted: u64) -> (Vec<Candidate>, u64, u64) {
        let held = device.written.lock().await;
        let Some(written) = held.as_ref() else { return (Vec::new(), 0, 1) };
        let most = written.round_max(wanted);
        let (mut blocks, mut bytes, mut is_over) = (Vec::new(), 0, false);
        while !is_over {
            let next = self.feed.next_if(|next| {
                let asize = written.asize(next.bp.psize());
                is_over = !blocks.is_empty() && written.needed(blocks.len() as u64 + 1, bytes + asize) > most;
                !is_over
            });
            let Some(next) = next else { break };
            let asize = written.asize(next.bp.psize());
            let fits = written.needed(blocks.len() as u64 + 1, bytes + asize) <= most;
            // It may have come twice, been freed and its property changed since.
            if fits && !self.index.read().contains(&next.key) && self.is_wanted(cache, next.objset, &next.bp) {
                bytes += asize;
                blocks.push(next);
            }
        }
        (blocks, bytes, most)
    }
}
