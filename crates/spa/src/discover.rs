//! Finding pools on devices (`zpool import` without a name; `lib/libzutil/zutil_import.c`).
//!
//! Devices are opened read-only and without a lock; a device belongs to the pool its newest valid label names, under
//! the guid in it: paths in labels are never trusted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use platter_device::{DeviceSource, Holder};
use platter_ondisk::{Guid, Txg, Uberblock};
use platter_vdev::VdevKind;

use crate::config::{PoolConfig, PoolState, VdevConfig};
use crate::environment::{CHOOSE_HOSTID, Environment};
use crate::label_search::{self, Searched};
use crate::labels::DeviceLabels;
use crate::vdev_names::vdev_name;
use platter_api::report::{ImportableReport, VdevReport};

/// A pool put together from its devices' labels.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The newest label's configuration, with the vdev tree of the whole pool as far as labels were found.
    pub config: PoolConfig,
    /// Where each leaf was found, by guid.
    pub paths: BTreeMap<u64, PathBuf>,
    /// The best uberblock on any device.
    pub uberblock: Option<Uberblock>,
    /// Top-level vdevs of which no device was found, by index.
    pub missing_tops: Vec<u64>,
    /// Leaves of it that were found to be devices of other pools.
    pub elsewhere: BTreeSet<u64>,
    /// Devices that did not answer the search in which it was found: one of them may be its own.
    pub silent: Vec<PathBuf>,
    /// Who has a device of it open for writing, once [`find_writer`](Self::find_writer) has looked.
    pub writer: Option<Holder>,
}

/// What a pool's own metadata says of whether it can be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metadata {
    /// Nobody looked: labels, or who has it, decide already.
    Unseen,
    /// Nothing against it.
    Writable,
    /// It can be read only, for these features or other things.
    ReadOnly(Vec<String>),
    /// It cannot be opened.
    Damaged(String),
    /// Another host is writing it (`multihost`).
    InUse,
}

/// Whether a vdev is of a type that this version cannot open.
fn is_unknown(vdev: &VdevConfig) -> bool {
    matches!(VdevKind::from_label(&vdev.kind, vdev.nparity.unwrap_or(0)), VdevKind::Other(_))
}

/// What a search of devices found.
#[derive(Debug)]
pub struct Scan {
    /// The pools, sorted by name and guid.
    pub pools: Vec<Candidate>,
    /// Devices that did not answer, and were passed over.
    pub silent: Vec<PathBuf>,
}

/// Reads the labels of every device in `search`, but for those that are known to be `silent`, and puts pools together.
pub async fn scan(devices: &dyn DeviceSource, search: &[PathBuf], silent: &[PathBuf]) -> Scan {
    let Searched { found, silent } = label_search::search(devices, search, silent).await;
    let mut candidates: Vec<Candidate> = by_pool(found).into_values().filter_map(assemble).collect();
    note_elsewhere(&mut candidates);
    candidates.iter_mut().for_each(|candidate| candidate.silent.clone_from(&silent));
    candidates.sort_by(|a, b| (&a.config.name, a.config.guid).cmp(&(&b.config.name, b.config.guid)));
    Scan { pools: candidates, silent }
}

/// Devices by the pool that they belong to, each with the labels of that pool alone. The uberblock says which, and the
/// newest label where a crash came while a pool got another identity (a split, a new guid): all devices had their
/// labels by then, so one that has the uberblock, too, speaks for the others.
fn by_pool(found: Vec<(PathBuf, DeviceLabels)>) -> BTreeMap<u64, Vec<(PathBuf, DeviceLabels)>> {
    let mut committed: BTreeMap<u64, Txg> = BTreeMap::new();
    for (_, found) in &found {
        let reached = committed.entry(found.pool().0).or_default();
        *reached = found.reached().max(*reached);
    }
    let mut pools: BTreeMap<u64, Vec<(PathBuf, DeviceLabels)>> = BTreeMap::new();
    for (path, found) in found {
        let newest = found.config();
        let is_committed = committed.get(&newest.guid.0).is_some_and(|reached| *reached >= newest.txg);
        let pool = if is_committed { newest.guid } else { found.pool() };
        pools.entry(pool.0).or_default().push((path, found.of_pool(pool)));
    }
    pools
}

