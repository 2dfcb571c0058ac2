//! `zpool wait`.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use platter_api::job::{Job, JobKind, ListJobs};
use platter_api::messages::ErrorBody;

use super::iostat::terminal_height;
use super::pools::{Repeat, Timestamp};
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
        None => watch(session, name, &wanted.kinds()).map_err(Failure::from)?,
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
        let mut jobs = jobs_of(session, name)?;
        if let Some(timestamp) = timestamp {
            outln!("{}", timestamp.now());
        }
        if !wanted.scripted && (row == 0 || (height > 0 && row % height == 0)) {
            outln!("{}", wanted.heading());
        }
        outln!("{}", wanted.row(&jobs));
        let _ = std::io::stdout().flush();
        let shown = Instant::now();
        loop {
            if wanted.remaining(&jobs) == 0 {
                return Ok(());
            }
            let left = interval.saturating_sub(shown.elapsed());
            if left.is_zero() {
                break;
            }
            if !session.sleep(left.min(LOOK)) {
                return Ok(());
            }
            jobs = jobs_of(session, name)?;
        }
    }
    Ok(())
}

fn jobs_of(session: &mut Session, pool: &str) -> Result<Vec<Job>, ErrorBody> {
    session.ask(ListJobs { pool: Some(pool.to_owned()) })
}

/// Of all activities only these exist yet.
const KINDS: [JobKind; 6] =
    [JobKind::Free, JobKind::Initialize, JobKind::Replace, JobKind::Resilver, JobKind::Scrub, JobKind::Trim];

impl Wanted {
    /// The kinds of jobs that were asked for.
    fn kinds(&self) -> Vec<JobKind> {
        KINDS.into_iter().filter(|kind| self.activities.contains(&kind.name())).collect()
    }

    /// Bytes that remain of one activity.
    fn bytes(activity: &str, jobs: &[Job]) -> u64 {
        jobs.iter().filter(|job| job.kind.name() == activity).map(Job::remaining).sum()
    }

    fn remaining(&self, jobs: &[Job]) -> u64 {
        self.activities.iter().map(|activity| Self::bytes(activity, jobs)).sum()
    }

    fn width(activity: &str) -> usize {
        activity.len().max(6) + 2
    }

    fn heading(&self) -> String {
        let columns = self.activities.iter();
        columns.map(|activity| format!("{:>width$}", activity.to_uppercase(), width = Self::width(activity))).collect()
    }

    fn row(&self, jobs: &[Job]) -> String {
        let mut row = String::new();
        for activity in &self.activities {
            let bytes = Self::bytes(activity, jobs);
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
    use platter_api::job::{JobId, JobState};

    use super::*;

    #[test]
    fn rows_stand_below_their_headings() {
        let job = |kind, done: u64, total: u64| Job {
            id: JobId(1),
            pool: "tank".into(),
            kind,
            state: JobState::Running,
            done,
            total,
            rate: 0,
            eta_seconds: None,
            repaired: 0,
        };
        let mut jobs = vec![job(JobKind::Scrub, 1 << 20, 3 << 20)];
        let mut wanted = Wanted { activities: vec!["free", "resilver", "scrub"], scripted: false, exact: false };
        assert_eq!(wanted.heading(), "    FREE  RESILVER   SCRUB");
        assert_eq!(wanted.row(&jobs), "       0         0      2M");
        assert_eq!(wanted.kinds(), [JobKind::Free, JobKind::Resilver, JobKind::Scrub]);
        jobs[0].kind = JobKind::Resilver;
        assert_eq!(wanted.row(&jobs), "       0        2M       0");
        assert_eq!(wanted.remaining(&jobs), 2 << 20);
        wanted = Wanted { activities: ACTIVITIES.to_vec(), scripted: true, exact: true };
        assert_eq!(wanted.row(&jobs), "0\t0\t0\t0\t0\t2097152\t0\t0\t0");
        wanted.activities = vec!["resilver", "scrub"];
        assert_eq!(wanted.row(&jobs), "\t2097152\t0");
        jobs[0].state = JobState::Paused;
        assert_eq!(wanted.remaining(&jobs), 0);
        jobs = vec![job(JobKind::Trim, 0, 1), job(JobKind::Initialize, 0, 2)];
        wanted.activities = vec!["initialize", "trim"];
        assert_eq!((wanted.row(&jobs), wanted.remaining(&jobs)), ("\t2\t1".to_owned(), 3));
        jobs = vec![job(JobKind::Free, 0, 5 << 10)];
        wanted.activities = vec!["free"];
        assert_eq!(wanted.row(&jobs), "\t5120");
        assert_eq!(wanted.remaining(&jobs), 5 << 10);
    }
}
