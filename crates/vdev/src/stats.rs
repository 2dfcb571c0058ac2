//! Counters of a vdev: what passed through it and what went wrong.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters themselves; relaxed, since each is read for its own sake.
#[derive(Debug, Default)]
pub struct Stats {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
    scan_checksum_errors: AtomicU64,
    self_healed_bytes: AtomicU64,
    scrub_repaired_bytes: AtomicU64,
    trims: AtomicU64,
    bytes_trimmed: AtomicU64,
    trim_errors: AtomicU64,
    initialize_errors: AtomicU64,
}

/// The counters at one moment (`vdev_stat_t`). Errors are since the last clear, the rest since the vdev was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Bytes that were not what had been written: proven wrong by checksum and redundancy, one count for each column or
    /// copy.
    pub checksum_errors: u64,
    /// Those of them that a scrub or resilver found.
    pub scan_checksum_errors: u64,
    /// Bytes rewritten because a read found them wrong.
    pub self_healed_bytes: u64,
    /// Bytes rewritten by scrub.
    pub scrub_repaired_bytes: u64,
    /// Trims.
    pub trims: u64,
    /// Bytes given up.
    pub bytes_trimmed: u64,
    /// Trims that failed.
    pub trim_errors: u64,
    /// Writes over free space that failed.
    pub initialize_errors: u64,
}

fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

impl Stats {
    pub(crate) fn note_read(&self, bytes: u64) {
        add(&self.reads, 1);
        add(&self.bytes_read, bytes);
    }

    pub(crate) fn note_write(&self, bytes: u64) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes);
    }

    pub(crate) fn note_flush(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn note_read_error(&self) {
        add(&self.read_errors, 1);
    }

    pub(crate) fn note_write_error(&self) {
        add(&self.write_errors, 1);
    }

    pub(crate) fn note_checksum_error(&self, by_scan: bool) {
        add(&self.checksum_errors, 1);
        add(&self.scan_checksum_errors, by_scan.into());
    }

    pub(crate) fn note_repair(&self, bytes: u64, by_scrub: bool) {
        add(if by_scrub { &self.scrub_repaired_bytes } else { &self.self_healed_bytes }, bytes);
    }

    pub(crate) fn note_trim(&self, bytes: u64) {
        add(&self.trims, 1);
        add(&self.bytes_trimmed, bytes);
    }

    pub(crate) fn note_trim_error(&self) {
        add(&self.trim_errors, 1);
    }

    pub(crate) fn note_initialize_error(&self) {
        add(&self.initialize_errors, 1);
    }

    /// The counters now.
    pub fn snapshot(&self) -> StatsSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatsSnapshot {
            reads: get(&self.reads),
            writes: get(&self.writes),
            flushes: get(&self.flushes),
            bytes_read: get(&self.bytes_read),
            bytes_written: get(&self.bytes_written),
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            checksum_errors: get(&self.checksum_errors),
            scan_checksum_errors: get(&self.scan_checksum_errors),
            self_healed_bytes: get(&self.self_healed_bytes),
            scrub_repaired_bytes: get(&self.scrub_repaired_bytes),
            trims: get(&self.trims),
            bytes_trimmed: get(&self.bytes_trimmed),
            trim_errors: get(&self.trim_errors),
            initialize_errors: get(&self.initialize_errors),
        }
    }

    /// A scan begins, which repaired nothing yet (`vdev_scan_stat_init`, `module/zfs/vdev.c`).
    pub fn begin_scan(&self) {
        self.scrub_repaired_bytes.store(0, Ordering::Relaxed);
    }

    /// Forgets errors (`zpool clear`).
    pub fn clear_errors(&self) {
        let checksum = [&self.checksum_errors, &self.scan_checksum_errors];
        for counter in [&self.read_errors, &self.write_errors].into_iter().chain(checksum) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}
