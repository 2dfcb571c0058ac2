//! Scrub: every copy of every block is read, verified and, where it is wrong, rewritten (`module/zfs/dsl_scan.c`).
//!
//! Invariants:
//! - the walk goes in slices; during a slice freed space is pinned, so that no block it is about to read is reused;
//! - between slices the walk restarts from the newest roots, right after the last block it saw;
//! - what a scrub finds unrepairable replaces the list of known errors when it completes;
//! - its state and place are in the MOS when it starts, every few slices, and when it pauses or ends: a scrub that was
//!   running goes on after an import where that place is.
//!
//! The place is in an entry of our own, [`PLACE`], while `scn_bookmark` stays zero and `scn_queue_obj` is an empty ZAP:
//! OpenZFS walks data sets in another order, and so begins anew.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::traverse::{Visit, Visitor, WalkEnd, visit};
use platter_dmu::zap::ZapValue;
use platter_ondisk::dsl::{DslDatasetPhys, ScanPhys, scan_flags, scan_func, scan_state};
use platter_ondisk::types::object_type;
use platter_ondisk::{BlkPtr, ObjectId, Txg};
use platter_spa::Store;
use platter_zio::{BlockStore, Bookmark, ZioError};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use crate::core::Core;
use crate::dtl;
use crate::error::PoolError;
use crate::mos;
use crate::report::ScanReport;

/// How long one slice may pin freed space.
const SLICE: Duration = Duration::from_secs(2);
/// Bytes being verified at one time: the devices' queues join neighbours among them. Small blocks count as if they had
/// the least size, since each is work whatever its size.
const IN_FLIGHT: u64 = 32 << 20;
const LEAST: u64 = 16 << 10;
/// The place of the walk is written at least this often.
const CHECKPOINT: Duration = Duration::from_secs(15);
/// The name of [`Place`] in the pool directory.
const PLACE: &str = "org.platter:scan_place";
/// The rate is measured over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// How far the walk of a scan got: object sets go by number, the MOS first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    /// All object sets with lower numbers are done.
    objset: u64,
    /// The last block seen in it.
    last: Option<Bookmark>,
}

impl Place {
    /// As written: which scan it is about, then the place.
    fn encode(self, phys: &ScanPhys) -> Vec<u64> {
        let last = self.last.unwrap_or_default();
        let level = i64::from(last.level) as u64;
        vec![phys.start_time, phys.examined, self.objset, self.last.is_some().into(), last.object.0, level, last.blkid]
    }

    /// The place in the scan `phys`, or its beginning when what was written is about another one (or another program
    /// went on with it).
    fn decode(words: &[u64], phys: &ScanPhys) -> Self {
        let &[start_time, examined, objset, seen, object, level, blkid] = words else { return Self::default() };
        let Ok(level) = i8::try_from(level as i64) else { return Self::default() };
        if (start_time, examined) != (phys.start_time, phys.examined) {
            return Self::default();
        }
        let last = Bookmark { objset: ObjectId(objset), object: ObjectId(object), level, blkid };
        Self { objset, last: (seen != 0).then_some(last) }
    }
}

/// A scrub in memory.
#[derive(Default)]
pub struct ScrubState {
    /// As on disk.
    pub phys: ScanPhys,
    /// Whether a walk is under way in this process.
    pub running: bool,
    /// Asked to pause or stop at the end of the slice.
    pub interrupt: bool,
    /// How far it got.
    place: Place,
    /// Whether the queue of data sets on disk is another program's, who was at another place.
    foreign_queue: bool,
    /// Bytes verified.
    pub issued: u64,
    /// Seconds spent scanning before the last start in this process.
    pub elapsed_before: u64,
    started: Option<Instant>,
    window: VecDeque<(Instant, u64)>,
    pause_time: u64,
    /// Woken when a walk ends.
    pub done: Arc<Notify>,
}

