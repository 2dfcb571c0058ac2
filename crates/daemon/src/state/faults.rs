//! Devices that fail: looks at all pools' devices, has the policy ([`platter_faults`]) judge, carries its verdicts out,
//! remembers what happened and tells whom it concerns.
//!
//! Invariants:
//! - a look waits for no device, no file and no receiver: what does is done by tasks of its own;
//! - of a device that is held nothing is changed; what was seen of it is told all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Instant;

use platter_api::faults::{
    Cause, DeviceRecord, DeviceSigns, GetFaults, HoldDevice, LineKind, PoolFaults, RecordLine, Verdict,
};
use platter_api::messages::{ErrorBody, ErrorKind, Outcome};
use platter_api::notify::{Message, ReceiverReport, Way};
use platter_api::request::{PoolChange, PoolOperation};
use platter_faults::words::{action, words};
use platter_faults::{Diagnosis, Finding, Moment, policy};

use super::daemon::{Answer, Daemon};
use super::no_such_pool;
use crate::engine::PoolHandle;
use crate::home::waiting;
use crate::machine::{hostname, now_seconds};

/// What is known of all pools, by their guids.
#[derive(Default)]
struct Watched {
    diagnoses: BTreeMap<u64, Diagnosis>,
    /// Those whose I/O waits for devices.
    suspended: BTreeSet<u64>,
}

/// An open pool.
#[derive(Clone)]
struct Of {
    name: String,
    guid: u64,
    handle: Arc<dyn PoolHandle>,
}

/// Looks at the devices of all pools for as long as the daemon lives.
async fn watch(daemon: Weak<Daemon>) {
    let (begin, mut watched) = (Instant::now(), Watched::default());
    loop {
        tokio::time::sleep(policy::LOOK).await;
        let Some(daemon) = daemon.upgrade() else { return };
        daemon.look_for_faults(begin.elapsed(), &mut watched);
    }
}

/// Writes what is remembered whenever it changes: the daemon's folder may hang.
async fn remember(daemon: Weak<Daemon>) {
    loop {
        let Some(records) = daemon.upgrade().map(|daemon| daemon.faults.clone()) else { return };
        // A daemon that is not there any more changes nothing.
        let changed = tokio::time::timeout(policy::QUIET, records.changed.notified()).await;
        if changed.is_err() {
            continue;
        }
        let written = tokio::task::spawn_blocking(move || records.write()).await;
        if let Ok(Err(reason)) = written {
            tracing::error!("{reason}");
        }
    }
}

impl Daemon {
    /// Watches for failing devices from now on.
    pub fn watch_faults(self: &Arc<Self>) {
        self.engine.hold(self.faults.held());
        tokio::spawn(watch(Arc::downgrade(self)));
        tokio::spawn(remember(Arc::downgrade(self)));
    }

    fn open_pools(&self) -> Vec<Of> {
        let pools = self.pools.read();
        let of = |(name, entry): (&String, &super::Entry)| Of {
            name: name.clone(),
            guid: entry.pool.guid(),
            handle: entry.pool.clone(),
        };
        pools.iter().map(of).collect()
    }

    /// Looks once.
    fn look_for_faults(self: &Arc<Self>, now: Moment, watched: &mut Watched) {
        let pools = self.open_pools();
        let is_open = |guid: &u64| pools.iter().any(|pool| pool.guid == *guid);
        watched.diagnoses.retain(|guid, _| is_open(guid));
        watched.suspended.retain(is_open);
        for pool in &pools {
            self.look_whether_it_waits(pool, &mut watched.suspended);
            let findings = watched.diagnoses.entry(pool.guid).or_default().observe(now, &pool.handle.signs());
            for finding in findings {
                self.found(pool, &finding);
            }
        }
    }

    fn look_whether_it_waits(&self, pool: &Of, suspended: &mut BTreeSet<u64>) {
        if !pool.handle.is_suspended() {
            suspended.remove(&pool.guid);
        } else if suspended.insert(pool.guid) {
            let action = format!("Make sure that its devices are connected, then run 'zpool clear {}'.", pool.name);
            let text = "its I/O is suspended: too many of its devices fail".to_owned();
            self.tell_of_pool(&pool.name, "ereport.fs.zfs.io_failure", text, action);
        }
    }

