//! Free ranges are read when something needs them, let go when memory is short, and what is damaged costs its own
//! space.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_buffer::Buf;
use platter_device::MemDevice;
use platter_ondisk::{BlkPtr, Checksum, Compression, Dva, ObjectId, ObjectType, Txg};
use platter_zio::metaslab::Ranges;
use platter_zio::{BlockStore, Result, ZioError};
use platter_zio::{Geometry, Group, MapAt, MapReader, Metaslab, MetaslabId, RangeSet, Store};

/// log2 of a metaslab's size.
const SHIFT: u32 = 24;
const COUNT: u64 = 4;

/// Maps in memory: of each metaslab the first half is allocated.
#[derive(Default)]
struct Maps {
    reads: AtomicU64,
    is_damaged: AtomicBool,
    is_gone: AtomicBool,
    damaged: Mutex<Vec<MetaslabId>>,
}

impl MapReader for Maps {
    fn free_ranges(&self, map: MapAt) -> BoxFuture<'_, Result<RangeSet>> {
        async move {
            self.reads.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            if self.is_gone.load(Ordering::Relaxed) {
                return Err(ZioError::Io("no device".into()));
            }
            // A damaged one allocates less than its header says.
            let from = if self.is_damaged.load(Ordering::Relaxed) { map.size / 4 } else { map.size / 2 };
            Ok(RangeSet::of(map.start + from, map.size - from))
        }
        .boxed()
    }

    fn note_damage(&self, id: MetaslabId, _reason: &str) {
        self.damaged.lock().push(id);
    }
}

async fn rig() -> (Store, Arc<Maps>) {
    let store = common::store_over(&[Arc::new(MemDevice::new("d0", common::DEVICE_BYTES))]).await;
    let geometry: Arc<dyn Geometry> = store.top(0).expect("one vdev").clone();
    let size = 1 << SHIFT;
    let on_disk = |index: u64| {
        Metaslab::on_disk(index, (index << SHIFT, size), ObjectId(100 + index), (8, size as i64 / 2)).expect("half")
    };
    *store.state().allocator.lock() = platter_zio::Allocator::default();
    store.state().allocator.lock().add_group(Group::new(0, geometry, (0..COUNT).map(on_disk).collect(), SHIFT, 1));
    let maps = Arc::new(Maps::default());
    store.set_map_reader(maps.clone());
    (store, maps)
}

fn loaded(store: &Store) -> Vec<u64> {
    let allocator = store.state().allocator.lock();
    allocator.groups()[0].metaslabs().iter().filter(|m| m.is_loaded()).map(|m| m.index).collect()
}

fn pointer(offset: u64, asize: u64) -> BlkPtr {
    let mut bp = BlkPtr::describe(
        asize,
        asize,
        Compression::OFF,
        Checksum::FLETCHER_4,
        ObjectType::PLAIN_FILE_CONTENTS,
        0,
        Txg(4),
    );
    bp.set_dva(0, Dva { vdev: 0, offset, asize, gang: false });
    bp
}

async fn write(store: &Store, length: usize) -> Result<BlkPtr> {
    store.write(Buf::copy_from(&vec![7; length]), common::policy(), &BlkPtr::HOLE).await
}

#[tokio::test]
async fn writers_that_want_the_same_metaslab_read_its_map_once() {
    let (store, maps) = rig().await;
    assert_eq!(loaded(&store), []);
    let sums = store.state().allocator.lock().allocated();
    assert_eq!(sums, COUNT << (SHIFT - 1), "known without reading a map");
    let written = futures::future::join_all((0..8).map(|_| write(&store, 4096))).await;
    assert!(written.iter().all(|bp| bp.as_ref().is_ok_and(|bp| bp.dva(0).offset >= 1 << (SHIFT - 1))));
    assert_eq!((loaded(&store), maps.reads.load(Ordering::Relaxed)), (vec![0], 1));
    assert_eq!(store.state().allocator.lock().allocated(), sums + 8 * 4096);
}

#[tokio::test]
async fn what_is_unused_longest_is_let_go_and_what_is_not_yet_written_is_kept() {
    let (store, maps) = rig().await;
    store.state().allocator.lock().set_budget(1200);
    for (index, left) in [(0, vec![0]), (1, vec![0, 1]), (2, vec![1, 2])] {
        store.load(MetaslabId { vdev: 0, index }).await;
        assert_eq!(loaded(&store), left, "two fit");
    }
    let bp = write(&store, 4096).await.expect("written");
    let used = (bp.dva(0).offset >> SHIFT) as usize;
    store.state().allocator.lock().set_budget(0);
    store.load(MetaslabId { vdev: 0, index: 3 }).await;
    assert_eq!(loaded(&store), [used as u64, 3], "the group's own stays, and what was just loaded");
    common::end_group(&store, 5);
    assert_eq!(loaded(&store), []);
    // What only memory knows of it is there when it is loaded again.
    let reads = maps.reads.load(Ordering::Relaxed);
    let before = store.state().allocator.lock().allocated();
    store.load(MetaslabId { vdev: 0, index: used }).await;
    assert_eq!(maps.reads.load(Ordering::Relaxed), reads + 1);
    let allocator = store.state().allocator.lock();
    let metaslab = &allocator.groups()[0].metaslabs()[used];
    assert!(metaslab.is_loaded() && !metaslab.allocatable.overlaps(bp.dva(0).offset, 4096));
    assert_eq!(allocator.allocated(), before);
}

