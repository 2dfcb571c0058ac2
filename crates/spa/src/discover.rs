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
use crate::environment::Environment;
use crate::label_search::{self, Searched};
use crate::labels::DeviceLabels;

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
    /// Its own metadata could be read with what was found, and its vdev tree is from there.
    pub is_looked_into: bool,
    /// Leaves of it that were found to be devices of other pools.
    pub elsewhere: BTreeSet<u64>,
    /// Devices that did not answer the search in which it was found: one of them may be its own.
    pub silent: Vec<PathBuf>,
    /// Who has a device of it open for writing, once [`find_writer`](Self::find_writer) has looked.
    pub writer: Option<Holder>,
}

/// Whether a vdev is of a type that this version cannot open.
pub fn is_unknown(vdev: &VdevConfig) -> bool {
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
    Some(Candidate {
        config,
        paths,
        uberblock,
        missing_tops,
        is_looked_into: false,
        elsewhere,
        silent: Vec::new(),
        writer: None,
    })
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
        self.is_looked_into
            || self.missing_tops.is_empty() && self.config.vdev_tree.children.iter().all(|top| self.tolerates(top))
    }

    /// How many leaves below a vdev were not found.
    pub fn absent(&self, vdev: &VdevConfig) -> usize {
        vdev.leaves().iter().filter(|leaf| !self.paths.contains_key(&leaf.guid.0)).count()
    }

    /// Whether enough is there below a vdev, top-level or not. Of a device and what takes its place one is enough.
    pub fn tolerates(&self, vdev: &VdevConfig) -> bool {
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
    pub fn absence(&self, leaf: &VdevConfig) -> String {
        match leaf.path.as_deref() {
            Some(path) if self.silent.iter().any(|silent| silent == Path::new(path)) => {
                format!("{path} does not answer")
            }
            Some(path) => format!("was {path}"),
            None => "was at an unknown path".into(),
        }
    }

    /// Whether another host used it last and has not exported it.
    pub fn is_foreign(&self, environment: &Environment) -> bool {
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
    pub fn needs_hostid(&self, environment: &Environment) -> bool {
        environment.host.hostid().is_derived && self.uberblock.as_ref().is_some_and(Uberblock::is_multihost)
    }

    /// Whether an import, as far as labels say, would succeed without force, but for devices that are missing (they may
    /// be of a log): then its own metadata is worth a look.
    pub fn seems_importable(&self, environment: &Environment) -> bool {
        self.unsupported().is_empty()
            && self.unknown_vdevs().is_empty()
            && self.writer.is_none()
            && !self.is_foreign(environment)
    }

    /// Features it cannot be read without, which this version does not have.
    pub fn unsupported(&self) -> Vec<&str> {
        let names = self.config.features_for_read.iter().map(|guid| &**guid);
        names.filter(|guid| !platter_dsl::features::is_readable(guid)).collect()
    }

    /// Types of its vdevs that this version does not have.
    pub fn unknown_vdevs(&self) -> BTreeSet<String> {
        let mut kinds = BTreeSet::new();
        self.config.vdev_tree.walk(&mut |vdev| {
            if is_unknown(vdev) {
                kinds.insert(vdev.kind.clone());
            }
        });
        kinds
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
