//! What goes wrong with a leaf, as it is told to whoever listens.

use std::time::Duration;

use crate::state::Condition;

/// What goes wrong with a leaf.
#[derive(Clone, Debug)]
pub enum LeafTrouble {
    /// A transfer or a flush failed.
    Io {
        /// What the device said.
        reason: String,
    },
    /// After that not even the labels could be accessed.
    Probe {
        /// What had failed before.
        reason: String,
    },
    /// Bytes were not what had been written.
    Checksum {
        /// Offset in the allocatable space of the top-level vdev.
        offset: u64,
        /// Bytes of the block.
        size: u64,
    },
    /// It is so much slower than its siblings that it is not read for a while.
    SitsOut {
        /// For how long.
        time: Duration,
    },
    /// Its condition changed.
    State(Condition),
}
