//! `platter-sim crash`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use platter_sim::crash::explore::Layout;
use platter_sim::crash::operation::Operation;
use platter_sim::crash::states::Limits;
use platter_sim::crash::suite::{self, Options, Suite, Totals};

/// Which crashes to explore.
#[derive(Args)]
pub struct Crash {
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only pools of this kind: single, mirror, raidz1.
    #[arg(long)]
    layout: Option<String>,
    /// Only this workload, as a failure names it.
    #[arg(long)]
    workload: Option<String>,
    /// Only this state of the workload: says more about it.
    #[arg(long, requires = "workload")]
    state: Option<usize>,
    /// Fewer choices among unflushed writes, as for the longer workloads.
    #[arg(long)]
    narrow: bool,
    /// Longest exhaustive set: 1, or 2.
    #[arg(long, default_value_t = 2)]
    operations: usize,
    /// Of the exhaustive sets only workloads with one of these operations: `--with add-log,remove-log`.
    #[arg(long, value_delimiter = ',', conflicts_with = "workload")]
    with: Vec<String>,
    /// Of the set of two operations, begin with this one of its beginnings, as the line of the one before it tells:
    /// where a run was stopped.
    #[arg(long, default_value_t = 1, conflicts_with = "workload")]
    from: usize,
    /// Minutes after which no further random workload is begun; the exhaustive sets are always completed.
    #[arg(long, default_value_t = 0)]
    minutes: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// One state in this many is also scrubbed, written to, exported and imported again.
    #[arg(long, default_value_t = 50)]
    thorough: usize,
    /// One of these in this many is shown to zdb.
    #[arg(long, default_value_t = 40)]
    zdb: usize,
}

/// Random workloads are taken in lots of this many.
const LOT: u64 = 100;

fn layouts(name: Option<&str>) -> Result<Vec<Layout>, String> {
    let Some(name) = name else { return Ok(Layout::ALL.to_vec()) };
    let found: Vec<Layout> = Layout::named(name).into_iter().collect();
    if found.is_empty() {
        Err(format!("no layout is called '{name}': single, mirror, raidz1 or mirrors"))
    } else {
        Ok(found)
    }
}

impl Crash {
    /// All workloads of so many operations that are asked for.
    fn all(&self, length: usize) -> Result<Vec<Vec<Operation>>, String> {
        let with = self.with.iter().map(|text| suite::parse(text)).collect::<Result<Vec<_>, _>>()?.concat();
        let mut all = suite::all(length);
        all.retain(|workload| with.is_empty() || workload.iter().any(|operation| with.contains(operation)));
        Ok(all)
    }
}

/// Runs it; fails when any state was wrong.
pub fn run(arguments: &Crash) -> ExitCode {
    match explore(arguments) {
        Ok(totals) if totals.failures.is_empty() => ExitCode::SUCCESS,
        Ok(totals) => {
            for failure in &totals.failures {
                eprintln!("WRONG: {failure}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("platter-sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn explore(arguments: &Crash) -> Result<Totals, String> {
    let layouts = layouts(arguments.layout.as_deref())?;
    let suite = Suite::new(Options {
        layouts: layouts.clone(),
        seed: arguments.seed,
        thorough_every: arguments.thorough,
        zdb_every: arguments.zdb,
        threads: arguments.threads,
        only_state: arguments.state,
    })?;
    #[expect(clippy::disallowed_methods, reason = "how long to go on is the caller's time, not the simulation's")]
    let start = std::time::Instant::now();
    #[expect(clippy::disallowed_methods, reason = "how long to go on is the caller's time, not the simulation's")]
    let elapsed = || start.elapsed();
    let say = |what: &str| println!("{what:<20} {} {:>6.0} s", suite.totals(), elapsed().as_secs_f64());
    let is_right = || suite.totals().failures.is_empty();
    if let Some(text) = &arguments.workload {
        let limits = if arguments.narrow { Limits::NARROW } else { Limits::WIDE };
        suite.run(&[suite::parse(text)?], &layouts, limits, &|| true);
        say("the workload");
        return Ok(suite.totals());
    }
    if arguments.operations >= 1 {
        for layout in &layouts {
            suite.run(&arguments.all(1)?, &[*layout], Limits::WIDE, &is_right);
            say(&format!("all of 1, {}", layout.name()));
        }
    }
    if arguments.operations >= 2 {
        // By the first operation: the first lines come soon.
        let all = arguments.all(2)?;
        let lots = all.chunk_by(|one, other| one[0] == other[0]);
        let count = lots.clone().count();
        for (number, lot) in lots.enumerate().skip(arguments.from.saturating_sub(1)) {
            suite.run(lot, &layouts[..1], Limits::NARROW, &is_right);
            say(&format!("all of 2, {} of {}", number + 1, count));
        }
    }
    let end = Duration::from_secs(60 * arguments.minutes);
    for lot in 0.. {
        if elapsed() >= end || !is_right() {
            break;
        }
        let indices = lot * LOT..(lot + 1) * LOT;
        let workloads: Vec<_> = indices.map(|index| suite::random(arguments.seed, index, 3)).collect();
        let layout = layouts[lot as usize % layouts.len()];
        suite.run(&workloads, &[layout], Limits::NARROW, &|| elapsed() < end && is_right());
        say(&format!("random of 3, {}", layout.name()));
    }
    Ok(suite.totals())
}
