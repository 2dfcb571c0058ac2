//! Long work as the daemon knows it: scrubs, resilvers, replaced devices, and the freeing of what was destroyed.
//!
//! The engine does the work and keeps its place in the pool, so that it survives command, daemon and host; here it has
//! a number by which a client finds it again, and a rate. Whoever waits, waits for a job: there is no other way.
//!
//! Invariants:
//! - a number is never given twice, and a job has one number from when it was first seen until it is over;
//! - no more of a job is done than there is of it.

mod meter;

use std::collections::BTreeMap;
use std::time::Instant;

use parking_lot::Mutex;
use platter_api::job::{Job, JobId, JobKind, JobState};
use platter_api::report::{LeafWork, LeafWorkState, PoolReport, VdevReport};

use meter::Meter;

/// Work that a pool's report tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    kind: JobKind,
    /// Tells two of a kind apart.
    began: u64,
    state: JobState,
    done: u64,
    /// `None`: the most that was seen to be left.
    total: Option<u64>,
    left: u64,
    /// As the engine knows it; 0 when it does not.
    rate: u64,
    repaired: u64,
}

/// What goes on of a kind of work on single devices, all devices together.
fn on_devices(vdev: &VdevReport, kind: JobKind, one: fn(&VdevReport) -> Option<LeafWork>) -> Option<Work> {
    fn add(vdev: &VdevReport, one: fn(&VdevReport) -> Option<LeafWork>, sum: &mut Option<(u64, u64)>) {
        if let Some(work) = one(vdev).filter(|work| work.state == LeafWorkState::Active) {
            let (done, total) = sum.get_or_insert_default();
            *done += work.done;
            *total += work.total;
        }
        vdev.children.iter().for_each(|child| add(child, one, sum));
    }
    let mut sum = None;
    add(vdev, one, &mut sum);
    let (done, total) = sum?;
    let done = done.min(total);
    let left = total - done;
    Some(Work { kind, began: 0, state: JobState::Running, done, total: Some(total), left, rate: 0, repaired: 0 })
}

/// All sequential reconstructions together: the whole of a resilver to whoever waits for it.
fn rebuild(vdevs: &VdevReport) -> Option<Work> {
    let active = vdevs.children.iter().filter(|top| top.is_rebuilt()).filter_map(|top| top.rebuild);
    let (mut began, mut done, mut total, mut repaired) = (None, 0, 0, 0);
    for rebuild in active {
        began = Some(began.unwrap_or(rebuild.start_time).min(rebuild.start_time));
        done += rebuild.scanned.min(rebuild.to_scan);
        total += rebuild.to_scan;
        repaired += rebuild.rebuilt;
    }
    let (kind, state, total) = (JobKind::Resilver, JobState::Running, total);
    let began = began?;
    Some(Work { kind, began, state, done, total: Some(total), left: total - done, rate: 0, repaired })
}

/// Whether there is a vdev of this kind at or below this one.
fn has(vdev: &VdevReport, kind: &str) -> bool {
    vdev.kind == kind || vdev.children.iter().any(|child| has(child, kind))
}

/// Whether a device takes the place of another one: a spare does as long as it lacks something
/// (`vdev_replace_in_progress`, `module/zfs/vdev.c`).
fn is_replacing(report: &PoolReport, is_resilvering: bool) -> bool {
    has(&report.vdevs, "replacing") || (is_resilvering && has(&report.vdevs, "spare"))
}

