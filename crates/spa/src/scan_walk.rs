//! The walk of a scan, in rounds of two steps (`dsl_scan_visit` and `scan_io_queues_run` in `module/zfs/dsl_scan.c`):
//! it gathers the blocks that it needs of every object set, as far as memory allows, and then has them looked at in the
//! order in which they lie on the vdevs ([`scan_issue`](crate::scan_issue)).
//!
//! Invariants:
//! - both steps go in slices during which freed space is pinned, so that no block that is about to be read is reused;
//!   when a slice ends, nothing is being read any more;
//! - between slices the walk restarts from the newest roots, right after the last block it saw;
//! - the scan's place, and what is counted up to there, moves on when all before it was looked at: what comes between
//!   makes it go on from there;
//! - what cannot be read is noted as lost, and its group as unproven.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};
use platter_zio::{BlockStore, Bookmark, ENTRY_BYTES, Pinned, ScanQueue, SpaceMet, ZioError};
use tokio::time::Instant;

use crate::core::Core;
use crate::lost::Lost;
use crate::object_path::LOG_LEVEL;
use crate::scan_issue::{self, Reads, let_mature};
use crate::scan_need::Need;
use crate::scan_order::{self, Target};
use crate::scan_place::ScanPlace;
use crate::{dtl, scan_store};

/// The place of the walk is written at least this often, where rounds are not longer.
const CHECKPOINT: Duration = Duration::from_secs(15);
/// Each round passes over the vdevs once, so the next one gathers up to so many times as much: those before the last
/// are little of the whole.
const GROWTH: u128 = 256;
const MANY: u128 = 16;
const DENSER: u128 = 4;
/// Blocks that the first round gathers at most for each device: a disk passes over so many within a minute, however far
/// apart they are.
const FIRST_BLOCKS: usize = 8192;
/// No longer than this should a round take: what comes between makes the scan do it again.
const ROUND: Duration = Duration::from_secs(300);
/// What is left of the pool is one round with the one before, when both are so many times that one at most.
const STRETCH: u8 = 2;
/// The first round takes a minute.
const FIRST_STRETCH: u8 = 4;
/// The part of the memory for blocks that those that wait may take (`zfs_scan_mem_lim_fact`, of all memory).
const MEMORY_PART: u64 = 16;
/// So many may wait in any case.
const WAITING_LEAST: u64 = 1024;

/// Why gathering came to an end.
enum Gathered {
    /// There is enough for a round.
    Enough,
    /// There is nothing more.
    Everything,
    /// Something interrupts the walk.
    Interrupted,
}

/// How much a round gathers.
#[derive(Clone, Copy)]
struct Round {
    bytes: u64,
    blocks: usize,
    /// As many as memory allows.
    blocks_max: usize,
    /// With so many times as much it still takes no longer than [`ROUND`], or twice that.
    stretch: u8,
}

impl Round {
    fn first(core: &Core) -> Self {
        let blocks = (core.environment.cache_bytes / MEMORY_PART / ENTRY_BYTES).max(WAITING_LEAST);
        let blocks_max = usize::try_from(blocks).unwrap_or(usize::MAX);
        let leaves = dtl::leaves(core).len().max(1);
        let bytes = core.environment.scan_round.saturating_mul(leaves as u64);
        Self { bytes, blocks: blocks_max.min(FIRST_BLOCKS.saturating_mul(leaves)), blocks_max, stretch: FIRST_STRETCH }
    }

    /// The one after this one, which took so long.
    fn next(self, took: Duration) -> Self {
        let longer = ROUND.as_millis() / took.as_millis().max(1);
        // Of so many times as many each takes less time: they lie closer to each other.
        let growth = if longer >= MANY { longer.saturating_mul(DENSER) } else { longer };
        let growth = u64::try_from(growth.clamp(1, GROWTH)).expect("it is clamped");
        let blocks = self.blocks.saturating_mul(usize::try_from(growth).expect("it is clamped")).min(self.blocks_max);
        Self { bytes: self.bytes.saturating_mul(growth), blocks, stretch: STRETCH, ..self }
    }

    /// With what is left of the pool, when a round of its own for that would be a small one.
    fn with_rest(self, rest: u64) -> Self {
        if rest / u64::from(self.stretch) > self.bytes {
            return self;
        }
        // What is left is not known well: the pool may have grown, or blocks been counted that others share.
        let blocks = self.blocks.saturating_mul(usize::from(self.stretch)).min(self.blocks_max);
        Self { bytes: self.bytes.saturating_mul(2 * u64::from(self.stretch)), blocks, ..self }
    }

    fn is_reached(self, queue: &ScanQueue) -> bool {
        queue.bytes() >= self.bytes || queue.len() >= self.blocks
    }
}

/// Bytes that the scan has not seen yet, as far as is known.
fn left(core: &Core) -> u64 {
    let scan = core.scan.lock();
    scan.phys.to_examine.saturating_sub(scan.phys.examined)
}

