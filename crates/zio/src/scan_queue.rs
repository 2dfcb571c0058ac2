//! Blocks that a scan has found and not looked at yet, by their places on the vdevs, so that they are read in the order
//! in which they lie there (`dsl_scan_io_queue_t`, `module/zfs/dsl_scan.c`).
//!
//! Invariant: the space of every block that waits is still the block's. What was freed leaves the queue before its
//! space can be handed out again ([`Allocator::finish`](crate::Allocator::finish) says so).

use std::sync::Arc;

use platter_ondisk::BlkPtr;

use crate::policy::Bookmark;
use crate::store::Store;
use crate::waiting_blocks::Shared;

/// What a block that waits takes in memory at most, in bytes, with its share of the tree.
pub const ENTRY_BYTES: u64 = 256;

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
        self.shared.0.lock().add(first.vdev, first.offset, bookmark, bp);
    }

    /// Takes the next block of a vdev, while freed space is [pinned](Store::pin).
    pub fn take(&self, vdev: u32) -> Option<(Bookmark, BlkPtr)> {
        self.shared.0.lock().take(vdev)
    }

    /// The vdevs with blocks that wait.
    pub fn vdevs(&self) -> Vec<u32> {
        self.shared.0.lock().vdevs()
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.shared.0.lock().count()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The space that they take, in bytes.
    pub fn bytes(&self) -> u64 {
        self.shared.0.lock().bytes()
    }
}
