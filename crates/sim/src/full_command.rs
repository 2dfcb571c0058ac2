//! `platter-sim full`.

use std::ops::Range;
use std::process::ExitCode;

use clap::Args;
use platter_sim::full;

use crate::life_command::parse_seeds;

/// Which pools to fill.
#[derive(Args)]
pub struct Full {
    /// Seeds: one, or from the first up to before the second (`0..1000`).
    #[arg(long, value_parser = parse_seeds)]
    seeds: Range<u64>,
    /// How often each is filled and emptied.
    #[arg(long, default_value_t = 4)]
    rounds: usize,
}

/// Runs it; fails when anything did not hold.
pub fn run(arguments: &Full) -> ExitCode {
    let mut wrong = 0;
    for seed in arguments.seeds.clone() {
        match full::fill(seed, arguments.rounds) {
            Ok(filled) => {
                let (left, empty) = filled.left;
                let percent = left as f64 * 100.0 / empty.max(1) as f64;
                println!(
                    "seed {seed}: {}; {} files, {} refusals, {percent:.1} % left",
                    filled.shape, filled.files, filled.refusals
                );
            }
            Err(error) => {
                wrong += 1;
                println!("WRONG {error}");
            }
        }
    }
    println!("{} pools filled, {wrong} wrong", arguments.seeds.end.saturating_sub(arguments.seeds.start));
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
