//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::systems::BEFORE;

/// Measures Platter next to other file systems, the raw device and an empty FUSE file system, all in turn in one run.
#[derive(Debug, Parser)]
#[command(name = "platter-bench", args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    pub command: Option<Internal>,
    /// How often each case is measured on each system
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub rounds: u64,
    /// Data of the large files, MiB
    #[arg(long, default_value_t = 4096, value_name = "MIB")]
    pub size: u64,
    /// Number of small files
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    pub files: u64,
    /// How long cases without an end of their own take
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub seconds: u64,
    /// Only these cases (a name, or the start of one); with --growth only these parts: names, fill, import,
    /// datasets
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    pub only: Vec<String>,
    /// Only these beside Platter (platter-dev-fuse is Platter through /dev/fuse next to the one over io_uring; ext4 and
    /// xfs have one device of the same capacity, without redundancy)
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM",
        value_parser = ["platter", "platter-dev-fuse", "zfs-fuse", "btrfs", "ext4", "xfs", "null-fuse", "raw",
            "raidz_test", "openzfs", "libraries"])]
    pub peers: Option<Vec<String>>,
    /// Another build of Platter, measured in turn with this one: no case may be slower than 0.97 of it
    #[arg(long, value_name = "BINARY", conflicts_with = "growth")]
    pub before: Option<PathBuf>,
    /// Platter's other layouts too: stripe, raidz2, raidz3 and 3 mirrors
    #[arg(long)]
    pub layouts: bool,
    /// Where device files go [default: the target folder]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Device files go to /dev/shm, where the processor is the limit
    #[arg(long, conflicts_with = "dir")]
    pub shm: bool,
    /// Something else: how Platter behaves as names, data and what a pool is full of grow
    #[arg(long)]
    pub growth: bool,
    /// Names in a directory at most, with --growth
    #[arg(long, default_value_t = 1_000_000, value_name = "N", requires = "growth")]
    pub growth_files: u64,
    /// GiB in a pool at most, with --growth; they take next to no disk
    #[arg(long, default_value_t = 1024, value_name = "GIB", requires = "growth")]
    pub growth_gib: u64,
    /// File systems in a pool at most, with --growth
    #[arg(long, default_value_t = 10_000, value_name = "N", requires = "growth")]
    pub growth_datasets: u64,
    /// What --growth may take; steps that would take longer are left out
    #[arg(long, default_value_t = 20, value_name = "N", requires = "growth")]
    pub growth_minutes: u64,
    /// Serve FUSE file systems through /dev/fuse even where the kernel has it over io_uring; else its switch for
    /// that is turned on for the run
    #[arg(long)]
    pub no_io_uring: bool,
    /// Tiny sizes and one round: shows that everything works, not how fast it is
    #[arg(long)]
    pub quick: bool,
    /// Write bench/results.json and bench/results.svg, or growth.json and growth.svg
    #[arg(long, conflicts_with = "quick")]
    pub save: bool,
    /// More options of `zpool create` for Platter, in one word
    #[arg(long, default_value = "", hide_default_value = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub create: String,
}

/// What this program starts itself as.
#[derive(Debug, Subcommand)]
pub enum Internal {
    /// Serve the FUSE file system without storage until it is unmounted
    #[command(hide = true)]
    NullFs {
        /// Where to mount it
        mountpoint: PathBuf,
    },
    /// Show the files of a folder as drives with turning platters, until the mount is unmounted
    Platters {
        /// The folder
        files: PathBuf,
        /// Where to mount it
        mountpoint: PathBuf,
    },
}

impl Options {
    /// Puts tiny sizes in the place of the others, when asked for.
    pub fn settle(mut self) -> Self {
        if self.quick {
            self.rounds = 1;
            self.size = 64;
            self.files = 400;
            self.growth_files = self.growth_files.min(10_000);
            self.growth_gib = self.growth_gib.min(4);
            self.growth_datasets = self.growth_datasets.min(100);
        }
        self
    }

    /// How long cases without an end of their own take.
    pub fn time(&self) -> Duration {
        if self.quick { Duration::from_millis(500) } else { Duration::from_secs(self.seconds.max(1)) }
    }

    /// Whether a case is wanted.
    pub fn wants_case(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|start| case.starts_with(start.as_str()))
    }

    /// Whether any of these cases is wanted.
    pub fn wants_start_of(&self, cases: &[String]) -> bool {
        cases.iter().any(|case| self.wants_case(case))
    }

    /// Whether a system is wanted. Platter always is, and the build before it when there is one.
    pub fn wants_system(&self, system: &str) -> bool {
        ["platter", BEFORE].contains(&system)
            || self.peers.as_ref().is_none_or(|peers| peers.iter().any(|peer| peer == system))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_and_peers_are_chosen_by_name() {
        let parse = |words: &str| Options::parse_from(["platter-bench"].into_iter().chain(words.split_whitespace()));
        let all = parse("");
        assert!(all.wants_case("mail") && all.wants_system("btrfs"));
        let some = parse("--only write,mail --peers raw --quick").settle();
        assert!(some.wants_case("write-4") && some.wants_case("mail") && !some.wants_case("cold-read-1"));
        assert!(some.wants_system("platter") && some.wants_system("raw") && !some.wants_system("btrfs"));
        assert_eq!((some.rounds, some.size), (1, 64));
    }
}