impl ScrubState {
    /// State loaded from the pool directory, with what stands under [`PLACE`].
    fn loaded(mut phys: ScanPhys, place: &[u64]) -> Self {
        let place = Place::decode(place, &phys);
        if place == Place::default() && phys.state == scan_state::SCANNING {
            (phys.examined, phys.errors) = (0, 0);
        }
        let foreign_queue = phys.bookmark != Default::default();
        phys.bookmark = Default::default();
        Self { issued: phys.examined, phys, place, foreign_queue, ..Self::default() }
    }

    fn is_paused(&self) -> bool {
        self.phys.flags & scan_flags::SCRUB_PAUSED != 0
    }

    /// What `zpool status` shows.
    pub fn report(&mut self) -> ScanReport {
        let state = match self.phys.state {
            _ if self.phys.func != scan_func::SCRUB && self.phys.func != scan_func::RESILVER => "none",
            scan_state::SCANNING if self.is_paused() => "paused",
            scan_state::SCANNING => "scanning",
            scan_state::FINISHED => "finished",
            scan_state::CANCELED => "canceled",
            _ => "none",
        };
        let now = Instant::now();
        while self.window.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) && self.window.len() > 2 {
            self.window.pop_front();
        }
        let rate = match (self.window.front(), state) {
            (Some((at, bytes)), "scanning") => {
                let seconds = now.duration_since(*at).as_secs_f64().max(0.001);
                (self.phys.examined.saturating_sub(*bytes) as f64 / seconds) as u64
            }
            _ => 0,
        };
        let left = self.phys.to_examine.saturating_sub(self.phys.examined);
        let running = self.started.map_or(0, |at| now.duration_since(at).as_secs());
        ScanReport {
            resilver: self.phys.func == scan_func::RESILVER,
            state: state.into(),
            start_time: self.phys.start_time,
            end_time: self.phys.end_time,
            pause_time: self.pause_time,
            to_examine: self.phys.to_examine,
            examined: self.phys.examined,
            issued: self.issued,
            repaired: self.phys.processed,
            errors: self.phys.errors,
            rate,
            eta_seconds: left.checked_div(rate),
            elapsed_seconds: self.elapsed_before + running,
        }
    }
}

/// Starts a scrub, or lets a paused one go on.
///
/// # Errors
/// [`PoolError::Busy`] when one is running; a read-only pool.
pub async fn start(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    if core.read_only {
        return Err(PoolError::Unavailable("pool is read-only".into()));
    }
    if core.scrub.lock().phys.state == scan_state::FINISHED {
        // Everybody sees the end of a scan before it is written down; only then can the next one begin.
        wait(core).await;
    }
    {
        let mut scrub = core.scrub.lock();
        if scrub.running {
            if scrub.phys.func == scan_func::RESILVER {
                return Err(PoolError::Busy("currently resilvering".into()));
            }
            return Err(PoolError::Busy("currently scrubbing; use 'zpool scrub -s' to cancel scrub".into()));
        }
        if scrub.phys.state == scan_state::SCANNING && scrub.is_paused() {
            scrub.phys.flags &= !scan_flags::SCRUB_PAUSED;
            scrub.pause_time = 0;
        } else {
            let to_examine = core.store.state().allocator.lock().allocated();
            let (done, queue_obj) = (scrub.done.clone(), scrub.phys.queue_obj);
            *scrub = ScrubState { done, ..ScrubState::default() };
            scrub.phys = ScanPhys {
                func: scan_func::SCRUB,
                state: scan_state::SCANNING,
                max_txg: core.gate.synced_txg(),
                start_time: core.now(),
                to_examine,
                queue_obj,
                ..ScanPhys::default()
            };
        }
        scrub.running = true;
        scrub.interrupt = false;
    }
    persist(core).await?;
    core.event("sysevent.fs.zfs.scrub_start", Vec::new());
    tokio::spawn(run(core.clone()));
    Ok(())
}

