//! Scrub and resilver: every copy of every block is read, verified and, where it is wrong, rewritten
//! (`module/zfs/dsl_scan.c`).
//!
//! Invariants:
//! - what a scrub finds unrepairable replaces the list of known errors when it completes;
//! - its state and place are in the MOS when it starts, every few slices, and when it pauses or ends: a scrub that was
//!   running goes on after an import where that place is, unless devices are there that need more than it can prove
//!   ([`crate::scan_proof`]);
//! - while a device that is there misses something that a scan could give it, a resilver runs: a scrub makes way for it
//!   at once, a resilver that has just begun begins anew, one that is further on is followed by another
//!   (`zfs_resilver_defer_percent`). Only what a device refused to take is not tried again until somebody brings a
//!   device back, clears errors or imports the pool.
//!
//! The place is in an entry of our own, [`PLACE`], while `scn_bookmark` stays zero and `scn_queue_obj` is an empty ZAP:
//! OpenZFS walks data sets in another order, and so begins anew.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use platter_dmu::Result;
use platter_dmu::zap::ZapValue;
use platter_ondisk::dsl::{ScanPhys, scan_flags, scan_func, scan_state};
use platter_ondisk::types::object_type;
use platter_ondisk::{BlkPtr, ObjectId};
use platter_vdev::{Leaf, MissingRanges};
use platter_zio::Bookmark;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::Core;
use crate::dtl;
use crate::report::ScanReport;
use crate::scan_proof::{self, Roster};
use crate::scan_walk::{self, Lost};
use platter_dsl::error::PoolError;
use platter_dsl::{intent, mos, watched};

/// A resilver that is not further on than one part in so many begins anew when another device comes.
const EARLY: u64 = 10;
/// The name of [`Place`] in the pool directory.
const PLACE: &str = "org.platter:scan_place";
/// The rate is measured over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// How far the walk of a scan got: object sets go by number, the MOS first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// All object sets with lower numbers are done.
    pub objset: u64,
    /// The last block seen in it.
    pub last: Option<Bookmark>,
}

/// Words of a place; what follows them is what the scan may prove.
const PLACE_WORDS: usize = 7;

