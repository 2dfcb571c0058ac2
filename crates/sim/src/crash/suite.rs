//! Many workloads: the exhaustive sets of one and two operations, then random ones of three until the time is up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::expect::Plan;
use super::explore::{self, Base, DISK_SIZE, Depth, Hardship, Layout};
use super::judge;
use super::operation::Operation;
use super::states::{Limits, State, Walk};

/// What to explore.
#[derive(Clone, Debug)]
pub struct Options {
    /// Arrangements of disks.
    pub layouts: Vec<Layout>,
    /// Seed of everything.
    pub seed: u64,
    /// Every so many states one is scrubbed, written to, exported and imported again; 0: none.
    pub thorough_every: usize,
    /// Of those, every so many are shown to zdb; 0: none.
    pub zdb_every: usize,
    /// Threads.
    pub threads: usize,
    /// Only the state with this number of each workload.
    pub only_state: Option<usize>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Workloads that could be run.
    pub workloads: usize,
    /// Workloads whose operations do not fit together.
    pub impossible: usize,
    /// States that were imported and compared.
    pub checked: usize,
    /// Of these, states whose bytes no other had.
    pub distinct: usize,
    /// Thorough checks.
    pub thorough: usize,
    /// Verdicts of zdb.
    pub zdb: usize,
    /// What went wrong: the command that replays it, and what it shows.
    pub failures: Vec<String>,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>5} workloads ({} impossible) {:>7} states checked {:>7} distinct {:>5} thorough {:>4} by zdb \
             {:>3} wrong",
            self.workloads,
            self.impossible,
            self.checked,
            self.distinct,
            self.thorough,
            self.zdb,
            self.failures.len()
        )
    }
}

/// More failures than this are not collected.
const FAILURES_MAX: usize = 20;

/// All workloads of `length` operations, in order.
pub fn all(length: usize) -> Vec<Vec<Operation>> {
    let mut workloads = vec![Vec::new()];
    for _ in 0..length {
        workloads = workloads
            .into_iter()
            .flat_map(|workload: Vec<Operation>| {
                Operation::all().into_iter().map(move |operation| {
                    let mut longer = workload.clone();
                    longer.push(operation);
                    longer
                })
            })
            .collect();
    }
    workloads
}

/// Every operation, with an `fsync` of what it changed: what a program does that wants it kept. Those that change a
/// file and those that change none come in turn, and of the latter the pool's own before those that change folders,
/// because different bugs live in them.
pub fn each_kept() -> Vec<Vec<Operation>> {
    let kept = |operation: Operation| std::iter::once(operation).chain(operation.keeper()).collect::<Vec<_>>();
    let (files, others): (Vec<_>, Vec<_>) = Operation::all().into_iter().partition(|op| op.file().is_some());
    let mut operations = Vec::new();
    for index in 0..files.len().max(others.len()) {
        operations.extend(files.get(index).copied().map(kept));
        operations.extend(others.iter().nth_back(index).copied().map(kept));
    }
    operations
}

/// Workload number `index` of the random ones with `length` operations.
pub fn random(seed: u64, index: u64, length: usize) -> Vec<Operation> {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    random.set_stream(index);
    let operations = Operation::all();
    (0..length).map(|_| operations[random.next_u32() as usize % operations.len()]).collect()
}

/// `a; b; c`, as the command line takes it.
pub fn name(workload: &[Operation]) -> String {
    workload.iter().map(Operation::to_string).collect::<Vec<_>>().join("; ")
}

/// The reverse of [`name`].
///
/// # Errors
/// An operation that is none.
pub fn parse(text: &str) -> Result<Vec<Operation>, String> {
    let find = |part: &str| {
        let found = Operation::all().into_iter().find(|operation| operation.to_string() == part);
        found.ok_or_else(|| format!("no operation is called '{part}'"))
    };
    text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(find).collect()
}

/// Why a workload is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// For its own sake.
    Explore,
    /// To see whether a part of a workload that goes wrong does so too.
    Minimise,
}

/// Runs workloads on several threads. Which states are checked does not depend on their number.
pub struct Suite {
    options: Options,
    bases: Vec<Base>,
    /// Layout and bytes.
    seen: Mutex<BTreeSet<(usize, u128)>>,
    /// Layout, bytes, and what they were held against.
    checked: Mutex<BTreeSet<(usize, u128, u64)>>,
    totals: Mutex<Totals>,
    has_zdb: bool,
}

impl Suite {
    /// Makes the pools that all workloads begin with.
    ///
    /// # Errors
    /// What the engine said.
    pub fn new(options: Options) -> Result<Self, String> {
        let bases = options.layouts.iter().map(|&layout| Base::make(layout, options.seed));
        let bases = bases.collect::<Result<Vec<_>, _>>()?;
        let has_zdb = judge::is_there();
        Ok(Self {
            options,
            bases,
            seen: Mutex::default(),
            checked: Mutex::default(),
            totals: Mutex::default(),
            has_zdb,
        })
    }

    /// What came of everything so far.
    pub fn totals(&self) -> Totals {
        let mut totals = self.totals.lock().clone();
        totals.distinct = self.seen.lock().len();
        totals
    }

