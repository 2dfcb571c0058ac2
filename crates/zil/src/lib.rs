//! The intent log: what was asked to be stable before its transaction group is (`module/zfs/zil.c`).
//!
//! # How it works
//! Every change is noted in memory as a record of its group. Nothing is written for it unless somebody asks for
//! stability (`fsync`); when the group is on disk its notes are dropped. A [`Zil::commit`] writes the notes of all
//! groups not yet on disk to a chain of log blocks, flushes the devices they are on, and returns. After a crash the
//! chain is found from the object set's head and replayed on top of the last complete group.
//!
//! **Namespace changes are written in order, data when it is asked for.** Creating, removing, renaming and linking go
//! to one list per group, all of which a commit writes. Changes of one object (writes, truncation, attributes) wait
//! in a list of their own; a commit of that object appends it. So a file's data always comes after whatever made the
//! file and its directories. Data of a write is read when it is written out; it may be newer than the record, never
//! older.
//!
//! **What has no record makes commits wait for the group.** A change that is not logged is noted as such
//! ([`Zil::note_unlogged`]), and from then on a commit first waits until its group is on disk. So a change without a
//! record costs time and never data; it is what a transaction is taken for unless its maker says otherwise.
//!
//! **Concurrent commits share a write.** One commit writes at a time. Those that come meanwhile wait, and the next
//! one writes for all of them: blocks beside each other, then one flush.
//!
//! # Invariants
//! - The chain's first block is in the head on disk before a commit relies on it: the first commit waits for a group.
//! - A block is written only after the one that leads to it was allocated with its place for the next pointer: the
//!   last block of the chain is always allocated and empty.
//! - The group in which blocks are allocated is held open until the blocks that lead to them are stable. So whatever
//!   a group on disk has allocated for the log can be reached from the log's head on disk.
//! - A block is freed, and the head moved past it, in the first group that contains all of its records and its
//!   allocation. Births never decrease along the chain.
//! - Log blocks are booked on no data set.
//! - Whoever cannot write or flush a block never says so with success: the chain is given up, the commit waits for
//!   the group, and when that fails too the pool is suspended and the commit fails.
//! - A claimed chain (left by a crash) is never written to; it is replayed, destroyed, and a new one begun.
//!
//! # Large commits
//! Data that goes to the log is written twice. Beyond [`COMMIT_MAX`] bytes a commit waits for the group instead,
//! which writes everything once, beside each other, and needs two flushes.
#![forbid(unsafe_code)]

mod chain;
mod claim;
mod itx;
mod log;
mod plan;
mod replay;

pub use chain::{Chain, ChainEnd};
pub use claim::{Claim, blocks_to_free, complete_waiting, survey};
pub use itx::Note;
pub use log::{DataSource, Dialect, SyncMode, Zil};
pub use replay::Replay;

/// Bytes of records beyond which a commit waits for the group.
pub const COMMIT_MAX: u64 = 8 << 20;
