//! What the volume of one life holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use super::files::{FileId, Files, Node};
use super::machine::POOL;
use crate::volume::Volume;

/// In one life of so many there is one, most of the time.
const EVERY: u32 = 3;
/// What its contents are called in the model of files.
pub(super) const CONTENTS: &str = "volume";

/// What is there of volumes in one life.
#[derive(Default)]
pub(super) struct Volumes {
    /// Chance of their own, in a life in which there are any.
    pub(super) random: Option<ChaCha20Rng>,
    /// The one that there is.
    pub(super) held: Option<Held>,
}

/// A volume: what it must hold, and itself.
pub(super) struct Held {
    pub(super) files: Files,
    pub(super) id: FileId,
    /// What it may hold as well after a crash, as a whole.
    pub(super) perhaps: Option<Files>,
    /// What its snapshots hold, by full name, the oldest first.
    pub(super) snapshots: BTreeMap<String, Files>,
    pub(super) open: Option<Volume>,
}

impl Held {
    /// A new one of `size` bytes.
    pub(super) fn new(size: usize) -> Self {
        let mut files = Files::default();
        let id = files.new_file();
        files.change_names(|names| drop(names.insert(CONTENTS.to_owned(), Node::File(id))));
        files.change_file(id, |contents| Arc::make_mut(&mut contents.bytes).resize(size, 0));
        files.synced();
        Self { files, id, perhaps: None, snapshots: BTreeMap::new(), open: None }
    }

    /// Its bytes.
    pub(super) fn size(&self) -> usize {
        self.files.file(self.id).bytes.len()
    }
}

impl Volumes {
    /// Of the life of `seed`, in which there are some or not.
    pub(super) fn of(seed: u64, is_wanted: bool) -> Self {
        let mut random = ChaCha20Rng::seed_from_u64(seed.rotate_left(48));
        let random = (is_wanted && random.next_u32().is_multiple_of(EVERY)).then_some(random);
        Self { random, held: None }
    }

    /// Whoever had it open is gone.
    pub(super) fn forget(&mut self) {
        if let Some(held) = &mut self.held {
            held.open = None;
        }
    }
}

/// The volume's full name.
pub(super) fn name() -> String {
    format!("{POOL}/volume")
}