/// Walks everything from the scan's place on; `false` when interrupted.
pub async fn everything(core: &Arc<Core>, lost: &Arc<Mutex<Lost>>) -> Result<bool> {
    let queue = Arc::new(core.dsl.store.scan_queue());
    let mut round = Round::first(core);
    let mut written = Instant::now();
    let mut at = core.scan.lock().place;
    loop {
        let began = Instant::now();
        let gathered = gather(core, lost, &queue, &mut at, round.with_rest(left(core))).await?;
        if matches!(gathered, Gathered::Interrupted) || !scan_issue::all(core, lost, &queue).await {
            return Ok(false);
        }
        assert!(queue.is_empty(), "the scan's place is behind nothing that still waits");
        core.scan.lock().came_to(at);
        if matches!(gathered, Gathered::Everything) {
            return Ok(true);
        }
        if written.elapsed() >= CHECKPOINT {
            if let Err(error) = scan_store::checkpoint(core, lost).await {
                tracing::warn!(%error, "the scrub's place could not be recorded");
            }
            written = Instant::now();
        }
        round = round.next(began.elapsed());
    }
}

/// Gathers from the place `at` on, which moves on.
async fn gather(
    core: &Arc<Core>,
    lost: &Arc<Mutex<Lost>>,
    queue: &Arc<ScanQueue>,
    at: &mut ScanPlace,
    round: Round,
) -> Result<Gathered> {
    loop {
        let Some(target) = scan_order::next(core, *at).await? else { return Ok(Gathered::Everything) };
        let (turn, objset) = (target.turn, target.id);
        let mut from = at.last.filter(|_| (turn, objset) == (at.turn, at.objset));
        let mut interior = 0;
        loop {
            *at = ScanPlace { turn, objset, last: from };
            if core.scan.lock().is_interrupted() {
                return Ok(Gathered::Interrupted);
            }
            if round.is_reached(queue) {
                return Ok(Gathered::Enough);
            }
            let_mature(core).await;
            let slice = Slice::new(core, &target, interior, lost.clone(), (queue.clone(), round));
            let Some(root) = scan_order::root_of(core, &target).await? else { break };
            let store: Arc<dyn BlockStore> = Arc::new(core.dsl.store.clone());
            let end = visit(&store, objset, &root, from, &slice).await;
            slice.at_once.drain().await;
            interior = slice.interior.bytes();
            match end? {
                WalkEnd::Complete => break,
                // A slice that saw nothing, as its first block could not be had, leaves the place where it was.
                WalkEnd::Stopped => from = slice.last.lock().or(from),
            }
        }
        *at = ScanPlace { turn, objset: ObjectId(objset.0 + 1), last: None };
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
    /// What is looked at later, and how much of it there may be.
    queue: Arc<ScanQueue>,
    round: Round,
    /// What is looked at without waiting for its turn.
    at_once: Reads,
    lost: Arc<Mutex<Lost>>,
    shown: AtomicU64,
    /// Deflated bytes of the blocks with others below them that were seen of this object set. They are never shared:
    /// where they take more than the pool has in use, the tree repeats them, and walking it might take for ever.
    interior: SpaceMet,
}

impl Slice {
    fn new(
        core: &Arc<Core>,
        target: &Target,
        interior: u64,
        lost: Arc<Mutex<Lost>>,
        (queue, round): (Arc<ScanQueue>, Round),
    ) -> Self {
        Self {
            core: core.clone(),
            _pinned: core.dsl.store.pin(),
            after: target.after,
            until: target.until,
            need: Need::of(core),
            end: Instant::now() + core.environment.scan_slice,
            last: Mutex::new(None),
            queue,
            round,
            at_once: Reads::new(core, &lost, scan_issue::IN_FLIGHT_AT_ONCE),
            lost,
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
}

impl Visitor for Slice {
    fn reads_ahead(&self, _bookmark: Bookmark, bp: &BlkPtr) -> bool {
        bp.birth() > self.after && self.need.reaches(bp)
    }

    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if !self.reads_ahead(bookmark, bp) {
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
                match has_turn(bookmark, bp) {
                    true => self.queue.add(bookmark, bp),
                    false => self.at_once.begin(bookmark, bp).await,
                }
            }
            *self.last.lock() = Some(bookmark);
            let progressed = self.shown.fetch_add(1, Ordering::Relaxed) > 0;
            let is_over = || Instant::now() >= self.end || self.core.scan.lock().is_interrupted();
            if progressed && (is_over() || self.round.is_reached(&self.queue)) {
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
            self.lost.lock().add(bookmark, bp);
            self.core.scan.lock().roster().note_hidden(bp.birth().max(bp.physical_birth()));
            Visit::Continue
        }
        .boxed()
    }
}

/// Whether a block is looked at in its turn. Nobody knows where the pieces of a gang block are, and a log's space comes
/// back in ways of its own.
fn has_turn(bookmark: Bookmark, bp: &BlkPtr) -> bool {
    !bp.is_gang() && bookmark.level > LOG_LEVEL && bp.dvas().next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_little_more_than_a_round_is_no_second_round() {
        let first = Round { bytes: 1000, blocks: 10, blocks_max: 100, stretch: FIRST_STRETCH };
        for (rest, bytes, blocks) in [(0, 8000, 40), (4000, 8000, 40), (4004, 1000, 10)] {
            let round = first.with_rest(rest);
            assert_eq!((round.bytes, round.blocks), (bytes, blocks), "{rest} bytes are left");
        }
        // The next one is as large as it may be.
        let next = first.next(ROUND);
        assert_eq!((next.bytes, next.blocks), (1000, 10));
        assert_eq!(next.with_rest(2000).bytes, 4000);
        assert_eq!(next.with_rest(2002).bytes, 1000);
        // A quick one is followed by a much larger one, within the memory.
        let next = first.next(ROUND / 32);
        assert_eq!((next.bytes, next.blocks), (128_000, 100));
    }
}
