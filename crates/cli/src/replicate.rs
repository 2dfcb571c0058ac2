//! `platter replicate`: a data set's snapshots are brought elsewhere, to another pool or another machine, first all and
//! then what is new; what breaks off goes on the next time.
//!
//! It needs nothing but `zfs` at both ends, ours or OpenZFS's. What both have is known by guid, and a bookmark of what
//! was sent last stays behind, so a schedule may destroy the snapshot itself; while it is sent it is held.

mod ends;
mod plan;
mod pump;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use platter_api::names::is_below;
use platter_api::numbers;
use platter_api::schedule::Frequency;
use platter_stream::ResumeToken;

use crate::nice;
use crate::out::outln;
use ends::End;
use plan::{Obstacle, Point, Step, base, has_common, plan};

/// Words of the command.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = HELP)]
pub struct Arguments {
    /// The data set whose snapshots are sent: [[USER@]HOST:]POOL/NAME
    source: String,
    /// The data set that gets them, which is made when it does not exist: [[USER@]HOST:]POOL/NAME
    target: String,
    /// With all data sets below
    #[arg(short = 'r', long)]
    recursive: bool,
    /// Make a snapshot first, and keep only the newest of those at both ends
    #[arg(short = 's', long)]
    snapshot: bool,
    /// Give up what is newer at the target
    #[arg(short = 'F', long)]
    force: bool,
    /// Send properties along
    #[arg(short = 'p', long)]
    properties: bool,
    /// Decompress and divide blocks, for a target that cannot take them as they are
    #[arg(long)]
    plain: bool,
    /// At most so many bytes a second (10M)
    #[arg(long, value_name = "RATE")]
    limit: Option<String>,
    /// Again every so often, until interrupted (10s, 5m, 1h)
    #[arg(long, value_name = "PERIOD")]
    every: Option<String>,
    /// What reaches other machines
    #[arg(short = 'e', long, default_value = "ssh", value_name = "COMMAND")]
    shell: String,
    /// zfs on other machines
    #[arg(long, default_value = "zfs", value_name = "COMMAND")]
    remote_zfs: String,
    /// Say only what goes wrong
    #[arg(short = 'q', long)]
    quiet: bool,
}

const HELP: &str = "The target is not mounted by this, and stays equal to the source as long as nobody changes it.\n\
    Examples:\n  \
    platter replicate -rs tank/home backup/home\n  \
    platter replicate --every 1m tank/vm root@other:pool/vm";

/// The first word of snapshots that this makes.
const MADE: &str = "@replica_";

/// How everything is sent.
struct Replication {
    arguments: Arguments,
    rate: Option<u64>,
    /// What the bookmarks of this target begin with.
    bookmark: String,
    /// What a snapshot is held by while it is sent to this target.
    tag: String,
}

/// How often in a row a snapshot that is to be sent may be gone before it is held: on a busy machine, a schedule that
/// keeps few of a second each may be faster for some time.
const PLANS: usize = 50;
/// What is said of a resume token that nothing can go on with any more; OpenZFS says so too.
const GONE: [&str; 4] = ["no longer exists", "is no longer the same snapshot", "is gone", "token is corrupt"];