    /// Explores the states of all `workloads` on each of `layouts` that there is; `go_on` is asked before each.
    pub fn run(
        &self,
        workloads: &[Vec<Operation>],
        layouts: &[Layout],
        limits: Limits,
        go_on: &(dyn Fn() -> bool + Sync),
    ) {
        let bases: Vec<usize> =
            (0..self.bases.len()).filter(|&index| layouts.contains(&self.bases[index].layout)).collect();
        let next = AtomicUsize::new(0);
        let stopped = AtomicBool::new(false);
        let count = workloads.len() * bases.len();
        let work = || {
            while !stopped.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count || !go_on() {
                    return;
                }
                self.one(bases[index % bases.len()], &workloads[index / bases.len()], limits);
                if self.totals.lock().failures.len() >= FAILURES_MAX {
                    stopped.store(true, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.options.threads {
                scope.spawn(work);
            }
        });
    }

    fn one(&self, layout: usize, workload: &[Operation], limits: Limits) {
        if let Some(failure) = self.explore(layout, workload, limits, Purpose::Explore) {
            let all_states = self.options.only_state.is_none();
            let least = all_states.then(|| self.minimise(layout, workload, limits)).flatten();
            self.totals.lock().failures.push(least.unwrap_or(failure));
        }
    }

    /// Leaves out of a workload that goes wrong every operation that it does not need for that. None: it needs all.
    fn minimise(&self, layout: usize, workload: &[Operation], limits: Limits) -> Option<String> {
        (0..workload.len()).find_map(|index| {
            let shorter = [&workload[..index], &workload[index + 1..]].concat();
            let failure = self.explore(layout, &shorter, limits, Purpose::Minimise)?;
            Some(self.minimise(layout, &shorter, limits).unwrap_or(failure))
        })
    }

    /// The first state that is wrong: the command that shows it again, and what is wrong.
    fn explore(&self, layout: usize, workload: &[Operation], limits: Limits, purpose: Purpose) -> Option<String> {
        let base = &self.bases[layout];
        let fail = |state: &str, error: &str| {
            let command = format!(
                "platter-sim crash --seed {} --layout {} --workload '{}'{}{state}",
                self.options.seed,
                base.layout.name(),
                name(workload),
                if limits == Limits::NARROW { " --narrow" } else { "" }
            );
            Some(format!("{command}\n    {error}"))
        };
        let recorded = match explore::record(base, workload, self.options.seed, limits.log_begun) {
            Ok(Some(recorded)) => recorded,
            Ok(None) => {
                self.totals.lock().impossible += usize::from(purpose == Purpose::Explore);
                return None;
            }
            Err(error) => return fail("", &error),
        };
        self.totals.lock().workloads += usize::from(purpose == Purpose::Explore);
        let walk = Walk::new(&recorded.images, limits, self.options.seed);
        let (mut number, mut failure) = (0usize, None);
        walk.run(&recorded.events, &mut |state| {
            number += 1;
            if self.options.only_state.is_some_and(|only| only != number) {
                return true;
            }
            self.seen.lock().insert((layout, state.key));
            // Another workload with the same beginning has been here already.
            let is_new = self.checked.lock().insert((layout, state.key, expectation(&recorded.plan, &state)));
            if !is_new && purpose == Purpose::Explore {
                return true;
            }
            let every = self.options.thorough_every;
            let depth = if every > 0 && number % every == 0 { Depth::Thorough } else { Depth::Compare };
            let found = explore::check(&recorded, &state, self.options.seed, depth);
            let verdict = found.and_then(|found| {
                if depth == Depth::Thorough && base.layout.is_redundant() {
                    // Disks and hardships in turn; not the disk of a vdev that was added, which has no redundancy.
                    let (disk, turn) = (number / every % base.layout.disks(), number / every / base.layout.disks());
                    let hardship = if turn.is_multiple_of(2) { Hardship::Lost } else { Hardship::Rotten };
                    explore::endure(&recorded, &state, self.options.seed + number as u64, disk, hardship)?;
                }
                self.judge(found.exported)
            });
            self.totals.lock().checked += 1;
            if let Err(error) = verdict {
                let place = format!("{} of {} operations done", state.ended, recorded.plan.operations.len());
                failure = fail(&format!(" --state {number}"), &format!("{place}, {}\n    {error}", state.story));
            }
            // One failure tells enough about a workload.
            failure.is_none()
        });
        failure
    }

    fn judge(&self, exported: Option<Vec<platter_model::disk::Image>>) -> Result<(), String> {
        let Some(images) = exported else { return Ok(()) };
        let number = {
            let mut totals = self.totals.lock();
            totals.thorough += 1;
            totals.thorough
        };
        let every = self.options.zdb_every;
        if !self.has_zdb || every == 0 || number % every != 0 {
            return Ok(());
        }
        let disks: Vec<_> = images.into_iter().map(|image| (image, DISK_SIZE)).collect();
        judge::verdict(&disks)?;
        self.totals.lock().zdb += 1;
        Ok(())
    }
}

/// Stands for all that decides which contents are allowed.
fn expectation(plan: &Plan, state: &State) -> u64 {
    let text = format!("{}|{}", name(&plan.operations[..state.begun]), state.ended);
    u64::from_le_bytes(blake3::hash(text.as_bytes()).as_bytes()[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_can_be_named_and_read_back() {
        for workload in all(1).into_iter().chain([random(7, 3, 5)]) {
            assert_eq!(parse(&name(&workload)).expect("a name"), workload);
        }
        assert!(parse("create new; explode").is_err());
    }
}