/// Starts a resilver when a device that is there missed something, else goes on with what was running when the pool was
/// last open.
pub fn resume(core: &Arc<Core>) {
    if !core.read_only && dtl::needs_resilver(core) {
        let to_examine = core.store.state().allocator.lock().allocated();
        let mut scrub = core.scrub.lock();
        if scrub.running {
            return;
        }
        let (done, queue_obj) = (scrub.done.clone(), scrub.phys.queue_obj);
        *scrub = ScrubState { done, running: true, ..ScrubState::default() };
        scrub.phys = ScanPhys {
            func: scan_func::RESILVER,
            state: scan_state::SCANNING,
            max_txg: core.gate.synced_txg(),
            start_time: core.now(),
            to_examine,
            queue_obj,
            ..ScanPhys::default()
        };
        drop(scrub);
        core.event("sysevent.fs.zfs.resilver_start", Vec::new());
        tokio::spawn(run(core.clone()));
        return;
    }
    {
        let mut scrub = core.scrub.lock();
        let unfinished = scrub.phys.state == scan_state::SCANNING;
        if core.read_only || !unfinished || scrub.is_paused() || scrub.running {
            return;
        }
        scrub.running = true;
    }
    tokio::spawn(run(core.clone()));
}

/// Pauses a running scrub.
///
/// # Errors
/// When none is running.
pub async fn pause(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    let (running, func) = {
        let scrub = core.scrub.lock();
        (scrub.running, scrub.phys.func)
    };
    if !running || func != scan_func::SCRUB {
        return Err(PoolError::NotFound("there is no active scrub".into()));
    }
    {
        let mut scrub = core.scrub.lock();
        scrub.phys.flags |= scan_flags::SCRUB_PAUSED;
        scrub.pause_time = core.now();
    }
    halt(core).await;
    core.event("sysevent.fs.zfs.scrub_paused", Vec::new());
    persist(core).await
}

/// Cancels a running or paused scrub.
///
/// # Errors
/// When there is none.
pub async fn stop(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    if core.scrub.lock().phys.state != scan_state::SCANNING {
        return Err(PoolError::NotFound("there is no active scrub".into()));
    }
    halt(core).await;
    {
        let mut scrub = core.scrub.lock();
        scrub.phys.state = scan_state::CANCELED;
        scrub.phys.flags &= !scan_flags::SCRUB_PAUSED;
        scrub.phys.end_time = core.now();
    }
    core.event("sysevent.fs.zfs.scrub_abort", Vec::new());
    persist(core).await
}

/// Ends the walk of this process, if any, without changing what the pool remembers.
pub async fn halt(core: &Arc<Core>) {
    core.scrub.lock().interrupt = true;
    wait(core).await;
}

/// Waits until no walk is under way.
pub async fn wait(core: &Arc<Core>) {
    loop {
        let done = core.scrub.lock().done.clone();
        let mut woken = std::pin::pin!(done.notified());
        woken.as_mut().enable();
        if !core.scrub.lock().running {
            return;
        }
        woken.await;
    }
}

async fn persist(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    if !core.version().has_scan() {
        // Older pools have another record of it, which only their own software goes on from.
        return Ok(());
    }
    core.task(async |core, tx| {
        // OpenZFS takes a scan under way to have a queue of data sets, and frees it at the end.
        let (scanning, foreign, queue) = {
            let scrub = core.scrub.lock();
            (scrub.phys.state == scan_state::SCANNING, scrub.foreign_queue, scrub.phys.queue_obj)
        };
        if queue.is_some() && (foreign || !scanning) {
            core.mos.free_object(&tx, queue).await?;
            core.scrub.lock().phys.queue_obj = ObjectId::NONE;
        }
        if scanning && !core.scrub.lock().phys.queue_obj.is_some() {
            let queue = mos::create_zap(&core.mos, &tx, object_type::SCAN_QUEUE, core.random()).await?;
            core.scrub.lock().phys.queue_obj = queue;
        }
        let (phys, place) = {
            let mut scrub = core.scrub.lock();
            scrub.foreign_queue = false;
            (scrub.phys.encode().to_vec(), scrub.place.encode(&scrub.phys))
        };
        core.directory.put(&tx, mos::SCAN.as_bytes(), &ZapValue { integer_size: 8, integers: phys }).await?;
        if scanning {
            core.directory.put(&tx, PLACE.as_bytes(), &ZapValue { integer_size: 8, integers: place }).await?;
        } else if core.directory.get(PLACE.as_bytes()).await?.is_some() {
            core.directory.remove(&tx, PLACE.as_bytes()).await?;
        }
        Ok(())
    })
    .await
}

