//! The snapshots of a mounted file system, which its mount shows in `.zfs/snapshot`: each is a file system of its own
//! behind the same connection, and the upper bits of the kernel's node numbers say which one is meant (see `nodes`).
//!
//! Invariants:
//! - a place on the shelf is given to another snapshot only when the kernel has forgotten all nodes of the one before;
//! - what was taken off the shelf is not served any more, also to whoever has its files open.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_vfs::{Timestamp, Vfs};

/// An answer that has to be waited for.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What somebody does in the directory of snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotChange {
    /// Takes a snapshot of this name.
    Take(String),
    /// Destroys the one of this name.
    Destroy(String),
    /// Gives the first another name.
    Rename(String, String),
}

/// Why that is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeRefused {
    /// Nobody does that here.
    Forbidden,
    /// There is one of that name.
    Exists,
    /// There is none.
    Missing,
    /// It has clones, or holds, or something else goes on in the pool.
    Busy,
    /// No snapshot can be called so.
    Invalid,
    /// Anything else.
    Failed,
}

/// Where a mount gets the snapshots of its file system from.
pub trait Snapshots: Send + Sync + 'static {
    /// Their names, each with a number that is its own.
    fn list(&self) -> Answer<'_, Vec<(String, u64)>>;

    /// The number of the one called `name`.
    fn find<'a>(&'a self, name: &'a str) -> Answer<'a, Option<u64>>;

    /// When snapshots were last made or destroyed.
    fn changed(&self) -> Answer<'_, Option<Timestamp>>;

    /// Opens the one called `name`.
    fn open<'a>(&'a self, name: &'a str) -> Answer<'a, Option<Arc<Vfs>>>;

    /// Takes, destroys or renames one, where the directory may be used for that.
    fn change(&self, change: SnapshotChange) -> Answer<'_, Result<(), ChangeRefused>>;
}

/// Most snapshots that are open in one mount.
const PLACES: u64 = 0xFFFF;

/// One that is open.
struct Kept<T> {
    /// Its number; none when it was taken off the shelf, and the kernel still knows of it.
    number: Option<u64>,
    served: Arc<T>,
}

/// The open snapshots of a mount, by their place (from 1).
pub(crate) struct Shelf<T> {
    kept: Mutex<BTreeMap<u64, Kept<T>>>,
}

impl<T> std::fmt::Debug for Shelf<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shelf").field("open", &self.kept.lock().len()).finish()
    }
}

impl<T> Shelf<T> {
    pub fn new() -> Self {
        Self { kept: Mutex::default() }
    }

    /// What is served at `place`.
    pub fn get(&self, place: u64) -> Option<Arc<T>> {
        self.kept.lock().get(&place).filter(|kept| kept.number.is_some()).map(|kept| kept.served.clone())
    }

    /// What the kernel may still know of at `place`.
    pub fn known(&self, place: u64) -> Option<Arc<T>> {
        self.kept.lock().get(&place).map(|kept| kept.served.clone())
    }

    /// The snapshot of this number, if it is open; `told` is done before it can go.
    pub fn find(&self, number: u64, told: impl FnOnce(&T)) -> Option<Arc<T>> {
        let kept = self.kept.lock();
        let found = kept.values().find(|kept| kept.number == Some(number))?;
        told(&found.served);
        Some(found.served.clone())
    }

    /// Puts a snapshot on the shelf, unless somebody has just done so; `None` when there is no place.
    pub fn add(&self, number: u64, make: impl FnOnce(u64) -> T, told: impl FnOnce(&T)) -> Option<Arc<T>> {
        let mut kept = self.kept.lock();
        if let Some(found) = kept.values().find(|kept| kept.number == Some(number)) {
            told(&found.served);
            return Some(found.served.clone());
        }
        let place = (1..=PLACES).find(|place| !kept.contains_key(place))?;
        let served = Arc::new(make(place));
        told(&served);
        let before = kept.insert(place, Kept { number: Some(number), served: served.clone() });
        assert!(before.is_none(), "the kernel knows nodes of another snapshot by this place");
        Some(served)
    }

    /// Gives up `place` when nobody knows it any more.
    pub fn give_up(&self, place: u64, is_unknown: impl FnOnce(&T) -> bool) {
        let mut kept = self.kept.lock();
        if kept.get(&place).is_some_and(|kept| is_unknown(&kept.served)) {
            kept.remove(&place);
        }
    }

    /// Takes those of these numbers off the shelf, or all.
    pub fn take_off(&self, numbers: Option<&[u64]>) -> Vec<Arc<T>> {
        let mut kept = self.kept.lock();
        let meant = |number: Option<u64>| number.is_some_and(|own| numbers.is_none_or(|all| all.contains(&own)));
        let taken = kept.values_mut().filter(|kept| meant(kept.number));
        taken
            .map(|kept| {
                kept.number = None;
                kept.served.clone()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_stays_taken_until_the_kernel_has_forgotten_it() {
        let shelf: Shelf<u64> = Shelf::new();
        let add = |number| shelf.add(number, |place| place * 100 + number, |_| ()).map(|served| *served);
        assert_eq!((add(7), add(8), add(7)), (Some(107), Some(208), Some(107)));
        assert_eq!(shelf.take_off(Some(&[7, 9])).len(), 1);
        assert!(shelf.get(1).is_none() && shelf.known(1).is_some() && shelf.get(2).is_some());
        assert_eq!(add(7), Some(307), "under its old place it may still be known");
        shelf.give_up(1, |_| false);
        assert!(shelf.known(1).is_some());
        shelf.give_up(1, |_| true);
        assert_eq!(add(9), Some(109));
        assert_eq!(shelf.take_off(None).len(), 3);
        assert!(shelf.find(9, |_| ()).is_none());
    }
}