/// Notes for each pool which devices were found to be others'.
fn note_elsewhere(candidates: &mut [Candidate]) {
    let all: Vec<(u64, Guid)> =
        candidates.iter().flat_map(|one| one.paths.keys().map(|leaf| (*leaf, one.config.guid))).collect();
    for candidate in candidates {
        let others = all.iter().filter(|(leaf, pool)| {
            *pool != candidate.config.guid
                && !candidate.paths.contains_key(leaf)
                && candidate.config.vdev_tree.leaves().iter().any(|own| own.guid.0 == *leaf)
        });
        candidate.elsewhere = others.map(|(leaf, _)| *leaf).collect();
    }
}

fn assemble(devices: Vec<(PathBuf, DeviceLabels)>) -> Option<Candidate> {
    let uberblock =
        devices.iter().filter_map(|(_, found)| found.uberblock.as_ref()).max_by(|a, b| a.compare(b)).cloned();
    // A device that a crash kept from becoming a member has only labels that are newer than the pool.
    let of_pool = |found: &DeviceLabels| match &uberblock {
        Some(uberblock) => found.config_at(uberblock.txg).cloned(),
        None => Some(found.config().clone()),
    };
    let devices: Vec<(PathBuf, Txg, PoolConfig)> =
        devices.into_iter().filter_map(|(path, found)| Some((path, found.reached(), of_pool(&found)?))).collect();
    let newest = devices.iter().max_by_key(|(_, _, config)| config.txg)?.2.clone();
    let mut tops = tops_of(devices.iter().map(|(_, _, config)| (config.txg, &config.vdev_tree)));
    // One that was removed while its devices were away: their labels do not know it.
    tops.retain(|id, _| !newest.holes.contains(id));
    let mut paths: BTreeMap<u64, ((Txg, Txg, bool), PathBuf)> = BTreeMap::new();
    for (path, reached, config) in devices {
        let (txg, top_guid) = (config.txg, config.vdev_tree.guid);
        if let Some(guid) = config.device_guid {
            // Two copies of one member (a cloned disk): the one written last is it, of equal ones that at its path.
            let own = tops.values().filter(|top| top.guid == top_guid).flat_map(|top| top.leaves());
            let own = own.into_iter().find(|leaf| leaf.guid == guid);
            let at_home = own.is_some_and(|leaf| leaf.path.as_deref().map(Path::new) == Some(&path));
            let age = (reached, txg, at_home);
            if paths.get(&guid.0).is_none_or(|(seen, _)| age > *seen) {
                paths.insert(guid.0, (age, path));
            }
        }
    }
    let is_missing = |id: &u64| !tops.contains_key(id) && !newest.holes.contains(id);
    let missing_tops: Vec<u64> = (0..newest.vdev_children).filter(is_missing).collect();
    let mut root = VdevConfig { kind: "root".into(), guid: newest.guid, ..VdevConfig::default() };
    root.children = tops.into_values().collect();
    let mut config = newest;
    config.vdev_tree = root;
    let paths = paths.into_iter().map(|(guid, (_, path))| (guid, path)).collect();
    let elsewhere = BTreeSet::new();
    Some(Candidate { config, paths, uberblock, missing_tops, elsewhere, silent: Vec::new(), writer: None })
}

/// The top-level vdevs by number, as the devices' labels tell of them: the newest label of each counts. Where those of
/// one vdev disagree about its number, most of them are right: one that is damaged must not keep the others out.
fn tops_of<'a>(told: impl Iterator<Item = (Txg, &'a VdevConfig)>) -> BTreeMap<u64, VdevConfig> {
    let mut by_guid: BTreeMap<u64, Vec<(Txg, &VdevConfig)>> = BTreeMap::new();
    told.for_each(|(txg, top)| by_guid.entry(top.guid.0).or_default().push((txg, top)));
    let mut tops: BTreeMap<u64, (Txg, &VdevConfig)> = BTreeMap::new();
    for told in by_guid.into_values() {
        let newest = told.iter().map(|(txg, _)| *txg).max().unwrap_or_default();
        let told: Vec<&VdevConfig> = told.into_iter().filter(|(txg, _)| *txg == newest).map(|(_, top)| top).collect();
        let votes = |top: &VdevConfig| told.iter().filter(|other| other.id == top.id).count();
        // Of equally many the lower number: what is damaged is rarely small.
        let Some(top) = told.iter().rev().max_by_key(|top| (votes(top), Reverse(top.id))) else { continue };
        if tops.get(&top.id).is_none_or(|(seen, _)| newest > *seen) {
            tops.insert(top.id, (newest, top));
        }
    }
    tops.into_iter().map(|(id, (_, top))| (id, top.clone())).collect()
}

