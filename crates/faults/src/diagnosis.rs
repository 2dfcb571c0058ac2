//! From looks at a pool's devices to verdicts.
//!
//! Invariants:
//! - errors from before the first look, and those of a scrub or resilver, earn no verdict
//!   (`cmd/zed/agents/zfs_diagnosis.c`): the first are the import's, and to trust a device less while it is being
//!   repaired would keep it from being repaired;
//! - a device that went away is not blamed for the errors that came with that;
//! - of devices that fail together none is blamed.

use std::collections::BTreeMap;
use std::time::Duration;

use platter_api::faults::{Cause, DeviceSigns, DeviceState, Verdict};

use crate::policy::{LOOK, MANY, QUIET, SETTLE, SILENT, TOGETHER, limit};
use crate::window::Window;

/// A moment: how long after any beginning. It never goes back.
pub type Moment = Duration;

/// What a look showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// Errors, after none for as long as they count. Nothing is made of them yet.
    Seen {
        /// The device.
        device: DeviceSigns,
        /// Which errors.
        cause: Cause,
        /// How many.
        count: u64,
    },
    /// A scrub or resilver found wrong bytes, the first since the last clear.
    ScanErrors {
        /// The device.
        device: DeviceSigns,
    },
    /// A device has had too many errors.
    Judged {
        /// The device.
        device: DeviceSigns,
        /// Which errors.
        cause: Cause,
        /// How many.
        count: u64,
        /// Within so many seconds.
        seconds: u64,
    },
    /// Devices fail together, and nobody is blamed.
    Together {
        /// These.
        devices: Vec<DeviceSigns>,
        /// What they do.
        cause: Cause,
    },
    /// How far a device can be used has changed.
    Changed {
        /// The device as it is now.
        device: DeviceSigns,
        /// As it was; none when it has just been met.
        from: Option<DeviceState>,
    },
    /// A device has not answered for long, and does not.
    Silent {
        /// The device.
        device: DeviceSigns,
        /// For so long.
        seconds: u64,
    },
    /// Several do not.
    AllSilent {
        /// They.
        devices: Vec<DeviceSigns>,
    },
    /// Another device stands in for one, or takes its place.
    Helped {
        /// The device.
        device: DeviceSigns,
    },
    /// That other device has everything.
    Whole {
        /// The device.
        device: DeviceSigns,
    },
    /// Nothing stands in for a device any more.
    Alone {
        /// The device.
        device: DeviceSigns,
    },
}

/// What is known of one device.
#[derive(Debug)]
struct Known {
    last: DeviceSigns,
    windows: BTreeMap<Cause, Window>,
    /// Since when there have been too many errors of a kind.
    suspected: BTreeMap<Cause, Moment>,
    /// For what it was judged.
    judged: Option<Cause>,
    /// For how long it has been seen with transfers under way and ending none. Looks count and not the clock: nobody
    /// looks while the host sleeps.
    silences: [Duration; 2],
}

impl Known {
    fn new(first: DeviceSigns) -> Self {
        Self {
            last: first,
            windows: BTreeMap::new(),
            suspected: BTreeMap::new(),
            judged: None,
            silences: [Duration::ZERO; 2],
        }
    }

    fn forgive(&mut self) {
        self.windows.clear();
        self.suspected.clear();
        self.judged = None;
    }

    /// For how long reads, or writes, have not ended.
    fn silent(&self) -> Duration {
        self.silences.into_iter().max().unwrap_or_default()
    }

    /// Whether a verdict for these errors says more than what there is.
    fn is_news(&self, cause: Cause) -> bool {
        let degraded = self.last.is_judged || self.judged.is_some();
        let faulted = self.judged.is_some_and(|judged| judged.verdict() == Verdict::Faulted);
        !faulted && (!degraded || cause.verdict() == Verdict::Faulted)
    }
}

/// The devices of one pool.
#[derive(Debug, Default)]
pub struct Diagnosis {
    known: BTreeMap<u64, Known>,
    /// When a burst was told of last.
    told: BTreeMap<Cause, Moment>,
    /// When several silent devices were told of last.
    told_silent: Option<Moment>,
}

