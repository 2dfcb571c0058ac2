//! `platter-sim`: the simulator's command line. Each subcommand exits with 1 when what it shows does not hold.
#![forbid(unsafe_code)]

#[cfg(feature = "canary")]
mod canary_command;
mod crash_command;
mod full_command;
mod images_command;
mod life_command;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use platter_model::published;

#[derive(Parser)]
#[command(name = "platter-sim", about = "Platter's engine on simulated disks under a virtual clock", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Proves that the crash exploration finds each of the deliberate bugs that this build has.
    #[cfg(feature = "canary")]
    Canary(canary_command::Canaries),
    /// Explores the states that crashes leave: every workload of one and two operations, then random ones.
    Crash(crash_command::Crash),
    /// Fills pools of every layout until nothing goes in, and empties them: only the writer may be refused.
    Full(full_command::Full),
    /// Opens and uses pools that somebody has tampered with.
    Images(images_command::Images),
    /// Holds the model of time against a published curve: published, modelled, error.
    Model,
    /// Lives whole lives of pools: seeds, faults, crashes; every byte is checked.
    Life(life_command::Life),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        #[cfg(feature = "canary")]
        Command::Canary(arguments) => canary_command::run(&arguments),
        Command::Crash(arguments) => crash_command::run(&arguments),
        Command::Full(arguments) => full_command::run(&arguments),
        Command::Images(arguments) => images_command::run(&arguments),
        Command::Model => model(),
        Command::Life(arguments) => life_command::run(&arguments),
    }
}

fn model() -> ExitCode {
    let rows = published::table();
    println!("{:<26} {:>14} {:>14} {:>8}", "LOAD", "PUBLISHED MB/s", "MODELLED MB/s", "ERROR");
    for row in &rows {
        let mark = if row.holds() { "" } else { "  more than 15 %" };
        let error = row.error_percent();
        println!("{:<26} {:>14.0} {:>14.1} {:>+6.1} %{mark}", row.load, row.published, row.modelled, error);
    }
    if rows.iter().all(published::Row::holds) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