/// What a listing says of a pool that was found.
struct Verdict {
    state: &'static str,
    status: Option<String>,
    action: String,
    /// What stands beside its name.
    note: Option<&'static str>,
}

impl Verdict {
    fn new(state: &'static str, status: impl Into<String>, action: impl Into<String>) -> Self {
        Self { state, status: Some(status.into()), action: action.into(), note: None }
    }

    /// It can be imported, after a look at who had it last when it is `foreign`.
    fn importable(foreign: bool) -> Self {
        let plain = "The pool can be imported using its name or numeric identifier";
        if foreign {
            let status = "The pool was last accessed by another system.";
            return Self::new("ONLINE", status, format!("{plain} and\n\tthe '-f' flag."));
        }
        Self { state: "ONLINE", status: None, action: format!("{plain}."), note: None }
    }
}

impl Candidate {
    /// Looks whether somebody has a device of it open for writing.
    pub async fn find_writer(&mut self, environment: &Environment) {
        for path in self.paths.values() {
            self.writer = environment.devices.writer(path).await;
            if self.writer.is_some() {
                return;
            }
        }
        self.writer = environment.pool_locks.holder(self.config.guid);
    }

    /// Whether enough devices are there, by vdev type.
    pub fn is_complete_enough(&self) -> bool {
        self.missing_tops.is_empty() && self.config.vdev_tree.children.iter().all(|top| self.tolerates(top))
    }

    fn absent(&self, vdev: &VdevConfig) -> usize {
        vdev.leaves().iter().filter(|leaf| !self.paths.contains_key(&leaf.guid.0)).count()
    }

    /// Whether enough is there below a vdev, top-level or not. Of a device and what takes its place one is enough.
    fn tolerates(&self, vdev: &VdevConfig) -> bool {
        let absent = || vdev.children.iter().filter(|child| !self.tolerates(child)).count();
        match &*vdev.kind {
            "hole" | "missing" | "indirect" => true,
            "mirror" | "replacing" | "spare" => absent() < vdev.children.len(),
            "raidz" => absent() as u64 <= vdev.nparity.unwrap_or(0),
            _ => self.absent(vdev) == 0,
        }
    }

    /// One line for each leaf that was not found: guid and last path.
    pub fn missing_leaves(&self) -> Vec<String> {
        let leaves = self.config.vdev_tree.leaves().into_iter();
        leaves
            .filter(|leaf| !self.paths.contains_key(&leaf.guid.0))
            .map(|leaf| format!("{} ({})", leaf.guid, self.absence(leaf)))
            .collect()
    }

    /// How it is with a leaf that was not found.
    fn absence(&self, leaf: &VdevConfig) -> String {
        match leaf.path.as_deref() {
            Some(path) if self.silent.iter().any(|silent| silent == Path::new(path)) => {
                format!("{path} does not answer")
            }
            Some(path) => format!("was {path}"),
            None => "was at an unknown path".into(),
        }
    }

    /// Whether another host used it last and has not exported it.
    fn is_foreign(&self, environment: &Environment) -> bool {
        self.config.state == PoolState::Active && self.config.hostid.is_some_and(|id| id != environment.hostid())
    }

    /// Whether another host may be using it at this moment, and would show it.
    pub fn may_be_in_use(&self, environment: &Environment) -> bool {
        self.is_foreign(environment)
            && !self.needs_hostid(environment)
            && self.is_complete_enough()
            && self.uberblock.as_ref().is_some_and(Uberblock::is_multihost)
    }

    /// Whether it may be in use on several hosts, and this one has no id of its own to take part.
    fn needs_hostid(&self, environment: &Environment) -> bool {
        environment.host.hostid().is_derived && self.uberblock.as_ref().is_some_and(Uberblock::is_multihost)
    }

