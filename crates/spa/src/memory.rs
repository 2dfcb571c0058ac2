//! One budget of memory for all pools of a daemon: for the block cache, and for data that waits for disk.
//!
//! A pool's share of the cache follows how much it takes in: what is read often and found is not taken in again, so
//! that each pool comes to miss as often as any other. Its share of the data that waits is larger while it writes.
//!
//! Invariants:
//! - the shares of all pools together are not more than the budget, but for what a pool cannot do without;
//! - shares change when a pool comes or goes, when one that is full could use what another has, and when the machine
//!   can spare less or more ([`MemoryBudget::spare`]).

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use platter_zio::BlockCache;
use platter_zio::{Memory, TxgGate};
use tokio::time::Instant;

use platter_dsl::pool::DslPool;

/// Shares are looked at again after so long at the earliest.
const PERIOD: Duration = Duration::from_secs(5);
/// Of a pool's equal share of the cache it keeps one part in so many, however little it takes in.
const KEPT: u64 = 4;
/// A pool that writes may have so many times as much data waiting as one that does not.
const WRITING: u64 = 4;
/// What a pool may let wait for disk in any case, bytes.
const DIRTY_LEAST: u64 = 2 << 20;

/// What all pools of a daemon may take together, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Of block cache.
    pub cache_bytes: u64,
    /// Of data that waits for disk.
    pub dirty_bytes: u64,
    /// Of free ranges.
    pub metaslab_bytes: u64,
}

/// Shares of all pools; `Default` has none yet.
#[derive(Default)]
pub struct MemoryBudget {
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    all: Vec<Member>,
    looked: Option<Instant>,
    /// What the machine can spare for the caches, bytes, where that may be less than they may take.
    spared: Option<u64>,
}

/// A pool.
struct Member {
    pool: Weak<DslPool>,
    /// What its cache had taken in when it was last looked at.
    seen: u64,
    /// What it took in lately; what is further back counts less.
    lately: u64,
}

impl MemoryBudget {
    /// How many pools there are, and one more.
    pub(crate) fn shares(&self) -> u64 {
        self.members.lock().all.iter().filter(|member| member.pool.strong_count() > 0).count() as u64 + 1
    }

    /// A pool was opened.
    pub(crate) fn join(&self, pool: &Arc<DslPool>, limits: MemoryLimits) {
        let mut members = self.members.lock();
        let lately = members.all.iter().map(|member| member.lately).max().unwrap_or(0);
        members.all.push(Member { pool: Arc::downgrade(pool), seen: 0, lately });
        members.share(limits, true);
    }

    /// A group of `pool` was written: shares may change.
    pub(crate) fn look(&self, limits: MemoryLimits) {
        let mut members = self.members.lock();
        let is_early = members.looked.is_some_and(|looked| looked.elapsed() < PERIOD);
        let has_gone = members.all.iter().any(|member| member.pool.strong_count() == 0);
        if has_gone || !is_early {
            members.share(limits, has_gone);
        }
    }

    /// From now on the caches of all pools together hold no more than `bytes`, or than their limit where that is less;
    /// what is too much goes at once.
    pub fn spare(&self, limits: MemoryLimits, bytes: u64) {
        let mut members = self.members.lock();
        members.spared = Some(bytes);
        members.divide(limits);
    }

    /// What the caches of all pools together may hold, bytes.
    pub fn spared(&self, limits: MemoryLimits) -> u64 {
        self.members.lock().cache_bytes(limits)
    }

    /// What the caches of all pools hold together, bytes.
    pub fn cached(&self) -> u64 {
        self.members.lock().pools().map(|(pool, _)| cache(&pool).bytes()).sum()
    }
}

