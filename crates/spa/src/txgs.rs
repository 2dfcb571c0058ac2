//! What the latest transaction groups did and where their time went, for `platter txgs` (kstat `txgs`,
//! `module/zfs/spa_stats.c`).
//!
//! Invariants:
//! - only groups that are on stable storage are kept, in their order, none left out, and at most [`GROUPS_MAX`];
//! - time is tokio's, so that a simulation tells the same times whenever it runs;
//! - nothing is counted here for each block: a group's numbers are differences of counters that exist anyway.

use std::collections::VecDeque;

use parking_lot::Mutex;
use platter_api::txgs::{GROUPS_MAX, TxgReport, TxgsReport};
use platter_ondisk::Txg;

/// The latest finished groups of a pool.
#[derive(Debug, Default)]
pub struct TxgHistory {
    kept: Mutex<VecDeque<TxgReport>>,
}

impl TxgHistory {
    /// Adds the group that has just finished.
    pub fn add(&self, group: TxgReport) {
        let mut kept = self.kept.lock();
        debug_assert!(kept.back().is_none_or(|last| last.txg < group.txg), "groups finish in their order");
        kept.push_back(group);
        if kept.len() > GROUPS_MAX {
            kept.pop_front();
        }
    }

    /// Those after group `after`, oldest first, of a pool of which `synced` is known to be on stable storage.
    pub fn after(&self, after: u64, synced: Txg) -> TxgsReport {
        let kept = self.kept.lock();
        // Who asks again goes on after `synced`: it must be the last of these, which may be a moment ahead of the gate.
        let synced = kept.back().map_or(synced.0, |last| last.txg);
        TxgsReport { synced, groups: kept.iter().filter(|group| group.txg > after).copied().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let history = TxgHistory::default();
        let last = 3 * GROUPS_MAX as u64;
        for txg in 1..=last {
            history.add(TxgReport { txg, ..TxgReport::default() });
        }
        let report = history.after(0, Txg(0));
        assert_eq!(report.synced, last);
        let kept: Vec<u64> = report.groups.iter().map(|group| group.txg).collect();
        assert_eq!(kept, (last + 1 - GROUPS_MAX as u64..=last).collect::<Vec<_>>());
        assert_eq!(history.after(last - 2, Txg(0)).groups.len(), 2);
        assert_eq!(history.after(last, Txg(0)).groups, []);
        assert_eq!(TxgHistory::default().after(0, Txg(7)), TxgsReport { synced: 7, groups: Vec::new() });
    }
}