/// The work of a pool that is not over.
fn work_of(report: &PoolReport) -> Vec<Work> {
    let scan = &report.scan;
    let (scanning, paused) = (scan.state == "scanning", scan.state == "paused");
    let done = scan.issued.min(scan.to_examine);
    let mut work = Vec::new();
    let of_scan = |kind, state| Work {
        kind,
        began: scan.start_time,
        state,
        done,
        total: Some(scan.to_examine),
        left: scan.to_examine - done,
        rate: scan.rate,
        repaired: scan.repaired,
    };
    // Nobody knows yet how much it is.
    let about_to_begin = |kind| Work { done: 0, total: Some(0), left: 0, rate: 0, ..of_scan(kind, JobState::Running) };
    if scanning || paused {
        let kind = if scan.resilver { JobKind::Resilver } else { JobKind::Scrub };
        work.push(of_scan(kind, if paused { JobState::Paused } else { JobState::Running }));
    }
    let errors = &report.error_scrub;
    if errors.state == "scanning" || errors.state == "paused" {
        // Of its objects nobody knows how large they are.
        let state = if errors.state == "paused" { JobState::Paused } else { JobState::Running };
        work.push(Work { began: errors.start_time, state, ..about_to_begin(JobKind::Scrub) });
    }
    if scan.resilver_follows && !(scanning && scan.resilver) {
        work.retain(|work| work.kind != JobKind::Resilver);
        work.push(about_to_begin(JobKind::Resilver));
    }
    let rebuild = rebuild(&report.vdevs);
    if let Some(rebuild) = rebuild {
        work.retain(|work| work.kind != JobKind::Resilver);
        work.push(rebuild);
    }
    let is_resilvering = scan.resilver_follows || (scanning && scan.resilver) || rebuild.is_some();
    if is_replacing(report, is_resilvering) {
        // The old device leaves a moment after the new one has everything.
        let replace = match rebuild {
            Some(rebuild) => Work { kind: JobKind::Replace, ..rebuild },
            None if scanning && scan.resilver => of_scan(JobKind::Replace, JobState::Running),
            None => about_to_begin(JobKind::Replace),
        };
        // One that resilvers again after an interruption is the same replacing.
        work.push(Work { began: 0, ..replace });
    }
    if report.freeing > 0 {
        let (kind, state, left) = (JobKind::Free, JobState::Running, report.freeing);
        work.push(Work { kind, began: 0, state, done: 0, total: None, left, rate: 0, repaired: 0 });
    }
    work.extend(on_devices(&report.vdevs, JobKind::Trim, |vdev| vdev.trim));
    work.extend(on_devices(&report.vdevs, JobKind::Initialize, |vdev| vdev.initialize));
    work
}

/// A job that was seen.
#[derive(Debug)]
struct Known {
    id: JobId,
    began: u64,
    /// The most that was seen to be left.
    most: u64,
    meter: Meter,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    /// By the pool's guid and the kind of job.
    known: BTreeMap<(u64, JobKind), Known>,
}

/// The jobs of all pools.
#[derive(Debug, Default)]
pub(crate) struct Jobs(Mutex<Table>);

impl Jobs {
    /// The jobs of a pool that has this report now.
    pub fn of(&self, report: &PoolReport, now: Instant) -> Vec<Job> {
        let work = work_of(report);
        let mut table = self.0.lock();
        let is_over = |kind: JobKind| !work.iter().any(|work| work.kind == kind);
        table.known.retain(|(pool, kind), _| *pool != report.guid || !is_over(*kind));
        work.iter().map(|work| table.follow(report, work, now)).collect()
    }

    /// The pool, by its guid, and the kind of a job that was seen.
    pub fn find(&self, id: JobId) -> Option<(u64, JobKind)> {
        self.0.lock().known.iter().find(|(_, known)| known.id == id).map(|(place, _)| *place)
    }

    /// Forgets pools that are not here any more.
    pub fn keep_only(&self, is_here: impl Fn(u64) -> bool) {
        self.0.lock().known.retain(|(pool, _), _| is_here(*pool));
    }
}