/// Writes how far the scan got, after what it found lost so far: whoever goes on from there must know both.
async fn checkpoint(core: &Arc<Core>, lost: &Lost) -> std::result::Result<(), PoolError> {
    let fresh: Vec<(u64, u64)> = {
        let damaged = core.damaged.lock();
        lost.lock().iter().copied().filter(|object| !damaged.contains(object)).collect()
    };
    if !fresh.is_empty() {
        core.damaged.lock().extend(fresh);
        core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await?;
    }
    persist(core).await
}

/// Objects with blocks that could not be restored: (data set, object).
type Lost = Mutex<BTreeSet<(u64, u64)>>;

/// One object set to walk.
struct Target {
    id: ObjectId,
    /// Blocks born up to here belong to an older snapshot and are seen there.
    after: Txg,
}

async fn run(core: Arc<Core>) {
    {
        let mut scrub = core.scrub.lock();
        scrub.started = Some(Instant::now());
        scrub.window.clear();
    }
    let lost = Arc::new(Mutex::new(BTreeSet::new()));
    if core.scrub.lock().place != Place::default() {
        // What the part before this place found is among the known errors.
        lost.lock().clone_from(&core.damaged.lock());
    }
    let outcome = walk_all(&core, &lost).await;
    let finished = {
        let mut scrub = core.scrub.lock();
        scrub.elapsed_before += scrub.started.take().map_or(0, |at| at.elapsed().as_secs());
        match &outcome {
            Ok(true) => {
                scrub.phys.state = scan_state::FINISHED;
                scrub.phys.end_time = core.now();
                true
            }
            _ => false,
        }
    };
    if finished {
        let lost = std::mem::take(&mut *lost.lock());
        if lost.is_empty() {
            // Everything up to the scan's start was read and is whole on every device that is there.
            let since = core.scrub.lock().phys.max_txg;
            dtl::forget(&core, since);
        }
        *core.damaged.lock() = lost;
        // No block pointer leads to the labels: only writing them anew keeps them from rotting one after the other.
        core.dirty_config();
        if let Err(error) = core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await {
            tracing::warn!(%error, "the error log could not be written");
        }
        if let Err(error) = persist(&core).await {
            tracing::warn!(%error, "the scrub's end could not be recorded");
        }
        let scan = if core.scrub.lock().phys.func == scan_func::SCRUB { "scrub" } else { "resilver" };
        core.event(&format!("sysevent.fs.zfs.{scan}_finish"), Vec::new());
    } else if let Err(error) = checkpoint(&core, &lost).await {
        tracing::warn!(%error, "the scrub's place could not be recorded");
    }
    let mut scrub = core.scrub.lock();
    scrub.running = false;
    scrub.done.notify_waiters();
}

/// Walks everything from the scan's place on; `false` when interrupted.
async fn walk_all(core: &Arc<Core>, lost: &Arc<Lost>) -> Result<bool> {
    let mut written = Instant::now();
    for target in targets(core).await? {
        let place = core.scrub.lock().place;
        if target.id.0 < place.objset {
            continue;
        }
        let mut from = place.last.filter(|_| target.id.0 == place.objset);
        loop {
            core.scrub.lock().place = Place { objset: target.id.0, last: from };
            if core.scrub.lock().interrupt {
                return Ok(false);
            }
            if written.elapsed() >= CHECKPOINT {
                if let Err(error) = checkpoint(core, lost).await {
                    tracing::warn!(%error, "the scrub's place could not be recorded");
                }
                written = Instant::now();
            }
            let slice = Slice::new(core, target.after, lost.clone());
            let Some(root) = root_of(core, target.id).await? else { break };
            let store: Arc<dyn BlockStore> = Arc::new(core.store.clone());
            let end = visit(&store, target.id, &root, from, &slice).await;
            slice.drain().await;
            match end? {
                WalkEnd::Complete => break,
                WalkEnd::Stopped => from = *slice.last.lock(),
            }
        }
        core.scrub.lock().place = Place { objset: target.id.0 + 1, last: None };
    }
    Ok(true)
}

