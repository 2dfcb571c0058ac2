//! Blocks that a scan has found and not looked at yet, by their places on the vdevs, so that they are read in the order
//! in which they lie there (`dsl_scan_io_queue_t`, `module/zfs/dsl_scan.c`).
//!
//! Invariant: the space of every block that waits is still the block's. What was freed leaves the queue before its space
//! can be handed out again ([`Allocator::finish`](crate::Allocator::finish) says so).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_hooks::Canary;
use platter_ondisk::{BlkPtr, ObjectId};

use crate::policy::Bookmark;
use crate::store::Store;

/// What a block that waits takes in memory at most, in bytes, with its share of the tree.
pub const ENTRY_BYTES: u64 = 256;

/// Where a block's first copy begins on its vdev, and whose it is: who shares a block waits beside the other.
type Place = (u64, Bookmark);

/// Comes before every other of its offset.
const FIRST: Bookmark = Bookmark { objset: ObjectId::NONE, object: ObjectId::NONE, level: i8::MIN, blkid: 0 };

#[derive(Default)]
struct Waiting {
    /// By vdev; none of them is empty.
    blocks: BTreeMap<u32, BTreeMap<Place, BlkPtr>>,
    count: usize,
    bytes: u64,
}

impl Waiting {
    /// Takes the blocks of `vdev` at these places, which it has.
    fn remove(&mut self, vdev: u32, places: &[Place]) -> Vec<BlkPtr> {
        let Some(of_vdev) = self.blocks.get_mut(&vdev) else { return Vec::new() };
        let taken: Vec<BlkPtr> = places.iter().filter_map(|place| of_vdev.remove(place)).collect();
        if of_vdev.is_empty() {
            self.blocks.remove(&vdev);
        }
        self.count -= taken.len();
        self.bytes -= taken.iter().map(BlkPtr::asize).sum::<u64>();
        taken
    }
}

/// What waits, shared with the allocator.
#[derive(Default)]
pub(crate) struct Shared(Mutex<Waiting>);

impl Shared {
    /// `length` bytes of `vdev` from `offset` on can be handed out again.
    pub(crate) fn forget(&self, vdev: u32, offset: u64, length: u64) {
        if Canary::FreedStillScanned.sings() {
            return;
        }
        let mut waiting = self.0.lock();
        let Some(of_vdev) = waiting.blocks.get(&vdev) else { return };
        let range = (offset, FIRST)..(offset.saturating_add(length), FIRST);
        let gone: Vec<Place> = of_vdev.range(range).map(|(place, _)| *place).collect();
        waiting.remove(vdev, &gone);
    }
}

/// The queue of a scan. What is freed leaves it for as long as it is there; a pool has one at a time.
pub struct ScanQueue {
    shared: Arc<Shared>,
    store: Store,
}

impl Store {
    /// An empty queue for a scan of this pool.
    pub fn scan_queue(&self) -> ScanQueue {
        let shared = Arc::<Shared>::default();
        self.state().allocator.lock().watch_reuse(Some(shared.clone()));
        ScanQueue { shared, store: self.clone() }
    }
}

impl Drop for ScanQueue {
    fn drop(&mut self) {
        self.store.state().allocator.lock().watch_reuse(None);
    }
}

impl ScanQueue {
    /// Adds a block that is in use, while freed space is [pinned](Store::pin).
    pub fn add(&self, bookmark: Bookmark, bp: &BlkPtr) {
        debug_assert!(
            self.store.state().allocator.lock().is_pinned(),
            "what was found may be freed and reused already"
        );
        let first = bp.dvas().next().expect("a block that is looked at lies somewhere");
        let mut waiting = self.shared.0.lock();
        let of_vdev = waiting.blocks.entry(first.vdev).or_default();
        if of_vdev.insert((first.offset, bookmark), *bp).is_none() {
            waiting.count += 1;
            waiting.bytes += bp.asize();
        }
    }

    /// Takes the next block of a vdev, while freed space is [pinned](Store::pin).
    pub fn take(&self, vdev: u32) -> Option<(Bookmark, BlkPtr)> {
        let mut waiting = self.shared.0.lock();
        let place = *waiting.blocks.get(&vdev)?.first_key_value()?.0;
        Some((place.1, waiting.remove(vdev, &[place])[0]))
    }

    /// The vdevs with blocks that wait.
    pub fn vdevs(&self) -> Vec<u32> {
        self.shared.0.lock().blocks.keys().copied().collect()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.shared.0.lock().count
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The space that they take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.0.lock().bytes
    }
}
