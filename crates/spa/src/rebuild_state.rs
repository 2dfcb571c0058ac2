//! What is known of sequential reconstructions, one for each top-level vdev at most: how far each is, and who works
//! (`vdev_rebuild_t`, `include/sys/vdev_rebuild.h`).
//!
//! Invariant: only what is to go on is worked on, by one walk.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use platter_api::report::{RebuildPhase, RebuildReport};
use platter_ondisk::dsl::{ScanPhys, scan_func, scan_state};
use platter_ondisk::rebuild::{RebuildPhys, RebuildState};
use platter_ondisk::{Guid, Txg};
use platter_vdev::Opening;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What was done since work of this process began.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// When that was.
    pub began: Instant,
    /// How long it had run before, in milliseconds.
    pub before_ms: u64,
    /// Allocated bytes that were looked at.
    pub scanned: u64,
    /// Bytes that were read.
    pub issued: u64,
}

impl Pass {
    /// Milliseconds since it began.
    pub fn time_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

/// The sequential reconstruction of one top-level vdev.
#[derive(Clone, Debug, Default)]
pub struct Rebuild {
    /// As it is stored, or will be.
    pub phys: RebuildPhys,
    /// Who of this process works on it: another number each time.
    pub runner: Option<u64>,
    /// The devices that get everything, by guid, as they were opened when the work began.
    pub members: BTreeMap<u64, Opening>,
    /// None before work of this process began.
    pub pass: Option<Pass>,
}

impl Rebuild {
    /// What a pool remembers.
    pub fn stored(phys: RebuildPhys) -> Self {
        Self { phys, ..Self::default() }
    }

    /// Whether it is to go on.
    pub fn is_active(&self) -> bool {
        self.phys.state == RebuildState::Active
    }

    /// Takes over how long it has run, all in all.
    pub fn note_time(&mut self) {
        if let Some(pass) = &self.pass {
            self.phys.scan_time_ms = pass.before_ms.saturating_add(pass.time_ms());
        }
    }

    fn report(&self) -> Option<RebuildReport> {
        let phase = match self.phys.state {
            RebuildState::None => return None,
            RebuildState::Active => RebuildPhase::Active,
            RebuildState::Canceled => RebuildPhase::Canceled,
            RebuildState::Complete => RebuildPhase::Complete,
        };
        let phys = &self.phys;
        Some(RebuildReport {
            phase,
            start_time: phys.start_time,
            end_time: phys.end_time,
            scan_time_ms: phys.scan_time_ms,
            scanned: phys.bytes_scanned,
            issued: phys.bytes_issued,
            rebuilt: phys.bytes_rebuilt,
            to_scan: phys.bytes_est,
            errors: phys.errors,
            pass_time_ms: self.pass.filter(|_| self.is_active()).map_or(0, |pass| pass.time_ms()),
            pass_scanned: self.pass.map_or(0, |pass| pass.scanned),
            pass_issued: self.pass.map_or(0, |pass| pass.issued),
            pass_skipped: 0,
        })
    }
}

/// Those of all top-level vdevs, by their numbers.
#[derive(Debug, Default)]
pub struct Rebuilds {
    /// See above.
    pub known: Mutex<BTreeMap<u64, Rebuild>>,
    /// Told when work of this process ends.
    pub changed: Arc<Notify>,
    /// Set while the pool is being left: nothing is begun any more, and what was begun ends.
    pub leaving: AtomicBool,
    /// Whether what was reconstructed has still to be verified by a scrub, until that has seen everything. What was
    /// replaced stays that long.
    pub unverified: AtomicBool,
    /// Devices that were further behind than a power cut explains when the pool was opened: they may not have what
    /// they were given.
    behind: Mutex<BTreeSet<u64>>,
    /// Works of this process so far.
    begun: AtomicU64,
}

impl Rebuilds {
    /// What the pool remembers.
    pub fn new(known: BTreeMap<u64, RebuildPhys>) -> Self {
        let known = known.into_iter().map(|(top, phys)| (top, Rebuild::stored(phys))).collect();
        Self { known: Mutex::new(known), ..Self::default() }
    }

    /// As [`new`](Self::new), of a pool whose last scan was `scan`, and of which a scrub has seen everything up to
    /// group `scrubbed`: the one that has to follow a reconstruction may not have begun, or not have come to its end.
    pub fn after(known: BTreeMap<u64, RebuildPhys>, scan: &ScanPhys, scrubbed: Txg) -> Self {
        let rebuilds = Self::new(known);
        let known = rebuilds.known.lock();
        let complete = known.values().filter(|rebuild| rebuild.phys.state == RebuildState::Complete);
        let of_each = complete.map(|rebuild| (rebuild.phys.end_time, rebuild.phys.max_txg));
        let last = of_each.reduce(|(end, group), (other, later)| (end.max(other), group.max(later)));
        drop(known);
        let is_scrub = scan.func == scan_func::SCRUB && scan.min_txg == Txg(0);
        let has_ended = matches!(scan.state, scan_state::FINISHED | scan_state::CANCELED);
        // What OpenZFS up to 2.3 scrubbed is known by the time alone, and only until another scan begins.
        let is_verified = |(end, group)| scrubbed >= group || is_scrub && has_ended && scan.start_time >= end;
        rebuilds.unverified.store(last.is_some_and(|last| !is_verified(last)), Ordering::Release);
        rebuilds
    }

