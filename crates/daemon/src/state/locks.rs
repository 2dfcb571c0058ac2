//! Who may change what at a time.
//!
//! Invariants:
//! - an operation holds the lock of the pool that it changes, by name, from its first check to its last effect; also
//!   while the name is only about to be a pool's (create, import);
//! - no operation waits for a second lock, except an import whose pool turns out to have another name than it was asked
//!   for by: who holds a pool's name waits for nothing else. So what hangs, hangs with its own pool;
//! - what is done on behalf of a guest holds the lock from the check that he may do it ([`Locks::within`]): what in it
//!   asks for that lock has it;
//! - what concerns all pools takes their locks one after the other, and passes over a pool that is not free for long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// How long what concerns all pools waits for one of them.
pub(super) const PASS_OVER: Duration = Duration::from_secs(10);

tokio::task_local! {
    /// The pool whose lock this task holds further up.
    static WITHIN: String;
}

/// Held while a pool, or its name, is being changed; empty where the lock is held further up.
#[derive(Debug)]
pub(super) struct PoolLock(#[expect(dead_code, reason = "held, not looked at")] Option<OwnedMutexGuard<()>>);

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
        PoolLock(Some(guard))
    }

    /// Waits until nobody else changes this pool.
    pub async fn of(&self, pool: &str) -> PoolLock {
        if WITHIN.try_with(|held| held == pool).unwrap_or(false) {
            return PoolLock(None);
        }
        self.held(pool, self.of_name(pool).lock_owned().await)
    }

    /// Does `work` while nobody else changes this pool. A task that it starts does not hold the lock.
    pub async fn within<T>(&self, pool: &str, work: impl Future<Output = T>) -> T {
        let _lock = self.of(pool).await;
        WITHIN.scope(pool.to_owned(), work).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_works_within_a_lock_has_it_and_others_wait() {
        let locks = Locks::default();
        let work = async {
            let inner = locks.of("tank").await;
            assert!(locks.now("tank").is_none(), "it is held further up");
            drop(inner);
            assert!(locks.now("tank").is_none(), "still");
            assert!(locks.now("other").is_some());
            7
        };
        assert_eq!(locks.within("tank", work).await, 7);
        assert!(locks.now("tank").is_some());
    }
}
