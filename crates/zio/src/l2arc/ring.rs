//! How far the writing on one cache device has come, and its log.
//!
//! Invariants:
//! - nothing is placed where something lies that was not given up before;
//! - the log blocks that are listed are those that whoever reads the device finds (`l2arc_log_blkptr_valid`,
//!   `module/zfs/arc.c`): the header never claims more;
//! - what a round of writes placed is taken back as a whole when it fails.

use std::collections::VecDeque;

use platter_checksum::fletcher_4;
use platter_ondisk::l2arc::{DeviceHeader, LOG_BLOCK_SIZE, LogBlock, LogEntry, LogPointer, Ring, header_size};
use platter_ondisk::l2arc::{HEADER_OFFSET, log_entries};
use platter_ondisk::{Compression, Guid};

/// The state of one device.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    ashift: u32,
    ring: Ring,
    /// Entries of a log block; 0 without a log.
    log_entries: u64,
    /// The last log block, and the one before it.
    last: [LogPointer; 2],
    /// The log blocks that are there, the oldest first.
    logs: VecDeque<LogPointer>,
    /// What they take together.
    log_size: u64,
    /// What was written since the last one.
    open: Open,
}

/// What the next log block will cover.
#[derive(Clone, Debug, Default)]
struct Open {
    entries: Vec<LogEntry>,
    start: u64,
    size: u64,
}

/// The state before a round of writes.
pub(crate) struct Mark {
    hand: u64,
    last: [LogPointer; 2],
    logs: usize,
    log_size: u64,
    open: Open,
}

/// A range that was given up, from the first byte to before the second.
pub(crate) type GivenUp = (u64, u64);

impl Written {
    /// Of a device with nothing on it: its ring ends at `end`; with a log if that is not before `logged_least`.
    pub(crate) fn nothing(ashift: u32, end: u64, logged_least: u64) -> Self {
        let start = HEADER_OFFSET + header_size(ashift);
        assert!(start < end, "a device has room for its ring");
        Self {
            ashift,
            ring: Ring { start, end, hand: start, evict: start, is_first: true },
            log_entries: log_entries(start, end, logged_least),
            last: [LogPointer::default(); 2],
            logs: VecDeque::new(),
            log_size: 0,
            open: Open::default(),
        }
    }

    /// As a header says, of the same pool and device, that fits this one; `None` when it does not, or has no log
    /// (`l2arc_dev_hdr_read`).
    pub(crate) fn continued(&self, header: &DeviceHeader) -> Option<Self> {
        let Ring { start, end, .. } = self.ring;
        let fits = header.log_entries == self.log_entries
            && self.log_entries > 0
            && (header.start, header.end) == (start, end)
            && (start..=end).contains(&header.evict);
        let hand = header.last[0].offset.saturating_add(header.last[0].stored_size()).max(start);
        let ring = Ring { start, end, hand, evict: header.evict, is_first: header.is_first };
        let is_sane = hand <= end && header.last[0].is_valid(&ring) && hand.is_multiple_of(1 << self.ashift);
        (fits && is_sane).then(|| Self { ring, last: header.last, ..self.clone() })
    }

    /// The ring.
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The last log block, and the one before it.
    pub(crate) fn last(&self) -> [LogPointer; 2] {
        self.last
    }

    /// Entries of a log block.
    pub(crate) fn log_entries(&self) -> u64 {
        self.log_entries
    }

    /// A log block that is older than all that are listed was found.
    pub(crate) fn add_oldest_log(&mut self, pointer: LogPointer) {
        self.log_size += pointer.stored_size();
        self.logs.push_front(pointer);
    }

    /// Whether no log block is listed.
    pub(crate) fn is_without_logs(&self) -> bool {
        self.logs.is_empty()
    }

    /// Bytes in use.
    pub(crate) fn allocated(&self) -> u64 {
        let Ring { start, end, hand, evict, is_first } = self.ring;
        if is_first { hand - start } else { (end - start).saturating_sub(evict.saturating_sub(hand)) }
    }

    /// Bytes that a block of `psize` takes.
    pub(crate) fn asize(&self, psize: u64) -> u64 {
        psize.next_multiple_of(1 << self.ashift)
    }