    /// Whether top-level vdev `top` was reconstructed, and no scrub has verified that yet.
    pub fn is_unverified(&self, top: u64) -> bool {
        let is_complete = |rebuild: &Rebuild| rebuild.phys.state == RebuildState::Complete;
        self.unverified.load(Ordering::Acquire) && self.known.lock().get(&top).is_some_and(is_complete)
    }

    /// Whether any is to go on.
    pub fn is_active(&self) -> bool {
        self.known.lock().values().any(Rebuild::is_active)
    }

    /// The top-level vdevs whose reconstruction is to go on.
    pub fn active(&self) -> Vec<u64> {
        self.known.lock().iter().filter(|(_, rebuild)| rebuild.is_active()).map(|(top, _)| *top).collect()
    }

    /// Begins work of this process on a top-level vdev, unless there is somebody; the number of who works.
    pub fn begin(&self, top: u64) -> Option<u64> {
        let mut known = self.known.lock();
        if self.leaving.load(Ordering::Acquire) {
            return None;
        }
        let rebuild = known.get_mut(&top).filter(|rebuild| rebuild.is_active() && rebuild.runner.is_none())?;
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        assert!(rebuild.is_active() && rebuild.members.is_empty(), "one walk at a time works on what is to go on");
        rebuild.runner = Some(number);
        Some(number)
    }

    /// Ends work of this process.
    pub fn end(&self, top: u64, number: u64) {
        if let Some(rebuild) = self.known.lock().get_mut(&top).filter(|rebuild| rebuild.runner == Some(number)) {
            rebuild.runner = None;
            rebuild.members.clear();
        }
        self.changed.notify_waiters();
    }

    /// Does something with the work that `number` does on a top-level vdev, if it is still its.
    pub fn with<T>(&self, top: u64, number: u64, change: impl FnOnce(&mut Rebuild) -> T) -> Option<T> {
        let mut known = self.known.lock();
        known.get_mut(&top).filter(|rebuild| rebuild.runner == Some(number) && rebuild.is_active()).map(change)
    }

    /// A device does not have what other devices say that it got.
    pub fn note_behind(&self, leaf: Guid) {
        self.behind.lock().insert(leaf.0);
    }

    /// Whether that was so when the pool was opened.
    pub fn is_behind(&self, leaf: Guid) -> bool {
        self.behind.lock().contains(&leaf.0)
    }

    /// Whether a leaf of a top-level vdev is being given everything.
    pub fn gives(&self, top: u64, leaf: Guid) -> bool {
        let known = self.known.lock();
        known.get(&top).is_some_and(|rebuild| rebuild.is_active() && rebuild.members.contains_key(&leaf.0))
    }

    /// What there is to tell of a top-level vdev.
    pub fn report(&self, top: u64) -> Option<RebuildReport> {
        self.known.lock().get(&top).and_then(Rebuild::report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_works_on_what_is_to_go_on() {
        let phys = RebuildPhys { state: RebuildState::Active, ..RebuildPhys::default() };
        let rebuilds = Rebuilds::new([(2, phys)].into());
        assert!(rebuilds.is_active() && rebuilds.begin(1).is_none());
        let first = rebuilds.begin(2).expect("it is to go on");
        assert_eq!(rebuilds.begin(2), None, "there is somebody");
        assert!(rebuilds.with(2, first + 1, |_| ()).is_none());
        rebuilds.end(2, first);
        let second = rebuilds.begin(2).expect("that one has ended");
        rebuilds.end(2, first);
        assert!(rebuilds.with(2, second, |rebuild| rebuild.phys.state = RebuildState::Complete).is_some());
        assert!(rebuilds.with(2, second, |_| ()).is_none() && !rebuilds.is_active());
        assert_eq!(rebuilds.report(2).expect("it was one").phase, RebuildPhase::Complete);
        rebuilds.leaving.store(true, Ordering::Release);
        rebuilds.end(2, second);
        rebuilds.known.lock().get_mut(&2).expect("it is there").phys.state = RebuildState::Active;
        assert_eq!(rebuilds.begin(2), None, "the pool is left");
    }

    #[test]
    fn only_a_scrub_that_came_later_verifies() {
        let complete =
            RebuildPhys { state: RebuildState::Complete, end_time: 1000, max_txg: Txg(50), ..RebuildPhys::default() };
        let scrub = ScanPhys { func: scan_func::SCRUB, state: scan_state::FINISHED, ..ScanPhys::default() };
        let at = |start_time| ScanPhys { start_time, ..scrub.clone() };
        let resilver = ScanPhys { func: scan_func::RESILVER, ..at(2000) };
        let halfway = ScanPhys { state: scan_state::SCANNING, ..at(2000) };
        let since = ScanPhys { min_txg: Txg(40), ..at(2000) };
        for (scan, scrubbed, is_unverified) in [
            (at(999), 0, true),
            (at(1000), 0, false),
            (resilver.clone(), 49, true),
            (resilver, 50, false),
            (halfway, 0, true),
            (since, 0, true),
            (ScanPhys::default(), 0, true),
        ] {
            let rebuilds = Rebuilds::after([(2, complete.clone())].into(), &scan, Txg(scrubbed));
            assert_eq!(rebuilds.is_unverified(2), is_unverified, "{scan:?} {scrubbed}");
            assert!(!rebuilds.is_unverified(1), "nothing was reconstructed there");
        }
        assert!(!Rebuilds::after(BTreeMap::new(), &at(5), Txg(0)).unverified.load(Ordering::Acquire));
    }
}
