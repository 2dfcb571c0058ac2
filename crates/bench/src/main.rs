//! `platter-bench`: Platter next to other file systems, the raw device, an empty FUSE file system and the best
//! libraries; and Platter alone as what it holds grows.
//!
//! What holds at all times:
//! - every system does the same work through the same code, one after the other, and again in each round;
//! - what was read is compared with what was written, so that nothing is fast because it is wrong;
//! - what cannot be measured is said and never shown as a figure;
//! - however a run ends, no process, mount, loop device or file of it is left.

#![forbid(unsafe_code)]

mod codecs;
mod error;
mod growth;
mod interrupt;
mod kernels;
mod leftovers;
mod meter;
mod noise;
mod null_fs;
mod options;
mod platters;
mod plot;
mod program;
mod raw;
mod results;
mod run;
mod scenario;
mod stats;
mod switch;
mod systems;
mod table;
mod targets;
mod text;
mod work;

use std::process::ExitCode;

use clap::Parser;

use crate::error::BenchError;
use crate::options::{Internal, Options};

fn main() -> ExitCode {
    let options = Options::parse().settle();
    if let Some(command) = &options.command {
        let served = match command {
            Internal::NullFs { mountpoint } => null_fs::serve(mountpoint),
            Internal::Platters { files, mountpoint } => platters::serve(files, mountpoint),
        };
        return match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("platter-bench: {error}");
                ExitCode::FAILURE
            }
        };
    }
    match run::run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("platter-bench: something could not be measured, see FAILED above");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("platter-bench: {error}");
            if matches!(error, BenchError::Interrupted) { ExitCode::from(130) } else { ExitCode::FAILURE }
        }
    }
}
