//! Cache devices over devices in memory: what is found on them, and what happens when they lie, fail or hang.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use platter_buffer::Buf;
use platter_device::{BlockDevice, DeviceError, Fault, FaultDevice, FaultKind, Geometry, MemDevice, ReadSlot};
use platter_ondisk::l2arc::{DeviceHeader, HEADER_OFFSET};
use platter_ondisk::{BlkPtr, Compression, Guid, ObjectId};
use platter_vdev::{DeviceOpener, Leaf, OpenError, VdevKind, VdevSpec};
use platter_zio::{BlockReader, BlockStore, CacheDevice, Caching, Priority, Store, WritePolicy};
use tokio::sync::Semaphore;

use crate::common::{DEVICE_BYTES, policy, store_over, store_with};

mod common;

const POOL: Guid = Guid(77);
/// Bytes of a cache device: its ring has room for a log with several entries.
const CACHE_BYTES: u64 = 96 << 20;
const BLOCK: u64 = 128 << 10;

struct There(Arc<dyn BlockDevice>);

#[async_trait]
impl DeviceOpener for There {
    async fn open(&self, _: &VdevSpec) -> Result<Arc<dyn BlockDevice>, OpenError> {
        Ok(self.0.clone())
    }
}

/// A pool of one device, and a cache device beside it.
struct Rig {
    store: Store,
    data: Arc<FaultDevice>,
    cache: Arc<CacheDevice>,
    blocks: Vec<BlkPtr>,
}

fn contents(number: u64) -> Buf {
    let bytes: Vec<u8> = (0..BLOCK).map(|at| (number.wrapping_mul(31).wrapping_add(at / 64) % 251) as u8).collect();
    Buf::copy_from(&bytes)
}

async fn leaf(device: Arc<dyn BlockDevice>) -> Arc<Leaf> {
    let spec = VdevSpec { guid: Guid(5), ..VdevSpec::leaf(VdevKind::File, "cache") };
    Leaf::open(&spec, &There(device), true, 0).await
}

async fn join(store: &Store, device: Arc<dyn BlockDevice>) -> (Arc<CacheDevice>, u64) {
    let l2arc = &store.state().l2arc;
    l2arc.set_logged_least(0);
    let cache = l2arc.add(POOL, leaf(device).await, 12);
    let rebuilt = l2arc.rebuild(&cache, store.cache()).await;
    (cache, rebuilt.blocks)
}

impl Rig {
    /// With this many blocks in the pool, none of them in memory.
    async fn new(blocks: u64, cache: Arc<dyn BlockDevice>) -> Self {
        Self::with(blocks, cache, Compression::LZ4).await
    }

    async fn with(blocks: u64, cache: Arc<dyn BlockDevice>, compression: Compression) -> Self {
        let data = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", DEVICE_BYTES))));
        let store = store_over(std::slice::from_ref(&data)).await;
        let mut pointers = Vec::new();
        for number in 0..blocks {
            let policy = WritePolicy { compression, ..policy() };
            pointers.push(store.write(contents(number), policy, &BlkPtr::default()).await.expect("written"));
        }
        store.cache().set_capacity(64 << 20);
        store.cache().clear();
        let (cache, _) = join(&store, cache).await;
        Self { store, data, cache, blocks: pointers }
    }

    async fn read(&self, number: u64) {
        let found = self.store.read(&self.blocks[number as usize], policy().bookmark, Priority::SyncRead).await;
        assert_eq!(found.expect("read"), contents(number), "block {number}");
    }

    async fn feed(&self) {
        self.store.state().l2arc.round(self.store.cache(), &self.cache).await;
    }

    /// Reads all blocks past memory; how many reads reached the pool's device.
    async fn read_all(&self) -> u64 {
        self.store.cache().clear();
        let before = self.data.transfers().0;
        for number in 0..self.blocks.len() as u64 {
            self.read(number).await;
        }
        self.data.transfers().0 - before
    }

    fn count(&self, which: impl Fn(&platter_zio::l2arc::Counters) -> &AtomicU64) -> u64 {
        which(self.store.state().l2arc.counters()).load(Ordering::Relaxed)
    }

