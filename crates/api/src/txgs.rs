//! What is told about the latest transaction groups.

use serde::{Deserialize, Serialize};

/// How many groups are kept (`zfs_txg_history`).
pub const GROUPS_MAX: usize = 100;

/// One finished group. Bytes and operations are those of the leaf vdevs from the start of its sync to its end, parity
/// and copies included, without labels and uberblocks; what intent logs, readers and a scrub did meanwhile is among
/// them. Operations are what the devices got, neighbours joined to one (`zpool iostat -v` counts them before that).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxgReport {
    /// Its number.
    pub txg: u64,
    /// When it was opened: seconds and nanoseconds since the epoch.
    pub opened: (u64, u32),
    /// Bytes that writers put into it, before compression.
    pub dirty_bytes: u64,
    /// Bytes written to devices.
    pub written_bytes: u64,
    /// Writes that the devices got.
    pub writes: u64,
    /// Bytes read from devices.
    pub read_bytes: u64,
    /// Reads that the devices got.
    pub reads: u64,
    /// Nanoseconds for which it was open to writers.
    pub open_ns: u64,
    /// Nanoseconds until the last writer in it had ended.
    pub quiesce_ns: u64,
    /// Nanoseconds of writing its blocks, in passes.
    pub sync_ns: u64,
    /// Nanoseconds of making it stable: flushes, labels and uberblock.
    pub flush_ns: u64,
    /// Passes until nothing was dirty any more; 0 when there was nothing to write.
    pub passes: u32,
}

impl TxgReport {
    /// Nanoseconds of what OpenZFS calls `spa_sync`: from the end of the last writer to stable storage.
    pub fn spa_sync_ns(&self) -> u64 {
        self.sync_ns.saturating_add(self.flush_ns)
    }
}

/// Finished groups, and how far the pool has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxgsReport {
    /// The last group on stable storage.
    pub synced: u64,
    /// The groups asked for, oldest first.
    pub groups: Vec<TxgReport>,
}
