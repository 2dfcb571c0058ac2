//! The course of one group: what it did and where its time went, taken while it goes through the sync loop.

use std::time::Duration;

use platter_ondisk::Txg;
use tokio::time::Instant;

use crate::core::Core;
use platter_api::txgs::TxgReport;

/// The moment at which one group is closed and the next one opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    at: Instant,
    wall: (u64, u32),
}

impl Opening {
    /// Now.
    pub fn now(core: &Core) -> Self {
        Self { at: Instant::now(), wall: core.environment.clock.now() }
    }
}

/// What all leaves together have transferred since the pool was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Transfers {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
}

impl Transfers {
    fn of(core: &Core) -> Self {
        let mut sum = Self::default();
        for leaf in core.dsl.store.state().vdevs.iter().flatten().flat_map(|vdev| vdev.leaves()) {
            let (stats, [reads, writes]) = (leaf.stats().snapshot(), leaf.histograms().transfers());
            sum.reads += reads;
            sum.read_bytes += stats.bytes_read;
            sum.writes += writes;
            sum.written_bytes += stats.bytes_written;
        }
        sum
    }
}

/// The course of the group that is being synced.
#[derive(Debug)]
pub struct Course {
    group: TxgReport,
    before: Transfers,
    /// When the present phase began.
    since: Instant,
}

impl Course {
    /// Group `txg`, open from `opened` to `closed`, has no writers any more: its sync begins.
    pub fn begin(core: &Core, txg: Txg, opened: Opening, closed: Opening) -> Self {
        let since = Instant::now();
        let group = TxgReport {
            txg: txg.0,
            opened: opened.wall,
            dirty_bytes: core.dsl.gate.dirty_of(txg),
            open_ns: nanoseconds(closed.at - opened.at),
            quiesce_ns: nanoseconds(since - closed.at),
            ..TxgReport::default()
        };
        tracing::debug!(dirty_bytes = group.dirty_bytes, quiesce_ns = group.quiesce_ns, "syncing");
        Self { group, before: Transfers::of(core), since }
    }

    /// Its blocks are written, after so many passes: now they are made stable.
    pub fn flush(&mut self, passes: u32) {
        self.group.passes = passes;
        self.group.sync_ns = self.phase();
        tracing::debug!(passes, sync_ns = self.group.sync_ns, "flushing");
    }

    /// It is on stable storage.
    pub fn end(mut self, core: &Core) -> TxgReport {
        let rest = self.phase();
        // A group without anything to write is never flushed.
        if self.group.passes == 0 {
            self.group.sync_ns = rest;
        } else {
            self.group.flush_ns = rest;
        }
        // A leaf that was detached meanwhile took its counters with it.
        let now = Transfers::of(core);
        self.group.reads = now.reads.saturating_sub(self.before.reads);
        self.group.read_bytes = now.read_bytes.saturating_sub(self.before.read_bytes);
        self.group.writes = now.writes.saturating_sub(self.before.writes);
        self.group.written_bytes = now.written_bytes.saturating_sub(self.before.written_bytes);
        let TxgReport { written_bytes, writes, flush_ns, .. } = self.group;
        tracing::debug!(written_bytes, writes, flush_ns, "synced");
        self.group
    }

    /// How long the present phase took, in nanoseconds; the next one begins.
    fn phase(&mut self) -> u64 {
        let now = Instant::now();
        let took = nanoseconds(now - self.since);
        self.since = now;
        took
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