    /// Tells of what concerns a pool as a whole.
    pub(super) fn tell_of_pool(&self, pool: &str, class: &str, text: String, action: String) {
        self.notifier.tell(&Message {
            class: class.to_owned(),
            time: now_seconds(),
            host: hostname(),
            pool: pool.to_owned(),
            device: None,
            guid: None,
            state: None,
            text,
            action,
        });
    }

    /// Remembers and tells what was found, and does what is to be done.
    fn found(self: &Arc<Self>, pool: &Of, finding: &Finding) {
        let said = words(finding);
        let devices: Vec<&DeviceSigns> = match finding {
            Finding::Together { devices, .. } | Finding::AllSilent { devices } => devices.iter().collect(),
            Finding::Seen { device, .. }
            | Finding::ScanErrors { device }
            | Finding::Judged { device, .. }
            | Finding::Silent { device, .. }
            | Finding::Changed { device, .. }
            | Finding::Helped { device }
            | Finding::Whole { device }
            | Finding::Alone { device } => vec![device],
        };
        for device in &devices {
            self.note_fault(pool, device, said.kind, &said.text);
        }
        if let Some(class) = said.class {
            let about = (devices.len() == 1).then_some(devices[0]);
            let vdev = about.map_or("several devices", |device| device.name.as_str());
            tracing::warn!(pool = pool.name, vdev, class, "{}", said.text);
            self.tell(pool, about, class, said.text);
        }
        match finding {
            Finding::Judged { device, cause: Cause::SlowIo, .. } => self.part_from(pool, device, Cause::SlowIo),
            Finding::Judged { device, cause, .. } => self.carry_out(pool, device, *cause),
            Finding::Silent { device, .. } => self.part_from(pool, device, Cause::Io),
            _ => {}
        }
    }

    fn note_fault(&self, pool: &Of, device: &DeviceSigns, kind: LineKind, text: &str) {
        let line = RecordLine { time: now_seconds(), kind, text: text.to_owned() };
        self.faults.note(pool.guid, (device.guid, &device.name), line);
    }

    fn tell(&self, pool: &Of, device: Option<&DeviceSigns>, class: &str, text: String) {
        let several = || "Look at what these devices have in common; 'zpool clear' forgets their errors.".to_owned();
        self.notifier.tell(&Message {
            class: class.to_owned(),
            time: now_seconds(),
            host: hostname(),
            pool: pool.name.clone(),
            device: device.map(|device| device.name.clone()),
            guid: device.map(|device| device.guid.to_string()),
            state: device.map(|device| device.state),
            text,
            action: device.map_or_else(several, |device| action(&pool.name, device)),
        });
    }

    /// Does without a device that does not answer, or not soon: first nobody waits for it any more, then that is
    /// written down.
    fn part_from(self: &Arc<Self>, pool: &Of, device: &DeviceSigns, cause: Cause) {
        let reason = if cause == Cause::SlowIo { "it is too slow" } else { "it does not answer" };
        // Of one that is slow is written down at least that it is not relied on.
        if device.is_held || pool.handle.part_from(device.guid, reason) || cause == Cause::SlowIo {
            self.carry_out(pool, device, cause);
        } else {
            self.note_fault(pool, device, LineKind::Done, "nothing: the others cannot do without it");
        }
    }

    /// Has the engine carry a verdict out; its devices may take their time.
    fn carry_out(self: &Arc<Self>, pool: &Of, device: &DeviceSigns, cause: Cause) {
        if device.is_held {
            self.note_fault(pool, device, LineKind::Done, "nothing: its owner holds it");
            return;
        }
        let (daemon, pool, device) = (self.clone(), pool.clone(), device.clone());
        assert!(!device.is_held, "nothing is done with what is held");
        tokio::spawn(async move {
            let judge = PoolChange::Judge { device: device.guid.to_string(), cause };
            match pool.handle.perform(PoolOperation::Change(judge)).await {
                Ok(changed) => {
                    let state = changed.state.unwrap_or_default();
                    let kept = cause.verdict() == Verdict::Faulted && state == "DEGRADED";
                    let why = if kept { ": the others cannot do without it" } else { "" };
                    daemon.note_fault(&pool, &device, LineKind::Done, &format!("it is {state} now{why}"));
                }
                Err(error) => {
                    let (pool_name, vdev) = (&pool.name, &device.name);
                    tracing::warn!(pool = pool_name, vdev, "the verdict could not be carried out: {error}");
                    daemon.note_fault(&pool, &device, LineKind::Done, &format!("could not be carried out: {error}"));
                }
            }
        });
    }

