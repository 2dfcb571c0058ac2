//! Scrub and resilver: every copy of every block, or of what a device lacks ([`crate::scan_need`]), is read, verified
//! and, where it is wrong, rewritten (`module/zfs/dsl_scan.c`).
//!
//! Invariants:
//! - what a scrub finds unrepairable replaces the list of known errors when it completes; what a resilver finds, or
//!   a scrub of what is new, which have not seen everything, is added to it;
//! - its state and place are in the MOS when it starts, every few slices, and when it pauses or ends: a scrub that was
//!   running goes on after an import where that place is, unless devices are there that need more than it can prove
//!   ([`crate::scan_proof`]);
//! - while a device that is there misses something that a scan could give it, a resilver runs: a scrub makes way for it
//!   at once, a resilver that has just begun begins anew, one that is further on is followed by another
//!   (`zfs_resilver_defer_percent`). Only what a device refused to take is not tried again until somebody brings a
//!   device back, clears errors or imports the pool.
//!
//! The place is in an entry of our own (`scan_place`), while `scn_bookmark` stays zero and `scn_queue_obj` is an empty
//! ZAP:
//! OpenZFS walks data sets in another order, and so begins anew.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use platter_dmu::{Result, Tx};
use platter_dsl::error::PoolError;
use platter_dsl::{intent, watched};
use platter_ondisk::dsl::{ScanPhys, scan_flags, scan_func, scan_state};
use platter_ondisk::{BlkPtr, Txg, names};
use tokio::time::Instant;

use crate::core::Core;
use crate::lost::Lost;
use crate::scan_place::ScanPlace;
use crate::scan_proof::{self, Roster};
use crate::scan_state::{Interrupt, ScanState};
use crate::scan_store::{checkpoint, make_stable, persist};
use crate::{dtl, error_log, error_scrub, scan_store, scan_walk, wait_while};

/// What a scan of everything that is there now, or of what is newer than `after`, begins with.
fn begin(core: &Core, state: &mut ScanState, func: u64, after: Txg) {
    let max_txg = core.dsl.gate.synced_txg();
    let phys = ScanPhys {
        func,
        state: scan_state::SCANNING,
        min_txg: after.min(max_txg),
        max_txg,
        start_time: core.now(),
        to_examine: core.dsl.store.state().allocator.lock().allocated(),
        ..ScanPhys::default()
    };
    // Another walk mended that.
    core.dsl.store.state().repaired_by_walks.store(0, Ordering::Relaxed);
    state.begin(phys, Roster::begin(&dtl::leaves(core), max_txg));
    if func == scan_func::RESILVER {
        // What is older need not be looked at.
        state.phys.min_txg = Txg(state.roster().first().map_or(0, |first| first.0.saturating_sub(1)));
    } else {
        prove_nothing_older(state);
    }
}

/// What is too old for a scrub to look at is not proven to be anywhere by it.
fn prove_nothing_older(scan: &mut ScanState) {
    let after = scan.phys.min_txg;
    if scan.phys.func == scan_func::SCRUB && after > Txg(0) {
        scan.roster().note_hidden(after);
    }
}

/// Starts a scrub, or lets a paused one go on. With `continued` a new one looks only at what is newer than what the
/// last whole one saw.
///
/// # Errors
/// [`PoolError::Busy`] when one is running; a read-only pool.
pub async fn start(core: &Arc<Core>, continued: bool) -> std::result::Result<(), PoolError> {
    core.dsl.check_writable()?;
    if core.rebuilds.is_active() {
        return Err(PoolError::Busy("currently resilvering".into()));
    }
    // Everybody sees the end of a scan before it is written down; only then can the next one begin.
    wait_while(core, |scrub| scrub.running && scrub.phys.state == scan_state::FINISHED).await;
    let before = {
        let mut scrub = core.scan.lock();
        scrub.check_none()?;
        core.error_scrub.lock().check_none()?;
        let before = (scrub.phys.clone(), scrub.pause_time);
        if scrub.phys.state == scan_state::SCANNING && scrub.is_paused() {
            scrub.phys.flags &= !scan_flags::SCRUB_PAUSED;
            scrub.pause_time = 0;
        } else {
            let after = if continued { scrub.last_scrubbed } else { Txg(0) };
            begin(core, &mut scrub, scan_func::SCRUB, after);
        }
        scrub.running = true;
        scrub.interrupt = Interrupt::None;
        before
    };
    if let Err(error) = persist(core).await {
        // No walk begins, also not later: whoever waits for its end would wait for ever.
        let mut scrub = core.scan.lock();
        (scrub.phys, scrub.pause_time) = before;
        scrub.stand_still();
        return Err(error);
    }
    core.event("sysevent.fs.zfs.scrub_start", Vec::new());
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
    Ok(())
}

