//! Notices sequential reading of a file and says which blocks to fetch ahead (`module/zfs/dmu_zfetch.c`).
//!
//! A file has a few streams, so that several readers do not disturb each other. A stream's window starts small and
//! doubles with every hit up to [`WINDOW_MAX`] bytes; it is refilled when half of it has been read.
//!
//! A file that is read at random and fits into what the cache has free is fetched too, in large pieces around what is
//! read: a device hands out a mebibyte almost as fast as a block, and until somebody else needs the memory it would lie
//! idle. Nothing has to leave the cache for it.

use std::collections::BTreeSet;
use std::ops::Range;

/// Largest distance fetched ahead, in bytes.
const WINDOW_MAX: u64 = 16 << 20;
/// First distance fetched ahead, in bytes.
const WINDOW_MIN: u64 = 256 << 10;
/// Window of a stream that is expected to go on, in bytes.
const LONG: u64 = 2 << 20;
/// Streams watched in one file.
const STREAMS: usize = 4;
/// Reads that go on nowhere, after which a file counts as read at random.
const STRAYS: u32 = 16;
/// What is fetched at once around a read of such a file, in bytes.
const AROUND: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Where the next read is expected, in bytes.
    next: u64,
    /// Up to where blocks were fetched, in bytes.
    ahead: u64,
    /// Current distance, in bytes.
    window: u64,
    /// When it was last hit; 0 for a free slot.
    used: u64,
}

/// The streams of one file.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    /// Reads that went on nowhere.
    strays: u32,
    /// Which pieces of [`AROUND`] bytes were fetched because of them.
    around: BTreeSet<u64>,
}

impl Streams {
    /// Whether a read that ended at `end` belongs to a stream that has gone on for a while.
    pub fn is_long(&self, end: u64) -> bool {
        self.streams.iter().any(|stream| stream.next >= end && stream.next - end <= WINDOW_MIN && stream.window >= LONG)
    }

    /// Takes note of a read of `offset..end` in a file of `size` bytes and returns the bytes to fetch ahead, if any.
    /// `room` says how many bytes the cache has free.
    pub fn read(&mut self, offset: u64, end: u64, size: u64, room: impl FnOnce() -> u64) -> Option<Range<u64>> {
        self.clock += 1;
        // The kernel's read-ahead may deliver requests slightly out of order.
        let near = |s: &&mut Stream| s.used > 0 && offset <= s.next + WINDOW_MIN && offset + WINDOW_MIN >= s.next;
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.used = self.clock;
            if end <= stream.next {
                return None;
            }
            stream.next = end;
            stream.window = (stream.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
            let target = end.saturating_add(stream.window).min(size);
            let from = stream.ahead.max(end);
            if target <= from || (stream.ahead > end + stream.window / 2 && target < size) {
                return None;
            }
            stream.ahead = target;
            return Some(from..target);
        }
        let clock = self.clock;
        let oldest = self.streams.iter_mut().min_by_key(|s| s.used).expect("there are some");
        *oldest = Stream { next: end, ahead: end, window: 0, used: clock };
        // Reading from the start of a file usually goes on.
        if offset == 0 && end < size {
            oldest.window = WINDOW_MIN;
            oldest.ahead = (end + WINDOW_MIN).min(size);
            return Some(end..oldest.ahead);
        }
        self.strays = self.strays.saturating_add(1);
        let piece = offset / AROUND;
        if self.strays <= STRAYS || self.around.contains(&piece) {
            return None;
        }
        // What was fetched is in the cache, or had to leave it, and then there is no room.
        let missing = size.saturating_sub(self.around.len() as u64 * AROUND);
        if missing > room() {
            return None;
        }
        self.around.insert(piece);
        Some(piece * AROUND..((piece + 1) * AROUND).min(size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_is_fetched_ahead_without_gaps_or_repeats() {
        let size = 64 << 20;
        let mut streams = Streams::default();
        let (mut fetched, mut offset) = (0, 0);
        while offset < size {
            let end = offset + (128 << 10);
            if let Some(range) = streams.read(offset, end, size, || 0) {
                assert!(range.start >= fetched && range.start >= end && range.end <= size);
                assert!(fetched == 0 || range.start == fetched.max(end));
                fetched = range.end;
            }
            assert!(fetched >= end.min(size) || end == size);
            offset = end;
        }
        assert_eq!(fetched, size);
    }

    #[test]
    fn a_random_reader_is_left_alone() {
        let mut streams = Streams::default();
        let offsets = [5u64 << 30, 1 << 30, 9 << 30, 3 << 30, 7 << 30, 2 << 30];
        assert!(offsets.iter().all(|&o| streams.read(o, o + 4096, 10 << 30, || 0).is_none()));
    }

    #[test]
    fn a_file_that_is_read_at_random_is_fetched_around_where_there_is_room() {
        const SIZE: u64 = 64 << 20;
        let mut streams = Streams::default();
        let mut fetched = 0;
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (random >> 33) % (SIZE >> 14) << 14;
            let room = SIZE.saturating_sub(fetched);
            if let Some(range) = streams.read(offset, offset + (16 << 10), SIZE, || room)
                && range.contains(&offset)
            {
                assert_eq!((range.start % AROUND, range.end - range.start), (0, AROUND));
                fetched += AROUND;
            }
        }
        assert_eq!(fetched, SIZE, "each piece once");
        // A little less, and nothing is begun.
        let mut streams = Streams::default();
        let far = |at: u64| at * 7919 % 64 * AROUND + (300 << 10);
        assert!((0..200).all(|at| streams.read(far(at), far(at) + 4096, SIZE, || SIZE - 1).is_none()));
    }

    #[test]
    fn readers_in_step_keep_their_own_streams() {
        let size = 1 << 30;
        let mut streams = Streams::default();
        let mut ahead = [0, 0];
        for i in 0..64u64 {
            for reader in 0..2u64 {
                let offset = reader * (512 << 20) + i * (128 << 10);
                if let Some(range) = streams.read(offset, offset + (128 << 10), size, || 0) {
                    ahead[reader as usize] = range.end - offset;
                }
            }
        }
        assert!(ahead.iter().all(|&a| a > 4 << 20), "{ahead:?}");
    }
}