/// A short name for a target: FNV-1a.
fn short_name(text: &str) -> String {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

/// Runs it; the exit code.
pub fn main(arguments: &Arguments) -> u8 {
    match run(arguments) {
        Ok(()) => 0,
        Err(problem) => {
            eprintln!("platter replicate: {problem}");
            1
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let end = |text: &str| End::parse(text, &arguments.shell, &arguments.remote_zfs);
    let (source, target) = (end(&arguments.source)?, end(&arguments.target)?);
    if source.overlaps(&target, arguments.recursive) {
        let (from, to) = (&source.dataset, &target.dataset);
        return Err(format!("'{to}' is '{from}' itself or, with -r, part of what is copied: name another target"));
    }
    let rate = match arguments.limit.as_deref().map(numbers::parse) {
        None => None,
        Some(Ok(rate)) if rate > 0 => Some(rate),
        Some(_) => return Err("--limit takes bytes a second, such as 10M".to_owned()),
    };
    let period = match arguments.every.as_deref().map(Frequency::parse) {
        None => None,
        Some(Some(Frequency::Every(seconds))) => Some(Duration::from_secs(seconds)),
        Some(_) => return Err("--every takes a period, such as 10s, 5m or 1h".to_owned()),
    };
    let short = short_name(&arguments.target);
    let (bookmark, tag) = (format!("#replica-{short}-"), format!("replica-{short}"));
    let replication = Replication { arguments: arguments.clone(), rate, bookmark, tag };
    let Some(period) = period else { return replication.once(&source, &target) };
    loop {
        let began = Instant::now();
        // What fails now may work the next time: the network comes back.
        if let Err(problem) = replication.once(&source, &target) {
            eprintln!("platter replicate: {problem}");
        }
        std::thread::sleep(period.saturating_sub(began.elapsed()));
    }
}

/// Why a data set was not copied.
struct Problem {
    text: String,
    /// Whether the target is another data set, below which nothing of this one belongs.
    is_foreign: bool,
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self { text, is_foreign: false }
    }
}

impl Replication {
    /// Brings the target to the newest snapshots.
    fn once(&self, source: &End, target: &End) -> Result<(), String> {
        let names = source.datasets(self.arguments.recursive)?;
        if names.is_empty() {
            return Err(format!("'{}': dataset does not exist", source.dataset));
        }
        let made = match self.arguments.snapshot {
            true => {
                Self::check_target(source, target)?;
                Some(self.take_snapshot(source)?)
            }
            false => None,
        };
        let mut problems = String::new();
        let mut foreign: Vec<String> = Vec::new();
        for name in names {
            let below = name.strip_prefix(&source.dataset).unwrap_or_default();
            let (from, to) = (source.at(name.clone()), target.at(format!("{}{below}", target.dataset)));
            if foreign.iter().any(|above| is_below(&name, above)) {
                self.settle(&from, &to, made.as_deref());
                continue;
            }
            if let Err(problem) = self.dataset(&from, &to) {
                self.settle(&from, &to, made.as_deref());
                // Others go on: each is a replica by itself.
                let _ = write!(problems, "{}{name}: {}", if problems.is_empty() { "" } else { "\n" }, problem.text);
                if problem.is_foreign {
                    foreign.push(name);
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// Refuses a target that is something else before a snapshot is made for it, each round one more.
    fn check_target(source: &End, target: &End) -> Result<(), String> {
        if target.datasets(false)?.is_empty() {
            return Ok(());
        }
        if let Some(token) = target.resume_token()? {
            return check_token(source, target, &token);
        }
        match has_common(&source.points(true)?, &target.points(false)?) {
            true => Ok(()),
            false => Err(told(&Obstacle::NothingInCommon, source, target)),
        }
    }

    /// Its name, with its `@`.
    fn take_snapshot(&self, source: &End) -> Result<String, String> {
        let made = format!("{MADE}{}", chrono::Utc::now().format("%Y-%m-%dT%H:%M:%S%.3fZ"));
        let name = format!("{}{made}", source.dataset);
        let words: &[&str] = if self.arguments.recursive { &["snapshot", "-r", &name] } else { &["snapshot", &name] };
        source.ask(words).map(|_| made)
    }

    /// After a failure, destroys the snapshot that was `made` to be sent, as each round would leave one, and holds
    /// nothing for a target that does not exist. What the target has or has begun with stays; so does all when it does
    /// not answer.
    fn settle(&self, source: &End, target: &End, made: Option<&str>) {
        let state = || -> Result<(Vec<Point>, Option<Vec<u64>>), String> {
            let points = source.points(false)?;
            if target.datasets(false)?.is_empty() {
                return Ok((points, None));
            }
            let mut needed: Vec<u64> = target.points(false)?.iter().map(|point| point.guid).collect();
            if let Some(token) = target.resume_token()? {
                let token = ResumeToken::parse(&token).map_err(|_| "a token that cannot be read".to_owned())?;
                needed.push(token.to_guid.0);
            }
            Ok((points, Some(needed)))
        };
        let Ok((points, needed)) = state() else { return };
        for point in points {
            let name = format!("{}{}", source.dataset, point.name);
            let is_needed = needed.as_ref().is_some_and(|needed| needed.contains(&point.guid));
            let is_made = made == Some(point.name.as_str()) && !is_needed;
            if point.is_held && (is_made || needed.is_none()) {
                let _ = source.ask(&["release", &self.tag, &name]);
            }
            if is_made {
                let _ = source.ask(&["destroy", &name]);
            }
        }
    }

    /// One data set.
    fn dataset(&self, source: &End, target: &End) -> Result<(), Problem> {
        let began = Instant::now();
        let mut bytes = 0;
        if !target.datasets(false)?.is_empty() {
            bytes += self.resume(source, target)?;
        }
        let (points, in_common) = self.steps(source, target, &mut bytes)?;
        if let Some(base) = in_common {
            self.keep_bookmark(source, &base)?;
        }
        // Of rounds that were broken off.
        for point in points.iter().filter(|point| point.is_held) {
            let _ = source.ask(&["release", &self.tag, &format!("{}{}", source.dataset, point.name)]);
        }
        let newest = points.iter().rev().find(|point| point.name.starts_with('@') && !point.is_leaving);
        if let Some(newest) = newest.filter(|_| self.arguments.snapshot && bytes > 0) {
            self.forget_older(source, target, newest)?;
        }
        if !self.arguments.quiet {
            let seconds = began.elapsed().as_secs_f64();
            let to = newest.map_or("", |newest| &newest.name);
            match bytes {
                0 => outln!("{}{to}: nothing new", source.dataset),
                _ => outln!("{}{to} -> {}: {} in {seconds:.1} s", source.dataset, target.dataset, nice::bytes(bytes)),
            }
        }
        Ok(())
    }

    /// Sends all that the target has not; what the source has, and of that what the target had already when there was
    /// nothing to send.
    fn steps(&self, source: &End, target: &End, bytes: &mut u64) -> Result<(Vec<Point>, Option<Point>), Problem> {
        let exists = || Ok::<_, String>(!target.datasets(false)?.is_empty());
        'plans: for _ in 0..PLANS {
            let points = source.points(true)?;
            // Asked again: a first copy that could not go on was given up, and is gone.
            let there = if exists()? { Some(target.points(false)?) } else { None };
            let steps = plan(&points, there.as_deref(), self.arguments.force);
            let steps = steps.map_err(|obstacle| Problem {
                text: told(&obstacle, source, target),
                is_foreign: obstacle == Obstacle::NothingInCommon,
            })?;
            for step in &steps {
                // Until both have it, and it has a bookmark, a schedule must not destroy it. Who may not hold it is no
                // worse off than without.
                let held = format!("{}{}", source.dataset, step.to());
                let is_held = source.ask(&["hold", &self.tag, &held]).is_ok();
                if !is_held && source.points(false)?.iter().all(|point| point.name != step.to()) {
                    // A schedule was faster: what there is by now is sent.
                    continue 'plans;
                }
                match self.send(source, target, step) {
                    Ok(sent) => *bytes += sent,
                    // Nor is what it builds on held: its bookmark serves as well.
                    Err(_) if source.points(true).is_ok_and(|points| is_gone(step, &points)) => continue 'plans,
                    Err(problem) => return Err(problem.into()),
                }
                // At once: the snapshot itself may be gone before the next step is over.
                if let Some(sent) = points.iter().find(|point| point.name == step.to()) {
                    self.keep_bookmark(source, sent)?;
                }
                let _ = source.ask(&["release", &self.tag, &held]);
            }
            let base = there.filter(|_| steps.is_empty()).and_then(|there| base(&points, &there).cloned());
            return Ok((points, base));
        }
        Err(format!("'{}': its snapshots are destroyed before they can be sent", source.dataset).into())
    }

    fn flags(&self) -> Vec<&str> {
        let mut flags = vec!["send"];
        if !self.arguments.plain {
            flags.push("-Lec");
        }
        flags
    }

    fn receive<'a>(&self, target: &'a End) -> Vec<&'a str> {
        let mut words = vec!["receive", "-s", "-u"];
        if self.arguments.force {
            words.push("-F");
        }
        words.push(&target.dataset);
        words
    }

    fn pass(&self, source: &End, target: &End, send: &[&str], title: &str) -> Result<u64, String> {
        let mut asked = send.to_vec();
        asked.insert(1, "-nP");
        // Nothing but the progress depends on it.
        let estimate = source.ask(&asked).ok().and_then(|said| {
            let size = said.lines().rev().find_map(|line| line.strip_prefix("size"))?;
            size.trim().parse().ok()
        });
        let how = pump::How {
            rate: self.rate,
            estimate: estimate.unwrap_or(0),
            title: (!self.arguments.quiet).then(|| title.to_owned()),
        };
        pump::pass(source.command(send), target.command(&self.receive(target)), &how)
    }

    fn send(&self, source: &End, target: &End, step: &Step) -> Result<u64, String> {
        let full_name = |own: &str| format!("{}{own}", source.dataset);
        let (to, from) =
            (full_name(step.to()), if let Step::Since { from, .. } = step { full_name(from) } else { String::new() });
        let mut words = self.flags();
        if self.arguments.properties {
            words.push("-p");
        }
        if let Step::Since { all, .. } = step {
            words.extend([if *all { "-I" } else { "-i" }, &from]);
        }
        words.push(&to);
        self.pass(source, target, &words, &to)
    }

    /// Goes on with what was broken off, if something was.
    fn resume(&self, source: &End, target: &End) -> Result<u64, Problem> {
        let Some(mut token) = target.resume_token()? else { return Ok(0) };
        check_token(source, target, &token).map_err(|text| Problem { text, is_foreign: true })?;
        loop {
            let problem = match self.resume_with(source, target, &token) {
                Ok(bytes) => return Ok(bytes),
                Err(problem) => problem,
            };
            // The receive that broke off may have still been at it: then it has come further meanwhile. What is refused
            // at its end only changes the token, too, but not the place in it.
            std::thread::sleep(Duration::from_secs(2));
            token = target.resume_token()?.filter(|now| reached(now) > reached(&token)).ok_or(problem)?;
        }
    }

    /// Goes on there. What cannot be gone on with is given up.
    fn resume_with(&self, source: &End, target: &End, token: &str) -> Result<u64, String> {
        let mut words = self.flags();
        words.extend(["-t", token]);
        // Whether it can be is asked first: afterwards the target says only that its stream ended.
        match source.ask(&["send", "-nv", "-t", token]) {
            Ok(_) => return self.pass(source, target, &words, &format!("{} (goes on)", target.dataset)),
            // Whatever else it is may pass: what the target has by now is not given up for it.
            Err(problem) if !GONE.iter().any(|words| problem.contains(words)) => return Err(problem),
            Err(_) => {}
        }
        target.ask(&["receive", "-A", &target.dataset])?;
        Ok(0)
    }

    /// A bookmark of what the target has, in place of the one before.
    fn keep_bookmark(&self, source: &End, newest: &Point) -> Result<(), String> {
        let points = source.points(true)?;
        // By guid: a snapshot may be renamed, and another one get its name.
        let own = format!("{}{:x}", self.bookmark, newest.guid);
        let full_name = |own: &str| format!("{}{own}", source.dataset);
        let is_there = points.iter().any(|point| point.name == own);
        if !is_there && let Err(problem) = source.ask(&["bookmark", &full_name(&newest.name), &full_name(&own)]) {
            // A pool without the feature has none: its snapshots are what both have.
            return if problem.contains("not supported") || problem.contains("must be upgraded") {
                Ok(())
            } else {
                Err(problem)
            };
        }
        for old in points.iter().filter(|point| point.name.starts_with(&self.bookmark) && point.name != own) {
            source.ask(&["destroy", &full_name(&old.name)])?;
        }
        Ok(())
    }

    /// Of the snapshots that this made, only the newest stays, and what somebody holds. One that cannot go keeps no
    /// other.
    fn forget_older(&self, source: &End, target: &End, newest: &Point) -> Result<(), String> {
        let mut problems = Vec::new();
        for end in [source, target] {
            for point in end.points(false)? {
                let is_kept = point.guid == newest.guid || point.is_held || point.is_leaving;
                if point.name.starts_with(MADE) && !is_kept {
                    problems.extend(end.ask(&["destroy", &format!("{}{}", end.dataset, point.name)]).err());
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }
}

/// Whether the source has no longer what a step builds on.
fn is_gone(step: &Step, points: &[Point]) -> bool {
    matches!(step, Step::Since { from, .. } if points.iter().all(|point| point.name != *from))
}

/// Refuses to go on with what was begun with another data set's snapshot, or to give it up.
fn check_token(source: &End, target: &End, token: &str) -> Result<(), String> {
    // What is no token is given up.
    let Ok(token) = ResumeToken::parse(token) else { return Ok(()) };
    let is_of_source = token.to_name.split('@').next() == Some(source.dataset.as_str());
    if is_of_source || source.points(false)?.iter().any(|point| point.guid == token.to_guid.0) {
        return Ok(());
    }
    let (from, to) = (&source.dataset, &target.dataset);
    Err(format!(
        "'{to}' has part of '{}', which is not of '{from}': 'zfs receive -A {to}' gives that up, or name a data set \
         that does not exist yet",
        token.to_name
    ))
}

/// How far a receive came that broke off.
fn reached(token: &str) -> Option<(u64, u64)> {
    ResumeToken::parse(token).ok().map(|token| (token.object.0, token.offset))
}

/// What is said of an obstacle, and what to do.
fn told(obstacle: &Obstacle, source: &End, target: &End) -> String {
    let (from, to) = (&source.dataset, &target.dataset);
    match obstacle {
        Obstacle::NoSnapshot => {
            format!(
                "'{from}' has no snapshot that stays: take one, or have one taken with -s, or set platter:snap on it"
            )
        }
        Obstacle::NothingInCommon => format!(
            "'{to}' exists, but has no snapshot in common with '{from}', so nothing is copied there or below; \
             name a data set that does not exist yet, or destroy that one"
        ),
        Obstacle::Diverged(newer) => format!(
            "'{to}' has a snapshot of its own that is newer than what both have ({newer}); -F gives it up, and what \
             was written since"
        ),
        Obstacle::Leaving(newer) => format!(
            "'{to}' has a snapshot that is destroyed already and waits for its last user ({newer}), as the one of a \
             'zfs diff' does; try again when it is gone"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_a_bookmark_of_its_own() {
        assert_ne!(short_name("a:b"), short_name("a:c"));
        assert_eq!(short_name("backup/home").len(), 8);
    }
}