#[tokio::test]
async fn a_damaged_map_costs_its_own_space_only() {
    let (store, maps) = rig().await;
    maps.is_damaged.store(true, Ordering::Relaxed);
    store.load(MetaslabId { vdev: 0, index: 0 }).await;
    maps.is_damaged.store(false, Ordering::Relaxed);
    assert_eq!(*maps.damaged.lock(), [MetaslabId { vdev: 0, index: 0 }]);
    let half = 1 << (SHIFT - 1);
    assert_eq!(store.state().allocator.lock().allocated(), (COUNT + 1) * half, "its free space is not there");
    let bp = write(&store, 4096).await.expect("there are others");
    assert!(bp.dva(0).offset >= 1 << SHIFT);
    // What is freed there is written down, and not handed out.
    store.state().allocator.lock().free(&pointer(0, 4096)).expect("nothing speaks against it");
    for txg in 5..9 {
        common::end_group(&store, txg);
    }
    let allocator = store.state().allocator.lock();
    let metaslab = &allocator.groups()[0].metaslabs()[0];
    assert!(metaslab.unflushed_frees.iter().eq([(0, 4096)]));
    assert!(matches!(metaslab.ranges, Ranges::Damaged(_)) && metaslab.allocated() == metaslab.size);
    assert_eq!(allocator.groups()[0].damaged(), 1);
}

#[tokio::test]
async fn what_was_freed_without_being_allocated_is_found_when_the_map_is_read() {
    let free = pointer(1 << (SHIFT - 1), 4096);
    let (store, _) = rig().await;
    assert!(!store.is_allocated(&free).await, "with memory for the ranges it is noticed at once");
    let (store, maps) = rig().await;
    store.state().allocator.lock().set_budget(0);
    assert!(store.is_allocated(&free).await, "without, nobody knows");
    assert_eq!(maps.reads.load(Ordering::Relaxed), 0);
    store.state().allocator.lock().free(&free).expect("nobody knows");
    for txg in 5..9 {
        common::end_group(&store, txg);
    }
    assert!(store.state().allocator.lock().free(&free).is_err(), "what was freed lately is known");
    store.load(MetaslabId { vdev: 0, index: 0 }).await;
    assert_eq!(maps.damaged.lock().len(), 1);
}

#[tokio::test]
async fn a_map_that_no_device_reads_is_tried_again_in_the_next_group() {
    let (store, maps) = rig().await;
    maps.is_gone.store(true, Ordering::Relaxed);
    assert!(matches!(write(&store, 4096).await, Err(ZioError::NoSpace)));
    assert_eq!(maps.reads.load(Ordering::Relaxed), COUNT, "each once");
    maps.is_gone.store(false, Ordering::Relaxed);
    common::end_group(&store, 5);
    write(&store, 4096).await.expect("the device is back");
    assert!(maps.damaged.lock().is_empty());
}

#[tokio::test]
async fn a_pool_without_room_reads_each_map_once() {
    let (store, maps) = rig().await;
    let half = 1 << (SHIFT - 1);
    for index in 0..COUNT {
        let bp = pointer((index << SHIFT) + half, half);
        store.claim(&bp).await.expect("it is free");
    }
    assert!(store.claim(&pointer(half, 4096)).await.is_err(), "it was claimed");
    common::end_group(&store, 5);
    store.state().allocator.lock().set_budget(0);
    store.state().allocator.lock().finish(Txg(6));
    assert_eq!(loaded(&store), []);
    let reads = maps.reads.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert!(matches!(write(&store, 4096).await, Err(ZioError::NoSpace)));
    }
    assert_eq!(maps.reads.load(Ordering::Relaxed), reads, "the sums say that there is nothing");
}

/// What is being given up must not be handed out; and who needs the room waits instead of failing.
#[tokio::test]
async fn nothing_is_handed_out_of_a_disabled_metaslab_and_who_needs_it_waits() {
    let (store, _) = rig().await;
    let mut disabled = Vec::new();
    for index in 0..COUNT as usize {
        disabled.push(store.disable(MetaslabId { vdev: 0, index }).await.expect("its ranges are known"));
    }
    let free: Vec<_> = disabled.iter().flat_map(|disabled| disabled.free().to_vec()).collect();
    assert_eq!(free.len(), COUNT as usize);
    let waiting = store.allocate_log(4096, Txg(6), platter_zio::LogBias::Latency);
    let mut waiting = std::pin::pin!(waiting);
    for _ in 0..10 {
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    // More than one may work there.
    let again = store.disable(MetaslabId { vdev: 0, index: 2 }).await.expect("once more");
    disabled.remove(2);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    drop(again);
    let dva = waiting.await.expect("there is room");
    assert_eq!(dva.offset >> SHIFT, 2);
}

#[tokio::test]
async fn what_is_left_of_what_became_free_is_told_again() {
    let (store, _) = rig().await;
    let id = MetaslabId { vdev: 0, index: 1 };
    store.state().allocator.lock().note_frees(true);
    let freed = store.disable_freed(id).await.expect("its ranges are known");
    assert_eq!(freed.free(), [], "nothing has become free since");
    let start = store.disable(id).await.expect("once more").free()[0].0;
    let rest = [(start, 4096), (start + 8192, 4096)];
    freed.note_again(&rest);
    drop(freed);
    let again = store.disable_freed(id).await.expect("once more");
    assert_eq!(again.free(), rest);
    store.state().allocator.lock().note_frees(false);
    again.note_again(&rest);
    drop(again);
    assert_eq!(store.disable_freed(id).await.expect("once more").free(), [], "nobody wants to know any more");
}
