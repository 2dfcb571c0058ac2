//! Which blocks lie where on the cache devices, in memory.
//!
//! Invariants:
//! - a block is here only after it was written as a whole, and no more once its place was given up;
//! - a block is at one place at most;
//! - there are no more entries than [`Index::set_most`] allows: the oldest go first.

use std::collections::{BTreeMap, HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

use crate::cache::Key;

/// What a block takes here at most, in bytes, about: its entry in the map (40 bytes, of which a quarter to a half are
/// free places) and in the order in which they were written (32 bytes, likewise).
pub const BLOCK_COST: u64 = 128;

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// On which device.
    pub(crate) device: u32,
    /// Where it begins there, bytes from the device's start.
    pub(crate) offset: u64,
    /// How long it is as it is stored, bytes.
    pub(crate) psize: u32,
}

/// The index of all cache devices of a pool.
pub(crate) struct Index {
    places: HashMap<Key, Place, FxBuildHasher>,
    /// By device, what was written when and where, the oldest first. What was freed since is here still.
    written: BTreeMap<u32, VecDeque<(u64, Key)>>,
    most: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { places: HashMap::default(), written: BTreeMap::new(), most: usize::MAX }
    }
}

impl Index {
    /// Lets it have as many entries at most as take `bytes`; what is too much goes with the next that come.
    pub(crate) fn set_most(&mut self, bytes: u64) {
        self.most = (bytes / BLOCK_COST).max(1) as usize;
    }

    /// Bytes that it takes, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries() as u64 * BLOCK_COST
    }

    /// Entries, those of blocks that were freed included.
    fn entries(&self) -> usize {
        self.written.values().map(VecDeque::len).sum()
    }

    /// Whether there is no room for another one without one going.
    pub(crate) fn is_full(&self) -> bool {
        self.entries() >= self.most
    }

    /// Blocks that can be found.
    pub(crate) fn blocks(&self) -> usize {
        self.places.len()
    }

    /// Where a block of `psize` stored bytes lies.
    pub(crate) fn get(&self, key: &Key, psize: u64) -> Option<Place> {
        self.places.get(key).copied().filter(|place| u64::from(place.psize) == psize)
    }

    /// Whether a block is here.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.places.contains_key(key)
    }

    /// Notes a block that was just written.
    pub(crate) fn add_newest(&mut self, key: Key, place: Place) {
        while self.entries() >= self.most && self.forget_oldest(place.device) {}
        self.written.entry(place.device).or_default().push_back((place.offset, key));
        self.places.insert(key, place);
        assert!(self.entries() <= self.most.max(1), "the oldest have gone");
    }

    /// Notes a block that was written before all that are known of its device. Not where another place of it is known:
    /// what is known is newer.
    pub(crate) fn add_oldest(&mut self, key: Key, place: Place) {
        if !self.is_full() && !self.contains(&key) {
            self.written.entry(place.device).or_default().push_front((place.offset, key));
            self.places.insert(key, place);
        }
    }

    /// Has the oldest entry go: of this device, else of the one that has most. Whether there was one.
    fn forget_oldest(&mut self, device: u32) -> bool {
        let own = self.written.get(&device).is_some_and(|written| !written.is_empty());
        let most = self.written.iter().max_by_key(|(_, written)| written.len()).map(|(device, _)| *device);
        let Some(device) = (if own { Some(device) } else { most }) else { return false };
        let Some((offset, key)) = self.written.get_mut(&device).and_then(VecDeque::pop_front) else { return false };
        self.remove_at(&key, device, offset);
        true
    }

    fn remove_at(&mut self, key: &Key, device: u32, offset: u64) {
        if self.places.get(key).is_some_and(|place| (place.device, place.offset) == (device, offset)) {
            self.places.remove(key);
        }
    }

    /// Forgets a block, which was freed.
    pub(crate) fn remove(&mut self, key: &Key) {
        self.places.remove(key);
    }

    /// Forgets that a block lies at `place`; whether it was still said to.
    pub(crate) fn remove_from(&mut self, key: &Key, place: Place) -> bool {
        let is_there = self.places.get(key) == Some(&place);
        if is_there {
            self.places.remove(key);
        }
        is_there
    }

    /// Forgets what lies from `from` to before `to` on a device: its oldest, as the device is a ring.
    pub(crate) fn give_up(&mut self, device: u32, from: u64, to: u64) {
        while let Some(&(offset, key)) = self.written.get(&device).and_then(VecDeque::front) {
            if !(from..to).contains(&offset) {
                break;
            }
            self.written.get_mut(&device).and_then(VecDeque::pop_front);
            self.remove_at(&key, device, offset);
        }
    }

    /// Forgets all of a device.
    pub(crate) fn forget_device(&mut self, device: u32) {
        if self.written.remove(&device).is_some() {
            self.places.retain(|_, place| place.device != device);
            self.places.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> Key {
        Key { vdev: 0, offset, birth: 5 }
    }

    fn place(offset: u64) -> Place {
        Place { device: 1, offset, psize: 512 }
    }

    #[test]
    fn what_is_given_up_is_not_found() {
        let mut index = Index::default();
        (0..10).for_each(|n| index.add_newest(key(n), place(n * 512)));
        index.give_up(1, 0, 1024);
        assert_eq!((index.get(&key(1), 512), index.get(&key(2), 512)), (None, Some(place(1024))));
        assert_eq!(index.get(&key(2), 1024), None, "it is another block");
        // One that was written anew keeps its new place when the old one is given up.
        index.add_newest(key(2), place(0));
        index.give_up(1, 1024, 2048);
        assert_eq!((index.get(&key(2), 512), index.get(&key(3), 512)), (Some(place(0)), None));
        index.add_oldest(key(2), place(9000));
        assert_eq!(index.get(&key(2), 512), Some(place(0)), "the newest place counts");
        assert!(!index.remove_from(&key(2), place(9000)) && index.remove_from(&key(2), place(0)));
        index.forget_device(1);
        assert_eq!((index.blocks(), index.bytes()), (0, 0));
    }

    #[test]
    fn it_takes_no_more_memory_than_it_may() {
        let mut index = Index::default();
        index.set_most(100 * BLOCK_COST);
        (0..1000).for_each(|n| index.add_newest(key(n), place(n * 512)));
        assert_eq!((index.blocks(), index.bytes()), (100, 100 * BLOCK_COST));
        assert!(index.is_full() && index.contains(&key(999)) && !index.contains(&key(899)));
        index.add_oldest(key(1), place(512));
        assert!(!index.contains(&key(1)));
        index.set_most(10 * BLOCK_COST);
        index.add_newest(key(1000), place(0));
        assert_eq!(index.blocks(), 10);
        assert!(std::mem::size_of::<(Key, Place)>() <= 40 && std::mem::size_of::<(u64, Key)>() <= 32);
    }
}
