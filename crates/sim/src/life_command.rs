//! `platter-sim life`.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use platter_sim::disk::{FaultKind, History};
use platter_sim::life::{Failure, Outcome, Terms, live_all, live_noting};

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
    /// Writes down everything that happens in the first of these lives, command by command.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
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

/// Runs it; fails when any life went wrong.
pub fn run(arguments: &Life) -> ExitCode {
    let terms = Terms { chapters: arguments.chapters.max(1), without: arguments.without.clone() };
    if let Some(path) = &arguments.history {
        let history = History::new(usize::MAX);
        let lived = live_noting(arguments.seeds.start, &terms, history.clone());
        let mut lines = history.lines().join("\n");
        lines.extend(lived.err().iter().flat_map(|what| ["\n", what]));
        if let Err(error) = std::fs::write(path, lines) {
            eprintln!("platter-sim: {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
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
    let totals = live_all(arguments.seeds.clone(), &terms, arguments.threads, keep, &each);
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
    for (kind, count) in totals.faults.each() {
        println!("{:<22} {count:>9}", kind.name());
    }
    if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
