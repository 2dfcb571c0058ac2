//! `zpool scrub`, and waiting for it.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use platter_api::job::{Job, JobKind, JobState, ListJobs};
use platter_api::messages::{ErrorBody, ListPools};
use platter_api::request::{PoolOperation, ScrubAction};

use super::pools::each;
use crate::getopt::{Grammar, parse};
use crate::nice;
use crate::session::{Done, Session, refused, usage};

/// Time between two looks at a running scrub.
const LOOK: Duration = Duration::from_millis(200);

/// Time between two lines about it when there is no terminal.
const LINE: Duration = Duration::from_secs(30);

/// Runs `zpool scrub`.
pub fn run(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "aspweCE:S:t", long: &[] }, words).map_err(usage)?;
    for option in ["E", "S", "t"] {
        if parsed.has(option) {
            return Err(refused(format!("zpool scrub -{option}: not supported yet")));
        }
    }
    let (stop, pause, wait) = (parsed.has("s"), parsed.has("p"), parsed.has("w"));
    let from_last = parsed.has("C");
    if from_last && (stop || pause) {
        return Err(usage("invalid option combination: -C cannot be used with -p or -s"));
    }
    if stop && pause {
        return Err(usage("invalid option combination: -s and -p are mutually exclusive"));
    }
    let of_errors = parsed.has("e");
    for (option, given) in [("p", pause), ("s", stop), ("C", from_last)] {
        if of_errors && given {
            return Err(usage(format!("invalid option combination: -e and -{option} are mutually exclusive")));
        }
    }
    if wait && (stop || pause) {
        return Err(usage("invalid option combination: -w cannot be used with -p or -s"));
    }
    let mut pools = parsed.operands.clone();
    if parsed.has("a") {
        pools = session.ask(ListPools {})?.pools;
        if pools.is_empty() {
            return Ok(0);
        }
    } else if pools.is_empty() {
        return Err(usage("missing pool name argument"));
    }
    let action = match (stop, pause) {
        (true, _) => ScrubAction::Stop,
        (_, true) => ScrubAction::Pause,
        _ if of_errors => ScrubAction::Errors,
        _ if from_last => ScrubAction::Continue,
        _ => ScrubAction::Start,
    };
    let code = each(session, &pools, |session, name| session.operate(name, PoolOperation::Scrub(action)).map(|_| ()))?;
    if wait && code == 0 {
        return each(session, &pools, |session, name| watch(session, name, &[JobKind::Scrub, JobKind::Resilver]));
    }
    Ok(code)
}

/// Runs `zpool resilver <pool> ...`.
pub fn resilver(session: &mut Session, words: &[String]) -> Done {
    let parsed = parse(Grammar { short: "", long: &[] }, words).map_err(usage)?;
    if parsed.operands.is_empty() {
        return Err(usage("missing pool name argument"));
    }
    each(session, &parsed.operands, |session, name| {
        session.operate(name, PoolOperation::Scrub(ScrubAction::Resilver)).map(|_| ())
    })
}

/// Waits for running jobs of these kinds, with their progress on a terminal (a bar) or not (now and then a line, to
/// stderr).
pub(super) fn watch(session: &mut Session, name: &str, kinds: &[JobKind]) -> Result<(), ErrorBody> {
    let terminal = std::io::stderr().is_terminal();
    let mut bar: Option<ProgressBar> = None;
    let mut last_line = Instant::now();
    loop {
        let jobs = session.ask(ListJobs { pool: Some(name.to_owned()) })?;
        let Some(job) = jobs.iter().find(|job| job.state == JobState::Running && kinds.contains(&job.kind)) else {
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
            return Ok(());
        };
        let now = Now::of(job);
        if terminal {
            let bar = bar.get_or_insert_with(|| {
                let bar = ProgressBar::new(now.length);
                let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}");
                bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
                bar
            });
            bar.set_prefix(format!("{} {name}", now.what));
            bar.set_length(now.length);
            bar.set_position(now.done);
            bar.set_message(now.text);
        } else if last_line.elapsed() >= LINE {
            eprintln!("{} {name}: {}", now.what, now.text);
            last_line = Instant::now();
        }
        if !session.sleep(LOOK) {
            if let Some(bar) = bar {
                bar.abandon();
            }
            // It goes on; only the waiting ends.
            return Err(ErrorBody::new("interrupted"));
        }
    }
}

/// What is waited for, as it is now.
struct Now {
    what: &'static str,
    /// Bytes.
    length: u64,
    done: u64,
    text: String,
}

impl Now {
    fn of(job: &Job) -> Self {
        let (what, text) = match job.kind {
            JobKind::Free => ("freeing", format!("{} to be freed", nice::bytes(job.remaining()))),
            kind => (kind.name(), progress(job)),
        };
        Self { what, length: job.total, done: job.done, text }
    }
}

/// "1.02G of 3.40G, 250M/s, 00:00:12 to go, 4K repaired".
fn progress(job: &Job) -> String {
    let mut text = format!("{} of {}", nice::bytes(job.done), nice::bytes(job.total));
    if job.rate > 0 {
        text.push_str(&format!(", {}/s", nice::bytes(job.rate)));
    }
    if let Some(seconds) = job.eta_seconds {
        text.push_str(&format!(", {} to go", nice::duration(seconds)));
    }
    if job.repaired > 0 {
        text.push_str(&format!(", {} repaired", nice::bytes(job.repaired)));
    }
    text
}