/// Whether a scan is to give a device that is there what it missed. Devices that are reconstructed come first.
fn wants_resilver(core: &Core) -> bool {
    !core.rebuilds.is_active() && dtl::needs_resilver(core)
}

/// Starts a resilver when a device that is there missed something, else goes on with what was running when the pool was
/// last open; and with a scrub of known errors.
pub fn resume(core: &Arc<Core>) {
    error_scrub::resume(core);
    if core.dsl.read_only || core.rebuilds.is_active() {
        return;
    }
    let mut scrub = core.scan.lock();
    let unfinished = scrub.phys.state == scan_state::SCANNING && !scrub.is_paused();
    if dtl::needs_resilver(core) {
        if scrub.running {
            scrub.make_way();
            return;
        }
        // A walk of this process that ended early is not gone on with: its devices may have changed.
        let proves_enough = scrub.roster.is_none() && scan_proof::is_enough(&dtl::leaves(core), &scrub.stored);
        if !(unfinished && scrub.place != ScanPlace::default() && proves_enough) {
            begin_resilver(core, &mut scrub);
        }
    } else if scrub.running {
        return;
    } else if core.rebuilds.unverified.load(Ordering::Acquire) && scrub.phys.state != scan_state::SCANNING {
        // The pool was left before the scrub began that has to follow a sequential reconstruction.
        begin_scrub(core, &mut scrub);
    } else if !unfinished {
        return;
    }
    scrub.running = true;
    scrub.interrupt = Interrupt::None;
    drop(scrub);
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
}

/// Begins a resilver anew, whatever runs, if a device that is there misses something (`zpool resilver`).
///
/// # Errors
/// A read-only pool.
pub fn restart_resilver(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.dsl.check_writable()?;
    core.dsl.check_running()?;
    if !wants_resilver(core) {
        return Ok(());
    }
    let mut scrub = core.scan.lock();
    if scrub.running {
        scrub.again = true;
        if scrub.interrupt == Interrupt::None {
            scrub.interrupt = Interrupt::Restart;
        }
        return Ok(());
    }
    begin_resilver(core, &mut scrub);
    drop(scrub);
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
    Ok(())
}

fn begin_resilver(core: &Core, scrub: &mut ScanState) {
    let aborted = scrub.phys.func == scan_func::SCRUB && scrub.phys.state == scan_state::SCANNING;
    begin(core, scrub, scan_func::RESILVER, Txg(0));
    if aborted {
        core.event("sysevent.fs.zfs.scrub_abort", Vec::new());
    }
    core.event("sysevent.fs.zfs.resilver_start", vec![("resilver_type", "healing".into())]);
}

/// Begins a scrub of what was sequentially reconstructed.
fn begin_scrub(core: &Core, scrub: &mut ScanState) {
    begin(core, scrub, scan_func::SCRUB, Txg(0));
    core.event("sysevent.fs.zfs.scrub_start", Vec::new());
}

/// Whether a resilver has just ended which nothing else but a scrub has to follow: what was sequentially reconstructed
/// before it is unverified.
fn is_to_be_verified(core: &Core, scrub: &ScanState) -> bool {
    let has_ended = scrub.phys.func == scan_func::RESILVER && scrub.phys.state == scan_state::FINISHED;
    has_ended && core.rebuilds.unverified.load(Ordering::Acquire) && !core.rebuilds.is_active()
}

