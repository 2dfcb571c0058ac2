//! What is known of failing devices, as it is told and remembered in `faults.json`: what was seen, what was made of it,
//! what was done, and which devices their owner holds.
//!
//! Invariants:
//! - what is remembered is bounded: lines of a device, devices of a pool, pools. What is held is never dropped;
//! - a file that cannot be understood is set aside, and never overwritten.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use platter_api::faults::{LineKind, RecordLine};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::home::{self, Home};

/// Lines of one device.
const LINES_MAX: usize = 60;
/// Devices of one pool that are not held.
const DEVICES_MAX: usize = 200;
/// Pools.
const POOLS_MAX: usize = 64;

/// What is known of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its path, as last seen.
    pub device: String,
    /// Whether its owner holds it.
    #[serde(default)]
    pub held: bool,
    /// What happened, oldest first.
    #[serde(default)]
    pub lines: Vec<RecordLine>,
}

impl Record {
    fn last(&self) -> u64 {
        self.lines.last().map_or(0, |line| line.time)
    }
}

/// The devices of one pool, by guid.
type Devices = BTreeMap<u64, Record>;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    version: u32,
    /// By guids, decimal as JSON has names.
    pools: BTreeMap<u64, Devices>,
}

/// The records of all pools.
#[derive(Debug)]
pub struct FaultRecords {
    path: PathBuf,
    content: Mutex<Content>,
    /// Held while the file is written.
    writing: Mutex<()>,
    /// Something is to be written.
    pub changed: Notify,
}

fn read(path: &Path) -> Content {
    let text = match home::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Content::default(),
        Err(error) => {
            tracing::error!("cannot read '{}': {error}", path.display());
            return Content::default();
        }
    };
    serde_json::from_slice(&text).unwrap_or_else(|error| {
        let aside = path.with_extension("damaged");
        let moved = std::fs::rename(path, &aside).is_ok();
        let kept = if moved { format!("; it is kept as '{}'", aside.display()) } else { String::new() };
        tracing::error!("'{}' is damaged ({error}): no device is held any more{kept}", path.display());
        Content::default()
    })
}

impl FaultRecords {
    /// Those of a home.
    pub fn open(home: &Home) -> Self {
        let path = home.faults_file();
        let content = Mutex::new(read(&path));
        Self { path, content, writing: Mutex::default(), changed: Notify::new() }
    }

    /// Writes them.
    ///
    /// # Errors
    /// A complete message.
    pub fn write(&self) -> Result<(), String> {
        let _one = self.writing.lock();
        let text = {
            let mut content = self.content.lock();
            content.version = 1;
            serde_json::to_vec_pretty(&*content).map_err(|error| error.to_string())?
        };
        home::replace_file(&self.path, &text)
            .map_err(|error| format!("cannot write '{}': {error}", self.path.display()))
    }

    /// Adds a line to a device's record.
    pub fn note(&self, pool: u64, device: (u64, &str), line: RecordLine) {
        let mut content = self.content.lock();
        let devices = content.pools.entry(pool).or_default();
        let record = devices.entry(device.0).or_default();
        record.device = device.1.to_owned();
        record.lines.push(line);
        let surplus = record.lines.len().saturating_sub(LINES_MAX);
        record.lines.drain(..surplus);
        assert!(record.lines.len() <= LINES_MAX, "a record is bounded");
        while devices.values().filter(|record| !record.held).count() > DEVICES_MAX {
            let oldest = devices.iter().filter(|(_, record)| !record.held).min_by_key(|(_, record)| record.last());
            let Some(guid) = oldest.map(|(guid, _)| *guid) else { break };
            devices.remove(&guid);
        }
        forget_old_pools(&mut content, pool);
        drop(content);
        self.changed.notify_one();
    }

    /// Holds a device from now on, or holds it no more; whether that is another thing than before.
    pub fn hold(&self, pool: u64, device: (u64, &str), hold: bool, time: u64) -> bool {
        let mut content = self.content.lock();
        let record = content.pools.entry(pool).or_default().entry(device.0).or_default();
        if record.held == hold {
            return false;
        }
        record.held = hold;
        drop(content);
        let text = if hold { "its owner holds it" } else { "its owner holds it no more" };
        self.note(pool, device, RecordLine { time, kind: LineKind::Done, text: text.to_owned() });
        true
    }

