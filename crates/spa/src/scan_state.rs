//! The state of a scan: what is on disk of it, what it has done, and what ends its walk.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use platter_ondisk::Txg;
use platter_ondisk::dsl::{ScanPhys, scan_flags, scan_func, scan_state};
use platter_vdev::{Leaf, MissingRanges};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::lost::Lost;
use crate::scan_place::{PLACE_WORDS, ScanPlace};
use crate::scan_proof::{self, Roster};
use platter_api::report::ScanReport;
use platter_dsl::error::PoolError;

/// A resilver that is not further on than one part in so many begins anew when another device comes.
const EARLY: u64 = 10;

/// What is said of a device whose turn has not come.
pub const AWAITING: &str = "(awaiting resilver)";

/// The rate is measured over this long.
const WINDOW: Duration = Duration::from_secs(10);

/// What ends a walk before its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupt {
    /// Nothing.
    #[default]
    None,
    /// A device came that needs a resilver.
    Restart,
    /// It is paused, cancelled, or the pool is left.
    Halt,
}

/// What a scan has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Bytes examined.
    pub examined: u64,
    /// Bytes verified.
    pub issued: u64,
    /// Blocks that could not be had.
    pub errors: u64,
}

/// A scrub or resilver in memory.
#[derive(Default)]
pub struct ScanState {
    /// As on disk.
    pub phys: ScanPhys,
    /// Whether a walk is under way in this process.
    pub running: bool,
    /// What shall end the walk at the end of the slice.
    pub interrupt: Interrupt,
    /// Whether something changed since the walk began that is worth another one if a device still misses something.
    pub again: bool,
    /// When freed space last had the time to become usable, or the walk began.
    pub matured: Option<Instant>,
    /// What the walk found lost.
    pub lost: Weak<Mutex<Lost>>,
    /// Everything up to here was looked at; of what comes behind it some was, too.
    pub place: ScanPlace,
    /// What was counted up to the place.
    pub counted: Tally,
    /// The devices that it brings up to date, since the walk was begun by this process.
    pub roster: Option<Roster>,
    /// What it may build on when it was begun by another.
    pub stored: BTreeMap<u64, MissingRanges>,
    /// Whether the queue of data sets on disk is another program's, who was at another place.
    pub foreign_queue: bool,
    /// Bytes verified.
    pub issued: u64,
    /// Seconds spent scanning before the last start in this process.
    pub elapsed_before: u64,
    /// When the walk under way began.
    pub started: Option<Instant>,
    /// Bytes examined at some moments of late, for the rate.
    pub window: VecDeque<(Instant, u64)>,
    /// The last group that the last whole scrub has seen.
    pub last_scrubbed: Txg,
    /// When it was paused, in seconds since the epoch.
    pub pause_time: u64,
    /// Woken when a walk ends.
    pub done: Arc<Notify>,
}

impl ScanState {
    /// No walk is under way any more.
    pub fn stand_still(&mut self) {
        self.running = false;
        self.done.notify_waiters();
    }

    /// State loaded from the pool directory, with what stands under [`PLACE`](crate::scan_place::PLACE).
    pub fn loaded(mut phys: ScanPhys, words: &[u64]) -> Self {
        let place = ScanPlace::decode(words, &phys);
        let stored = match words.get(PLACE_WORDS..) {
            Some(words) if place != ScanPlace::default() => scan_proof::decode(words),
            _ => BTreeMap::new(),
        };
        if place == ScanPlace::default() && phys.state == scan_state::SCANNING {
            (phys.examined, phys.errors) = (0, 0);
        }
        let foreign_queue = phys.bookmark != Default::default();
        phys.bookmark = Default::default();
        let counted = Tally { examined: phys.examined, issued: phys.examined, errors: phys.errors };
        Self { issued: phys.examined, phys, place, counted, stored, foreign_queue, ..Self::default() }
    }

    /// A new scan begins, which brings the devices of `roster` up to date.
    pub fn begin(&mut self, phys: ScanPhys, roster: Roster) {
        let (done, queue_obj, last_scrubbed) = (self.done.clone(), self.phys.queue_obj, self.last_scrubbed);
        let phys = ScanPhys { queue_obj, ..phys };
        *self = Self { done, phys, last_scrubbed, roster: Some(roster), running: true, ..Self::default() };
    }