    fn header(&self, device: &MemDevice) -> DeviceHeader {
        let mut bytes = vec![0; 4096];
        device.peek(HEADER_OFFSET, &mut bytes);
        DeviceHeader::decode(&bytes, 12, platter_checksum::sha256).expect("a header")
    }
}

fn memory() -> Arc<MemDevice> {
    Arc::new(MemDevice::new("cache", CACHE_BYTES))
}

#[tokio::test]
async fn what_left_memory_is_read_from_the_cache_device() {
    let rig = Rig::new(40, memory()).await;
    assert_eq!(rig.read_all().await, 40);
    rig.feed().await;
    assert_eq!((rig.read_all().await, rig.count(|c| &c.hits)), (0, 40));
    assert_eq!(rig.store.state().l2arc.known(), (40, 40 * platter_zio::l2arc::BLOCK_COST));
    assert!(rig.cache.allocated() > 0 && rig.cache.allocated() < rig.cache.size());
    // A block that was freed is forgotten.
    rig.store.free(policy().txg, &rig.blocks[3]);
    assert_eq!(rig.store.state().l2arc.known().0, 39);
}

#[tokio::test]
async fn what_memory_has_is_not_written_twice() {
    let rig = Rig::new(10, memory()).await;
    for _ in 0..3 {
        rig.read_all().await;
        rig.feed().await;
    }
    assert_eq!((rig.count(|c| &c.written), rig.count(|c| &c.hits)), (10, 20));
}

#[tokio::test]
async fn each_object_set_is_cached_as_its_property_says() {
    for (caching, expected) in [(Caching::All, 10), (Caching::Metadata, 0), (Caching::Nothing, 0)] {
        let rig = Rig::new(10, memory()).await;
        rig.store.state().l2arc.set_caching(policy().bookmark.objset, caching);
        rig.read_all().await;
        rig.feed().await;
        assert_eq!(rig.store.state().l2arc.known().0, expected, "{caching:?}");
    }
    // What is not kept in memory does not come from there.
    let rig = Rig::new(10, memory()).await;
    rig.store.state().cache.set_caching(policy().bookmark.objset, Caching::Nothing);
    rig.read_all().await;
    rig.feed().await;
    assert_eq!(rig.store.state().l2arc.known().0, 0);
    assert_ne!(policy().bookmark.objset, ObjectId::NONE);
}

/// Bytes that do not compress.
fn noise(seed: u64) -> Buf {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 16) as u8
    };
    let bytes: Vec<u8> = (0..BLOCK).map(|_| next()).collect();
    Buf::copy_from(&bytes)
}