    /// What is known of failing devices.
    pub fn faults(&self, call: &GetFaults) -> Answer<Vec<PoolFaults>> {
        let mut pools = self.open_pools();
        if let Some(name) = &call.pool {
            pools.retain(|pool| pool.name == *name);
            if pools.is_empty() {
                // The reason why it is not open, or that there is none.
                self.pool(name)?;
                return Err(no_such_pool(name));
            }
        }
        let of_pool = |pool: Of| {
            let signs = pool.handle.signs();
            let record = |(guid, record): (u64, crate::fault_records::Record)| {
                let now = signs.iter().find(|device| device.guid == guid);
                let gone = || "Nothing: it is not part of the pool any more.".to_owned();
                DeviceRecord {
                    guid: guid.to_string(),
                    device: now.map_or(record.device, |now| now.name.clone()),
                    state: now.map(|now| now.state),
                    held: record.held,
                    lines: record.lines,
                    action: now.map_or_else(gone, |now| action(&pool.name, now)),
                }
            };
            let mut devices: Vec<DeviceRecord> = self.faults.of(pool.guid).into_iter().map(record).collect();
            devices.sort_by(|one, other| one.device.cmp(&other.device));
            PoolFaults { pool: pool.name, devices }
        };
        Ok(pools.into_iter().map(of_pool).collect())
    }

    /// Holds a device, or lets it go.
    ///
    /// # Errors
    /// No such device, or several; the daemon's folder.
    pub fn hold_device(&self, call: &HoldDevice) -> Answer<Outcome> {
        let what = if call.hold { "hold" } else { "release" };
        let failed = |reason: String| ErrorBody::new(format!("cannot {what} {}: {reason}", call.device));
        let mut found = Vec::new();
        for pool in
            self.open_pools().into_iter().filter(|pool| call.pool.as_ref().is_none_or(|name| *name == pool.name))
        {
            let signs = pool.handle.signs();
            let called = signs.into_iter().filter(|device| is_called(device, &call.device));
            found.extend(called.map(|device| (pool.guid, device.guid, device.name)));
        }
        if found.is_empty() && !call.hold {
            found.extend(self.faults.find_held(&call.device));
        }
        let (pool, guid, name) = match found.as_slice() {
            [one] => one.clone(),
            [] => return Err(ErrorBody { kind: ErrorKind::NotFound, ..failed("no such device in any pool".into()) }),
            _ => return Err(failed("several devices are called so".into()).hint("give its path, or its guid")),
        };
        self.faults.hold(pool, (guid, &name), call.hold, now_seconds());
        self.engine.hold(self.faults.held());
        waiting(|| self.faults.write()).map_err(failed)?;
        Ok(Outcome { name: Some(name), problems: Vec::new() })
    }

    /// Adds a receiver of messages.
    ///
    /// # Errors
    /// As [`Notifier::add`](crate::notify::Notifier::add).
    pub fn add_receiver(&self, way: Way) -> Answer<ReceiverReport> {
        self.notifier.add(way)
    }

    /// All receivers of messages.
    pub fn receivers(&self) -> Vec<ReceiverReport> {
        self.notifier.list()
    }

    /// Removes a receiver of messages.
    ///
    /// # Errors
    /// As [`Notifier::remove`](crate::notify::Notifier::remove).
    pub fn remove_receiver(&self, id: u64) -> Answer<Outcome> {
        self.notifier.remove(id).map(|()| Outcome::default())
    }

    /// Sends a message to see whether it arrives.
    ///
    /// # Errors
    /// As [`Notifier::test`](crate::notify::Notifier::test).
    pub async fn test_receivers(&self, id: Option<u64>) -> Answer<Outcome> {
        let message = Message {
            class: "platter.test".to_owned(),
            time: now_seconds(),
            host: hostname(),
            pool: "-".to_owned(),
            device: None,
            guid: None,
            state: None,
            text: "this is a test: messages about failing devices arrive here".to_owned(),
            action: "Nothing.".to_owned(),
        };
        let problems = self.notifier.test(id, &message).await?;
        Ok(Outcome { name: None, problems })
    }
}

/// Whether a device is meant by a name: its path, the end of it, or its guid.
fn is_called(device: &DeviceSigns, name: &str) -> bool {
    device.name == name
        || device.guid.to_string() == name
        || device.name.strip_suffix(name).is_some_and(|folder| folder.ends_with('/'))
}
