//! Locks on byte ranges of one object: readers share, a writer excludes whoever overlaps (`module/zfs/zfs_rlock.c`).

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug, Clone, Copy)]
struct Held {
    start: u64,
    end: u64,
    exclusive: bool,
    id: u64,
}

#[derive(Debug, Default)]
struct Inner {
    held: Vec<Held>,
    next_id: u64,
}

/// The locked ranges of one object.
#[derive(Debug, Default)]
pub struct RangeLock {
    inner: Mutex<Inner>,
    freed: Notify,
}

/// A locked range; dropping it unlocks.
#[derive(Debug)]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl RangeLock {
    /// Waits until bytes `start..end` can be locked.
    pub async fn lock(&self, start: u64, end: u64, exclusive: bool) -> RangeGuard<'_> {
        loop {
            if let Some(guard) = self.try_lock(start, end, exclusive) {
                return guard;
            }
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable();
            if let Some(guard) = self.try_lock(start, end, exclusive) {
                return guard;
            }
            freed.await;
        }
    }

    fn try_lock(&self, start: u64, end: u64, exclusive: bool) -> Option<RangeGuard<'_>> {
        let mut inner = self.inner.lock();
        let conflict = |h: &Held| (exclusive || h.exclusive) && start < h.end && h.start < end;
        if inner.held.iter().any(conflict) {
            return None;
        }
        let id = inner.next_id;
        inner.next_id += 1;
        inner.held.push(Held { start, end, exclusive, id });
        Some(RangeGuard { lock: self, id })
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.lock.inner.lock();
        if let Some(at) = inner.held.iter().position(|h| h.id == self.id) {
            inner.held.swap_remove(at);
        }
        drop(inner);
        self.lock.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writers_exclude_whoever_overlaps_and_nobody_else() {
        let lock = RangeLock::default();
        let reader = lock.lock(0, 100, false).await;
        assert!(lock.try_lock(50, 60, false).is_some());
        assert!(lock.try_lock(50, 60, true).is_none());
        let writer = lock.try_lock(100, 200, true).expect("does not overlap");
        assert!(lock.try_lock(199, 300, false).is_none());
        drop(writer);
        assert!(lock.try_lock(199, 300, false).is_some());
        drop(reader);
        assert!(lock.try_lock(0, u64::MAX, true).is_some());
    }

    #[tokio::test]
    async fn a_waiter_goes_on_when_the_range_is_free() {
        let lock = std::sync::Arc::new(RangeLock::default());
        let guard = lock.lock(0, 10, true).await;
        let other = lock.clone();
        let waiter = tokio::spawn(async move {
            let _guard = other.lock(5, 6, true).await;
        });
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(guard);
        waiter.await.unwrap();
    }
}
