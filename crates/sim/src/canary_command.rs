//! `platter-sim canary`: only in builds with feature `canary`.

use std::process::ExitCode;

use clap::Args;
use platter_hooks::Canary;
use platter_sim::{crash, life};

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
    /// Drills after which one that only lives can find counts as not found.
    #[arg(long, default_value_t = 40)]
    lives: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Whether it takes scans beside everything else, or disks that go away and return: no crash of a whole machine shows
/// it.
fn needs_a_life(canary: Canary) -> bool {
    use Canary::{
        CacheUnverified, FailedRepairForgotten, FreedSetRight, FreedStillScanned, LatecomerForgotten, OldCopyBelieved,
        RebuildRangeSkipped, ResilverTooShallow, StaleBelieved, StrangerTaken, TrimmedTooFar,
    };
    matches!(
        canary,
        ResilverTooShallow
            | StrangerTaken
            | LatecomerForgotten
            | OldCopyBelieved
            | StaleBelieved
            | FailedRepairForgotten
            | FreedStillScanned
            | RebuildRangeSkipped
            | CacheUnverified
            | TrimmedTooFar
            | FreedSetRight
    )
}

/// Looks for each; fails when one is not found.
pub fn run(arguments: &Canaries) -> ExitCode {
    let wanted = |canary: &Canary| arguments.only.as_ref().is_none_or(|name| format!("{canary:?}") == *name);
    let (mut found, mut missed) = (0, 0);
    for canary in Canary::ALL.into_iter().filter(wanted) {
        let (failure, effort) = if needs_a_life(canary) {
            let catch = life::aviary::hunt(canary, arguments.seed, arguments.lives);
            (catch.found, format!("{} drills and lives", catch.lives))
        } else {
            let catch = crash::aviary::hunt(canary, arguments.seed, arguments.threads, arguments.states);
            (catch.found, format!("{} states", catch.checked))
        };
        match failure {
            Some(failure) => {
                found += 1;
                println!("found  {canary:?} after {effort}\n    {failure}");
            }
            None => {
                missed += 1;
                println!("MISSED {canary:?} in {effort}");
            }
        }
    }
    println!("{found} canaries found, {missed} missed");
    if found > 0 && missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
