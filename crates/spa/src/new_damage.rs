//! Damage that readers came across and that is not on disk yet, and a bell for who writes it down.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use platter_ondisk::Txg;
use platter_zio::Bookmark;

use crate::lost::LostBlocks;

/// So many blocks that were looked for are remembered.
const KNOWN_MAX: usize = 100_000;

/// Damage that is not on disk yet.
#[derive(Debug, Default)]
pub struct NewDamage {
    is_there: AtomicBool,
    /// What is to be looked for in other data sets before.
    pub found: Mutex<LostBlocks>,
    /// What was looked for already: who reads a damaged file comes across the same again and again.
    known: Mutex<HashSet<(Bookmark, Txg)>>,
    /// Rung when there is some.
    pub noted: Arc<Notify>,
}

impl NewDamage {
    /// Some more is known.
    pub fn comes(&self) {
        self.is_there.store(true, Ordering::Release);
        self.noted.notify_one();
    }

    /// Whether a block is to be looked for elsewhere: it was not since what is known last became less.
    pub fn is_first(&self, bookmark: Bookmark, birth: Txg) -> bool {
        let mut known = self.known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert((bookmark, birth))
    }

    /// Some of what was known is so no more: whoever comes across it again is to look for it anew.
    pub fn becomes_less(&self) {
        self.known.lock().clear();
    }

    /// Whether there is any.
    pub fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// What was being written is not on disk: whoever looks next is to write it.
    pub fn is_kept(&self) {
        self.is_there.store(true, Ordering::Release);
    }

    /// All that is known is being written.
    pub fn is_written(&self) {
        self.is_there.store(false, Ordering::Release);
    }
}
