//! `platter-sim canary`: only in builds with feature `canary`.

use std::process::ExitCode;

use clap::Args;
use platter_sim::crash::aviary;
use platter_zio::Canary;

/// How long to look for each.
#[derive(Args)]
pub struct Canaries {
    /// Seed of everything.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only this one, by its name.
    #[arg(long)]
    only: Option<String>,
    /// States after which a canary counts as not found.
    #[arg(long, default_value_t = 40_000)]
    states: usize,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Looks for each; fails when one is not found.
pub fn run(arguments: &Canaries) -> ExitCode {
    let wanted = |canary: &Canary| arguments.only.as_ref().is_none_or(|name| format!("{canary:?}") == *name);
    let (mut found, mut missed) = (0, 0);
    for canary in Canary::ALL.into_iter().filter(wanted) {
        let catch = aviary::hunt(canary, arguments.seed, arguments.threads, arguments.states);
        match &catch.found {
            Some(failure) => {
                found += 1;
                println!("found  {canary:?} after {} states\n    {failure}", catch.checked);
            }
            None => {
                missed += 1;
                println!("MISSED {canary:?} in {} states", catch.checked);
            }
        }
    }
    println!("{found} canaries found, {missed} missed");
    if found > 0 && missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
