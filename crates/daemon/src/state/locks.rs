//! Who may change what at a time.
//!
//! Invariants:
//! - an operation holds the lock of the pool that it changes, by name, from its first check to its last effect; also
//!   while the name is only about to be a pool's (create, import);
//! - no operation waits for a second lock, except an import whose pool turns out to have another name than it was asked
//!   for by: who holds a pool's name waits for nothing else. So what hangs, hangs with its own pool;
//! - what concerns all pools takes their locks one after the other, and passes over a pool that is not free for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// How long what concerns all pools waits for one of them.
pub(super) const PASS_OVER: Duration = Duration::from_secs(10);

/// Held while a pool, or its name, is being changed.
#[derive(Debug)]
pub(super) struct PoolLock(#[expect(dead_code, reason = "held, not looked at")] OwnedMutexGuard<()>);

/// One lock for each pool, by name.
#[derive(Debug, Default)]
pub(super) struct Locks {
    pools: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Locks {
    fn of_name(&self, pool: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut pools = self.pools.lock();
        // Names that nobody uses now: who takes one later makes it anew.
        pools.retain(|name, lock| name == pool || Arc::strong_count(lock) > 1);
        pools.entry(pool.to_owned()).or_default().clone()
    }

    /// What holds a pool's lock: there is one for each name, whoever waited for it and however long.
    fn held(&self, pool: &str, guard: OwnedMutexGuard<()>) -> PoolLock {
        let mutex = OwnedMutexGuard::mutex(&guard);
        assert!(self.pools.lock().get(pool).is_some_and(|lock| Arc::ptr_eq(lock, mutex)), "two locks of '{pool}'");
        PoolLock(guard)
    }

    /// Waits until nobody else changes this pool.
    pub async fn of(&self, pool: &str) -> PoolLock {
        self.held(pool, self.of_name(pool).lock_owned().await)
    }

    /// As [`of`](Self::of), but not for long.
    pub async fn soon(&self, pool: &str, limit: Duration) -> Option<PoolLock> {
        tokio::time::timeout(limit, self.of(pool)).await.ok()
    }

    /// The lock, if nobody changes this pool at this moment.
    pub fn now(&self, pool: &str) -> Option<PoolLock> {
        self.of_name(pool).try_lock_owned().ok().map(|guard| self.held(pool, guard))
    }
}