impl Table {
    fn follow(&mut self, report: &PoolReport, work: &Work, now: Instant) -> Job {
        let place = (report.guid, work.kind);
        if self.known.get(&place).is_none_or(|known| known.began != work.began) {
            self.last += 1;
            let known = Known { id: JobId(self.last), began: work.began, most: 0, meter: Meter::default() };
            self.known.insert(place, known);
        }
        let known = self.known.get_mut(&place).expect("it was put there");
        known.most = known.most.max(work.left);
        let total = work.total.unwrap_or(known.most);
        let done = if work.total.is_some() { work.done } else { known.most - work.left };
        let seen = known.meter.note(now, done);
        let rate = if work.rate > 0 { work.rate } else { seen };
        let job = Job {
            id: known.id,
            pool: report.name.clone(),
            kind: work.kind,
            state: work.state,
            done,
            total,
            rate,
            eta_seconds: (total - done).checked_div(rate),
            repaired: work.repaired,
        };
        assert!(job.done <= job.total && job.id.0 <= self.last, "job {job:?}, numbers up to {}", self.last);
        job
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_api::report::ScanReport;

    use super::*;

    fn pool(scan: ScanReport) -> PoolReport {
        PoolReport { name: "tank".into(), guid: 7, scan, ..PoolReport::default() }
    }

    fn scan(state: &str, issued: u64) -> ScanReport {
        ScanReport { state: state.into(), start_time: 1, to_examine: 1000, issued, ..ScanReport::default() }
    }

    #[test]
    fn a_scan_is_one_job_until_it_is_over() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        assert_eq!(jobs.of(&pool(scan("finished", 1000)), now), []);
        let first = jobs.of(&pool(scan("scanning", 100)), now).remove(0);
        assert_eq!((first.kind, first.state, first.done, first.total), (JobKind::Scrub, JobState::Running, 100, 1000));
        let later = jobs.of(&pool(scan("scanning", 300)), now + Duration::from_secs(2)).remove(0);
        assert_eq!((later.id, later.rate, later.eta_seconds), (first.id, 100, Some(7)));
        assert_eq!(jobs.find(first.id), Some((7, JobKind::Scrub)));
        let paused = jobs.of(&pool(scan("paused", 300)), now + Duration::from_secs(3)).remove(0);
        assert_eq!((paused.id, paused.state, paused.remaining()), (first.id, JobState::Paused, 0));
        assert_eq!(jobs.of(&pool(scan("canceled", 300)), now), []);
        assert_eq!(jobs.find(first.id), None);
        let again = ScanReport { start_time: 9, issued: 2000, ..scan("scanning", 0) };
        let next = jobs.of(&pool(again), now).remove(0);
        assert!(
            next.id > first.id && next.done == 1000 && next.remaining() == 1,
            "what is not over has something left"
        );
    }

    #[test]
    fn what_follows_or_replaces_is_waited_for_too() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        let kinds = |report: &PoolReport| jobs.of(report, now).iter().map(|job| job.kind).collect::<Vec<_>>();
        // A resilver that another one follows is over for a moment.
        let follows = ScanReport { resilver: true, resilver_follows: true, ..scan("finished", 1000) };
        assert_eq!(kinds(&pool(follows)), [JobKind::Resilver]);
        let mut report = pool(ScanReport { resilver: true, ..scan("scanning", 10) });
        report.vdevs.children.push(VdevReport { kind: "replacing".into(), ..VdevReport::default() });
        assert_eq!(kinds(&report), [JobKind::Resilver, JobKind::Replace]);
        report.scan.state = "finished".into();
        assert_eq!(kinds(&report), [JobKind::Replace]);
        // A spare takes the place of another device for as long as it lacks something, and stays there.
        report.vdevs.children = vec![VdevReport { kind: "spare".into(), ..VdevReport::default() }];
        assert_eq!(kinds(&report), []);
        report.scan.state = "scanning".into();
        assert_eq!(kinds(&report), [JobKind::Resilver, JobKind::Replace]);
    }

    #[test]
    fn work_on_devices_is_one_job_for_all_that_have_not_ended() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        let leaf = |state, done| VdevReport {
            trim: Some(LeafWork { state, time: 5, done, total: 100 }),
            ..VdevReport::default()
        };
        let mut report = pool(ScanReport::default());
        let states = [LeafWorkState::Active, LeafWorkState::Active, LeafWorkState::Suspended, LeafWorkState::Complete];
        report.vdevs.children = states.map(|state| leaf(state, 30)).into();
        let job = jobs.of(&report, now).remove(0);
        assert_eq!((job.kind, job.done, job.total), (JobKind::Trim, 60, 200));
        report.vdevs.children.truncate(0);
        assert_eq!(jobs.of(&report, now), []);
    }

    #[test]
    fn freeing_counts_from_the_most_that_was_left() {
        let (jobs, now) = (Jobs::default(), Instant::now());
        let freeing = |bytes| PoolReport { freeing: bytes, ..pool(ScanReport::default()) };
        let shown = |bytes, seconds| {
            let job = jobs.of(&freeing(bytes), now + Duration::from_secs(seconds)).remove(0);
            (job.done, job.total, job.rate, job.remaining())
        };
        assert_eq!(shown(500, 0), (0, 500, 0, 500));
        assert_eq!(shown(1500, 1), (0, 1500, 0, 1500));
        assert_eq!(shown(500, 11), (1000, 1500, 90, 500));
        assert_eq!(jobs.of(&freeing(0), now), []);
    }
}
