//! `zpool wait`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use platter_api::report::{Detail, PoolReport, VdevReport};

use super::iostat::terminal_height;
use super::pools::{Repeat, Timestamp, view};
use super::scrub::watch;
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::out::outln;
use crate::session::{Done, Failure, Session, usage};

/// Time between two looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);

/// What can be waited for, in the order of the columns.
const ACTIVITIES: [&str; 9] =
    ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];

/// What was asked for.
struct Wanted {
    activities: Vec<&'static str>,
    scripted: bool,
    exact: bool,
}

/// Runs it.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "HpT:t:", long: &[] }, words).map_err(usage)?;
    let mut activities = ACTIVITIES.to_vec();
    for list in parsed.all("t") {
        // The last list counts, as in OpenZFS.
        activities.clear();
        for word in list.split(',') {
            let found = ACTIVITIES.iter().find(|activity| **activity == word);
            activities.push(found.ok_or_else(|| usage(format!("invalid activity '{word}'")))?);
        }
    }
    activities.sort_by_key(|activity| ACTIVITIES.iter().position(|known| known == activity));
    activities.dedup();
    let wanted = Wanted { activities, scripted: parsed.has("H"), exact: parsed.has("p") };
    let timestamp = Timestamp::parse(parsed.last("T"))?;
    let mut operands = parsed.operands.clone();
    let repeat = Repeat::take(&mut operands)?;
    if repeat.count != 0 {
        return Err(usage("too many arguments"));
    }
    let name = match operands.as_slice() {
        [] => return Err(usage("missing 'pool' argument")),
        [name] => name,
        _ => return Err(usage("too many arguments")),
    };
    match repeat.interval {
        Some(interval) => show(session, name, &wanted, interval, timestamp)?,
        None => watch(session, name, |report| wanted.remaining(report) > 0).map_err(Failure::from)?,
    }
    Ok(0)
}

/// Prints what remains, every `interval`, until nothing does.
fn show(
    session: &mut Session,
    name: &str,
    wanted: &Wanted,
    interval: Duration,
    timestamp: Option<Timestamp>,
) -> Result<(), Failure> {
    let height = if std::io::stdout().is_terminal() { terminal_height().saturating_sub(1) } else { 0 };
    for row in 0.. {
        let mut report = view(session, name, Detail::default())?.report;
        if let Some(timestamp) = timestamp {
            outln!("{}", timestamp.now());
        }
        if !wanted.scripted && (row == 0 || (height > 0 && row % height == 0)) {
            outln!("{}", wanted.heading());
        }
        outln!("{}", wanted.row(&report));
        let _ = std::io::stdout().flush();
        let shown = Instant::now();
        loop {
            if wanted.remaining(&report) == 0 {
                return Ok(());
            }
            let left = interval.saturating_sub(shown.elapsed());
            if left.is_zero() {
                break;
            }
            if !session.sleep(left.min(LOOK)) {
                return Ok(());
            }
            report = view(session, name, Detail::default())?.report;
        }
    }
    Ok(())
}

fn is_replacing(vdev: &VdevReport) -> bool {
    vdev.kind == "replacing" || vdev.children.iter().any(is_replacing)
}

impl Wanted {
    /// Bytes that remain of one activity. Of all of them only freeing, scrub, resilver and replacing exist yet.
    fn bytes(activity: &str, report: &PoolReport) -> u64 {
        if activity == "free" {
            return report.freeing;
        }
        let scan = &report.scan;
        if activity == "replace" {
            // The old device leaves a moment after the new one has everything.
            return match is_replacing(&report.vdevs) {
                true => Self::bytes("resilver", report).max(1),
                false => 0,
            };
        }
        let is_this = activity == if scan.resilver { "resilver" } else { "scrub" };
        match is_this && scan.state == "scanning" {
            // What is not over has something left, whatever was estimated.
            true => scan.to_examine.saturating_sub(scan.issued).max(1),
            // Nobody knows yet how much the next one is.
            false => u64::from(activity == "resilver" && scan.resilver_follows),
        }
    }

    fn remaining(&self, report: &PoolReport) -> u64 {
        self.activities.iter().map(|activity| Self::bytes(activity, report)).sum()
    }

    fn width(activity: &str) -> usize {
        activity.len().max(6) + 2
    }

    fn heading(&self) -> String {
        let columns = self.activities.iter();
        columns.map(|activity| format!("{:>width$}", activity.to_uppercase(), width = Self::width(activity))).collect()
    }

    fn row(&self, report: &PoolReport) -> String {
        let mut row = String::new();
        for activity in &self.activities {
            let bytes = Self::bytes(activity, report);
            let text = if self.exact { bytes.to_string() } else { nice::num(bytes) };
            if !self.scripted {
                row.push_str(&format!("{text:>width$}", width = Self::width(activity)));
            } else if *activity == ACTIVITIES[0] {
                // Of all activities, not of those wanted: without it a row begins with a tab, as in OpenZFS
                // (`print_wait_status_row`).
                row.push_str(&text);
            } else {
                row.push_str(&format!("\t{text}"));
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use platter_api::report::ScanReport;

    use super::*;

    #[test]
    fn rows_stand_below_their_headings() {
        let scan = ScanReport { state: "scanning".into(), to_examine: 3 << 20, issued: 1 << 20, ..Default::default() };
        let mut report = PoolReport { scan, ..PoolReport::default() };
        let mut wanted = Wanted { activities: vec!["free", "resilver", "scrub"], scripted: false, exact: false };
        assert_eq!(wanted.heading(), "    FREE  RESILVER   SCRUB");
        assert_eq!(wanted.row(&report), "       0         0      2M");
        report.scan.resilver = true;
        assert_eq!(wanted.row(&report), "       0        2M       0");
        assert_eq!(wanted.remaining(&report), 2 << 20);
        wanted = Wanted { activities: ACTIVITIES.to_vec(), scripted: true, exact: true };
        assert_eq!(wanted.row(&report), "0\t0\t0\t0\t0\t2097152\t0\t0\t0");
        // A resilver that another one follows is over for a moment.
        (report.scan.state, report.scan.resilver_follows) = ("finished".into(), true);
        assert!(wanted.remaining(&report) > 0);
        report.scan.resilver_follows = false;
        assert_eq!(wanted.remaining(&report), 0);
        report.scan.state = "scanning".into();
        wanted.activities = vec!["resilver", "scrub"];
        assert_eq!(wanted.row(&report), "\t2097152\t0");
        report.scan.state = "paused".into();
        assert_eq!(wanted.remaining(&report), 0);
        report.freeing = 5 << 10;
        wanted.activities = vec!["free"];
        assert_eq!(wanted.row(&report), "\t5120");
        assert_eq!(wanted.remaining(&report), 5 << 10);
    }
}