/// What ends a walk before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Interrupt {
    #[default]
    None,
    /// A device came that needs a resilver.
    Restart,
    /// It is paused, cancelled, or the pool is left.
    Halt,
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
        let words = words.get(..PLACE_WORDS).unwrap_or_default();
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
    /// What shall end the walk at the end of the slice.
    interrupt: Interrupt,
    /// Whether something changed since the walk began that is worth another one if a device still misses something.
    again: bool,
    /// How far it got.
    pub place: Place,
    /// The devices that it brings up to date, since the walk was begun by this process.
    roster: Option<Roster>,
    /// What it may build on when it was begun by another.
    stored: BTreeMap<u64, MissingRanges>,
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
    /// No walk is under way any more.
    pub fn stand_still(&mut self) {
        self.running = false;
        self.done.notify_waiters();
    }

    /// State loaded from the pool directory, with what stands under [`PLACE`].
    fn loaded(mut phys: ScanPhys, words: &[u64]) -> Self {
        let place = Place::decode(words, &phys);
        let stored = match words.get(PLACE_WORDS..) {
            Some(words) if place != Place::default() => scan_proof::decode(words),
            _ => BTreeMap::new(),
        };
        if place == Place::default() && phys.state == scan_state::SCANNING {
            (phys.examined, phys.errors) = (0, 0);
        }
        let foreign_queue = phys.bookmark != Default::default();
        phys.bookmark = Default::default();
        Self { issued: phys.examined, phys, place, stored, foreign_queue, ..Self::default() }
    }

    /// A new scan begins.
    fn begin(&mut self, core: &Core, func: u64) {
        let (done, queue_obj) = (self.done.clone(), self.phys.queue_obj);
        let to_examine = core.dsl.store.state().allocator.lock().allocated();
        let max_txg = core.dsl.gate.synced_txg();
        let phys = ScanPhys {
            func,
            state: scan_state::SCANNING,
            max_txg,
            start_time: core.now(),
            to_examine,
            queue_obj,
            ..ScanPhys::default()
        };
        let roster = Some(Roster::begin(core, max_txg));
        *self = Self { done, phys, roster, running: true, ..Self::default() };
    }

    /// The devices that the walk under way brings up to date.
    pub fn roster(&mut self) -> &mut Roster {
        self.roster.get_or_insert_default()
    }

    /// What is to be said of a leaf that misses something which no running scan is giving it.
    pub fn remark(&self, leaf: &Leaf) -> Option<&'static str> {
        let served = self.running && self.roster.as_ref().is_some_and(|roster| roster.covers(leaf));
        if !leaf.is_usable() || leaf.missing().is_empty() || served {
            return None;
        }
        // What a device refused to take in the last scan is not tried again by itself: nothing is awaited then.
        Some(if self.running { "(awaiting resilver)" } else { "(not fully resilvered)" })
    }

    /// Whether the walk is to end at the end of the slice.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt != Interrupt::None
    }

    /// A device came back while a walk is under way. A scrub makes way for the resilver; a resilver does when little
    /// would be done twice, and otherwise is followed by another.
    fn make_way(&mut self) {
        self.again = true;
        let early = self.phys.examined.saturating_mul(EARLY) < self.phys.to_examine;
        if self.interrupt == Interrupt::None && (self.phys.func == scan_func::SCRUB || early) {
            self.interrupt = Interrupt::Restart;
        }
    }

    /// A block was examined.
    pub fn note_progress(&mut self) {
        let (now, examined) = (Instant::now(), self.phys.examined);
        if self.window.back().is_none_or(|(at, _)| now.duration_since(*at) > Duration::from_millis(250)) {
            self.window.push_back((now, examined));
            while self.window.front().is_some_and(|(at, _)| now.duration_since(*at) > WINDOW) {
                self.window.pop_front();
            }
        }
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
            resilver_follows: self.running && self.again,
        }
    }
}

/// Starts a scrub, or lets a paused one go on.
///
/// # Errors
/// [`PoolError::Busy`] when one is running; a read-only pool.
pub async fn start(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    if core.dsl.read_only {
        return Err(PoolError::Unavailable("pool is read-only".into()));
    }
    // Everybody sees the end of a scan before it is written down; only then can the next one begin.
    wait_while(core, |scrub| scrub.running && scrub.phys.state == scan_state::FINISHED).await;
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
            scrub.begin(core, scan_func::SCRUB);
        }
        scrub.running = true;
        scrub.interrupt = Interrupt::None;
    }
    if let Err(error) = persist(core).await {
        // No walk begins: whoever waits for its end would wait for ever.
        core.scrub.lock().stand_still();
        return Err(error);
    }
    core.event("sysevent.fs.zfs.scrub_start", Vec::new());
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
    Ok(())
}

/// Starts a resilver when a device that is there missed something, else goes on with what was running when the pool was
/// last open.
pub fn resume(core: &Arc<Core>) {
    if core.dsl.read_only {
        return;
    }
    let mut scrub = core.scrub.lock();
    let unfinished = scrub.phys.state == scan_state::SCANNING && !scrub.is_paused();
    if dtl::needs_resilver(core) {
        if scrub.running {
            scrub.make_way();
            return;
        }
        // A walk of this process that ended early is not gone on with: its devices may have changed.
        let proves_enough = scrub.roster.is_none() && scan_proof::is_enough(core, &scrub.stored);
        if !(unfinished && scrub.place != Place::default() && proves_enough) {
            begin_resilver(core, &mut scrub);
        }
    } else if !unfinished || scrub.running {
        return;
    }
    scrub.running = true;
    scrub.interrupt = Interrupt::None;
    drop(scrub);
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
}