/// After a sequential reconstruction, in the syncing group: begins the scrub that has to follow the last one
/// (`vdev_rebuild_complete_sync`). Where a device still needs a resilver, that comes first. Returns whether it began;
/// its state is still to be written.
pub fn begin_verifying(core: &Arc<Core>) -> bool {
    let is_unverified = core.rebuilds.unverified.load(Ordering::Acquire);
    let is_left = core.rebuilds.leaving.load(Ordering::Acquire);
    let mut scrub = core.scan.lock();
    // One that was paused verifies it, too, when it goes on.
    let is_under_way = scrub.running || scrub.phys.state == scan_state::SCANNING;
    if is_left || !is_unverified || core.rebuilds.is_active() || is_under_way || dtl::needs_resilver(core) {
        return false;
    }
    begin_scrub(core, &mut scrub);
    scrub.interrupt = Interrupt::None;
    drop(scrub);
    watched::spawn(&core.dsl, "the scan", run(core.clone()));
    true
}

/// Whether devices are resilvered, or are to be next.
pub fn is_resilvering(core: &Core) -> bool {
    let scrub = core.scan.lock();
    scrub.running && (scrub.phys.func == scan_func::RESILVER || scrub.again)
}

/// Ends a scrub, be it paused, and halts a resilver: devices are sequentially reconstructed (`vdev_rebuild_thread`).
pub async fn cancel(core: &Arc<Core>) {
    if core.scan.lock().phys.state != scan_state::SCANNING {
        return;
    }
    halt(core).await;
    {
        let mut scrub = core.scan.lock();
        if scrub.phys.state != scan_state::SCANNING || scrub.phys.func != scan_func::SCRUB {
            return;
        }
        cancel_scrub(core, &mut scrub);
    }
    if let Err(error) = persist(core).await {
        tracing::debug!(pool = core.name(), %error, "the end of a scrub is not written down");
    }
}

fn cancel_scrub(core: &Core, scrub: &mut ScanState) {
    scrub.phys.state = scan_state::CANCELED;
    scrub.phys.flags &= !scan_flags::SCRUB_PAUSED;
    scrub.phys.end_time = core.now();
    core.event("sysevent.fs.zfs.scrub_abort", Vec::new());
}

