//! `platter-sim full`.

use std::ops::Range;
use std::process::ExitCode;

use clap::Args;
use platter_sim::crash::judge;
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
    /// One full pool in so many is shown to zdb, when it is there; 0: none.
    #[arg(long, default_value_t = 1)]
    zdb: u64,
}

/// Runs it; fails when anything did not hold.
pub fn run(arguments: &Full) -> ExitCode {
    let (mut wrong, mut judged) = (0, 0);
    let zdb = if judge::is_there() { arguments.zdb } else { 0 };
    if zdb != arguments.zdb {
        println!("zdb is not there: nobody else judges");
    }
    for seed in arguments.seeds.clone() {
        let filled = full::fill(seed, arguments.rounds).and_then(|filled| {
            if zdb > 0 && seed.is_multiple_of(zdb) {
                judged += 1;
                let disks: Vec<_> =
                    filled.disks.iter().map(|image| (image.clone(), filled.shape.disk_mib << 20)).collect();
                judge::verdict(&disks).map_err(|error| format!("seed {seed}, {}: {error}", filled.shape))?;
            }
            Ok(filled)
        });
        match filled {
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
    println!(
        "{} pools filled, {judged} judged by zdb when full, {wrong} wrong",
        arguments.seeds.end.saturating_sub(arguments.seeds.start)
    );
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
