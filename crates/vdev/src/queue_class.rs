//! What waits of one class in the queue in front of a device, and which of it travels together.
//!
//! Invariants:
//! - a batch is of one kind, in the order of offsets, and not longer than [`JOIN_MAX`];
//! - what must not be passed over often is passed over at most [`PASSED_MAX`] times.

use std::collections::BTreeMap;

use platter_buffer::Buf;
use platter_device::{DeviceError, ReadSlot, TrimKind};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Most bytes of a joined transfer (`zfs_vdev_aggregation_limit`).
pub(crate) const JOIN_MAX: u64 = 1 << 20;
/// Most bytes read for nothing between two joined reads (`zfs_vdev_read_gap_limit`).
pub(crate) const READ_GAP_MAX: u64 = 32 << 10;
/// How often others may leave before a read ahead that came earlier. These come in no strict order, and one that is
/// passed over waits until the rest has left; but a reader wants them in theirs.
pub(crate) const PASSED_MAX: u64 = 2;
/// Most pieces of a joined transfer; the kernel takes 1024 segments, and a write may have a few for each piece.
pub(crate) const PIECES_MAX: usize = 200;

/// Who waits for it.
pub(crate) type Reply = oneshot::Sender<Result<(), DeviceError>>;

/// What is transferred.
pub(crate) enum Io {
    Read(ReadSlot),
    Write(Vec<Buf>),
    /// Bytes that nobody reads: zeros, where they join two writes.
    Padding,
    Trim(TrimKind),
}

/// A transfer that waits.
pub(crate) struct Pending {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) io: Io,
    /// When it came.
    pub(crate) arrived: Instant,
    /// Batches of its class that had left when it came.
    pub(crate) left_before: u64,
    pub(crate) reply: Reply,
}

impl Pending {
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.length
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self.io, Io::Read(_))
    }

    pub(crate) fn is_padding(&self) -> bool {
        matches!(self.io, Io::Padding)
    }

    pub(crate) fn is_trim(&self) -> bool {
        matches!(self.io, Io::Trim(_))
    }
}

/// What waits of a class, and how much of it is with the device.
#[derive(Default)]
pub(crate) struct Class {
    pub(crate) active: usize,
    /// Bytes that wait.
    pub(crate) waiting: u64,
    /// By offset and order of arrival.
    pub(crate) pending: BTreeMap<(u64, u64), Pending>,
    /// Whether none may be passed over too often; then the offset of each, by order of arrival.
    pub(crate) in_turn: bool,
    pub(crate) oldest: BTreeMap<u64, u64>,
    /// Where the last batch ended.
    pub(crate) position: u64,
    /// Batches that have left.
    pub(crate) left: u64,
}

impl Class {
    pub(crate) fn add(&mut self, order: u64, pending: Pending) {
        self.waiting += pending.length;
        if self.in_turn {
            self.oldest.insert(order, pending.offset);
        }
        self.pending.insert((pending.offset, order), pending);
    }

    fn remove(&mut self, key: (u64, u64)) -> Pending {
        self.oldest.remove(&key.1);
        let pending = self.pending.remove(&key).expect("just found");
        self.waiting = self.waiting.checked_sub(pending.length).expect("what waits is counted");
        debug_assert!(self.waiting > 0 || self.pending.values().all(|pending| pending.length == 0));
        pending
    }

    /// The first one that was passed over too often, with what waits close before it.
    fn passed_over(&self) -> Option<(u64, u64)> {
        let (&order, &offset) = self.oldest.first_key_value()?;
        let mut first = (offset, order);
        let oldest = &self.pending[&first];
        if self.left - oldest.left_before < PASSED_MAX {
            return None;
        }
        for (&key, before) in self.pending.range(..first).rev() {
            let is_close = before.end() + READ_GAP_MAX >= first.0 && oldest.end() - before.offset <= JOIN_MAX;
            if !is_close || before.is_read() != oldest.is_read() {
                break;
            }
            first = key;
        }
        Some(first)
    }

    /// The next to leave. Padding before it is over: nothing before it could be joined to it.
    fn next_to_leave(&mut self) -> Option<Pending> {
        loop {
            let in_order = || self.pending.range((self.position, 0)..).next().or_else(|| self.pending.iter().next());
            let key = self.passed_over().or_else(|| in_order().map(|(&key, _)| key))?;
            let next = self.remove(key);
            if !next.is_padding() {
                return Some(next);
            }
        }
    }

    /// The next transfers that travel as one; none when none waits.
    pub(crate) fn next_batch(&mut self) -> Vec<Pending> {
        let Some(first) = self.next_to_leave() else { return Vec::new() };
        self.left += 1;
        let (begin, is_read) = (first.offset, first.is_read());
        let mut end = first.end();
        let mut batch = vec![first];
        let gap_max = if is_read { READ_GAP_MAX } else { 0 };
        while batch.len() < PIECES_MAX && !batch[0].is_trim() {
            let Some((&key, next)) = self.pending.range((end, 0)..).next() else { break };
            if next.is_read() != is_read || next.offset - end > gap_max || next.end() - begin > JOIN_MAX {
                break;
            }
            end = next.end();
            batch.push(self.remove(key));
        }
        self.position = end;
        // The first is none.
        while batch.last().is_some_and(Pending::is_padding) {
            batch.pop();
        }
        debug_assert!(batch.len() == 1 || batch[batch.len() - 1].end() - begin <= JOIN_MAX);
        debug_assert!(batch.iter().all(|pending| pending.is_read() == is_read));
        debug_assert!(batch.is_sorted_by(|one, next| one.end() <= next.offset && next.offset - one.end() <= gap_max));
        batch
    }
}
