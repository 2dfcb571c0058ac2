//! What snapshots and clones of one life hold.

use std::collections::BTreeMap;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::files::Files;

/// What is there of them in one life.
#[derive(Default)]
pub(super) struct Snapshots {
    /// What each holds, by full name.
    pub(super) taken: BTreeMap<String, Files>,
    /// The snapshot that a file system is a clone of.
    pub(super) origins: BTreeMap<String, String>,
    /// Chance of their own, in a life in which there are any.
    pub(super) random: Option<ChaCha20Rng>,
    /// How many have been made, of which there are names.
    pub(super) made: u64,
}

impl Snapshots {
    /// Of the life of `seed`, in which there are some or not.
    pub(super) fn of(seed: u64, is_wanted: bool) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed.rotate_left(16));
        let random = (is_wanted && random.next_u32().is_multiple_of(2)).then_some(random);
        Self { random, ..Self::default() }
    }

    /// The snapshots of a file system, by full name.
    pub(super) fn of_dataset(&self, name: &str) -> Vec<String> {
        let is_its = |full: &&String| full.split('@').next() == Some(name);
        self.taken.keys().filter(is_its).cloned().collect()
    }

    /// Whether a file system has snapshots, or is a clone of one.
    pub(super) fn shares(&self, name: &str) -> bool {
        self.origins.contains_key(name) || !self.of_dataset(name).is_empty()
    }

    /// Whether something is a clone of this snapshot.
    pub(super) fn is_cloned(&self, full: &str) -> bool {
        self.origins.values().any(|origin| origin == full)
    }
}