/// Every object set, by number: so that a later walk knows which ones are done.
async fn targets(core: &Arc<Core>) -> Result<Vec<Target>> {
    let mut targets = vec![Target { id: ObjectId(0), after: Txg(0) }];
    let snapshots = {
        let tree = core.tree.read();
        let heads = tree.datasets.values();
        targets.extend(heads.map(|ds| Target { id: ds.object, after: ds.phys.lock().prev_snap_txg }));
        tree.snapshots.clone()
    };
    for object in snapshots {
        let phys = snapshot_phys(core, object).await?;
        targets.push(Target { id: object, after: phys.prev_snap_txg });
    }
    targets.sort_by_key(|target| target.id);
    Ok(targets)
}

async fn snapshot_phys(core: &Arc<Core>, object: ObjectId) -> Result<DslDatasetPhys> {
    let dnode = core.mos.dnode(object).await?;
    DslDatasetPhys::decode(&dnode.bonus()).map_err(|e| ZioError::corrupt("snapshot", format!("object {object}: {e}")))
}

/// The newest root of an object set; `None` when it is gone or empty.
async fn root_of(core: &Arc<Core>, id: ObjectId) -> Result<Option<BlkPtr>> {
    let root = if id.0 == 0 {
        core.uberblock.lock().rootbp
    } else {
        let head = core.tree.read().datasets.values().find(|ds| ds.object == id).cloned();
        match head {
            Some(dataset) => dataset.phys.lock().bp,
            None => match snapshot_phys(core, id).await {
                Ok(phys) => phys.bp,
                Err(ZioError::NotFound(_)) => return Ok(None),
                Err(error) => return Err(error),
            },
        }
    };
    Ok((!root.is_hole()).then_some(root))
}

/// A stretch of the walk during which freed space is pinned.
struct Slice {
    core: Arc<Core>,
    after: Txg,
    end: Instant,
    last: Mutex<Option<Bookmark>>,
    places: Arc<Semaphore>,
    lost: Arc<Lost>,
    stopped: AtomicBool,
    shown: AtomicU64,
}

impl Slice {
    fn new(core: &Arc<Core>, after: Txg, lost: Arc<Lost>) -> Self {
        core.store.state().allocator.lock().pin();
        Self {
            core: core.clone(),
            after,
            end: Instant::now() + SLICE,
            last: Mutex::new(None),
            places: Arc::new(Semaphore::new(IN_FLIGHT as usize)),
            lost,
            stopped: AtomicBool::new(false),
            shown: AtomicU64::new(0),
        }
    }

    /// Waits for every block under verification.
    async fn drain(&self) {
        let _all = self.places.acquire_many(IN_FLIGHT as u32).await;
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.core.store.state().allocator.lock().unpin();
    }
}

impl Visitor for Slice {
    fn block<'a>(&'a self, bookmark: Bookmark, bp: &'a BlkPtr) -> BoxFuture<'a, Visit> {
        async move {
            if bp.birth() <= self.after {
                return Visit::Skip;
            }
            if !bp.is_embedded() {
                let counted = bp.psize().clamp(LEAST, IN_FLIGHT) as u32;
                let place = self.places.clone().acquire_many_owned(counted).await.expect("never closed");
                let (core, lost, bp) = (self.core.clone(), self.lost.clone(), *bp);
                tokio::spawn(async move {
                    verify(&core, &lost, bookmark, &bp).await;
                    drop(place);
                });
            }
            *self.last.lock() = Some(bookmark);
            let progressed = self.shown.fetch_add(1, Ordering::Relaxed) > 0;
            if progressed && (Instant::now() >= self.end || self.core.scrub.lock().interrupt) {
                self.stopped.store(true, Ordering::Relaxed);
                return Visit::Stop;
            }
            Visit::Continue
        }
        .boxed()
    }

