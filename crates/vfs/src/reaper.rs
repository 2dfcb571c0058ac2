//! Frees what has no name and nobody knows any more, some at a time and away from the serving threads.
//!
//! Who removes many files makes an orphan with each; a task for each wakes a thread for each, which took a quarter of
//! the kernel's part of a removal. So the first of a burst starts a task, which lets others gather.
//!
//! Invariants:
//! - the file system keeps a list of its orphans itself: what is lost here is freed when it is served no more;
//! - at most one task runs, and none without work.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use platter_ondisk::ObjectId;
use platter_zpl::Zpl;
use tokio::runtime::Handle;

use crate::event::Operation;
use crate::events::Events;

/// How long orphans gather.
const GATHERING: Duration = Duration::from_millis(2);
/// How many are freed at once: the larger ones wait for their indirect blocks.
const AT_ONCE: usize = 16;

#[derive(Debug, Default)]
struct Gathered {
    orphans: Vec<ObjectId>,
    /// Whether the task runs.
    busy: bool,
}

/// See the module text.
pub(crate) struct Reaper {
    zpl: Arc<Zpl>,
    events: Events,
    gathered: Arc<Mutex<Gathered>>,
}

impl Reaper {
    pub fn new(zpl: Arc<Zpl>, events: Events) -> Self {
        Self { zpl, events, gathered: Arc::default() }
    }

    /// Has these freed soon by a task of `runtime`.
    pub fn add(&self, orphans: impl Iterator<Item = ObjectId>, runtime: &Handle) {
        let mut gathered = self.gathered.lock();
        gathered.orphans.extend(orphans);
        if gathered.orphans.is_empty() || std::mem::replace(&mut gathered.busy, true) {
            return;
        }
        drop(gathered);
        runtime.spawn(free(self.zpl.clone(), self.events.clone(), self.gathered.clone()));
    }

    /// Forgets those whose freeing has not begun.
    pub fn clear(&self) {
        self.gathered.lock().orphans.clear();
    }
}

async fn free(zpl: Arc<Zpl>, events: Events, gathered: Arc<Mutex<Gathered>>) {
    loop {
        tokio::time::sleep(GATHERING).await;
        let orphans = {
            let mut gathered = gathered.lock();
            assert!(gathered.busy, "nobody but this task ends it");
            gathered.busy = !gathered.orphans.is_empty();
            std::mem::take(&mut gathered.orphans)
        };
        if orphans.is_empty() {
            return;
        }
        let one = async |object| {
            _ = events.ended(Operation::Reap, object, zpl.reap(object).await.map_err(Into::into), |()| 0)
        };
        let all = futures::stream::iter(orphans).for_each_concurrent(AT_ONCE, one);
        // A panic would take along whoever frees the next ones.
        if AssertUnwindSafe(all).catch_unwind().await.is_err() {
            tracing::error!("freeing what was removed panicked; this is a bug");
        }
    }
}
