//! What happened lately, for `zpool events` (`module/zfs/fm.c`, `module/zfs/zfs_fm.c`).
//!
//! Invariants: events are numbered from 1 in the order in which they happened; only the newest `EVENTS_MAX` are kept.

use std::collections::VecDeque;

use parking_lot::Mutex;
use platter_api::event::{Event, EventValue};
use tokio::sync::Notify;

/// How many are kept (`zfs_zevent_len_max`).
const EVENTS_MAX: usize = 512;

#[derive(Debug, Default)]
struct Ring {
    last: u64,
    kept: VecDeque<Event>,
}

/// The newest events of all pools.
#[derive(Debug, Default)]
pub struct Events {
    ring: Mutex<Ring>,
    arrived: Notify,
}

impl Events {
    /// Adds an event.
    pub fn post(&self, time: (u64, u32), class: &str, pool: &str, fields: Vec<(String, EventValue)>) {
        let mut ring = self.ring.lock();
        ring.last += 1;
        let eid = ring.last;
        assert!(ring.kept.back().is_none_or(|before| before.eid < eid), "who reads on after one would miss others");
        ring.kept.push_back(Event { eid, time, class: class.to_owned(), pool: pool.to_owned(), fields });
        if ring.kept.len() > EVENTS_MAX {
            ring.kept.pop_front();
        }
        drop(ring);
        self.arrived.notify_waiters();
    }

    /// Those after number `after`, oldest first.
    pub fn after(&self, after: u64) -> Vec<Event> {
        self.ring.lock().kept.iter().filter(|event| event.eid > after).cloned().collect()
    }

    /// As [`Self::after`], once there is one.
    pub async fn arrived_after(&self, after: u64) -> Vec<Event> {
        loop {
            // What comes between the look and the wait ends the wait.
            let arrival = self.arrived.notified();
            let events = self.after(after);
            if !events.is_empty() {
                return events;
            }
            arrival.await;
        }
    }

    /// Forgets all; returns how many there were.
    pub fn clear(&self) -> usize {
        std::mem::take(&mut self.ring.lock().kept).len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_the_newest_are_kept_and_numbers_go_on() {
        let events = Events::default();
        for _ in 0..EVENTS_MAX + 10 {
            events.post((1, 2), "sysevent.fs.zfs.config_sync", "tank", Vec::new());
        }
        let all = events.after(0);
        assert_eq!((all.len(), all[0].eid), (EVENTS_MAX, 11));
        assert_eq!(events.after(EVENTS_MAX as u64 + 9).len(), 1);
        assert_eq!(events.clear(), EVENTS_MAX);
        events.post((1, 2), "sysevent.fs.zfs.config_sync", "tank", Vec::new());
        assert_eq!(events.after(0)[0].eid, EVENTS_MAX as u64 + 11);
    }

    /// A follower looked four times a second: what happened just before it was counted was missing.
    #[tokio::test]
    async fn who_waits_hears_of_an_event_when_it_comes() {
        let events = Arc::new(Events::default());
        let post = |events: &Events| events.post((1, 2), "sysevent.fs.zfs.config_sync", "tank", Vec::new());
        let waiting = {
            let events = events.clone();
            tokio::spawn(async move { events.arrived_after(0).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        post(&events);
        assert_eq!(waiting.await.expect("no panic").len(), 1);
        // What is there already is not waited for.
        post(&events);
        assert_eq!(events.arrived_after(1).await[0].eid, 2);
        assert_eq!(events.arrived_after(0).await.len(), 2);
    }
}
