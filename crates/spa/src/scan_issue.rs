//! The second step of a scan: what was gathered is read and verified, on each vdev in the order in which it lies there,
//! on all vdevs at once (`scan_io_queues_run`, `module/zfs/dsl_scan.c`).
//!
//! Invariant: when a slice ends, nothing is being read any more, so that freed space need not be pinned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use platter_dsl::watched;
use platter_ondisk::BlkPtr;
use platter_zio::{Bookmark, ScanQueue, Store};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::core::Core;
use crate::lost::Lost;

/// Bytes being verified at one time for each device of a vdev: the devices' queues join neighbours among them
/// (`zfs_scan_vdev_limit`). Small blocks count as if they had the least size, since each is work whatever its size.
const IN_FLIGHT_LEAF: u64 = 16 << 20;
const LEAST: u64 = 16 << 10;
/// Bytes being verified at one time on all vdevs together, of which one of many has so many at least; and the part of
/// the memory for blocks that they may take.
const IN_FLIGHT_ALL: u64 = 512 << 20;
const IN_FLIGHT_LEAST: u64 = 4 << 20;
const MEMORY_PART: u64 = 4;
/// Bytes being verified at one time of what has no turn.
pub const IN_FLIGHT_AT_ONCE: u64 = 32 << 20;

/// So long what was freed may be kept from being reused: whoever deletes files wants to see their space.
const HELD_BACK: Duration = Duration::from_secs(60);

/// Whether what was freed has to become usable: it is much of what is left, so that writers of a full pool would wait
/// for it, or has been held back for long.
fn holds_back(core: &Core) -> bool {
    let held = core.dsl.store.state().allocator.lock().deferred();
    held > core.dsl.gate.share() || held > 0 && core.scan.lock().matured.is_some_and(|at| at.elapsed() >= HELD_BACK)
}

/// Lets what was freed meanwhile become usable, when it [has to](holds_back): one slice comes directly after the other.
pub async fn let_mature(core: &Arc<Core>) {
    if holds_back(core) {
        for _ in 0..platter_zio::metaslab::DEFER {
            // A pool that stopped is noticed by the walk itself.
            let _ = core.dsl.gate.wait_synced(core.dsl.gate.open_txg()).await;
        }
        core.scan.lock().matured = Some(Instant::now());
    }
}

/// How long what waits is looked at without a pause. At a slice's end nothing is being read, and devices stand still:
/// it is lengthened as long as nobody waits for freed space.
struct Slice<'a> {
    core: &'a Core,
    end: Mutex<Instant>,
    is_over: AtomicBool,
}

impl<'a> Slice<'a> {
    fn begin(core: &'a Core) -> Self {
        Self { core, end: Mutex::new(Instant::now() + core.environment.scan_slice), is_over: AtomicBool::new(false) }
    }

    /// Whether it is over, for all vdevs.
    fn is_over(&self) -> bool {
        if self.core.scan.lock().is_interrupted() {
            return true;
        }
        let (mut end, now) = (self.end.lock(), Instant::now());
        if now >= *end {
            if holds_back(self.core) {
                self.is_over.store(true, Ordering::Relaxed);
            }
            *end = now + self.core.environment.scan_slice;
        }
        self.is_over.load(Ordering::Relaxed)
    }
}

/// How many bytes of each of `vdevs` are verified at one time.
fn limits(core: &Core, vdevs: &[u32]) -> Vec<u64> {
    let leaves = |vdev: &u32| core.dsl.store.top(*vdev).map_or(1, |top| top.leaves().len()) as u64;
    let wanted: Vec<u64> = vdevs.iter().map(|vdev| leaves(vdev).saturating_mul(IN_FLIGHT_LEAF)).collect();
    let (all, most) = (wanted.iter().sum::<u64>(), IN_FLIGHT_ALL.min(core.environment.cache_bytes / MEMORY_PART));
    let part = |wanted: u64| (u128::from(wanted) * u128::from(most) / u128::from(all.max(1))) as u64;
    wanted.into_iter().map(|wanted| part(wanted).min(wanted).max(IN_FLIGHT_LEAST)).collect()
}

/// Looks at all that waits in the queue; `false` when interrupted.
pub async fn all(core: &Arc<Core>, lost: &Arc<Mutex<Lost>>, queue: &Arc<ScanQueue>) -> bool {
    while !queue.is_empty() {
        if core.scan.lock().is_interrupted() {
            return false;
        }
        let_mature(core).await;
        let _pinned = core.dsl.store.pin();
        // After the pin: what was freed before is out of the queue.
        let (vdevs, slice) = (queue.vdevs(), Slice::begin(core));
        let limits = limits(core, &vdevs);
        futures::future::join_all(vdevs.into_iter().zip(limits).map(async |(vdev, limit)| {
            let reads = Reads::new(core, lost, limit);
            while let Some((bookmark, bp)) = queue.take(vdev) {
                reads.begin(bookmark, &bp).await;
                if slice.is_over() {
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
    lost: Arc<Mutex<Lost>>,
    places: Arc<Semaphore>,
    limit: u32,
}

impl Reads {
    /// None yet.
    pub fn new(core: &Arc<Core>, lost: &Arc<Mutex<Lost>>, limit: u64) -> Self {
        assert!(limit <= IN_FLIGHT_ALL, "so much is never read at one time");
        let limit = u32::try_from(limit).expect("it is not much");
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

async fn verify(core: &Arc<Core>, lost: &Mutex<Lost>, bookmark: Bookmark, bp: &BlkPtr) {
    let store: &Store = &core.dsl.store;
    let outcome = store.scrub(bp, bookmark).await;
    let bytes = bp.asize();
    // What leads to others was read, and so mended, before its turn came.
    let mended = store.state().repaired_by_walks.swap(0, Ordering::Relaxed);
    let mut scrub = core.scan.lock();
    // What an earlier scan left on disk may be anything.
    scrub.phys.examined = scrub.phys.examined.saturating_add(bytes);
    scrub.issued = scrub.issued.saturating_add(bytes);
    scrub.phys.processed = scrub.phys.processed.saturating_add(mended);
    match outcome {
        Ok(block) => {
            scrub.phys.processed = scrub.phys.processed.saturating_add(block.repaired);
            scrub.phys.errors = scrub.phys.errors.saturating_add(u64::from(block.unrepaired > 0));
        }
        Err(_) => {
            scrub.phys.errors = scrub.phys.errors.saturating_add(1);
            scrub.roster().note_lost(bp.physical_birth());
            lost.lock().add(bookmark, bp);
        }
    }
    scrub.note_progress();
}