fn begin_resilver(core: &Core, scrub: &mut ScrubState) {
    let aborted = scrub.phys.func == scan_func::SCRUB && scrub.phys.state == scan_state::SCANNING;
    scrub.begin(core, scan_func::RESILVER);
    if aborted {
        core.event("sysevent.fs.zfs.scrub_abort", Vec::new());
    }
    core.event("sysevent.fs.zfs.resilver_start", Vec::new());
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
    let none = || PoolError::NotFound("there is no active scrub".into());
    {
        let scrub = core.scrub.lock();
        if scrub.phys.state != scan_state::SCANNING {
            return Err(none());
        }
        // Whoever waits for it has no redundancy yet (`spa_scan_stop`, module/zfs/spa.c, refuses it, too).
        if scrub.phys.func == scan_func::RESILVER {
            return Err(PoolError::Busy("currently resilvering".into()));
        }
    }
    halt(core).await;
    {
        let mut scrub = core.scrub.lock();
        if scrub.phys.state != scan_state::SCANNING || scrub.phys.func != scan_func::SCRUB {
            // It came to its end meanwhile, or made way for a resilver, which goes on.
            drop(scrub);
            resume(core);
            return Err(none());
        }
        scrub.phys.state = scan_state::CANCELED;
        scrub.phys.flags &= !scan_flags::SCRUB_PAUSED;
        scrub.phys.end_time = core.now();
    }
    core.event("sysevent.fs.zfs.scrub_abort", Vec::new());
    persist(core).await
}

/// Ends the walk of this process, if any, without changing what the pool remembers.
pub async fn halt(core: &Arc<Core>) {
    core.scrub.lock().interrupt = Interrupt::Halt;
    wait(core).await;
}

/// Waits until no walk is under way.
pub async fn wait(core: &Arc<Core>) {
    wait_while(core, |scrub| scrub.running).await;
}

async fn wait_while(core: &Arc<Core>, condition: impl Fn(&ScrubState) -> bool) {
    loop {
        let done = core.scrub.lock().done.clone();
        let mut woken = std::pin::pin!(done.notified());
        woken.as_mut().enable();
        if !condition(&core.scrub.lock()) {
            return;
        }
        woken.await;
    }
}

async fn persist(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    if !core.dsl.version().has_scan() {
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
            core.dsl.mos.free_object(&tx, queue).await?;
            core.scrub.lock().phys.queue_obj = ObjectId::NONE;
        }
        if scanning && !core.scrub.lock().phys.queue_obj.is_some() {
            let queue = mos::create_zap(&core.dsl.mos, &tx, object_type::SCAN_QUEUE, core.random()).await?;
            core.scrub.lock().phys.queue_obj = queue;
        }
        let (phys, place) = {
            let mut scrub = core.scrub.lock();
            scrub.foreign_queue = false;
            let mut place = scrub.place.encode(&scrub.phys);
            let provable = scrub.roster.as_ref().map_or_else(|| scrub.stored.clone(), |roster| roster.provable(&core));
            place.extend(scan_proof::encode(&provable));
            (scrub.phys.encode().to_vec(), place)
        };
        core.dsl.directory.put(&tx, mos::SCAN.as_bytes(), &ZapValue { integer_size: 8, integers: phys }).await?;
        if scanning {
            core.dsl.directory.put(&tx, PLACE.as_bytes(), &ZapValue { integer_size: 8, integers: place }).await?;
        } else if core.dsl.directory.get(PLACE.as_bytes()).await?.is_some() {
            core.dsl.directory.remove(&tx, PLACE.as_bytes()).await?;
        }
        Ok(())
    })
    .await
}

/// Writes how far the scan got, after what it found lost so far: whoever goes on from there must know both.
pub async fn checkpoint(core: &Arc<Core>, lost: &Lost) -> std::result::Result<(), PoolError> {
    let fresh: Vec<(u64, u64)> = {
        let damaged = core.damaged.lock();
        lost.lock().iter().copied().filter(|object| !damaged.contains(object)).collect()
    };
    if !fresh.is_empty() {
        core.damaged.lock().extend(fresh);
        core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await?;
    } else if core.dsl.version().has_scan() {
        // In a group of its own: what the place says was repaired is flushed before the place is written.
        make_stable(core).await?;
    }
    persist(core).await
}

