//! A witness of every write and flush, for the exploration of crashes.

use platter_buffer::Buf;

/// Which disk of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub u32);

/// A write or a flush: commands of one disk are numbered in the order in which they were submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommandId {
    /// The disk.
    pub disk: DiskId,
    /// The number.
    pub number: u64,
}

/// Is told about writes and flushes as they happen. A flush covers the writes of its disk that were completed before
/// it started. A command that fails, or that a power cut overtakes, is never completed.
pub trait Recorder: Send + Sync + std::fmt::Debug {
    /// A write was submitted; `data` goes to `offset`, one buffer after the other.
    fn submitted(&self, write: CommandId, offset: u64, data: &[Buf]);
    /// The write was acknowledged.
    fn completed(&self, write: CommandId);
    /// A flush began.
    fn flush_started(&self, flush: CommandId);
    /// The flush was acknowledged.
    fn flush_finished(&self, flush: CommandId);
}
