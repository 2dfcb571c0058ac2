//! The second step of a scan: what was gathered is read and verified, on each vdev in the order in which it lies there,
//! on all vdevs at once (`scan_io_queues_run`, `module/zfs/dsl_scan.c`).
//!
//! Invariant: when a slice ends, nothing is being read any more, so that freed space need not be pinned.

use std::sync::Arc;

use platter_dsl::watched;
use platter_ondisk::BlkPtr;
use platter_zio::{Bookmark, ScanQueue, Store};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::core::Core;
use crate::scan_store::Lost;

/// Bytes being verified at one time: the devices' queues join neighbours among them. Small blocks count as if they had
/// the least size, since each is work whatever its size.
pub const IN_FLIGHT: u64 = 32 << 20;
const LEAST: u64 = 16 << 10;
/// Bytes being verified at one time on all vdevs together, and on one of many at least.
const IN_FLIGHT_ALL: u64 = 256 << 20;
const IN_FLIGHT_LEAST: u64 = 4 << 20;

/// Lets what was freed meanwhile become usable, when that is much of what is left: one slice comes directly after the
/// other, and on a full pool writers would wait for the scan's end.
pub async fn let_mature(core: &Arc<Core>) {
    let held_back = core.dsl.store.state().allocator.lock().deferred();
    if held_back > core.dsl.gate.share() {
        for _ in 0..platter_zio::metaslab::DEFER {
            // A pool that stopped is noticed by the walk itself.
            let _ = core.dsl.gate.wait_synced(core.dsl.gate.open_txg()).await;
        }
    }
}

/// Looks at all that waits in the queue; `false` when interrupted.
pub async fn all(core: &Arc<Core>, lost: &Arc<Lost>, queue: &Arc<ScanQueue>) -> bool {
    while !queue.is_empty() {
        if core.scan.lock().is_interrupted() {
            return false;
        }
        let_mature(core).await;
        let _pinned = core.dsl.store.pin();
        // After the pin: what was freed before is out of the queue.
        let (vdevs, end) = (queue.vdevs(), Instant::now() + core.environment.scan_slice);
        let share = (IN_FLIGHT_ALL / vdevs.len().max(1) as u64).clamp(IN_FLIGHT_LEAST, IN_FLIGHT);
        futures::future::join_all(vdevs.into_iter().map(async |vdev| {
            let reads = Reads::new(core, lost, share);
            while let Some((bookmark, bp)) = queue.take(vdev) {
                reads.begin(bookmark, &bp).await;
                if Instant::now() >= end || core.scan.lock().is_interrupted() {
                    break;
                }
            }
            reads.drain().await;
        }))
        .await;
    }
    true
}

/// Blocks being verified, up to a number of bytes.
pub struct Reads {
    core: Arc<Core>,
    lost: Arc<Lost>,
    places: Arc<Semaphore>,
    limit: u32,
}

impl Reads {
    /// None yet.
    pub fn new(core: &Arc<Core>, lost: &Arc<Lost>, limit: u64) -> Self {
        let limit = u32::try_from(limit.min(IN_FLIGHT)).expect("it is not much");
        Self { core: core.clone(), lost: lost.clone(), places: Arc::new(Semaphore::new(limit as usize)), limit }
    }

    /// Begins with one as soon as there is place for it.
    pub async fn begin(&self, bookmark: Bookmark, bp: &BlkPtr) {
        let counted = bp.psize().clamp(LEAST, self.limit.into()) as u32;
        let place = self.places.clone().acquire_many_owned(counted).await.expect("never closed");
        let (core, lost, bp) = (self.core.clone(), self.lost.clone(), *bp);
        watched::spawn(&core.dsl.clone(), "the scan", async move {
            verify(&core, &lost, bookmark, &bp).await;
            drop(place);
        });
    }

    /// Waits for every block under verification.
    pub async fn drain(&self) {
        drop(self.places.acquire_many(self.limit).await);
        assert_eq!(self.places.available_permits(), self.limit as usize, "a block is read that may be freed now");
    }
}

async fn verify(core: &Arc<Core>, lost: &Lost, bookmark: Bookmark, bp: &BlkPtr) {
    let store: &Store = &core.dsl.store;
    let outcome = store.scrub(bp, bookmark).await;
    let bytes = bp.asize();
    let mut scrub = core.scan.lock();
    // What an earlier scan left on disk may be anything.
    scrub.phys.examined = scrub.phys.examined.saturating_add(bytes);
    scrub.issued = scrub.issued.saturating_add(bytes);
    match outcome {
        Ok(block) => {
            scrub.phys.processed = scrub.phys.processed.saturating_add(block.repaired);
            scrub.phys.errors = scrub.phys.errors.saturating_add(u64::from(block.unrepaired > 0));
        }
        Err(_) => {
            scrub.phys.errors = scrub.phys.errors.saturating_add(1);
            scrub.roster().note_lost(bp.physical_birth());
            lost.lock().insert((bookmark.objset, bookmark.object));
        }
    }
    scrub.note_progress();
}