    /// Most bytes of one round: a quarter of the ring, so that what was written just now is not given up at once.
    pub(crate) fn round_max(&self, wanted: u64) -> u64 {
        let quarter = (self.ring.end - self.ring.start) / 4;
        wanted.min(quarter) >> self.ashift << self.ashift
    }

    /// What `blocks` of `bytes` in all take at most, log blocks included.
    pub(crate) fn needed(&self, blocks: u64, bytes: u64) -> u64 {
        let logs = blocks.checked_div(self.log_entries).map_or(0, |full| full + 1);
        bytes + logs * self.asize(LOG_BLOCK_SIZE as u64)
    }

    /// Makes sure that `distance` bytes behind the hand are free: begins anew at the start where the ring ends before.
    /// Returns what was given up for it (`l2arc_evict`).
    pub(crate) fn make_room(&mut self, distance: u64) -> Vec<GivenUp> {
        let mut given_up = Vec::new();
        assert!(distance <= self.ring.end - self.ring.start, "a round is smaller than the ring");
        if self.ring.hand + distance > self.ring.end {
            given_up.push((self.ring.hand, self.ring.end));
            self.ring.evict = self.ring.end;
            // Not before, or all that lies there would still count.
            self.ring.is_first = false;
            self.forget_logs();
            (self.ring.hand, self.ring.evict) = (self.ring.start, self.ring.start);
        }
        if !self.ring.is_first {
            let to = self.ring.hand + distance;
            given_up.push((self.ring.hand, to));
            self.ring.evict = self.ring.evict.max(to);
            self.forget_logs();
        }
        given_up
    }

    /// Strikes those log blocks off that nobody would find any more: the oldest.
    fn forget_logs(&mut self) {
        while let Some(oldest) = self.logs.front().filter(|oldest| !oldest.is_valid(&self.ring)) {
            self.log_size -= oldest.stored_size();
            self.logs.pop_front();
        }
    }