    /// Everything up to `place` was looked at, and nothing else.
    pub fn came_to(&mut self, place: ScanPlace) {
        self.place = place;
        self.counted = Tally { examined: self.phys.examined, issued: self.issued, errors: self.phys.errors };
    }

    /// The walk ends behind its place: what it looked at there it looks at once more when it goes on.
    pub fn go_back(&mut self) {
        self.phys = self.phys_at_place();
        self.issued = self.counted.issued;
    }

    /// What is to be on disk: of a walk under way it goes with the place.
    pub fn phys_at_place(&self) -> ScanPhys {
        match self.phys.state {
            scan_state::SCANNING => {
                ScanPhys { examined: self.counted.examined, errors: self.counted.errors, ..self.phys.clone() }
            }
            _ => self.phys.clone(),
        }
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
        Some(if self.running { AWAITING } else { "(not fully resilvered)" })
    }

    /// Whether the walk is to end at the end of the slice.
    pub fn is_interrupted(&self) -> bool {
        self.interrupt != Interrupt::None
    }

    /// A device came back while a walk is under way. A scrub makes way for the resilver; a resilver does when little
    /// would be done twice, and otherwise is followed by another.
    pub fn make_way(&mut self) {
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

    /// Whether it is a scrub that somebody paused.
    pub fn is_paused(&self) -> bool {
        self.phys.flags & scan_flags::SCRUB_PAUSED != 0
    }

    /// Refuses what cannot be beside a scan that is under way.
    ///
    /// # Errors
    /// [`PoolError::Busy`] while one is.
    pub fn check_none(&self) -> std::result::Result<(), PoolError> {
        match (self.running, self.phys.func == scan_func::RESILVER) {
            (false, _) => Ok(()),
            (true, true) => Err(PoolError::Busy("currently resilvering".into())),
            _ => Err(PoolError::Busy("currently scrubbing; use 'zpool scrub -s' to cancel scrub".into())),
        }
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

#[cfg(test)]
mod tests {
    use platter_ondisk::ObjectId;
    use platter_zio::Bookmark;

    use super::*;

    fn scan() -> ScanPhys {
        let (func, state) = (scan_func::SCRUB, scan_state::SCANNING);
        ScanPhys { func, state, start_time: 1_700_000_000, examined: 4096, errors: 2, ..ScanPhys::default() }
    }

    #[test]
    fn a_scan_goes_on_at_its_place() {
        // It used to begin anew after every import, so that a scrub longer than the uptime never ended.
        let last = Bookmark { objset: ObjectId(54), object: ObjectId(7), level: -1, blkid: u64::MAX - 1 };
        for place in [
            ScanPlace { turn: 7, objset: ObjectId(54), last: Some(last) },
            ScanPlace { turn: 7, objset: ObjectId(55), last: None },
        ] {
            let state = ScanState::loaded(scan(), &place.encode(&scan()));
            assert_eq!(state.place, place);
            assert!(state.stored.is_empty(), "an older version wrote nothing about devices");
            assert_eq!((state.phys.examined, state.phys.errors), (4096, 2));
        }
    }

    #[test]
    fn a_scan_that_another_program_started_or_went_on_with_begins_anew() {
        let place = ScanPlace { turn: 7, objset: ObjectId(54), last: None };
        let others = [
            ScanPhys { start_time: 1, ..scan() },
            ScanPhys { examined: 8192, ..scan() },
            ScanPhys { bookmark: platter_ondisk::dsl::Bookmark { objset: 54, ..Default::default() }, ..scan() },
        ];
        for (index, other) in others.into_iter().enumerate() {
            let state = ScanState::loaded(other, &if index < 2 { place.encode(&scan()) } else { Vec::new() });
            assert_eq!(state.place, ScanPlace::default());
            assert_eq!((state.phys.examined, state.phys.errors), (0, 0));
            assert_eq!(state.foreign_queue, index == 2);
        }
        assert_eq!(ScanState::loaded(scan(), &[1, 2, 3]).place, ScanPlace::default());
    }
}
