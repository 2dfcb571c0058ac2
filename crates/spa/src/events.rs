//! What happened lately, for `zpool events` (`module/zfs/fm.c`, `module/zfs/zfs_fm.c`).
//!
//! Invariants: events are numbered from 1 in the order in which they happened; only the newest [`EVENTS_MAX`] are kept.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_vdev::{Leaf, LeafTrouble};
use platter_zio::{FailMode, Phase};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::core::Core;
use platter_dsl::watched;

/// How many are kept (`zfs_zevent_len_max`).
const EVENTS_MAX: usize = 512;

/// A field's value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventValue {
    /// Shown in hexadecimal.
    Number(u64),
    /// Shown in quotes.
    Text(String),
}

impl From<u64> for EventValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for EventValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for EventValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its number.
    pub eid: u64,
    /// Seconds and nanoseconds since the epoch.
    pub time: (u64, u32),
    /// `ereport.fs.zfs.io`, `sysevent.fs.zfs.pool_import`…
    pub class: String,
    /// The pool's name.
    pub pool: String,
    /// What else there is to tell, in order; pool and guid are among them.
    pub fields: Vec<(String, EventValue)>,
}

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

impl Core {
    /// Tells that something happened to this pool.
    pub fn event(&self, class: &str, more: Vec<(&str, EventValue)>) {
        let (name, guid) = {
            let config = self.config.read();
            (config.name.clone(), config.guid.0)
        };
        let mut fields: Vec<(String, EventValue)> =
            vec![("pool".to_owned(), (&*name).into()), ("pool_guid".to_owned(), guid.into())];
        if class.starts_with("ereport") {
            let mode = match self.dsl.store.suspension().mode() {
                Some(FailMode::Continue) => "continue",
                Some(FailMode::Panic) => "panic",
                _ => "wait",
            };
            fields.push(("pool_failmode".to_owned(), mode.into()));
        }
        fields.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
        crate::event_log::write(self, &name, class, &fields);
        self.environment.events.post(self.environment.clock.now(), class, &name, fields);
        self.health_wanted.notify_one();
    }
}

/// Hears from now on of what goes wrong with a leaf.
pub fn listen(core: &Arc<Core>, leaf: &Arc<Leaf>) {
    let weak = Arc::downgrade(core);
    leaf.set_listener(Box::new(move |leaf, trouble| {
        let Some(core) = weak.upgrade() else { return };
        let stats = leaf.stats().snapshot();
        let mut fields = vec![
            ("vdev_guid", leaf.guid().0.into()),
            ("vdev_type", leaf.kind().label_name().into()),
            ("vdev_path", leaf.path().map_or(String::new(), |path| path.display().to_string()).into()),
        ];
        let (class, more) = match trouble {
            LeafTrouble::Io { reason, .. } => ("ereport.fs.zfs.io", vec![("zio_err_text", reason.as_str().into())]),
            LeafTrouble::Checksum { offset, size } => {
                ("ereport.fs.zfs.checksum", vec![("zio_offset", (*offset).into()), ("zio_size", (*size).into())])
            }
            LeafTrouble::State(condition) => (
                "resource.fs.zfs.statechange",
                vec![
                    ("vdev_state_text", condition.name().into()),
                    ("vdev_state", condition.state.number().into()),
                    ("reason", condition.detail.clone().unwrap_or_default().into()),
                ],
            ),
        };
        fields.extend(more);
        fields.push(("vdev_read_errors", stats.read_errors.into()));
        fields.push(("vdev_write_errors", stats.write_errors.into()));
        fields.push(("vdev_cksum_errors", stats.checksum_errors.into()));
        core.event(class, fields);
    }));
}

/// Notes when the pool's I/O stops and when it goes on, and its state whenever that is another.
pub fn watch(core: &Arc<Core>) {
    let mut phases = core.dsl.store.suspension().follow();
    let weak = Arc::downgrade(core);
    let wanted = core.health_wanted.clone();
    watched::spawn(&core.dsl, "the watch over its I/O", async move {
        let mut health = "";
        loop {
            let phase = tokio::select! {
                biased;
                changed = phases.changed() => changed,
                () = wanted.notified() => {
                    let Some(core) = weak.upgrade() else { return };
                    note_health(&core, &mut health);
                    continue;
                }
            };
            let Some(phase) = phase else { return };
            let Some(core) = weak.upgrade() else { return };
            let pool = core.name();
            match phase {
                Phase::Running => tracing::warn!(pool, "I/O goes on"),
                Phase::Suspended { mode, reason } => {
                    tracing::error!(pool, ?mode, reason, "pool I/O is suspended until 'zpool clear'");
                    core.event("ereport.fs.zfs.io_failure", vec![("reason", reason.into())]);
                }
                Phase::Stopped(reason) => {
                    tracing::error!(pool, reason, "the pool has stopped");
                    core.event("ereport.fs.zfs.io_failure", vec![("reason", (&*reason).into())]);
                    core.dsl.gate.suspend(reason);
                }
            }
        }
    });
}

/// Says the pool's state when it is another than `last`.
fn note_health(core: &Core, last: &mut &'static str) {
    // Its devices are closed, which is no news.
    if core.stopping.load(std::sync::atomic::Ordering::Acquire) {
        return;
    }
    let (pool, now) = (core.name(), crate::status::health(core));
    let before = std::mem::replace(last, now);
    match (before, now) {
        _ if before == now => {}
        ("", "ONLINE") => {}
        (_, "ONLINE") => tracing::info!(pool, "the pool is ONLINE again, it was {before}"),
        _ => tracing::warn!(pool, "the pool is {now}: 'zpool status' shows why"),
    }
}

#[cfg(test)]
mod tests {
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
