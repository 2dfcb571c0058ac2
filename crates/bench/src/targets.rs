//! What the figures have to show: Platter next to its peers and limits, of one run.

use crate::raw;
use crate::results::{Line, Report};
use crate::scenario::{data_share, raw_case};
use crate::stats::ratio;
use crate::systems::BEFORE;

/// What a case is compared with.
#[derive(Clone, Copy, Debug)]
enum Against {
    /// Another system.
    System(&'static str),
    /// The smaller of the raw device, less redundancy, and the null FUSE file system.
    Limit,
}

/// The cases with what they have to reach; `*` at the end stands for any ending.
const TARGETS: [(&str, f64, Against); 24] = [
    ("write-1", 10.0, Against::System("zfs-fuse")),
    ("write-1", 0.9, Against::Limit),
    ("cold-read-1", 3.0, Against::System("zfs-fuse")),
    ("cold-read-1", 0.9, Against::Limit),
    ("cached-read-1", 0.9, Against::System("null-fuse")),
    ("random-read-16K", 5.0, Against::System("zfs-fuse")),
    ("random-read-16K", 1.0, Against::System("btrfs")),
    ("random-write-16K", 5.0, Against::System("zfs-fuse")),
    ("random-write-16K", 1.0, Against::System("btrfs")),
    ("fsync-appends", 5.0, Against::System("zfs-fuse")),
    ("fsync-appends", 1.0, Against::System("btrfs")),
    ("mail", 5.0, Against::System("zfs-fuse")),
    ("mail", 1.0, Against::System("btrfs")),
    ("create", 5.0, Against::System("zfs-fuse")),
    ("create", 0.7, Against::System("null-fuse")),
    ("stat", 5.0, Against::System("zfs-fuse")),
    ("stat", 0.7, Against::System("null-fuse")),
    ("delete", 5.0, Against::System("zfs-fuse")),
    ("delete", 0.7, Against::System("null-fuse")),
    ("parity-*", 1.2, Against::System("raidz_test")),
    ("fletcher4-*", 1.2, Against::System("openzfs")),
    ("scrub", 0.95, Against::System(raw::NAME)),
    ("cpu-shm-server", 3.0, Against::System("zfs-fuse")),
    ("cpu-shm-machine", 1.0, Against::System("btrfs")),
];

/// What each case has to reach of another build of Platter: the noise of five rounds, and no more.
const OF_BEFORE: f64 = 0.97;

/// One target, and whether it was reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The case.
    pub case: String,
    /// What it was compared with.
    pub against: String,
    /// The ratio that was asked for.
    pub wanted: f64,
    /// The ratio that was measured.
    pub reached: f64,
}

impl Verdict {
    /// Whether it was reached.
    pub fn holds(&self) -> bool {
        self.reached >= self.wanted
    }
}

/// Every target for which both sides were measured.
pub fn verdicts(report: &Report) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for (pattern, wanted, against) in TARGETS {
        let matches =
            |case: &&str| pattern.strip_suffix('*').map_or(**case == *pattern, |start| case.starts_with(start));
        for case in report.cases().into_iter().filter(matches) {
            let Some(ours) = report.line(case, "platter") else { continue };
            let found = match against {
                Against::System(name) => {
                    report.line(case, name).and_then(|other| Some((ours.over(other)?, name.into())))
                }
                Against::Limit => over_limit(report, ours),
            };
            let Some((reached, against)) = found else { continue };
            verdicts.push(Verdict { case: case.to_owned(), against, wanted, reached });
        }
    }
    verdicts.extend(report.cases().into_iter().filter_map(|case| over_before(report, case)));
    verdicts
}

/// A case next to the build before, both in turn: the median of the rounds' ratios.
fn over_before(report: &Report, case: &str) -> Option<Verdict> {
    let reached = report.line(case, "platter")?.over_by_round(report.line(case, BEFORE)?)?;
    Some(Verdict { case: case.to_owned(), against: BEFORE.to_owned(), wanted: OF_BEFORE, reached })
}

/// A case next to the raw device, whose redundancy does not count.
pub fn over_raw(report: &Report, line: &Line) -> Option<f64> {
    let raw = report.line(raw_case(&line.case), raw::NAME)?;
    // The device itself, and what is on one device, moves data only.
    let is_bare = [raw::NAME, "ext4", "xfs"].contains(&line.system.as_str());
    let share = if is_bare { 1.0 } else { data_share(&line.case) };
    ratio(line.median, raw.median * share, line.unit.less_is_better())
}

fn over_limit(report: &Report, ours: &Line) -> Option<(f64, String)> {
    let raw = report.line(raw_case(&ours.case), raw::NAME)?.median * data_share(&ours.case);
    let null = report.line(&ours.case, "null-fuse")?.median;
    let (limit, name) = if raw < null { (raw, "raw less parity") } else { (null, "null-fuse") };
    Some((ratio(ours.median, limit, false)?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Sample, Unit};

    fn report(values: &[(&str, &str, Unit, f64)]) -> Report {
        let line = |&(case, system, unit, value): &(&str, &str, Unit, f64)| {
            Line::of(system, &[Sample::plain(case, unit, value)]).expect("a value")
        };
        Report { lines: values.iter().map(line).collect(), ..Report::default() }
    }

    #[test]
    fn the_smaller_limit_counts() {
        let mut values = vec![
            ("write-1", "platter", Unit::Rate, 540.0),
            ("write-1", "raw", Unit::Rate, 700.0),
            ("write-1", "null-fuse", Unit::Rate, 1000.0),
        ];
        let verdict = &verdicts(&report(&values))[0];
        assert_eq!((verdict.against.as_str(), verdict.reached, verdict.holds()), ("raw less parity", 0.9, true));
        values[2].3 = 590.0;
        assert_eq!(verdicts(&report(&values))[0].against, "null-fuse");
        assert_eq!(over_raw(&report(&values), &report(&values).lines[0]), Some(0.9));
        assert_eq!(over_raw(&report(&values), &report(&values).lines[1]), Some(1.0));
    }

    #[test]
    fn every_case_is_compared_with_the_build_before() {
        let line = |system: &str, case: &str, unit, values: [f64; 3]| {
            Line::of(system, &values.map(|value| Sample::plain(case, unit, value))).expect("values")
        };
        let lines = vec![
            line("platter", "new-case", Unit::Rate, [96.0, 10.0, 5.0]),
            line(BEFORE, "new-case", Unit::Rate, [100.0, 10.0, 5.0]),
            line("platter", "import", Unit::Seconds, [2.0; 3]),
            line(BEFORE, "import", Unit::Seconds, [1.9; 3]),
        ];
        let verdicts = verdicts(&Report { lines, ..Report::default() });
        let found: Vec<_> = verdicts.iter().map(|verdict| (verdict.case.as_str(), verdict.holds())).collect();
        assert_eq!(found, [("new-case", true), ("import", false)]);
    }

    #[test]
    fn less_processor_time_is_better_and_patterns_match() {
        let verdicts = verdicts(&report(&[
            ("cpu-shm-server", "platter", Unit::CpuPerGib, 2.0),
            ("cpu-shm-server", "zfs-fuse", Unit::CpuPerGib, 5.0),
            ("parity-gen_p-1M", "platter", Unit::Rate, 13.0),
            ("parity-gen_p-1M", "raidz_test", Unit::Rate, 10.0),
            ("mail", "zfs-fuse", Unit::Operations, 10.0),
        ]));
        let short: Vec<_> = verdicts.iter().map(|verdict| (verdict.reached, verdict.holds())).collect();
        assert_eq!(short, [(1.3, true), (2.5, false)]);
    }
}
