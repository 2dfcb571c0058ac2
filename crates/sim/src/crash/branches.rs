//! Snapshots and clones of the model: copies, and whose they are.
//!
//! Invariant: a clone's origin is there, and is somebody's.

use std::collections::BTreeMap;

/// A data set's snapshot: whose, and its own name.
pub type Origin = (&'static str, &'static str);

/// What was kept of data sets, as copies of `T`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branches<T> {
    /// By data set, the oldest first.
    snapshots: BTreeMap<&'static str, Vec<(&'static str, T)>>,
    /// What clones hold.
    clones: BTreeMap<&'static str, T>,
    /// What they are made of; a data set may become one, and a clone none.
    origins: BTreeMap<&'static str, Origin>,
}

impl<T> Default for Branches<T> {
    fn default() -> Self {
        Self { snapshots: BTreeMap::new(), clones: BTreeMap::new(), origins: BTreeMap::new() }
    }
}

impl<T: Clone> Branches<T> {
    /// Whose snapshot `name` is.
    pub fn owner(&self, name: &str) -> Option<&'static str> {
        let has = |(owner, all): (&&'static str, &Vec<(&'static str, T)>)| {
            all.iter().any(|(other, _)| *other == name).then_some(*owner)
        };
        self.snapshots.iter().find_map(has)
    }

    /// Whether something is a clone of snapshot `name`.
    pub fn is_cloned(&self, name: &str) -> bool {
        self.origins.values().any(|(_, origin)| *origin == name)
    }

    /// What a data set is a clone of.
    pub fn origin(&self, dataset: &str) -> Option<Origin> {
        self.origins.get(dataset).copied()
    }

    /// Whether a data set has snapshots.
    pub fn has_snapshots(&self, dataset: &str) -> bool {
        self.snapshots.get(dataset).is_some_and(|all| !all.is_empty())
    }

    /// A data set's latest snapshot.
    pub fn latest(&self, dataset: &str) -> Option<&(&'static str, T)> {
        self.snapshots.get(dataset).and_then(|all| all.last())
    }

    /// What a clone holds.
    pub fn clone_mut(&mut self, name: &str) -> Option<&mut T> {
        self.clones.get_mut(name)
    }

    /// Takes a snapshot of a data set that holds this.
    pub fn take(&mut self, dataset: &'static str, name: &'static str, held: T) {
        self.snapshots.entry(dataset).or_default().push((name, held));
    }

    /// Destroys a snapshot.
    pub fn destroy_snapshot(&mut self, name: &str) {
        self.snapshots.values_mut().for_each(|all| all.retain(|(other, _)| *other != name));
    }

    /// Makes a clone.
    pub fn make_clone(&mut self, clone: &'static str, name: &'static str) {
        let Some(owner) = self.owner(name) else { return };
        let held = self.snapshots[owner].iter().find(|(other, _)| *other == name).map(|(_, held)| held.clone());
        self.clones.extend(held.map(|held| (clone, held)));
        self.origins.insert(clone, (owner, name));
    }

    /// Destroys a clone.
    pub fn destroy_clone(&mut self, clone: &str) {
        self.clones.remove(clone);
        self.origins.remove(clone);
        self.snapshots.remove(clone);
    }

    /// Lets a clone and what it was made of change places.
    pub fn promote(&mut self, clone: &'static str) {
        let Some((old, name)) = self.origins.remove(clone) else { return };
        let all = self.snapshots.entry(old).or_default();
        let end = all.iter().position(|(other, _)| *other == name).map_or(0, |at| at + 1);
        let moved: Vec<(&'static str, T)> = all.drain(..end).collect();
        self.snapshots.entry(clone).or_default().splice(0..0, moved);
        if let Some(above) = self.origins.insert(old, (clone, name)) {
            self.origins.insert(clone, above);
        }
        let owners: Vec<(&'static str, Origin)> =
            self.origins.iter().map(|(&clone, &origin)| (clone, origin)).collect();
        for (other, (_, name)) in owners {
            let owner = self.owner(name);
            assert!(owner.is_some(), "the origin of {other} is nobody's");
            self.origins.extend(owner.map(|owner| (other, (owner, name))));
        }
    }

    /// Everything that is held besides the data sets themselves, by full name: snapshots, and clones.
    pub fn all(&self) -> impl Iterator<Item = (String, &T)> {
        let snapshots = self
            .snapshots
            .iter()
            .flat_map(|(dataset, all)| all.iter().map(move |(name, held)| (format!("{dataset}@{name}"), held)));
        snapshots.chain(self.clones.iter().map(|(name, held)| ((*name).to_owned(), held)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_moves_what_lies_up_to_the_origin() {
        let mut all = Branches::default();
        for (name, held) in [("a", 1), ("b", 2), ("c", 3)] {
            all.take("fs", name, held);
        }
        all.make_clone("clone", "b");
        all.make_clone("other", "a");
        all.take("clone", "own", 4);
        all.promote("clone");
        let names: Vec<String> = all.all().map(|(name, _)| name).collect();
        assert_eq!(names, ["clone@a", "clone@b", "clone@own", "fs@c", "clone", "other"]);
        assert_eq!((all.origin("fs"), all.origin("clone")), (Some(("clone", "b")), None));
        assert_eq!(all.origin("other"), Some(("clone", "a")));
        all.promote("fs");
        let names: Vec<String> = all.all().map(|(name, _)| name).collect();
        assert_eq!(names, ["clone@own", "fs@a", "fs@b", "fs@c", "clone", "other"]);
        assert_eq!((all.origin("clone"), all.origin("fs")), (Some(("fs", "b")), None));
    }
}