    /// Whether an import, as far as labels say, would succeed without force: then its own metadata is worth a look.
    pub fn seems_importable(&self, environment: &Environment) -> bool {
        self.unsupported().is_empty()
            && self.unknown_vdevs().is_empty()
            && self.is_complete_enough()
            && self.writer.is_none()
            && !self.is_foreign(environment)
    }

    /// Features it cannot be read without, which this version does not have.
    fn unsupported(&self) -> Vec<&str> {
        let names = self.config.features_for_read.iter().map(|guid| &**guid);
        names.filter(|guid| !platter_dsl::features::is_readable(guid)).collect()
    }

    /// Types of its vdevs that this version does not have.
    fn unknown_vdevs(&self) -> BTreeSet<String> {
        let mut kinds = BTreeSet::new();
        self.config.vdev_tree.walk(&mut |vdev| {
            if is_unknown(vdev) {
                kinds.insert(vdev.kind.clone());
            }
        });
        kinds
    }

    /// This version cannot read it at all.
    fn unreadable(&self) -> Option<Verdict> {
        let (unsupported, unknown) = (self.unsupported(), self.unknown_vdevs());
        if !unsupported.is_empty() {
            return Some(Verdict {
                note: Some("unsupported feature(s)"),
                ..Verdict::new(
                    "UNAVAIL",
                    format!(
                        "The pool uses the following feature(s) not supported on this system:\n\t{}",
                        unsupported.join("\n\t")
                    ),
                    "The pool cannot be imported. Access the pool on a system that supports\n\tthe required \
                     feature(s), or recreate the pool from backup.",
                )
            });
        }
        if unknown.is_empty() {
            return None;
        }
        let kinds: Vec<&str> = unknown.iter().map(|kind| &**kind).collect();
        Some(Verdict {
            note: Some("unsupported vdev type"),
            ..Verdict::new(
                "UNAVAIL",
                format!("The pool has vdevs of a type that this version does not have: {}.", kinds.join(", ")),
                "The pool cannot be imported. Access the pool on a system that supports\n\tthem, or recreate the pool \
                 from backup.",
            )
        })
    }

    /// Its devices or its metadata are not all there, or it cannot be written.
    fn unusable(&self, metadata: &Metadata) -> Option<Verdict> {
        let missing = "One or more devices are missing from the system.";
        if !self.is_complete_enough() {
            let action = "The pool cannot be imported. Attach the missing\n\tdevices and try again.";
            return Some(Verdict::new("UNAVAIL", missing, action));
        }
        match metadata {
            Metadata::Damaged(reason) => Some(Verdict {
                note: Some("corrupted data"),
                ..Verdict::new(
                    "FAULTED",
                    format!("The pool metadata is corrupted.\n\t{reason}"),
                    "The pool cannot be imported due to damaged devices or data.",
                )
            }),
            Metadata::ReadOnly(obstacles) => Some(Verdict {
                note: Some("unsupported feature(s)"),
                ..Verdict::new(
                    "UNAVAIL",
                    format!(
                        "The pool can only be accessed in read-only mode on this system. It\n\tcannot be accessed in \
                         read-write mode because it uses the following\n\tfeature(s) not supported on this \
                         system:\n\t{}",
                        obstacles.join("\n\t")
                    ),
                    "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", \
                     access the pool on a system that supports the\n\trequired feature(s), or recreate the pool from \
                     backup.",
                )
            }),
            _ if self.absent(&self.config.vdev_tree) > 0 => Some(Verdict::new(
                "DEGRADED",
                missing,
                "The pool can be imported despite missing or damaged devices.  The\n\tfault tolerance of the pool may \
                 be compromised if imported.",
            )),
            _ => None,
        }
    }