impl Members {
    fn share(&mut self, limits: MemoryLimits, changed: bool) {
        self.looked = Some(Instant::now());
        self.all.retain(|member| member.pool.strong_count() > 0);
        let mut pools: Vec<Arc<DslPool>> = Vec::with_capacity(self.all.len());
        for member in &mut self.all {
            let Some(pool) = member.pool.upgrade() else { continue };
            let taken_in = cache(&pool).taken_in();
            member.lately = member.lately / 2 + taken_in.saturating_sub(member.seen);
            member.seen = taken_in;
            pools.push(pool);
        }
        let writing: Vec<bool> = pools.iter().map(|pool| gate(pool).dirty() > 0).collect();
        for (pool, bytes) in pools.iter().zip(dirty_shares(limits.dirty_bytes, &writing)) {
            gate(pool).set_dirty_max(bytes);
            // A large block that is compressed and written takes three times its size, and what is dirty has its own.
            pool.store.state().large.set_most(Memory { bytes });
        }
        for pool in pools.iter().filter(|_| changed) {
            pool.store.state().allocator.lock().set_budget(limits.metaslab_bytes / pools.len() as u64);
        }
        let is_full = |pool: &Arc<DslPool>| cache(pool).bytes() >= cache(pool).capacity() / 8 * 7;
        if !changed && !pools.iter().any(is_full) {
            return;
        }
        self.divide(limits);
    }

    fn cache_bytes(&self, limits: MemoryLimits) -> u64 {
        limits.cache_bytes.min(self.spared.unwrap_or(u64::MAX))
    }

    /// The pools that are open, and what each took in lately.
    fn pools(&self) -> impl Iterator<Item = (Arc<DslPool>, u64)> {
        self.all.iter().filter_map(|member| Some((member.pool.upgrade()?, member.lately)))
    }

    /// Gives each pool its share of the cache.
    fn divide(&self, limits: MemoryLimits) {
        let (pools, lately): (Vec<_>, Vec<_>) = self.pools().unzip();
        let shares = cache_shares(self.cache_bytes(limits), &lately);
        // What is to have less gives it up before others may take it.
        let mut order: Vec<(&Arc<DslPool>, u64)> = pools.iter().zip(shares).collect();
        order.sort_by_key(|(pool, share)| *share >= cache(pool).capacity());
        for (pool, share) in order {
            cache(pool).set_capacity(share);
        }
    }
}

fn cache(pool: &Arc<DslPool>) -> &BlockCache {
    &pool.store.state().cache
}

fn gate(pool: &Arc<DslPool>) -> &TxgGate {
    &pool.gate
}

/// Bytes of cache for pools that took in so many bytes lately.
fn cache_shares(total: u64, lately: &[u64]) -> Vec<u64> {
    let count = lately.len().max(1) as u64;
    let kept = total / count / KEPT;
    let free = u128::from(total - kept * count);
    let sum: u128 = lately.iter().map(|&bytes| u128::from(bytes) + 1).sum();
    let share = |&bytes: &u64| kept + (free * (u128::from(bytes) + 1) / sum.max(1)) as u64;
    let shares: Vec<u64> = lately.iter().map(share).collect();
    assert!(shares.iter().sum::<u64>() <= total, "pools would take more cache together than there is");
    shares
}

/// Bytes that may wait for disk, for pools of which these are writing.
fn dirty_shares(total: u64, writing: &[bool]) -> Vec<u64> {
    let parts = |writing: bool| if writing { WRITING } else { 1 };
    let sum: u64 = writing.iter().map(|&writing| parts(writing)).sum();
    writing.iter().map(|&writing| (total / sum.max(1) * parts(writing)).max(DIRTY_LEAST)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each pool had a quarter of the memory: four had all of it.
    #[test]
    fn all_pools_together_have_the_budget_of_one() {
        for lately in [&[0][..], &[0, 0], &[7, 0, 0, 0], &[1 << 50, 1 << 40, 3, 0]] {
            let shares = cache_shares(1 << 30, lately);
            assert!(shares.iter().sum::<u64>() <= 1 << 30, "{shares:?}");
            assert!(shares.iter().all(|&share| share >= (1 << 30) / 4 / lately.len() as u64), "{shares:?}");
        }
        assert_eq!(cache_shares(1 << 30, &[9]), [1 << 30]);
        let shares = cache_shares(1 << 30, &[3 << 30, 1 << 30, 0]);
        assert!(shares[0] > 2 * shares[1] && shares[1] > 2 * shares[2], "{shares:?}");
    }

    #[test]
    fn who_writes_has_more_room_and_nobody_has_none() {
        assert_eq!(dirty_shares(64 << 20, &[false]), [64 << 20]);
        assert_eq!(dirty_shares(70 << 20, &[true, false, false, false]), [40 << 20, 10 << 20, 10 << 20, 10 << 20]);
        assert_eq!(dirty_shares(8 << 20, &[false; 8]), [DIRTY_LEAST; 8]);
    }
}
