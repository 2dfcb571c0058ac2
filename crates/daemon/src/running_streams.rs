//! Streams that are being made or received: a pool that has some does not leave in order, and one that leaves in any
//! case ends them first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long streams may take to end.
const END_WAIT: Duration = Duration::from_secs(10);

/// Those of one pool: how many, and whether they are to end.
struct OfPool {
    count: watch::Sender<usize>,
    end: watch::Sender<bool>,
}

/// Those of all pools, by name.
#[derive(Clone, Default)]
pub struct RunningStreams(Arc<Mutex<BTreeMap<String, Arc<OfPool>>>>);

/// One that runs.
pub struct Running {
    all: RunningStreams,
    pool: String,
    of: Arc<OfPool>,
}

impl Running {
    /// Becomes true when it is to end.
    pub fn told(&self) -> watch::Receiver<bool> {
        self.of.end.subscribe()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        self.of.count.send_modify(|count| *count -= 1);
        if *self.of.count.borrow() == 0 && all.get(&self.pool).is_some_and(|of| Arc::ptr_eq(of, &self.of)) {
            all.remove(&self.pool);
        }
    }
}

impl RunningStreams {
    /// One more.
    pub fn begin(&self, pool: &str) -> Running {
        let mut all = self.0.lock();
        let new = || Arc::new(OfPool { count: watch::channel(0).0, end: watch::channel(false).0 });
        let of = all.entry(pool.to_owned()).or_insert_with(new).clone();
        of.count.send_modify(|count| *count += 1);
        Running { all: self.clone(), pool: pool.to_owned(), of }
    }

    /// Whether a pool has some.
    pub fn any(&self, pool: &str) -> bool {
        self.0.lock().contains_key(pool)
    }

    /// Ends those of a pool, and waits for that, but not for ever.
    pub async fn end(&self, pool: &str) {
        let Some(of) = self.0.lock().get(pool).cloned() else { return };
        of.end.send_replace(true);
        let mut count = of.count.subscribe();
        if tokio::time::timeout(END_WAIT, count.wait_for(|count| *count == 0)).await.is_err() {
            tracing::warn!("a stream of pool '{pool}' does not end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pool_ends_its_streams_before_it_leaves() {
        let all = RunningStreams::default();
        let (one, other) = (all.begin("tank"), all.begin("other"));
        let mut told = one.told();
        let task = tokio::spawn(async move {
            let _ = told.wait_for(|told| *told).await;
            drop(one);
        });
        all.end("tank").await;
        assert!(task.is_finished() && !all.any("tank") && all.any("other"));
        drop(other);
        assert!(!all.any("other"));
    }
}