impl Diagnosis {
    /// Takes a look at all devices of the pool into account.
    pub fn observe(&mut self, now: Moment, signs: &[DeviceSigns]) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.known.retain(|guid, _| signs.iter().any(|device| device.guid == *guid));
        for device in signs.iter().filter(|device| !device.is_in_transit) {
            match self.known.get_mut(&device.guid) {
                Some(known) => known.look(now, device, &mut findings),
                None => {
                    if device.state != DeviceState::Online {
                        findings.push(Finding::Changed { device: device.clone(), from: None });
                    }
                    // It counts from nothing when it is opened: what it counted before this look is new.
                    let opened = DeviceSigns { io_errors: 0, checksum_errors: 0, slow_ios: 0, ..device.clone() };
                    self.known.entry(device.guid).or_insert_with(|| Known::new(opened)).look(
                        now,
                        device,
                        &mut findings,
                    );
                }
            }
        }
        for cause in Cause::ALL {
            self.excuse(now, cause, &mut findings);
            self.judge(now, cause, &mut findings);
        }
        self.look_at_silent(now, &mut findings);
        assert!(self.known.len() <= signs.len(), "devices of the pool are known, and no others");
        findings
    }

    /// Blames nobody when several devices fail at the same time.
    fn excuse(&mut self, now: Moment, cause: Cause, findings: &mut Vec<Finding>) {
        let is_failing = |known: &&Known| {
            let last = known.windows.get(&cause).and_then(Window::last);
            last.is_some_and(|last| now.saturating_sub(last) <= TOGETHER)
        };
        let failing: Vec<u64> = self.known.values().filter(is_failing).map(|known| known.last.guid).collect();
        let usable = self.known.values().filter(|known| known.last.state.is_usable()).count();
        let together = failing.len() >= MANY || (failing.len() >= 2 && failing.len() >= usable);
        let suspected = failing.iter().any(|guid| self.known[guid].suspected.contains_key(&cause));
        if !together || !suspected {
            return;
        }
        let mut devices = Vec::new();
        for guid in failing {
            let known = self.known.get_mut(&guid).expect("it fails, so it is known");
            known.windows.remove(&cause);
            known.suspected.remove(&cause);
            devices.push(known.last.clone());
        }
        if self.told.get(&cause).is_none_or(|told| now.saturating_sub(*told) >= QUIET) {
            findings.push(Finding::Together { devices, cause });
        }
        self.told.insert(cause, now);
    }

    /// Blames a device that does not answer, and nobody when several do not. What could not be done about it is tried
    /// again, now and then.
    fn look_at_silent(&mut self, now: Moment, findings: &mut Vec<Finding>) {
        let usable = self.known.values().filter(|known| known.last.state.is_usable()).count();
        // One that went silent a little later may have the same reason.
        let is_silent = |known: &&Known| known.silent() + TOGETHER >= SILENT;
        let silent: Vec<DeviceSigns> = self.known.values().filter(is_silent).map(|known| known.last.clone()).collect();
        let again = |past: Duration| past.as_secs().is_multiple_of(QUIET.as_secs());
        let is_due = |known: &&Known| known.silent().checked_sub(SILENT).is_some_and(again);
        let due: Vec<&Known> = self.known.values().filter(is_due).collect();
        if due.is_empty() {
            return;
        }
        if silent.len() < MANY && (silent.len() < 2 || silent.len() < usable) {
            let found =
                |known: &Known| Finding::Silent { device: known.last.clone(), seconds: known.silent().as_secs() };
            findings.extend(due.into_iter().map(found));
        } else if self.told_silent.is_none_or(|told| now.saturating_sub(told) >= QUIET) {
            self.told_silent = Some(now);
            findings.push(Finding::AllSilent { devices: silent });
        }
    }

    fn judge(&mut self, now: Moment, cause: Cause, findings: &mut Vec<Finding>) {
        for known in self.known.values_mut() {
            let is_due = known.suspected.get(&cause).is_some_and(|since| now.saturating_sub(*since) >= SETTLE);
            let (true, Some(rate)) = (is_due, limit(&known.last.limits, cause)) else { continue };
            known.suspected.remove(&cause);
            if !known.is_news(cause) || !known.last.state.is_usable() {
                continue;
            }
            known.judged = Some(cause);
            let count = known.windows.get(&cause).map_or(0, |window| window.count(now, rate.within));
            let (device, seconds) = (known.last.clone(), rate.within.as_secs());
            findings.push(Finding::Judged { device, cause, count, seconds });
        }
    }
}