/// Three rings full of blocks, each read once: what was written first is written over, and what is left is found, also
/// after the device was opened anew.
#[tokio::test]
async fn it_goes_round_and_is_found_again() {
    const BLOCKS: u64 = 1200;
    let device = Arc::new(MemDevice::new("cache", 64 << 20));
    let data = Arc::new(FaultDevice::new(Arc::new(MemDevice::new("d0", 256 << 20))));
    let store = store_with(std::slice::from_ref(&data), 12).await;
    let mut blocks = Vec::new();
    for number in 0..BLOCKS {
        blocks.push(store.write(noise(number), policy(), &BlkPtr::default()).await.expect("written"));
    }
    store.cache().set_capacity(64 << 20);
    let (cache, _) = join(&store, device.clone()).await;
    let read = async |numbers: std::ops::Range<u64>| {
        store.cache().clear();
        let before = data.transfers().0;
        for number in numbers {
            let bp = &blocks[number as usize];
            let found = store.read(bp, policy().bookmark, Priority::SyncRead).await.expect("read");
            assert_eq!(found, noise(number), "block {number}");
        }
        data.transfers().0 - before
    };
    for first in (0..BLOCKS).step_by(25) {
        assert_eq!(read(first..first + 25).await, 25);
        store.state().l2arc.round(store.cache(), &cache).await;
    }
    let mut bytes = vec![0; 4096];
    device.peek(HEADER_OFFSET, &mut bytes);
    let header = DeviceHeader::decode(&bytes, 12, platter_checksum::sha256).expect("a header");
    assert!(!header.is_first && header.log_entries == 3, "{header:?}");
    let (known, _) = store.state().l2arc.known();
    assert!(known > 300 && known * BLOCK < cache.size(), "{known} of {} bytes", cache.size());
    assert_eq!(read(BLOCKS - known..BLOCKS).await, 0, "the latest are there");
    assert_eq!(read(0..10).await, 10, "the first are not");

    store.state().l2arc.remove(&cache, store.cache());
    assert_eq!(store.state().l2arc.known(), (0, 0));
    let (_, found) = join(&store, device.clone()).await;
    assert_eq!(found, header.log_count * header.log_entries, "as many as the header says");
    assert!(known - found < 2 * header.log_entries + 25, "{found} of {known}");
    let from_pool = read(BLOCKS - found..BLOCKS).await;
    assert!(from_pool <= header.log_entries, "{from_pool} reads");
    assert_eq!(store.state().l2arc.counters().wrong.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_changed_bit_gives_wrong_contents() {
    let device = memory();
    let rig = Rig::new(20, device.clone()).await;
    rig.read_all().await;
    rig.feed().await;
    let header = rig.header(&device);
    // In each block that lies there.
    let mut byte = [0];
    let start = header.start;
    for at in (start..start + rig.cache.allocated()).step_by(1024) {
        device.peek(at, &mut byte);
        device.poke(at, &[byte[0] ^ 4]);
    }
    let from_pool = rig.read_all().await;
    assert!(from_pool > 0 && from_pool == rig.count(|c| &c.wrong), "{from_pool}");
    assert_eq!(rig.count(|c| &c.hits) + from_pool, 20);
}

#[tokio::test]
async fn a_damaged_header_or_log_costs_what_it_knew_and_no_more() {
    let device = memory();
    let mut rig = Rig::new(60, device.clone()).await;
    rig.read_all().await;
    rig.feed().await;
    let header = rig.header(&device);
    assert!(header.log_count >= 6 && header.log_entries == 5, "{header:?}");
    let reopen = async |rig: &mut Rig| {
        rig.store.state().l2arc.remove(&rig.cache, rig.store.cache());
        let (cache, found) = join(&rig.store, device.clone()).await;
        rig.cache = cache;
        found
    };
    assert_eq!(reopen(&mut rig).await, header.log_count * header.log_entries);
    // The second log block: only the newest is found before it.
    let mut bytes = [0; 512];
    device.peek(header.last[1].offset, &mut bytes);
    bytes[100] ^= 1;
    device.poke(header.last[1].offset, &bytes);
    assert_eq!(reopen(&mut rig).await, header.log_entries);
    rig.read_all().await;
    // The header: all is lost, and another one is there.
    device.peek(HEADER_OFFSET, &mut bytes);
    bytes[40] ^= 1;
    device.poke(HEADER_OFFSET, &bytes);
    assert_eq!(reopen(&mut rig).await, 0);
    assert_eq!(rig.header(&device).log_count, 0);
    assert_eq!(rig.read_all().await, 60);
    // A device of another size begins anew, too.
    rig.feed().await;
    let larger = Arc::new(MemDevice::new("larger", CACHE_BYTES + (1 << 20)));
    let mut all = vec![0; CACHE_BYTES as usize];
    device.peek(0, &mut all);
    larger.poke(0, &all);
    let (_, found) = join(&rig.store, larger).await;
    assert_eq!((found, rig.count(|c| &c.wrong)), (0, 0));
}

#[tokio::test]
async fn a_device_that_fails_is_given_up_and_nobody_notices() {
    let device = Arc::new(FaultDevice::new(memory()));
    let rig = Rig::with(30, device.clone(), Compression::OFF).await;
    rig.read_all().await;
    // In the middle of a round: nothing of it is found.
    let middle = HEADER_OFFSET + 4096 + (1 << 20);
    device.inject(Fault { kind: FaultKind::WriteError, offset: middle, length: 1 << 20, times: 2 });
    rig.feed().await;
    assert_eq!((rig.store.state().l2arc.known().0, rig.count(|c| &c.failed_rounds)), (0, 1));
    assert_eq!(rig.read_all().await, 30);
    rig.feed().await;
    assert_eq!(rig.read_all().await, 0);
    // Reads that fail come from the pool, until the device is given up.
    device.inject(Fault::everywhere(FaultKind::ReadError));
    assert_eq!(rig.read_all().await, 30);
    assert!(!rig.cache.leaf().is_usable(), "{:?}", rig.cache.leaf().condition());
    let asked = device.transfers().0;
    assert_eq!(rig.read_all().await, 30);
    rig.feed().await;
    assert_eq!(device.transfers().0, asked, "nothing more is asked of it");
}

#[tokio::test]
async fn a_device_that_is_pulled_out_is_removed() {
    let device = Arc::new(FaultDevice::new(memory()));
    let rig = Rig::new(10, device.clone()).await;
    rig.read_all().await;
    rig.feed().await;
    device.disappear();
    assert_eq!(rig.read_all().await, 10);
    rig.feed().await;
    assert_eq!(rig.cache.leaf().condition().name(), "REMOVED");
}

/// A device whose reads or writes wait until they are let go.
#[derive(Debug)]
struct Hanging {
    inner: Arc<MemDevice>,
    reads: Semaphore,
    writes: Semaphore,
}

#[async_trait]
impl BlockDevice for Hanging {
    fn name(&self) -> String {
        self.inner.name()
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn is_writable(&self) -> bool {
        true
    }
    async fn read_into(&self, offset: u64, slots: Vec<ReadSlot>) -> (Vec<ReadSlot>, Result<(), DeviceError>) {
        drop(self.reads.acquire().await.expect("never closed"));
        self.inner.read_into(offset, slots).await
    }
    async fn write(&self, offset: u64, data: Vec<Buf>) -> Result<(), DeviceError> {
        drop(self.writes.acquire().await.expect("never closed"));
        self.inner.write(offset, data).await
    }
    async fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush().await
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_a_device_that_hangs() {
    let (reads, writes) = (Semaphore::new(100), Semaphore::new(100));
    let device = Arc::new(Hanging { inner: memory(), reads, writes });
    let rig = Rig::new(40, device.clone()).await;
    rig.read_all().await;
    rig.feed().await;
    let held = device.reads.acquire_many(100).await.expect("held");
    let began = tokio::time::Instant::now();
    assert_eq!(rig.read_all().await, 40);
    // One reader waited for a moment.
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
    drop(held);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.read_all().await, 0);
    // Rounds that hang hold nobody up either.
    let mut more = Vec::new();
    for number in 50..70 {
        let policy = WritePolicy { compression: Compression::LZ4, ..policy() };
        more.push(rig.store.write(contents(number), policy, &BlkPtr::default()).await.expect("written"));
    }
    let held = device.writes.acquire_many(100).await.expect("held");
    let (store, cache) = (rig.store.clone(), rig.cache.clone());
    let round = tokio::spawn(async move { store.state().l2arc.round(store.cache(), &cache).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = tokio::time::Instant::now();
    rig.read_all().await;
    rig.store.write(contents(99), policy(), &BlkPtr::default()).await.expect("written");
    assert_eq!(began.elapsed(), Duration::ZERO);
    // It leaves while it hangs, and what it still writes is not found.
    rig.store.state().l2arc.remove(&rig.cache, rig.store.cache());
    assert!(!round.is_finished());
    drop(held);
    round.await.expect("it ends");
    assert_eq!(rig.store.state().l2arc.known(), (0, 0));
    assert_eq!(rig.read_all().await, 40);
    drop(more);
}

#[tokio::test]
async fn the_index_takes_no_more_than_its_part_of_memory() {
    let rig = Rig::new(60, memory()).await;
    // Room for 32 entries: the least that memory may hold is 1 MiB.
    let part = 32 * platter_zio::l2arc::BLOCK_COST;
    rig.read_all().await;
    rig.store.state().l2arc.set_index_max(part);
    rig.feed().await;
    assert_eq!(rig.store.state().l2arc.known(), (32, part));
    // The latest are known.
    assert_eq!(rig.read_all().await, 28);
    assert!(rig.store.cache().capacity() == 64 << 20);
}
