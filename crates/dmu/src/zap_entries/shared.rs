//! What all who have one ZAP open share.

use crate::zap_entries::index::Index;

/// What all [`Zap`](crate::zap::Zap)s of one open object share; kept in its `Dnode`.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Held while an operation runs.
    pub(crate) lock: tokio::sync::RwLock<()>,
    /// A micro ZAP's index, made at first need.
    pub(crate) index: parking_lot::RwLock<Option<Index>>,
}
