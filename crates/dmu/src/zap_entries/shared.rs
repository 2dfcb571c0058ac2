//! What all who have one ZAP open share.

use crate::zap_entries::index::Index;

/// What all [`Zap`](crate::zap::Zap)s of one open object share; kept in its `Dnode`.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Held while an operation runs.
    pub(crate) lock: tokio::sync::RwLock<()>,
    /// A micro ZAP's index, made at first need.
    pub(crate) index: parking_lot::RwLock<Option<Index>>,
    /// All that a ZAP of numbers has, by number, where somebody keeps it in memory; it changes with what it is of.
    pub(crate) numbers: parking_lot::Mutex<Option<Vec<(u64, u64)>>>,
}

impl Shared {
    /// Forgets what memory knows of the ZAP: it is another one now.
    pub(crate) fn forget(&self) {
        *self.index.write() = None;
        *self.numbers.lock() = None;
    }
}