/// Pauses a running scrub.
///
/// # Errors
/// When none is running.
pub async fn pause(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.dsl.check_running()?;
    if core.error_scrub.lock().is_under_way() {
        return error_scrub::pause(core).await;
    }
    let (running, func) = {
        let scrub = core.scan.lock();
        if scrub.phys.state == scan_state::SCANNING && scrub.is_paused() {
            return Err(PoolError::Busy("scrub is paused; use 'zpool scrub' to resume scrub".into()));
        }
        (scrub.running, scrub.phys.func)
    };
    if !running || func != scan_func::SCRUB {
        return Err(PoolError::NotFound("there is no active scrub".into()));
    }
    {
        let mut scrub = core.scan.lock();
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
    core.dsl.check_running()?;
    if core.error_scrub.lock().is_under_way() {
        return error_scrub::stop(core).await;
    }
    {
        let scrub = core.scan.lock();
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
        let mut scrub = core.scan.lock();
        if scrub.phys.state != scan_state::SCANNING || scrub.phys.func != scan_func::SCRUB {
            // It came to its end meanwhile, or made way for a resilver, which goes on.
            drop(scrub);
            resume(core);
            return Err(none());
        }
        cancel_scrub(core, &mut scrub);
        // Whoever stops it does without the proof.
        core.rebuilds.unverified.store(false, Ordering::Release);
    }
    persist(core).await
}

/// Ends the walk of this process, if any, without changing what the pool remembers.
pub async fn halt(core: &Arc<Core>) {
    core.scan.lock().interrupt = Interrupt::Halt;
    wait(core).await;
}

/// Waits until no walk is under way.
pub async fn wait(core: &Arc<Core>) {
    wait_while(core, |scrub| scrub.running).await;
}

async fn wait_while(core: &Arc<Core>, condition: impl Fn(&ScanState) -> bool) {
    let done = core.scan.lock().done.clone();
    wait_while::wait_while(done, || condition(&core.scan.lock())).await;
}

/// One walk after the other, as long as a device needs the next.
async fn run(core: Arc<Core>) {
    loop {
        walk(&core).await;
        let mut scrub = core.scan.lock();
        let interrupt = std::mem::take(&mut scrub.interrupt);
        let again = std::mem::take(&mut scrub.again) && interrupt != Interrupt::Halt;
        if again && wants_resilver(&core) {
            begin_resilver(&core, &mut scrub);
            scrub.done.notify_waiters();
        } else if interrupt == Interrupt::None && is_to_be_verified(&core, &scrub) {
            begin_scrub(&core, &mut scrub);
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
        let mut scrub = core.scan.lock();
        scrub.started = Some(Instant::now());
        scrub.matured = scrub.started;
        scrub.window.clear();
        if scrub.roster.is_none() {
            scrub.roster = Some(Roster::revive(&dtl::leaves(core), &scrub.stored));
            prove_nothing_older(&mut scrub);
        }
    }
    let goes_on = core.scan.lock().place != ScanPlace::default();
    // What the part before this place found is among the known errors.
    let known = if goes_on { core.damaged.lock().clone() } else { BTreeSet::new() };
    let lost = Arc::new(Mutex::new(Lost::with(known)));
    core.scan.lock().lost = Arc::downgrade(&lost);
    let mut complete = matches!(scan_walk::everything(core, &lost).await, Ok(true));
    if complete {
        note_waiting(core, intent::mend_waiting(&core.dsl).await);
        error_log::spread(core, &lost).await;
    }
    if complete && let Err(error) = make_stable(core).await {
        tracing::warn!(pool = core.name(), %error, "what the scrub repaired may not be stable");
        complete = false;
    }
    {
        let mut scrub = core.scan.lock();
        scrub.elapsed_before += scrub.started.take().map_or(0, |at| at.elapsed().as_secs());
        if !complete {
            scrub.go_back();
        }
    }
    if complete {
        finish(core, &lost).await;
    } else if let Err(error) = checkpoint(core, &lost).await {
        tracing::warn!(%error, "the scrub's place could not be recorded");
    }
}

/// No object leads to the blocks of a log that waits for its data set to be mounted: what could not be had of them.
fn note_waiting(core: &Core, blocks: Result<Vec<BlkPtr>>) {
    let mut scrub = core.scan.lock();
    let through = scrub.phys.max_txg;
    match blocks {
        Ok(blocks) => blocks.iter().for_each(|bp| scrub.roster().note_lost(bp.physical_birth())),
        Err(_) => scrub.roster().note_hidden(through),
    }
}

/// Everything was seen: lists become shorter, errors are known.
async fn finish(core: &Arc<Core>, lost: &Mutex<Lost>) {
    let (is_scrub, saw_all) = {
        let mut scrub = core.scan.lock();
        assert_eq!(scrub.phys.state, scan_state::SCANNING, "a scan ends once: after that, it proves nothing");
        let through = scrub.phys.max_txg;
        let conclusion = scrub.roster().conclude(&dtl::leaves(core), through);
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
        if scrub.phys.func == scan_func::SCRUB {
            scrub.last_scrubbed = scrub.phys.max_txg;
        }
        (scrub.phys.func == scan_func::SCRUB, scrub.phys.min_txg == Txg(0))
    };
    let name = if is_scrub { "scrub" } else { "resilver" };
    {
        // Both are locked: what is destroyed meanwhile is taken from one or the other.
        let (mut lost, mut damaged) = (lost.lock(), core.damaged.lock());
        let found = std::mem::take(&mut lost.objects);
        core.new_damage.becomes_less();
        if is_scrub && saw_all {
            core.rebuilds.unverified.store(false, Ordering::Release);
            *damaged = found;
        } else {
            damaged.extend(found);
        }
    }
    // No block pointer leads to the labels: only writing them anew keeps them from rotting one after the other.
    core.dsl.dirty_config();
    let write = async move |core: Arc<Core>, tx: Tx| {
        if is_scrub && core.dsl.version().has_scan() {
            let last = core.scan.lock().last_scrubbed;
            core.dsl.directory.put_u64(&tx, names::pool_directory::LAST_SCRUBBED_TXG.as_bytes(), last.0).await?;
        }
        // One must not keep the other from being written.
        let listed = error_log::write(&core, &tx).await;
        scan_store::write(&core, &tx).await?;
        Ok(listed?)
    };
    if let Err(error) = core.task(write).await {
        tracing::warn!(%error, "the scrub's end or its list of errors could not be recorded");
    }
    let more = if is_scrub { Vec::new() } else { vec![("resilver_type", "healing".into())] };
    core.event(&format!("sysevent.fs.zfs.{name}_finish"), more);
}
