//! A value whose changes are waited for, as in `tokio::sync::watch`, but in turn: tokio's own spreads who waits over
//! eight lists, by chance, and so wakes them in another order each time. No simulation would replay.
//!
//! Invariants:
//! - who waits is woken in the order in which the waiting began;
//! - no change is missed: a [`Follower`] that has not seen the newest value does not wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

#[derive(Debug)]
struct Current<T> {
    value: T,
    /// How often it was set.
    version: u64,
    /// Nobody sets it any more.
    closed: bool,
}

#[derive(Debug)]
struct Shared<T> {
    current: Mutex<Current<T>>,
    changed: Notify,
}

impl<T> Shared<T> {
    /// What looks at a value does not panic half way through a change, so that it is whole in any case.
    fn current(&self) -> MutexGuard<'_, Current<T>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something.
    async fn find<R>(&self, mut look: impl FnMut(&Current<T>) -> Option<R>) -> R {
        loop {
            let changed = self.changed.notified();
            if let Some(found) = look(&self.current()) {
                return found;
            }
            changed.await;
        }
    }
}

/// Where a value is set and looked at. When it is gone, its [`Follower`]s are told.
#[derive(Debug)]
pub struct Watch<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Watch<T> {
    /// A value as it is at first.
    pub fn new(value: T) -> Self {
        let current = Mutex::new(Current { value, version: 0, closed: false });
        Self { shared: Arc::new(Shared { current, changed: Notify::new() }) }
    }

    /// Looks at the value. `look` must not use this watch.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.shared.current().value)
    }

    /// Sets the value and wakes whoever waits, whether it is another or not.
    pub fn set(&self, value: T) {
        self.set_if(|current| {
            *current = value;
            true
        });
    }

    /// Lets `change` set the value; wakes whoever waits if it says that it did, and returns that. `change` must not
    /// use this watch.
    pub fn set_if(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            let mut current = self.shared.current();
            if !change(&mut current.value) {
                return false;
            }
            debug_assert!(!current.closed, "whoever sets the value has it");
            current.version += 1;
        }
        self.shared.changed.notify_waiters();
        true
    }

    /// Waits until the value is as `wanted`, and returns it; not at all when it is. `wanted` must not use this watch.
    pub async fn wait_for(&self, mut wanted: impl FnMut(&T) -> bool) -> T
    where
        T: Clone,
    {
        self.shared.find(|current| wanted(&current.value).then(|| current.value.clone())).await
    }

    /// To follow its changes from now on, without keeping it.
    pub fn follow(&self) -> Follower<T> {
        let seen = self.shared.current().version;
        Follower { shared: self.shared.clone(), seen }
    }
}

impl<T: Clone> Watch<T> {
    /// The value.
    pub fn get(&self) -> T {
        self.with(T::clone)
    }
}

impl<T> Drop for Watch<T> {
    fn drop(&mut self) {
        self.shared.current().closed = true;
        self.shared.changed.notify_waiters();
    }
}

/// Follows the changes of a [`Watch`].
#[derive(Debug)]
pub struct Follower<T> {
    shared: Arc<Shared<T>>,
    /// The version that was last seen.
    seen: u64,
}

impl<T: Clone> Follower<T> {
    /// Waits until the value was set since it was last seen here, and returns it; `None` when the watch is gone. Of
    /// several changes the last is seen. Nothing is lost when the waiting is given up.
    pub async fn changed(&mut self) -> Option<T> {
        let seen = self.seen;
        let news = |current: &Current<T>| match current.version {
            version if version != seen => Some(Some((version, current.value.clone()))),
            _ => current.closed.then_some(None),
        };
        let (version, value) = self.shared.find(news).await?;
        assert!(version > seen, "a value is seen once, and no older one after it");
        self.seen = version;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_misses_no_change_and_sees_the_last() {
        let watch = Watch::new(1);
        let mut follower = watch.follow();
        watch.set(2);
        watch.set(3);
        assert!(!watch.set_if(|_| false));
        assert_eq!(follower.changed().await, Some(3));
        let waiting = tokio::spawn(async move { (follower.changed().await, follower.changed().await) });
        tokio::task::yield_now().await;
        watch.set(3);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "there was one more change, and no two");
        drop(watch);
        assert_eq!(waiting.await.expect("no panic"), (Some(3), None));
    }

    #[tokio::test]
    async fn waiting_ends_when_the_value_is_as_wanted() {
        let watch = Arc::new(Watch::new(1));
        assert_eq!(watch.wait_for(|&value| value == 1).await, 1);
        let waiting = tokio::spawn({
            let watch = watch.clone();
            async move { watch.wait_for(|&value| value > 2).await }
        });
        tokio::task::yield_now().await;
        watch.set(2);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        watch.set(7);
        watch.set(8);
        assert_eq!((waiting.await.expect("no panic"), watch.get()), (8, 8));
    }
}
