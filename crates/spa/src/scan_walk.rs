//! The walk of a scan: every block that it needs of every object set, in slices (`dsl_scan_visit` in
//! `module/zfs/dsl_scan.c`).
//!
//! Invariants:
//! - during a slice freed space is pinned, so that no block it is about to read is reused; when it ends, nothing is
//!   being read any more;
//! - between slices the walk restarts from the newest roots, right after the last block it saw;
//! - what cannot be read is noted as lost, and its group as unproven.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};
use platter_zio::{BlockStore, Bookmark, SpaceMet, ZioError};
use platter_zio::{Pinned, Store};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::core::Core;
use crate::scan_need::Need;
use crate::scan_order::{self, Target};
use crate::scan_place::ScanPlace;
use crate::scan_store::{self, Lost};
use platter_dsl::watched;

/// How long one slice may pin freed space.
const SLICE: Duration = Duration::from_secs(2);
/// Bytes being verified at one time: the devices' queues join neighbours among them. Small blocks count as if they had
/// the least size, since each is work whatever its size.
const IN_FLIGHT: u64 = 32 << 20;
const LEAST: u64 = 16 << 10;
/// The place of the walk is written at least this often.
const CHECKPOINT: Duration = Duration::from_secs(15);

/// Walks everything from the scan's place on; `false` when interrupted.
pub async fn everything(core: &Arc<Core>, lost: &Arc<Lost>) -> Result<bool> {
    let mut written = Instant::now();
    loop {
        let place = core.scan.lock().place;
        let Some(target) = scan_order::next(core, place).await? else { return Ok(true) };
        let (turn, objset) = (target.turn, target.id);
        let mut from = place.last.filter(|_| (turn, objset) == (place.turn, place.objset));
        let mut interior = 0;
        loop {
            core.scan.lock().place = ScanPlace { turn, objset, last: from };
            if core.scan.lock().is_interrupted() {
                return Ok(false);
            }
            if written.elapsed() >= CHECKPOINT {
                if let Err(error) = scan_store::checkpoint(core, lost).await {
                    tracing::warn!(%error, "the scrub's place could not be recorded");
                }
                written = Instant::now();
            }
            let_mature(core).await;
            let slice = Slice::new(core, &target, interior, lost.clone());
            let Some(root) = scan_order::root_of(core, &target).await? else { break };
            let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
            let end = visit(&store, objset, &root, from, &slice).await;
            slice.drain().await;
            interior = slice.interior.bytes();
            match end? {
                WalkEnd::Complete => break,
                // A slice that saw nothing, as its first block could not be had, leaves the place where it was.
                WalkEnd::Stopped => from = slice.last.lock().or(from),
            }
        }
        core.scan.lock().place = ScanPlace { turn, objset: ObjectId(objset.0 + 1), last: None };
    }
}

/// Lets what was freed meanwhile become usable, when that is much of what is left: one slice comes directly after the
/// other, and on a full pool writers would wait for the scan's end.
async fn let_mature(core: &Arc<Core>) {
    let held_back = core.dsl.store.state().allocator.lock().deferred();
    if held_back > core.dsl.gate.share() {
        for _ in 0..platter_zio::metaslab::DEFER {
            // A pool that stopped is noticed by the walk itself.
            let _ = core.dsl.gate.wait_synced(core.dsl.gate.open_txg()).await;
        }
    }
}

/// A stretch of the walk during which freed space is pinned.
struct Slice {
    core: Arc<Core>,
    _pinned: Pinned,
    after: Txg,
    until: Txg,
    need: Need,
    end: Instant,
    last: Mutex<Option<Bookmark>>,
    places: Arc<Semaphore>,
    lost: Arc<Lost>,
    stopped: AtomicBool,
    shown: AtomicU64,
    /// Deflated bytes of the blocks with others below them that were seen of this object set. They are never shared:
    /// where they take more than the pool has in use, the tree repeats them, and walking it might take for ever.
    interior: SpaceMet,
}

impl Slice {
    fn new(core: &Arc<Core>, target: &Target, interior: u64, lost: Arc<Lost>) -> Self {
        Self {
            core: core.clone(),
            _pinned: core.dsl.store.pin(),
            after: target.after,
            until: target.until,
            need: Need::of(core),
            end: Instant::now() + SLICE,
            last: Mutex::new(None),
            places: Arc::new(Semaphore::new(IN_FLIGHT as usize)),
            lost,
            stopped: AtomicBool::new(false),
            shown: AtomicU64::new(0),
            interior: SpaceMet::resumed(interior),
        }
    }

    /// Whether there can be another such block.
    fn takes(&self, bp: &BlkPtr) -> bool {
        if bp.is_embedded() || bp.level() == 0 && bp.object_type() != ObjectType::DNODE {
            return true;
        }
        self.interior.add(self.core.dsl.store.dsize(bp), || self.core.dsl.store.space_used())
    }

    /// Waits for every block under verification.
    async fn drain(&self) {
        drop(self.places.acquire_many(IN_FLIGHT as u32).await);
        assert_eq!(self.places.available_permits(), IN_FLIGHT as usize, "a block is read that may be freed now");
    }
}

impl Visitor for Slice {
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if bp.birth() <= self.after || !self.need.reaches(bp) {
                return Visit::Skip;
            }
            if !self.takes(bp) {
                let error =
                    ZioError::corrupt("block tree", format!("{bookmark}: more blocks than the pool has in use"));
                self.damaged(bookmark, bp, &error).await;
                *self.last.lock() = Some(bookmark);
                return Visit::Skip;
            }
            let is_elsewhere = bp.is_embedded() || bp.birth() > self.until;
            if !is_elsewhere && !self.need.wants(bp) {
                // Nobody lacks it.
                let mut scan = self.core.scan.lock();
                scan.phys.examined = scan.phys.examined.saturating_add(bp.asize());
                scan.note_progress();
            } else if !is_elsewhere {
                let counted = bp.psize().clamp(LEAST, IN_FLIGHT) as u32;
                let place = self.places.clone().acquire_many_owned(counted).await.expect("never closed");
                let (core, lost, bp) = (self.core.clone(), self.lost.clone(), *bp);
                watched::spawn(&core.dsl.clone(), "the scan", async move {
                    verify(&core, &lost, bookmark, &bp).await;
                    drop(place);
                });
            }
            *self.last.lock() = Some(bookmark);
            let progressed = self.shown.fetch_add(1, Ordering::Relaxed) > 0;
            if progressed && (Instant::now() >= self.end || self.core.scan.lock().is_interrupted()) {
                self.stopped.store(true, Ordering::Relaxed);
                return Visit::Stop;
            }
            Visit::Continue
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        async move {
            if let ZioError::Suspended(..) = error {
                return Visit::Stop;
            }
            // The block itself was counted when it was verified; here it is what lies below that is lost.
            self.lost.lock().insert((bookmark.objset, bookmark.object));
            self.core.scan.lock().roster().note_hidden(bp.birth().max(bp.physical_birth()));
            Visit::Continue
        }
        .boxed()
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
