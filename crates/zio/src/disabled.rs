//! Metaslabs of which nothing is handed out for a moment, while what is free there is given up or written over
//! (`metaslab_disable` and `metaslab_enable` in `module/zfs/metaslab.c`).
//!
//! Invariants:
//! - what was free when a metaslab was disabled is free until it is enabled: more may become so, nothing less;
//! - who finds room nowhere else waits. So whoever has disabled a metaslab waits for devices only: not for a group,
//!   which may need the room, nor for a space map, which a group may be writing.

use std::sync::Arc;

use crate::allocator::MetaslabId;
use crate::store::Store;

/// How often free ranges are read that others let go at once.
const ATTEMPTS: usize = 3;

/// A metaslab of which nothing is handed out as long as this is kept.
#[derive(Debug)]
pub struct Disabled {
    store: Store,
    id: MetaslabId,
    /// There until this is dropped.
    share: Option<Arc<()>>,
    free: Vec<(u64, u64)>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Store")
    }
}

impl Disabled {
    /// What is free there and has rested for the groups that may be gone back to, in order: first bytes within the
    /// top-level vdev, and lengths.
    pub fn free(&self) -> &[(u64, u64)] {
        &self.free
    }

    /// Has what is left of [`free`](Self::free) be told again by [`Store::disable_freed`], while notes are taken.
    pub fn note_again(&self, rest: &[(u64, u64)]) {
        let share = self.share.as_ref().expect("it is disabled");
        self.store.state().allocator.lock().note_trimmable(self.id, share, rest);
    }
}

impl Drop for Disabled {
    fn drop(&mut self) {
        // Whoever hands out comes before or after.
        let allocator = self.store.state().allocator.lock();
        drop(self.share.take());
        drop(allocator);
        self.store.state().enabled.notify_waiters();
    }
}

impl Store {
    /// Keeps anything from being handed out of a metaslab. `None` when nothing is known of its free ranges: its space
    /// map is damaged or cannot be read now, or memory is so short that they are let go at once.
    pub async fn disable(&self, id: MetaslabId) -> Option<Disabled> {
        for _ in 0..ATTEMPTS {
            self.load(id).await;
            let disabled = self.state().allocator.lock().disable(id);
            if let Some((share, free)) = disabled {
                assert!(free.is_sorted(), "free ranges are told in order");
                return Some(Disabled { store: self.clone(), id, share: Some(share), free });
            }
        }
        None
    }

    /// As [`disable`](Self::disable), of what became free since the last call, while notes were taken, and still is.
    pub async fn disable_freed(&self, id: MetaslabId) -> Option<Disabled> {
        let mut disabled = self.disable(id).await?;
        // What is noted is free, and stays so from here on.
        disabled.free = self.state().allocator.lock().take_trimmable(id).iter().collect();
        Some(disabled)
    }

    /// Waits until a metaslab is no longer disabled, unless none is.
    pub(crate) async fn enabled(&self) {
        // What is enabled after this line is heard of.
        let enabled = self.state().enabled.notified();
        if self.state().allocator.lock().has_disabled() {
            enabled.await;
        }
    }
}