    /// Somebody has it, or may have it without our seeing that.
    fn in_use(&self, environment: &Environment, metadata: &Metadata) -> Option<Verdict> {
        if *metadata == Metadata::InUse {
            let host = self.config.hostname.as_deref().unwrap_or("<unknown>");
            return Some(Verdict::new(
                "UNAVAIL",
                "The pool is currently imported by another system.",
                format!(
                    "The pool must be exported from {host} (hostid={:x})\n\tbefore it can be safely imported.",
                    self.config.hostid.unwrap_or(0)
                ),
            ));
        }
        if let Some(writer) = &self.writer {
            return Some(Verdict::new(
                "UNAVAIL",
                format!("The pool is currently imported by {writer}."),
                "The pool must be exported there before it can be safely imported.",
            ));
        }
        self.needs_hostid(environment).then(|| {
            Verdict::new(
                "UNAVAIL",
                "The pool has the multihost property on.  It cannot\n\tbe safely imported when the system hostid is \
                 not set.",
                CHOOSE_HOSTID,
            )
        })
    }

    /// What `zpool import` lists.
    pub fn report(&self, environment: &Environment, metadata: &Metadata) -> ImportableReport {
        let config = &self.config;
        let destroyed = config.state == PoolState::Destroyed;
        let foreign = self.is_foreign(environment);
        let verdict = self
            .unreadable()
            .or_else(|| self.unusable(metadata))
            .or_else(|| self.in_use(environment, metadata))
            .unwrap_or_else(|| Verdict::importable(foreign));
        let Verdict { state, status, action, note } = verdict;
        let mut vdevs = self.vdev_report(&config.vdev_tree, &config.name);
        if let Some(note) = note {
            (vdevs.state, vdevs.note) = (state.into(), Some(note.into()));
        }
        ImportableReport {
            name: config.name.clone(),
            guid: config.guid.0,
            state: state.into(),
            status,
            action: Some(action),
            last_host: foreign.then(|| config.hostname.clone()).flatten(),
            vdevs,
            destroyed,
        }
    }

    fn vdev_report(&self, vdev: &VdevConfig, pool: &str) -> VdevReport {
        let absent = vdev.is_leaf() && !self.paths.contains_key(&vdev.guid.0);
        let unknown = is_unknown(vdev);
        let state = match &*vdev.kind {
            _ if absent || unknown => "UNAVAIL",
            "root" if !self.is_complete_enough() => "UNAVAIL",
            "mirror" | "raidz" | "replacing" | "spare" if !self.tolerates(vdev) => "UNAVAIL",
            "root" | "mirror" | "raidz" | "replacing" | "spare" if self.absent(vdev) > 0 => "DEGRADED",
            _ => "ONLINE",
        };
        VdevReport {
            name: vdev_name(vdev, pool, self.paths.get(&vdev.guid.0)),
            kind: vdev.kind.clone(),
            is_log: vdev.is_log,
            guid: vdev.guid.0,
            path: vdev.path.clone(),
            state: state.into(),
            note: match unknown {
                true => Some("unsupported vdev type".into()),
                false => absent.then(|| self.absence(vdev)),
            },
            ashift: vdev.ashift,
            children: vdev.children.iter().map(|child| self.vdev_report(child, pool)).collect(),
            ..VdevReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(id: u64, guid: u64) -> VdevConfig {
        VdevConfig { id, guid: Guid(guid), ..VdevConfig::default() }
    }

    fn found(told: &[(u64, VdevConfig)]) -> Vec<(u64, u64)> {
        let tops = tops_of(told.iter().map(|(txg, top)| (Txg(*txg), top)));
        tops.into_iter().map(|(id, top)| (id, top.guid.0)).collect()
    }

    /// A label of one disk of three, with the right checksum, said that its vdev has a number beyond any: the pool
    /// could not be imported while that disk was there.
    #[test]
    fn one_label_does_not_outvote_the_others_about_a_vdevs_number() {
        let bad = u64::MAX - 511;
        for told in [[bad, 0, 0], [0, bad, 0], [0, 0, bad]] {
            assert_eq!(found(&told.map(|id| (7, top(id, 5)))), [(0, 5)]);
        }
        assert_eq!(found(&[(7, top(bad, 5)), (7, top(0, 5))]), [(0, 5)], "of two the lower");
        assert_eq!(found(&[(7, top(0, 5)), (7, top(0, 5)), (8, top(1, 5))]), [(1, 5)], "the newest");
        // A vdev that was removed and one that came in its place; two vdevs.
        assert_eq!(found(&[(7, top(1, 5)), (8, top(1, 6)), (8, top(0, 9))]), [(0, 9), (1, 6)]);
    }
}