    fn damaged<'a>(&'a self, bookmark: Bookmark, _bp: &'a BlkPtr, error: &'a ZioError) -> BoxFuture<'a, Visit> {
        async move {
            if let ZioError::Suspended(..) = error {
                return Visit::Stop;
            }
            // The block itself was counted when it was verified; here it is what lies below that is lost.
            self.lost.lock().insert((bookmark.objset.0, bookmark.object.0));
            Visit::Continue
        }
        .boxed()
    }
}

async fn verify(core: &Arc<Core>, lost: &Lost, bookmark: Bookmark, bp: &BlkPtr) {
    let store: &Store = &core.store;
    let outcome = store.scrub(bp, bookmark).await;
    let bytes = bp.asize();
    let mut scrub = core.scrub.lock();
    scrub.phys.examined += bytes;
    scrub.issued += bytes;
    match outcome {
        Ok(block) => scrub.phys.processed += block.repaired,
        Err(_) => {
            scrub.phys.errors += 1;
            lost.lock().insert((bookmark.objset.0, bookmark.object.0));
        }
    }
    let (now, examined) = (Instant::now(), scrub.phys.examined);
    if scrub.window.back().is_none_or(|(at, _)| now.duration_since(*at) > Duration::from_millis(250)) {
        scrub.window.push_back((now, examined));
        while scrub.window.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
            scrub.window.pop_front();
        }
    }
}

/// Loads the scan's state from the pool directory.
///
/// # Errors
/// Unreadable blocks; a state that makes no sense counts as none.
pub async fn load(directory: &platter_dmu::zap::Zap) -> Result<ScrubState> {
    let Some(value) = directory.get(mos::SCAN.as_bytes()).await? else { return Ok(ScrubState::default()) };
    let place = directory.get(PLACE.as_bytes()).await?.map(|value| value.integers).unwrap_or_default();
    Ok(ScanPhys::decode(&value.integers).map(|phys| ScrubState::loaded(phys, &place)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan() -> ScanPhys {
        let (func, state) = (scan_func::SCRUB, scan_state::SCANNING);
        ScanPhys { func, state, start_time: 1_700_000_000, examined: 4096, errors: 2, ..ScanPhys::default() }
    }

    #[test]
    fn a_scan_goes_on_at_its_place() {
        // It used to begin anew after every import, so that a scrub longer than the uptime never ended.
        let last = Bookmark { objset: ObjectId(54), object: ObjectId(7), level: -1, blkid: u64::MAX - 1 };
        for place in [Place { objset: 54, last: Some(last) }, Place { objset: 55, last: None }] {
            let state = ScrubState::loaded(scan(), &place.encode(&scan()));
            assert_eq!(state.place, place);
            assert_eq!((state.phys.examined, state.phys.errors), (4096, 2));
        }
    }

    #[test]
    fn a_scan_that_another_program_started_or_went_on_with_begins_anew() {
        let place = Place { objset: 54, last: None };
        let others = [
            ScanPhys { start_time: 1, ..scan() },
            ScanPhys { examined: 8192, ..scan() },
            ScanPhys { bookmark: platter_ondisk::dsl::Bookmark { objset: 54, ..Default::default() }, ..scan() },
        ];
        for (index, other) in others.into_iter().enumerate() {
            let state = ScrubState::loaded(other, &if index < 2 { place.encode(&scan()) } else { Vec::new() });
            assert_eq!(state.place, Place::default());
            assert_eq!((state.phys.examined, state.phys.errors), (0, 0));
            assert_eq!(state.foreign_queue, index == 2);
        }
        assert_eq!(ScrubState::loaded(scan(), &[1, 2, 3]).place, Place::default());
    }
}