    /// The state, to go back to.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            hand: self.ring.hand,
            last: self.last,
            logs: self.logs.len(),
            log_size: self.log_size,
            open: self.open.clone(),
        }
    }

    /// Takes back what was placed since `mark`. What was given up before stays given up.
    pub(crate) fn go_back(&mut self, mark: Mark) {
        assert!(mark.logs <= self.logs.len(), "no room was made since");
        self.ring.hand = mark.hand;
        self.last = mark.last;
        self.logs.truncate(mark.logs);
        self.log_size = mark.log_size;
        self.open = mark.open;
    }

    /// Places a block behind what was placed before; its offset.
    pub(crate) fn place(&mut self, mut entry: LogEntry) -> u64 {
        entry.offset = self.ring.hand;
        let size = self.asize(entry.psize);
        self.advance(size);
        if self.log_entries > 0 {
            if self.open.entries.is_empty() {
                self.open.start = entry.offset;
            }
            self.open.size += size;
            self.open.entries.push(entry);
        }
        entry.offset
    }

    fn advance(&mut self, size: u64) {
        self.ring.hand += size;
        let limit = if self.ring.is_first { self.ring.end } else { self.ring.evict };
        assert!(self.ring.hand <= limit, "room was made for it");
    }

    /// The next log block, once there is enough for it: its bytes as they are to be written at the hand. It is placed
    /// there (`l2arc_log_blk_commit`).
    pub(crate) fn close_log(&mut self) -> Option<Vec<u8>> {
        if self.log_entries == 0 || (self.open.entries.len() as u64) < self.log_entries {
            return None;
        }
        let open = std::mem::take(&mut self.open);
        assert_eq!(open.entries.len() as u64, self.log_entries, "a log block is closed when it is full");
        let whole = LogBlock { previous: self.last[1], entries: open.entries }.encode();
        let mut bytes = vec![0; whole.len() - whole.len() / 8];
        let used = platter_compress::compress(Compression::LZ4, 0, &whole, &mut bytes);
        let stored = used.map(|used| self.asize(used as u64)).filter(|&stored| stored < whole.len() as u64);
        let (bytes, compression) = match (used, stored) {
            (Some(used), Some(stored)) => {
                bytes.truncate(used);
                bytes.resize(stored as usize, 0);
                (bytes, Compression::LZ4)
            }
            _ => (whole, Compression::OFF),
        };
        let size = bytes.len() as u64;
        let mut pointer = LogPointer::new(self.ring.hand, size, compression, open.start, open.size);
        pointer.checksum = fletcher_4(&bytes);
        self.advance(size);
        self.last = [pointer, self.last[0]];
        self.logs.push_back(pointer);
        self.log_size += size;
        Some(bytes)
    }

    /// The header as it is to be written.
    pub(crate) fn header(&self, pool: Guid, vdev: Guid) -> DeviceHeader {
        let Ring { start, end, evict, is_first, .. } = self.ring;
        DeviceHeader {
            pool,
            vdev,
            log_entries: self.log_entries,
            evict,
            is_first,
            start,
            end,
            last: self.last,
            log_size: self.log_size,
            log_count: self.logs.len() as u64,
            ..DeviceHeader::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::{Dva, Txg};

    use super::*;

    fn entry(number: u64) -> LogEntry {
        LogEntry {
            dva: Dva { vdev: 0, offset: number << 9, asize: 512, gang: false },
            birth: Txg(4),
            lsize: 4096,
            psize: 4096,
            compression: Compression::OFF,
            is_metadata: false,
            is_protected: false,
            offset: 0,
        }
    }

    /// A ring for some blocks of 4 KiB, with four to a log block.
    fn small(blocks: u64) -> Written {
        let mut written = Written::nothing(12, (HEADER_OFFSET + 4096) + blocks * 4096, u64::MAX);
        written.log_entries = 4;
        written
    }

    #[test]
    fn what_was_placed_is_never_overwritten_before_it_is_given_up() {
        let mut written = small(100);
        let mut alive: Vec<(u64, u64)> = Vec::new();
        for round in 0..200 {
            let blocks = 1 + round % 5;
            let distance = written.needed(blocks, blocks * 4096);
            for (from, to) in written.make_room(distance) {
                alive.retain(|&(start, _)| !(from..to).contains(&start));
            }
            for number in 0..blocks {
                let offset = written.place(entry(number));
                let (start, end) = (written.ring.start, written.ring.end);
                assert!(offset >= start && offset + 4096 <= end);
                assert!(alive.iter().all(|&(start, end)| offset + 4096 <= start || end <= offset), "{round}");
                alive.push((offset, offset + 4096));
                if let Some(bytes) = written.close_log() {
                    assert!(bytes.len() <= LOG_BLOCK_SIZE);
                }
            }
            let found = written.logs.iter().filter(|log| log.is_valid(&written.ring)).count();
            assert_eq!(found, written.logs.len(), "all that are listed can be found, after round {round}");
            assert_eq!(written.log_size, written.logs.iter().map(LogPointer::stored_size).sum::<u64>());
            assert!(written.allocated() <= written.ring.end - written.ring.start);
        }
        assert!(!written.ring.is_first && !written.logs.is_empty());
    }

    #[test]
    fn a_round_that_fails_is_taken_back() {
        let mut written = small(100);
        let fill = |written: &mut Written, count: u64| {
            written.make_room(written.needed(count, count * 4096));
            let mark = written.mark();
            (0..count).for_each(|number| {
                written.place(entry(number));
                written.close_log();
            });
            mark
        };
        fill(&mut written, 6);
        let before = format!("{written:?}");
        let mark = fill(&mut written, 7);
        assert_ne!(format!("{written:?}"), before);
        written.go_back(mark);
        assert_eq!(format!("{written:?}"), before);
    }

    #[test]
    fn a_header_of_another_ring_is_not_taken() {
        let (mut written, fresh) = (small(100), small(100));
        written.make_room(written.needed(8, 8 * 4096));
        (0..8).for_each(|number| {
            written.place(entry(number));
            written.close_log();
        });
        let header = written.header(Guid(1), Guid(2));
        let taken = fresh.continued(&header).expect("it fits");
        assert_eq!((taken.ring, taken.last), (written.ring, written.last));
        for wrong in [
            DeviceHeader { end: header.end + 4096, ..header },
            DeviceHeader { log_entries: 5, ..header },
            DeviceHeader { evict: header.end + 1, ..header },
            DeviceHeader { last: [LogPointer::default(); 2], ..header },
        ] {
            assert!(fresh.continued(&wrong).is_none(), "{wrong:?}");
        }
    }
}
