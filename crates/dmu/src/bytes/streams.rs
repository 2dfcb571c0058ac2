//! Notices reading of a file in order, or in equal steps, and says which bytes to fetch ahead
//! (`module/zfs/dmu_zfetch.c`).
//!
//! A file has a few streams, so that several readers do not disturb each other. A stream's window starts small and
//! doubles with every hit up to [`WINDOW_MAX`] bytes; it is refilled when half of it has been read. Who is in no stream
//! but goes on by the same step each time (a column of a matrix, the heads of records) gets his next pieces ahead.

use std::ops::Range;

/// Largest distance fetched ahead, in bytes.
const WINDOW_MAX: u64 = 32 << 20;
/// First distance fetched ahead, in bytes.
const WINDOW_MIN: u64 = 256 << 10;
/// Window of a stream that is expected to go on, in bytes.
const LONG: u64 = 2 << 20;
/// Streams watched in one file.
const STREAMS: usize = 4;
/// Equal steps in a row that make a pattern.
const STEPS_LEAST: u32 = 2;
/// Pieces fetched ahead of a reader who goes by steps, and their bytes, at most.
const STEPS_AHEAD: u64 = 32;
const STEPS_BYTES: u64 = 8 << 20;

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

/// Reads that belong to no stream: how far each was from the one before.
#[derive(Clone, Copy, Debug, Default)]
struct Steps {
    /// Where the last one began, in bytes.
    last: u64,
    /// How far that was from the one before; 0 when it went back.
    step: u64,
    /// How often it was as far before.
    hits: u32,
    /// Where the last piece that was fetched ahead began.
    ahead: u64,
}

impl Steps {
    fn read(&mut self, offset: u64, end: u64, size: u64) -> Vec<Range<u64>> {
        let step = offset.saturating_sub(self.last);
        if step == 0 || step != self.step {
            *self = Self { last: offset, step, hits: 0, ahead: offset };
            return Vec::new();
        }
        self.last = offset;
        self.hits = self.hits.saturating_add(1);
        if self.hits < STEPS_LEAST {
            return Vec::new();
        }
        let length = end - offset;
        let count = (STEPS_BYTES / length).clamp(1, STEPS_AHEAD);
        let last = offset.saturating_add(count.saturating_mul(step));
        let mut pieces = Vec::new();
        let mut next = self.ahead.max(offset).saturating_add(step);
        while next <= last && next < size {
            pieces.push(next..next.saturating_add(length).min(size));
            self.ahead = next;
            next = next.saturating_add(step);
        }
        pieces
    }
}

/// The streams of one file.
#[derive(Debug, Default)]
pub struct Streams {
    streams: [Stream; STREAMS],
    clock: u64,
    steps: Steps,
}

impl Streams {
    /// Whether a read that ended at `end` belongs to a stream that has gone on for a while.
    pub fn is_long(&self, end: u64) -> bool {
        self.streams.iter().any(|stream| stream.next >= end && stream.next - end <= WINDOW_MIN && stream.window >= LONG)
    }

    /// Takes note of a read of `offset..end`, which is not empty, in a file of `size` bytes and returns the bytes to
    /// fetch ahead, if any.
    pub fn read(&mut self, offset: u64, end: u64, size: u64) -> Vec<Range<u64>> {
        self.clock += 1;
        // The kernel's read-ahead may deliver requests slightly out of order.
        let near = |s: &&mut Stream| s.used > 0 && offset <= s.next + WINDOW_MIN && offset + WINDOW_MIN >= s.next;
        if let Some(stream) = self.streams.iter_mut().find(near) {
            stream.used = self.clock;
            if end <= stream.next {
                return Vec::new();
            }
            stream.next = end;
            stream.window = (stream.window * 2).clamp(WINDOW_MIN, WINDOW_MAX);
            let target = end.saturating_add(stream.window).min(size);
            let from = stream.ahead.max(end);
            if target <= from || (stream.ahead > end + stream.window / 2 && target < size) {
                return Vec::new();
            }
            stream.ahead = target;
            return std::iter::once(from..target).collect();
        }
        let clock = self.clock;
        let oldest = self.streams.iter_mut().min_by_key(|s| s.used).expect("there are some");
        *oldest = Stream { next: end, ahead: end, window: 0, used: clock };
        // Reading from the start of a file usually goes on.
        if offset == 0 && end < size {
            oldest.window = WINDOW_MIN;
            oldest.ahead = (end + WINDOW_MIN).min(size);
            return std::iter::once(end..oldest.ahead).collect();
        }
        self.steps.read(offset, end, size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_in_equal_steps_is_fetched_ahead_piece_by_piece() {
        let (size, step, length) = (1u64 << 30, 3u64 << 20, 16u64 << 10);
        let mut streams = Streams::default();
        let mut fetched = std::collections::BTreeSet::new();
        for (at, offset) in (step..size).step_by(step as usize).enumerate() {
            assert!(at < 4 || fetched.contains(&offset), "read {at} was not fetched ahead");
            for piece in streams.read(offset, offset + length, size) {
                assert!(piece.start > offset && (piece.start - offset).is_multiple_of(step) && piece.end <= size);
                assert!(piece.end - piece.start <= length && fetched.insert(piece.start), "fetched twice");
            }
        }
        // Another step is another pattern.
        assert!(streams.read(5, 6, size).is_empty() && streams.read(10 << 20, (10 << 20) + 1, size).is_empty());
    }

    #[test]
    fn a_sequential_reader_is_fetched_ahead_without_gaps_or_repeats() {
        let size = 64 << 20;
        let mut streams = Streams::default();
        let (mut fetched, mut offset) = (0, 0);
        while offset < size {
            let end = offset + (128 << 10);
            for range in streams.read(offset, end, size) {
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
        assert!(offsets.iter().all(|&o| streams.read(o, o + 4096, 10 << 30).is_empty()));
    }

    #[test]
    fn readers_in_step_keep_their_own_streams() {
        let size = 1 << 30;
        let mut streams = Streams::default();
        let mut ahead = [0, 0];
        for i in 0..64u64 {
            for reader in 0..2u64 {
                let offset = reader * (512 << 20) + i * (128 << 10);
                for range in streams.read(offset, offset + (128 << 10), size) {
                    ahead[reader as usize] = range.end - offset;
                }
            }
        }
        assert!(ahead.iter().all(|&a| a > 4 << 20), "{ahead:?}");
    }
}
