//! What a cache device has from before its pool was opened (`l2arc_rebuild`, `module/zfs/arc.c`): its log, read from
//! the newest block to the oldest.
//!
//! Invariants:
//! - it ends: each log block leads to one that is older, and there are no more of them than fit into the ring;
//! - no more is taken into memory than the index may have;
//! - the device is written to only afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLock;
use platter_checksum::{fletcher_4, fletcher_4_swapped, sha256};
use platter_ondisk::Compression;
use platter_ondisk::blkptr::BLOCK_SIZE_MAX;
use platter_ondisk::l2arc::{
    DeviceHeader, HEADER_OFFSET, LOG_BLOCK_SIZE, LogBlock, LogEntry, LogPointer, header_size, lies_between,
};
use platter_vdev::Priority;

use super::device::CacheDevice;
use super::index::{Index, Place};
use super::ring::Written;
use crate::cache::Key;

/// What is said of a device once its log was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Log blocks.
    pub logs: u64,
    /// Blocks that can be found by them, those included that memory has as well.
    pub blocks: u64,
}

impl CacheDevice {
    /// Reads the device's log, and begins anew on a device that has none that fits; on one that may be written it has a
    /// header afterwards.
    pub(super) async fn rebuild(self: &Arc<Self>, index: &RwLock<Index>) -> Rebuilt {
        assert!(!self.is_ready(), "a log is read before anything is written");
        let mut held = self.written.lock().await;
        let fresh = self.nothing();
        let found = match self.header().await {
            Some(header) => fresh.continued(&header),
            None => None,
        };
        let mut rebuilt = Rebuilt::default();
        let written = match found {
            None => None,
            Some(mut written) => {
                rebuilt = self.walk(index, &mut written).await;
                Some(written).filter(|written| !written.is_without_logs())
            }
        };
        let has_log = written.is_some();
        let written = written.unwrap_or(fresh);
        if !has_log && self.leaf.is_writable() {
            self.write_header(&written).await;
        }
        self.show(&written);
        *held = Some(written);
        self.is_ready.store(true, Ordering::Release);
        rebuilt
    }

    /// The header, if it is this device's, of this pool.
    async fn header(&self) -> Option<DeviceHeader> {
        let size = header_size(self.ashift) as usize;
        let bytes = self.noted(self.leaf.read_cached(HEADER_OFFSET, size, Priority::AsyncRead).await)?;
        let header = DeviceHeader::decode(&bytes, self.ashift, sha256).ok()?;
        (header.pool == self.pool() && header.vdev == self.leaf.guid()).then_some(header)
    }

    async fn walk(&self, index: &RwLock<Index>, written: &mut Written) -> Rebuilt {
        let (mut rebuilt, mut seen) = (Rebuilt::default(), BTreeSet::new());
        let [mut this, mut next] = written.last();
        let ring = *written.ring();
        while this.is_valid(&ring) && seen.insert(this.offset) && !self.has_left() {
            let Some(block) = self.log_block(this, written.log_entries()).await else { break };
            written.add_oldest_log(this);
            rebuilt.logs += 1;
            for entry in block.entries.iter().rev().filter(|entry| is_covered(entry, &this, ring.end)) {
                let key = Key { vdev: entry.dva.vdev, offset: entry.dva.offset, birth: entry.birth.0 };
                let psize = u32::try_from(entry.psize).expect("its size was checked");
                index.write().add_oldest(key, Place { device: self.number, offset: entry.offset, psize });
                rebuilt.blocks += 1;
            }
            if index.read().is_full() {
                break;
            }
            // What is older was written over by what was read first.
            if !ring.is_first && lies_between(next.payload_start, this.payload_start, ring.evict) {
                break;
            }
            (this, next) = (next, block.previous);
        }
        rebuilt
    }

    /// A log block, if it is what the pointer says.
    async fn log_block(&self, pointer: LogPointer, entries: u64) -> Option<LogBlock> {
        let size = pointer.stored_size() as usize;
        let stored = self.noted(self.leaf.read_cached(pointer.offset, size, Priority::AsyncRead).await)?;
        if fletcher_4(&stored) != pointer.checksum && fletcher_4_swapped(&stored) != pointer.checksum {
            return None;
        }
        let mut whole = vec![0; LOG_BLOCK_SIZE];
        match pointer.compression() {
            kind @ (Compression::OFF | Compression::LZ4) => {
                platter_compress::decompress(kind, &stored, &mut whole).ok()?;
            }
            _ => return None,
        }
        LogBlock::decode(&whole, entries).ok()
    }
}

/// Whether an entry is of a block that lies where its log block's pointer says, in the ring that ends at `end`.
fn is_covered(entry: &LogEntry, log: &LogPointer, end: u64) -> bool {
    let last = entry.offset.checked_add(entry.psize).map(|behind| behind - 1);
    entry.psize <= BLOCK_SIZE_MAX
        && !entry.dva.is_empty()
        && last.is_some_and(|last| {
            last < end
                && lies_between(log.payload_start, log.offset, entry.offset)
                && lies_between(log.payload_start, log.offset, last)
        })
}