impl Known {
    fn look(&mut self, now: Moment, device: &DeviceSigns, findings: &mut Vec<Finding>) {
        let before = std::mem::replace(&mut self.last, device.clone());
        assert_eq!(before.guid, device.guid, "a device is compared with itself");
        // Reads that end say nothing of writes that do not, and the other way round.
        for (silent, (now, before)) in
            self.silences.iter_mut().zip([(device.reads, before.reads), (device.writes, before.writes)])
        {
            let is_silent = now.0 > 0 && now.1 == before.1 && device.state.is_usable();
            *silent = if is_silent { *silent + LOOK } else { Duration::ZERO };
        }
        self.look_at_state(&before, findings);
        self.look_at_helper(&before, findings);
        if device.helper_has_everything && !before.helper_has_everything {
            // What could not be done without it can be now: it may be given up after all.
            self.judged = None;
        }
        if before.scan_errors == 0 && device.scan_errors > 0 {
            findings.push(Finding::ScanErrors { device: device.clone() });
        }
        let is_cleared = Cause::ALL.iter().any(|cause| device.count(*cause) < before.count(*cause));
        if is_cleared || (before.is_judged && !device.is_judged) {
            self.forgive();
        }
        for cause in Cause::ALL {
            // What is counted anew begins at nothing.
            let earlier = if is_cleared { 0 } else { before.count(cause) };
            let new = device.count(cause).saturating_sub(earlier);
            if let (1.., Some(rate)) = (new, limit(&device.limits, cause)) {
                self.note(now, cause, new, rate.within, findings);
            }
            let Some(rate) = limit(&device.limits, cause) else { continue };
            let Some(window) = self.windows.get(&cause) else { continue };
            let is_too_much = window.count(now, rate.within) >= rate.events && device.state.is_usable();
            if is_too_much && self.is_news(cause) {
                self.suspected.entry(cause).or_insert(now);
            }
        }
    }

    fn note(&mut self, now: Moment, cause: Cause, count: u64, within: Duration, findings: &mut Vec<Finding>) {
        let window = self.windows.entry(cause).or_default();
        let is_first = window.count(now, within) == 0;
        window.note(now, count, within);
        if is_first {
            findings.push(Finding::Seen { device: self.last.clone(), cause, count });
        }
    }

    fn look_at_state(&mut self, before: &DeviceSigns, findings: &mut Vec<Finding>) {
        let device = &self.last;
        if device.state == before.state {
            return;
        }
        findings.push(Finding::Changed { device: device.clone(), from: Some(before.state) });
        // Its errors are explained, or its owner's business: what is to come counts.
        if !device.state.is_usable() || device.state == DeviceState::Online {
            let judged = self.judged.filter(|_| device.state != DeviceState::Online);
            self.forgive();
            self.judged = judged;
        }
    }

    fn look_at_helper(&self, before: &DeviceSigns, findings: &mut Vec<Finding>) {
        let device = self.last.clone();
        match (&before.helper, &device.helper) {
            (None, None) => {}
            (Some(_), None) => findings.push(Finding::Alone { device }),
            (old, new) if old != new => {
                let is_whole = device.helper_has_everything;
                findings.push(Finding::Helped { device: device.clone() });
                findings.extend(is_whole.then_some(Finding::Whole { device }));
            }
            _ if device.helper_has_everything && !before.helper_has_everything => {
                findings.push(Finding::Whole { device });
            }
            _ => {}
        }
    }
}