    /// All devices that are held, by guid.
    pub fn held(&self) -> BTreeSet<u64> {
        let content = self.content.lock();
        let all = content.pools.values().flatten();
        all.filter(|(_, record)| record.held).map(|(guid, _)| *guid).collect()
    }

    /// What is known of the devices of a pool.
    pub fn of(&self, pool: u64) -> BTreeMap<u64, Record> {
        let mut devices = self.content.lock().pools.get(&pool).cloned().unwrap_or_default();
        devices.retain(|_, record| record.held || !record.lines.is_empty());
        devices
    }

    /// The device of this path or guid that is held, with its pool, whether or not it is there.
    pub fn find_held(&self, name: &str) -> Option<(u64, u64, String)> {
        let content = self.content.lock();
        let mut all = content.pools.iter().flat_map(|(pool, devices)| devices.iter().map(move |one| (pool, one)));
        let is_it = |guid: &u64, record: &Record| record.held && (record.device == name || guid.to_string() == name);
        let found = all.find(|(_, (guid, record))| is_it(guid, record));
        found.map(|(pool, (guid, record))| (*pool, *guid, record.device.clone()))
    }
}

/// Drops the pool of which nothing was heard for longest, when there are too many; never one that was just heard of.
fn forget_old_pools(content: &mut Content, newest: u64) {
    while content.pools.len() > POOLS_MAX {
        let last = |devices: &Devices| devices.values().map(Record::last).max();
        let is_droppable = |devices: &Devices| devices.values().all(|record| !record.held);
        let others = content.pools.iter().filter(|(pool, devices)| **pool != newest && is_droppable(devices));
        let Some(oldest) = others.min_by_key(|(_, devices)| last(devices)).map(|(pool, _)| *pool) else { return };
        content.pools.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time: u64) -> RecordLine {
        RecordLine { time, kind: LineKind::Seen, text: format!("at {time}") }
    }

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::at(folder.path().to_path_buf()).unwrap();
        (folder, home)
    }

    #[test]
    fn records_outlive_the_daemon_and_what_is_held_stays_held() {
        let (_folder, home) = home();
        let records = FaultRecords::open(&home);
        records.note(u64::MAX, (7, "/d7"), line(1));
        assert!(records.hold(u64::MAX, (8, "/d8"), true, 2));
        assert!(!records.hold(u64::MAX, (8, "/d8"), true, 3));
        records.write().unwrap();
        let next = FaultRecords::open(&home);
        assert_eq!(next.of(u64::MAX), records.of(u64::MAX));
        assert_eq!(next.held(), BTreeSet::from([8]));
        assert_eq!(next.find_held("/d8"), Some((u64::MAX, 8, "/d8".to_owned())));
        assert!(next.hold(u64::MAX, (8, "/d8"), false, 4) && next.held().is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded_and_holds_are_kept() {
        let (_folder, home) = home();
        let records = FaultRecords::open(&home);
        records.hold(1, (0, "/held"), true, 0);
        for time in 1..500 {
            records.note(1, (time, "/d"), line(time));
            records.note(1, (499, "/d"), line(time));
            records.note(time + 1, (7, "/d"), line(time));
        }
        assert_eq!((records.of(1).len(), records.of(1)[&499].lines.len()), (DEVICES_MAX + 1, LINES_MAX));
        assert_eq!(records.content.lock().pools.len(), POOLS_MAX);
        assert_eq!(records.held(), BTreeSet::from([0]));
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let (_folder, home) = home();
        std::fs::write(home.faults_file(), "{\"pools\": [").unwrap();
        let records = FaultRecords::open(&home);
        assert!(records.held().is_empty());
        records.write().unwrap();
        let aside = home.faults_file().with_extension("damaged");
        assert_eq!(std::fs::read_to_string(aside).unwrap(), "{\"pools\": [");
    }
}
