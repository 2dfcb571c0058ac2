//! What happens to a pool, told to who listens: changes of its devices' and its own state, and what its data sets add
//! to the history.

use crate::core::Core;
use crate::error_log;
use platter_api::event::EventValue;
use platter_dsl::pool::PoolListener;
use platter_dsl::watched;
use platter_ondisk::ObjectId;
use platter_vdev::{Condition, Leaf, LeafTrouble};
use platter_zio::{FailMode, Phase};
use std::sync::Arc;
use std::sync::Weak;

/// Takes to the pool what its data sets tell.
struct Listener(Weak<Core>);

impl PoolListener for Listener {
    fn history_event(&self, name: &str, text: &str) {
        if let Some(core) = self.0.upgrade() {
            let more = vec![("history_internal_name", name.into()), ("history_internal_str", text.into())];
            core.event("sysevent.fs.zfs.history_event", more);
        }
    }

    fn destroyed(&self, objset: ObjectId) {
        if let Some(core) = self.0.upgrade() {
            error_log::forget(&core, objset);
        }
    }

    fn stopped(&self) {
        if let Some(core) = self.0.upgrade() {
            core.scan.lock().stand_still();
        }
    }
}

/// Has the pool hear of what happens to its data sets.
pub fn listen_to_data_sets(core: &Arc<Core>) {
    core.dsl.set_listener(Box::new(Listener(Arc::downgrade(core))));
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

/// The class of a change of state.
const STATE_CHANGE: &str = "resource.fs.zfs.statechange";

/// Which leaf it is.
pub fn leaf_fields(leaf: &Leaf) -> Vec<(&'static str, EventValue)> {
    vec![
        ("vdev_guid", leaf.guid().0.into()),
        ("vdev_type", leaf.kind().label_name().into()),
        ("vdev_path", leaf.path().map_or(String::new(), |path| path.display().to_string()).into()),
    ]
}

fn state_fields(condition: &Condition) -> Vec<(&'static str, EventValue)> {
    let reason = condition.detail.clone().unwrap_or_else(|| condition.aux_text().to_owned());
    vec![
        ("vdev_state_text", condition.name().into()),
        ("vdev_state", condition.state.number().into()),
        ("reason", reason.into()),
    ]
}

/// Tells of the state of a leaf that was closed.
pub fn tell_state(core: &Core, leaf: &Leaf) {
    let mut fields = leaf_fields(leaf);
    fields.extend(state_fields(&leaf.condition()));
    core.event(STATE_CHANGE, fields);
}

/// Hears from now on of what goes wrong with a leaf.
pub fn listen(core: &Arc<Core>, leaf: &Arc<Leaf>) {
    let weak = Arc::downgrade(core);
    leaf.set_listener(Box::new(move |leaf, trouble| {
        let Some(core) = weak.upgrade() else { return };
        let stats = leaf.stats().snapshot();
        let mut fields = leaf_fields(leaf);
        let (class, more) = match trouble {
            LeafTrouble::Io { reason, .. } => ("ereport.fs.zfs.io", vec![("zio_err_text", reason.as_str().into())]),
            LeafTrouble::Checksum { offset, size } => {
                ("ereport.fs.zfs.checksum", vec![("zio_offset", (*offset).into()), ("zio_size", (*size).into())])
            }
            LeafTrouble::Probe { reason } => {
                ("ereport.fs.zfs.probe_failure", vec![("zio_err_text", reason.as_str().into())])
            }
            LeafTrouble::SitsOut { time } => ("ereport.fs.zfs.sitout", vec![("sit_out_secs", time.as_secs().into())]),
            LeafTrouble::State(condition) => (STATE_CHANGE, state_fields(condition)),
        };
        fields.extend(more);
        fields.push(("vdev_read_errors", stats.read_errors.into()));
        fields.push(("vdev_write_errors", stats.write_errors.into()));
        fields.push(("vdev_cksum_errors", stats.checksum_errors.into()));
        core.event(class, fields);
    }));
}

/// Notes when the pool's I/O stops and when it goes on, and its state whenever that is another.
///
/// `changed_state` is called when the state of something in it has changed.
pub fn watch(core: &Arc<Core>, mut changed_state: impl FnMut(&Arc<Core>) + Send + 'static) {
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
                    changed_state(&core);
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