/// One walk after the other, as long as a device needs the next.
async fn run(core: Arc<Core>) {
    loop {
        walk(&core).await;
        let mut scrub = core.scrub.lock();
        let interrupt = std::mem::take(&mut scrub.interrupt);
        let again = std::mem::take(&mut scrub.again) && interrupt != Interrupt::Halt;
        if again && dtl::needs_resilver(&core) {
            begin_resilver(&core, &mut scrub);
            scrub.done.notify_waiters();
        } else if interrupt != Interrupt::Restart || scrub.phys.state != scan_state::SCANNING {
            scrub.stand_still();
            return;
        }
        // Otherwise the device that was to be resilvered has gone again: on from where it was.
    }
}

/// One walk from the scan's place on, to its end unless something interrupts it.
async fn walk(core: &Arc<Core>) {
    {
        let mut scrub = core.scrub.lock();
        scrub.started = Some(Instant::now());
        scrub.window.clear();
        if scrub.roster.is_none() {
            scrub.roster = Some(Roster::revive(core, &scrub.stored));
        }
    }
    let lost = Arc::new(Mutex::new(BTreeSet::new()));
    if core.scrub.lock().place != Place::default() {
        // What the part before this place found is among the known errors.
        lost.lock().clone_from(&core.damaged.lock());
    }
    let mut complete = matches!(scan_walk::everything(core, &lost).await, Ok(true));
    if complete {
        note_waiting(core, intent::mend_waiting(&core.dsl).await);
    }
    if complete && let Err(error) = make_stable(core).await {
        tracing::warn!(pool = core.name(), %error, "what the scrub repaired may not be stable");
        complete = false;
    }
    {
        let mut scrub = core.scrub.lock();
        scrub.elapsed_before += scrub.started.take().map_or(0, |at| at.elapsed().as_secs());
    }
    if complete {
        finish(core, &lost).await;
    } else if let Err(error) = checkpoint(core, &lost).await {
        tracing::warn!(%error, "the scrub's place could not be recorded");
    }
}

/// No object leads to the blocks of a log that waits for its data set to be mounted: what could not be had of them.
fn note_waiting(core: &Core, blocks: Result<Vec<BlkPtr>>) {
    let mut scrub = core.scrub.lock();
    let through = scrub.phys.max_txg;
    match blocks {
        Ok(blocks) => blocks.iter().for_each(|bp| scrub.roster().note_lost(bp.physical_birth())),
        Err(_) => scrub.roster().note_hidden(through),
    }
}

/// Flushes every device: what is in their caches only would still be missing after a power cut.
async fn make_stable(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.task(async |_core, _tx| Ok(())).await
}

/// Everything was seen: lists become shorter, errors are known.
async fn finish(core: &Arc<Core>, lost: &Lost) {
    let name = {
        let mut scrub = core.scrub.lock();
        let through = scrub.phys.max_txg;
        let conclusion = scrub.roster().conclude(core, through);
        scrub.again |= conclusion.again;
        for leaf in &conclusion.failed {
            tracing::warn!(pool = core.name(), leaf, "not everything that it missed could be written to it");
        }
        if scrub.phys.errors == 0 {
            // A device that could not be flushed has no block to its name.
            scrub.phys.errors = conclusion.failed.len() as u64;
        }
        scrub.phys.state = scan_state::FINISHED;
        scrub.phys.end_time = core.now();
        if scrub.phys.func == scan_func::SCRUB { "scrub" } else { "resilver" }
    };
    *core.damaged.lock() = std::mem::take(&mut *lost.lock());
    // No block pointer leads to the labels: only writing them anew keeps them from rotting one after the other.
    core.dsl.dirty_config();
    if let Err(error) = core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await {
        tracing::warn!(%error, "the error log could not be written");
    }
    if let Err(error) = persist(core).await {
        tracing::warn!(%error, "the scrub's end could not be recorded");
    }
    core.event(&format!("sysevent.fs.zfs.{name}_finish"), Vec::new());
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
            assert!(state.stored.is_empty(), "an older version wrote nothing about devices");
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
