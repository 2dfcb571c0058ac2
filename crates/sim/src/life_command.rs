//! `platter-sim life`.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use platter_model::disk::{FaultKind, History};
use platter_sim::crash::judge;
use platter_sim::life::{Failure, Outcome, Terms, drill, late, live_all, live_noting, sound};

/// Which lives to live.
#[derive(Args)]
pub struct Life {
    /// Seeds: one, or from the first up to before the second (`0..1000`).
    #[arg(long, value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// Chapters of a life.
    #[arg(long, default_value_t = Terms::default().chapters)]
    chapters: usize,
    /// Kinds of faults that do not happen: `--without 'torn write,hang'`.
    #[arg(long, value_delimiter = ',', value_parser = parse_kind)]
    without: Vec<FaultKind>,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The disks of one life in so many are shown to zdb, when it is there; 0: of none.
    #[arg(long, default_value_t = 20)]
    zdb: u64,
    /// Not lives but drills: disks that go away and come back, nothing else, in the middle of scans.
    #[arg(long)]
    drill: bool,
    /// Not lives but readers who ask for what was freed.
    #[arg(long, conflicts_with_all = ["drill", "sound"])]
    late: bool,
    /// Not lives but scans of sound pools, which must find nothing.
    #[arg(long, conflicts_with = "drill")]
    sound: bool,
    /// Writes down everything that happens in the first of these lives, command by command.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Tells the first of these lives while it is lived, on stderr.
    #[arg(long, conflicts_with_all = ["drill", "sound", "late", "history"])]
    tell: bool,
    /// Prints every life, and the last lines of the history of one that goes wrong.
    #[arg(long)]
    verbose: bool,
}

/// One seed, or a range of them.
pub fn parse_seeds(text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("'{text}': {error}"));
    match text.split_once("..") {
        Some((first, end)) => Ok(number(first)?..number(end)?),
        None => number(text).map(|seed| seed..seed + 1),
    }
}

fn parse_kind(text: &str) -> Result<FaultKind, String> {
    FaultKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
        let names: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("no fault is called '{text}': {}", names.join(", "))
    })
}

/// The command that shows a life again.
fn replay(seed: u64, terms: &Terms) -> String {
    let mut command = format!("platter-sim life --seeds {seed} --chapters {} --verbose", terms.chapters);
    if !terms.without.is_empty() {
        let names: Vec<&str> = terms.without.iter().map(|kind| kind.name()).collect();
        command.push_str(&format!(" --without '{}'", names.join(",")));
    }
    command
}

fn explain(failure: &Failure) {
    let (terms, what) = &failure.least;
    eprintln!(
        "seed {}: it takes no more than this:
  {}
  {what}",
        failure.seed,
        replay(failure.seed, terms)
    );
}

/// Runs all that is no life but has one idea, which is called so.
fn run_each(arguments: &Life, name: &str, happen: fn(u64, Arc<History>) -> Result<(), String>) -> ExitCode {
    let mut wrong = 0;
    for seed in arguments.seeds.clone() {
        let history = History::new(if arguments.history.is_some() { usize::MAX } else { 0 });
        let done = happen(seed, history.clone());
        if let Some(path) = &arguments.history
            && let Err(error) = std::fs::write(path, history.lines().join("\n"))
        {
            eprintln!("platter-sim: {}: {error}", path.display());
        }
        match done {
            Ok(()) if arguments.verbose => println!("{name} {seed}: history {}", &history.hash()[..16]),
            Ok(()) => {}
            Err(what) => {
                wrong += 1;
                eprintln!("{what}");
            }
        }
    }
    println!("{} of {name}, {wrong} went wrong", arguments.seeds.end.saturating_sub(arguments.seeds.start));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Tells the first of the lives, or writes it down, if that is asked for.
fn write_down(arguments: &Life, terms: &Terms) -> Result<(), String> {
    let first = arguments.seeds.start;
    if arguments.tell
        && let Err(what) = live_noting(first, terms, History::told(0))
    {
        eprintln!("{what}");
    }
    let Some(path) = &arguments.history else { return Ok(()) };
    let history = History::new(usize::MAX);
    let lived = live_noting(first, terms, history.clone());
    let mut lines = history.lines().join("\n");
    lines.extend(lived.err().iter().flat_map(|what| ["\n", what]));
    std::fs::write(path, lines).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs it; fails when any life went wrong.
pub fn run(arguments: &Life) -> ExitCode {
    if arguments.drill {
        return run_each(arguments, "drill", drill);
    }
    if arguments.late {
        return run_each(arguments, "late", late);
    }
    if arguments.sound {
        return run_each(arguments, "sound", sound);
    }
    let terms = Terms { chapters: arguments.chapters.max(1), without: arguments.without.clone(), judged: false };
    if let Err(error) = write_down(arguments, &terms) {
        eprintln!("platter-sim: {error}");
        return ExitCode::FAILURE;
    }
    let each = |seed: u64, lived: &Result<Outcome, String>| match lived {
        Ok(outcome) if arguments.verbose => println!(
            "seed {seed}: {}; {} days, {} operations, {} commands, {} crashes, history {}",
            outcome.machine,
            outcome.seconds / 86_400,
            outcome.done.operations,
            outcome.commands,
            outcome.crashes,
            &outcome.history[..16]
        ),
        Ok(_) => {}
        Err(what) => eprintln!("seed {seed}: {what}\nreplay: {}", replay(seed, &terms)),
    };
    let keep = if arguments.verbose { 200 } else { 0 };
    let zdb = if judge::is_there() { arguments.zdb } else { 0 };
    if zdb != arguments.zdb {
        println!("zdb is not there: nobody else judges");
    }
    let totals = live_all(arguments.seeds.clone(), &terms, arguments.threads, keep, zdb, &each);
    totals.failures.iter().for_each(explain);
    println!(
        "{} lives, {} went wrong: {} days, {} operations, {} MiB written, {} MiB verified, {} commands to disks",
        totals.lives,
        totals.failures.len(),
        totals.seconds / 86_400,
        totals.done.operations,
        totals.done.written >> 20,
        totals.done.verified >> 20,
        totals.commands
    );
    println!(
        "{} power cuts, {} imports, {} times everything set right, {} lives with a loss reported as such",
        totals.crashes, totals.imports, totals.scrubs, totals.losses
    );
    let cached = totals.cached;
    println!(
        "{} ranges trimmed, {} vdevs added, {} have grown, {} times a spare stood in, {} spares stayed",
        totals.trims, totals.vdevs_added, totals.growths, totals.spares_in, totals.spares_stayed
    );
    println!("{} logs added, {} pools split off", totals.logs_added, totals.splits);
    println!(
        "cache devices: {} blocks written, {} read, {} wrong, {} not answered",
        cached.written, cached.hits, cached.wrong, cached.unanswered
    );
    for (kind, count) in totals.faults.each() {
        println!("{:<22} {count:>9}", kind.name());
    }
    if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
