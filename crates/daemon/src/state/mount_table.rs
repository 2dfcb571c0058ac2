//! What is mounted, by data set and by place.
//!
//! Invariants:
//! - each mount is in both orders, or in neither;
//! - a question about one place looks at that place and those above it only, however many mounts there are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::mounter::Mounted;

/// A mounted file system.
#[derive(Clone)]
pub(super) struct ActiveMount {
    /// Where.
    pub at: PathBuf,
    /// What the kernel shows as its device: the data set's name when it was mounted.
    pub source: String,
    /// Whether the data set's own property chose the place: then the folder is the administrator's, and is not removed
    /// (`remove_mountpoint`, `lib/libzfs/libzfs_mount.c`).
    pub is_chosen: bool,
    /// Options of this mount only.
    pub options: Vec<String>,
    /// Grows with every mount: the last one is unmounted first, as it may cover or lie inside earlier ones.
    pub sequence: u64,
    /// The mount itself.
    pub mounted: Arc<tokio::sync::Mutex<Box<dyn Mounted>>>,
}

/// All mounts of a daemon.
#[derive(Default)]
pub(super) struct MountTable {
    by_name: BTreeMap<String, ActiveMount>,
    /// Those of each place, by age.
    by_place: BTreeMap<PathBuf, BTreeSet<(u64, String)>>,
}

impl MountTable {
    /// The mount of a data set.
    pub fn get(&self, dataset: &str) -> Option<&ActiveMount> {
        self.by_name.get(dataset)
    }

    /// All, by data set.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &ActiveMount)> {
        self.by_name.iter()
    }

    /// The data sets.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.by_name.keys()
    }

    /// The mounts, by data set.
    pub fn mounts(&self) -> impl Iterator<Item = &ActiveMount> {
        self.by_name.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Adds a mount, which takes the place of another one of the same data set.
    pub fn insert(&mut self, dataset: String, mount: ActiveMount) {
        self.remove(&dataset);
        let of_place = self.by_place.entry(mount.at.clone()).or_default();
        of_place.insert((mount.sequence, dataset.clone()));
        self.by_name.insert(dataset, mount);
    }

    /// Takes a mount out.
    pub fn remove(&mut self, dataset: &str) -> Option<ActiveMount> {
        let mount = self.by_name.remove(dataset)?;
        if let Some(of_place) = self.by_place.get_mut(&mount.at) {
            let was_there = of_place.remove(&(mount.sequence, dataset.to_owned()));
            debug_assert!(was_there, "each mount is in both orders");
            if of_place.is_empty() {
                self.by_place.remove(&mount.at);
            }
        }
        Some(mount)
    }

    /// Takes out those of which `keep` says no.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.names().filter(|name| !keep(name)).cloned().collect();
        gone.iter().for_each(|name| drop(self.remove(name)));
    }

    /// The latest mount at a place: what is seen there, unless something above hides it.
    pub fn latest_at(&self, place: &Path) -> Option<&ActiveMount> {
        self.newest(place).and_then(|(_, name)| self.by_name.get(name))
    }

    fn newest(&self, place: &Path) -> Option<&(u64, String)> {
        self.by_place.get(place).and_then(BTreeSet::last)
    }

    /// The data set whose later mount at this place or above it hides this one: no path leads to it any more.
    pub fn covering(&self, mount: &ActiveMount) -> Option<&str> {
        let newer = |place: &Path| self.newest(place).filter(|(sequence, _)| *sequence > mount.sequence);
        mount.at.ancestors().find_map(newer).map(|(_, name)| name.as_str())
    }
}
