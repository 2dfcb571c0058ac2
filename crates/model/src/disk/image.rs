//! What a disk holds: sparse bytes that are cheap to fork.
//!
//! Invariants: a chunk that was never written takes no room and reads as zeros; forks share chunks until one of them
//! writes; two images with the same bytes have the same hash, however they came about.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// Bytes of one shared piece.
const CHUNK: u64 = 16 << 10;

/// The bytes of a disk. Cloning shares everything.
#[derive(Clone, Debug, Default)]
pub struct Image {
    chunks: Arc<BTreeMap<u64, Arc<[u8]>>>,
}

impl Image {
    /// Copies the bytes from `offset` on into `out`.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) {
        for piece in pieces(offset, out.len()) {
            let part = &mut out[piece.at..piece.at + piece.length];
            match self.chunks.get(&piece.chunk) {
                Some(bytes) => part.copy_from_slice(&bytes[piece.within..piece.within + piece.length]),
                None => part.fill(0),
            }
        }
    }

    /// Replaces the bytes from `offset` on.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        for piece in pieces(offset, bytes.len()) {
            let part = &bytes[piece.at..piece.at + piece.length];
            if piece.length as u64 == CHUNK {
                chunks.insert(piece.chunk, part.into());
                continue;
            }
            let chunk = chunks.entry(piece.chunk).or_insert_with(|| vec![0; CHUNK as usize].into());
            debug_assert_eq!(chunk.len() as u64, CHUNK, "all chunks are alike, or a hash tells how they came about");
            Arc::make_mut(chunk)[piece.within..piece.within + piece.length].copy_from_slice(part);
        }
    }

    /// The parts of `length` bytes at `offset` that take room, in order; neighbours are one.
    pub fn stored(&self, offset: u64, length: u64) -> Vec<Range<u64>> {
        let end = offset + length;
        let mut parts: Vec<Range<u64>> = Vec::new();
        for &chunk in self.chunks.range(offset / CHUNK..end.div_ceil(CHUNK)).map(|(chunk, _)| chunk) {
            let part = offset.max(chunk * CHUNK)..end.min((chunk + 1) * CHUNK);
            match parts.last_mut() {
                Some(last) if last.end == part.start => last.end = part.end,
                _ => parts.push(part),
            }
        }
        parts
    }

    /// Forgets `length` bytes at `offset`: they read as zeros.
    pub fn discard(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let (first, last) = (offset.div_ceil(CHUNK), end / CHUNK);
        if first < last {
            let chunks = Arc::make_mut(&mut self.chunks);
            let inner: Vec<u64> = chunks.range(first..last).map(|(&chunk, _)| chunk).collect();
            for chunk in inner {
                chunks.remove(&chunk);
            }
        }
        let head = end.min(first * CHUNK);
        self.zero(offset, head);
        self.zero((last * CHUNK).max(head), end);
        debug_assert!(self.chunks.range(first..last.max(first)).next().is_none(), "what is forgotten takes no room");
    }

    fn zero(&mut self, from: u64, to: u64) {
        if from < to {
            self.write_at(from, &vec![0; (to - from) as usize]);
        }
    }

    /// SHA-256 of the content: of all chunks that are not zero, with their places.
    pub fn hash(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (chunk, bytes) in self.chunks.iter().filter(|(_, bytes)| bytes.iter().any(|&byte| byte != 0)) {
            hash.update(chunk.to_le_bytes());
            hash.update(bytes);
        }
        hash.finalize().into()
    }

    /// Everything that takes room: offsets and bytes.
    pub fn chunks(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.chunks.iter().map(|(chunk, bytes)| (chunk * CHUNK, &bytes[..]))
    }

    /// Bytes that take room.
    pub fn allocated(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }

    /// Every multiple of `step` (which must divide 16 KiB) where something may be stored, in order.
    pub fn places(&self, step: u64) -> impl Iterator<Item = u64> + '_ {
        assert!(CHUNK.is_multiple_of(step), "{step} does not divide a chunk");
        self.chunks.keys().flat_map(move |chunk| (chunk * CHUNK..(chunk + 1) * CHUNK).step_by(step as usize))
    }

    /// The disk's offset that lies `position` bytes into what takes room (modulo its size); `None` when nothing does.
    /// So a random number finds a place where something is.
    pub fn inhabited(&self, position: u64) -> Option<u64> {
        let position = position.checked_rem(self.allocated())?;
        let chunk = self.chunks.keys().nth((position / CHUNK) as usize)?;
        Some(chunk * CHUNK + position % CHUNK)
    }
}

struct Piece {
    chunk: u64,
    within: usize,
    at: usize,
    length: usize,
}

fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let position = offset + at as u64;
        let within = (position % CHUNK) as usize;
        let piece = Piece { chunk: position / CHUNK, within, at, length: (length - at).min(CHUNK as usize - within) };
        at += piece.length;
        (piece.length > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_do_not_see_each_others_writes() {
        let mut first = Image::default();
        first.write_at(CHUNK - 2, &[1, 2, 3, 4]);
        let mut second = first.clone();
        second.write_at(CHUNK - 1, &[9, 9]);
        let mut bytes = [7; 6];
        first.read_at(CHUNK - 3, &mut bytes);
        assert_eq!(bytes, [0, 1, 2, 3, 4, 0]);
        second.read_at(CHUNK - 3, &mut bytes);
        assert_eq!(bytes, [0, 1, 9, 9, 4, 0]);
        assert_ne!(first.hash(), second.hash());
    }

    #[test]
    fn the_hash_is_of_the_content_alone() {
        let mut written = Image::default();
        written.write_at(0, &[5; 3 * CHUNK as usize]);
        written.write_at(2 * CHUNK, &[0; CHUNK as usize]);
        written.discard(100, 2 * CHUNK - 100);
        let mut other = Image::default();
        other.write_at(0, &[5; 100]);
        assert_eq!(written.hash(), other.hash());
        assert_eq!(written.inhabited(3).expect("something is there"), 3);
        assert_eq!(Image::default().inhabited(3), None);
    }

    #[test]
    fn what_takes_room_is_told_in_as_few_parts_as_possible() {
        let mut image = Image::default();
        for chunk in [1, 2, 5] {
            image.write_at(chunk * CHUNK, &[1]);
        }
        assert_eq!(image.stored(0, 10 * CHUNK), [CHUNK..3 * CHUNK, 5 * CHUNK..6 * CHUNK]);
        let part_of_two = 2 * CHUNK - 512..2 * CHUNK + 512;
        assert_eq!(image.stored(2 * CHUNK - 512, 1024), [part_of_two]);
        assert_eq!(image.stored(3 * CHUNK, 2 * CHUNK), []);
    }

    #[test]
    fn what_is_discarded_reads_as_zeros_and_its_neighbours_stay() {
        for (offset, length) in [(10, 20), (CHUNK - 5, 10), (CHUNK, CHUNK), (5, 3 * CHUNK), (CHUNK - 1, CHUNK + 2)] {
            let mut image = Image::default();
            let full = vec![1; 4 * CHUNK as usize];
            image.write_at(0, &full);
            image.discard(offset, length);
            let mut bytes = full;
            image.read_at(0, &mut bytes);
            for (index, &byte) in bytes.iter().enumerate() {
                let inside = (offset..offset + length).contains(&(index as u64));
                assert_eq!(byte, u8::from(!inside), "{offset}+{length} at {index}");
            }
        }
    }
}
