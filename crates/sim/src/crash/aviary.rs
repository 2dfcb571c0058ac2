//! The canaries: with each deliberate bug switched on, the crash exploration must find something wrong.

use platter_hooks::canary::{self, Canary};

use super::explore::Layout;
use super::operation::Operation;
use super::states::Limits;
use super::suite::{self, Options, Suite};

/// Random workloads between two looks at what was found.
const LOT: u64 = 10;

/// What became of one canary.
#[derive(Clone, Debug)]
pub struct Catch {
    /// The bug.
    pub canary: Canary,
    /// States checked until it was found, or in all.
    pub checked: usize,
    /// The first failure; none: it was not found.
    pub found: Option<String>,
}

/// What a bug is in that only one operation calls for, which would come late: it comes first.
fn likely(canary: Canary) -> Vec<Vec<Operation>> {
    match canary {
        Canary::FreeingBegunAnew => vec![vec![Operation::DestroyDataset]],
        _ => Vec::new(),
    }
}

/// Explores each operation that is fsynced, then random workloads of three operations, with `canary` switched on and on
/// each layout in turn, until something is wrong or `states` states were right.
pub fn hunt(canary: Canary, seed: u64, threads: usize, states: usize) -> Catch {
    canary::release(Some(canary));
    let catch = search(canary, seed, threads, states);
    canary::release(None);
    catch
}

fn search(canary: Canary, seed: u64, threads: usize, states: usize) -> Catch {
    let options = Options {
        layouts: Layout::ALL.to_vec(),
        seed,
        // Most bugs show only to those who look twice.
        thorough_every: 7,
        zdb_every: 0,
        threads,
        only_state: None,
    };
    let suite = match Suite::new(options) {
        Ok(suite) => suite,
        Err(error) => return Catch { canary, checked: 0, found: Some(format!("no pool could be made: {error}")) },
    };
    let go_on = || {
        let totals = suite.totals();
        totals.failures.is_empty() && totals.checked < states
    };
    suite.run(&likely(canary), &Layout::ALL, Limits::NARROW, &go_on);
    suite.run(&suite::each_kept(), &Layout::ALL, Limits::NARROW, &go_on);
    let mut lot = 0;
    while go_on() {
        let workloads: Vec<_> = (lot * LOT..(lot + 1) * LOT).map(|index| suite::random(seed, index, 3)).collect();
        suite.run(&workloads, &Layout::ALL, Limits::NARROW, &go_on);
        lot += 1;
    }
    let totals = suite.totals();
    Catch { canary, checked: totals.checked, found: totals.failures.first().cloned() }
}
