//! The log space maps that exist.

use std::collections::BTreeMap;

use platter_ondisk::{ObjectId, Txg};

/// The logs that exist.
#[derive(Debug, Default)]
pub struct Logs {
    /// Log objects by group.
    pub by_txg: BTreeMap<Txg, ObjectId>,
    /// The syncing group's log: its group and length in bytes.
    pub current: Option<(Txg, u64)>,
}

impl Logs {
    /// The logs that a pool had when it was opened.
    pub fn found(logs: Vec<(Txg, ObjectId)>) -> Self {
        Self { by_txg: logs.into_iter().collect(), current: None }
    }
}
