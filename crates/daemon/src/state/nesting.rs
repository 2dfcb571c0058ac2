//! Pools whose devices are files of another pool of this daemon, or lie on such files: the inner one has to be closed
//! first and opened last.
//!
//! Invariant: a pool is closed only when no pool lies in it any more, as far as that can be told without waiting for
//! devices that do not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::timeout;

use super::Daemon;
use super::mounts::pool_of;

/// How long one pool's devices are asked where they lie.
const ASKING: Duration = Duration::from_secs(2);

/// Pools, and for each of them those that it lies in.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nesting(BTreeMap<String, BTreeSet<String>>);

impl Nesting {
    /// Takes out those that nothing lies in which is left; all of them when they lie in each other.
    pub(super) fn take_innermost(&mut self) -> Vec<String> {
        let outer: BTreeSet<&String> =
            self.0.iter().flat_map(|(name, below)| below.iter().filter(move |other| *other != name)).collect();
        let mut names: Vec<String> = self.0.keys().filter(|name| !outer.contains(name)).cloned().collect();
        if names.is_empty() {
            names = self.0.keys().cloned().collect();
        }
        self.0.retain(|name, _| !names.contains(name));
        assert!(self.0.is_empty() || !names.is_empty(), "each time some can be closed");
        names
    }
}

impl Daemon {
    /// Which open pools lie in which.
    pub(super) async fn nesting(&self) -> Nesting {
        let mut places: BTreeMap<String, String> = BTreeMap::new();
        let mounts: Vec<_> = self.mounts.read().iter().map(|(name, active)| (name.clone(), active.clone())).collect();
        for (name, active) in mounts {
            let device = match active.mounted.try_lock() {
                Ok(mounted) => mounted.device(),
                Err(_) => None,
            };
            places.extend(device.map(|device| (device, pool_of(&name).to_owned())));
        }
        for (pool, mounted) in &*self.volumes.read() {
            let device = mounted.try_lock().ok().and_then(|mounted| mounted.device());
            places.extend(device.map(|device| (device, pool.clone())));
        }
        let pools = self.handles();
        let below = pools.into_iter().map(|(name, pool)| async move {
            (name, timeout(ASKING, pool.file_systems_below()).await.unwrap_or_default())
        });
        let below = futures::future::join_all(below).await;
        let pool_at =
            |devices: BTreeSet<String>| devices.iter().filter_map(|device| places.get(device).cloned()).collect();
        Nesting(below.into_iter().map(|(name, devices)| (name, pool_at(devices))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_go_first() {
        let nesting = |pairs: &[(&str, &[&str])]| {
            let below = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Nesting(pairs.iter().map(|(name, names)| ((*name).to_owned(), below(names))).collect())
        };
        let mut some = nesting(&[("a", &["b"]), ("b", &["c"]), ("c", &[]), ("d", &[]), ("e", &["c"])]);
        assert_eq!(some.take_innermost(), ["a", "d", "e"]);
        assert_eq!(some.take_innermost(), ["b"]);
        assert_eq!(some.take_innermost(), ["c"]);
        assert!(some.take_innermost().is_empty());
        let mut circle = nesting(&[("a", &["b"]), ("b", &["a"]), ("c", &["c"])]);
        assert_eq!(circle.take_innermost(), ["c"]);
        assert_eq!(circle.take_innermost(), ["a", "b"]);
    }
}
