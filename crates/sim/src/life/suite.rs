//! Many lives.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::cache_disks::Cached;
use super::chapters::live;
use super::load::Done;
use super::story::{Outcome, Terms};
use platter_model::disk::{FaultCounts, FaultKind};

/// A life that went wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// What went wrong, on the terms given.
    pub what: String,
    /// The least it needs to go wrong, and what goes wrong then.
    pub least: (Terms, String),
}

/// Sums over many lives.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Lives.
    pub lives: u64,
    /// Lives that went wrong, in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Virtual time, in seconds.
    pub seconds: u64,
    /// What was done to files.
    pub done: Done,
    /// Commands to disks.
    pub commands: u64,
    /// Faults that took effect.
    pub faults: FaultCounts,
    /// Power cuts.
    pub crashes: u64,
    /// Imports.
    pub imports: u64,
    /// Times that everything was set right.
    pub scrubs: u64,
    /// Lives at whose end a file was lost, and reported.
    pub losses: u64,
    /// Ranges that disks were told to be free.
    pub trims: u64,
    /// What came of cache devices.
    pub cached: Cached,
    /// Vdevs that were added.
    pub vdevs_added: u64,
    /// Vdevs that became larger.
    pub growths: u64,
    /// Times that a spare was found in the place of a disk that was away.
    pub spares_in: u64,
    /// Disks that were given up for their spares.
    pub spares_stayed: u64,
    /// Times that a separate log was added.
    pub logs_added: u64,
    /// Pools that were split off.
    pub splits: u64,
}

impl Totals {
    fn add(&mut self, outcome: &Outcome) {
        self.seconds += outcome.seconds;
        self.done.add(&outcome.done);
        self.commands += outcome.commands;
        self.faults.add(&outcome.faults);
        self.crashes += outcome.crashes;
        self.imports += outcome.imports;
        self.scrubs += outcome.scrubs;
        self.losses += u64::from(outcome.losses > 0);
        self.trims += outcome.trims;
        self.cached.add(&outcome.cached);
        self.vdevs_added += outcome.vdevs_added;
        self.growths += outcome.growths;
        self.spares_in += outcome.spares_in;
        self.spares_stayed += outcome.spares_stayed;
        self.logs_added += outcome.logs_added;
        self.splits += outcome.splits;
    }
}

fn one(seed: u64, terms: &Terms, keep: usize) -> Result<Outcome, String> {
    std::panic::catch_unwind(|| live(seed, terms, keep)).unwrap_or_else(|_| Err("it panicked".to_owned()))
}

/// Leaves out of a life that goes wrong whatever it does not need for that: first chapters, then kinds of faults. What
/// goes wrong may be something else in the end; it is wrong just the same.
fn minimise(seed: u64, terms: &Terms, what: &str) -> (Terms, String) {
    let mut least = (terms.clone(), what.to_owned());
    let shorter = (1..terms.chapters).map(|chapters| Terms { chapters, ..terms.clone() });
    if let Some(found) = shorter.into_iter().find_map(|terms| one(seed, &terms, 0).err().map(|what| (terms, what))) {
        least = found;
    }
    for kind in FaultKind::ALL.into_iter().filter(|kind| !terms.without.contains(kind)) {
        let mut fewer = least.0.clone();
        fewer.without.push(kind);
        if let Err(what) = one(seed, &fewer, 0) {
            least = (fewer, what);
        }
    }
    least
}

/// Lives all lives of `seeds` on `threads` threads; `each` is told of every one. Each life is alone on its thread. The
/// disks of one in `judged_every` (0: of none) are shown to zdb in the end.
pub fn live_all(
    seeds: Range<u64>,
    terms: &Terms,
    threads: usize,
    keep: usize,
    judged_every: u64,
    each: &(dyn Fn(u64, &Result<Outcome, String>) + Sync),
) -> Totals {
    let next = AtomicU64::new(seeds.start);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end {
                        return;
                    }
                    let terms =
                        &Terms { judged: judged_every > 0 && seed.is_multiple_of(judged_every), ..terms.clone() };
                    let lived = one(seed, terms, keep);
                    each(seed, &lived);
                    let lived = lived.map_err(|what| {
                        let least = minimise(seed, terms, &what);
                        Failure { seed, what, least }
                    });
                    let mut totals = totals.lock();
                    totals.lives += 1;
                    match lived {
                        Ok(outcome) => totals.add(&outcome),
                        Err(failure) => totals.failures.push(failure),
                    }
                }
            });
        }
    });
    let mut totals = totals.into_inner();
    totals.failures.sort_by_key(|failure| failure.seed);
    totals
}
