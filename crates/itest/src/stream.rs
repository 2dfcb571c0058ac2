//! Streams of `zfs send`, taken apart and put together by whoever wants to deceive a receive.
//!
//! The layout (`struct dmu_replay_record`, `include/sys/zfs_ioctl.h`) and the checksum are written down a second time
//! on purpose: a mistake in the engine's own must not hide itself.

use std::ops::Range;

/// Bytes of a record without its payload.
pub const RECORD: usize = 312;
/// Where a record has the checksum of all before it.
const SUM: usize = RECORD - 32;
/// Numbers of kinds of records (`drr_type`).
pub const BEGIN: u32 = 0;
/// A block.
pub const WRITE: u32 = 3;
const OBJECT: u32 = 1;
const END: u32 = 5;
const SPILL: u32 = 7;
const WRITE_EMBEDDED: u32 = 8;

/// A record of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// What it is.
    pub kind: u32,
    /// It with its payload, in bytes of the stream.
    pub bytes: Range<usize>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn payload(record: &[u8]) -> u64 {
    match u32_at(record, 0) {
        BEGIN => u32_at(record, 4).into(),
        OBJECT => u64::from(u32_at(record, 28)).next_multiple_of(8),
        WRITE if record[50] != 0 => u64_at(record, 96),
        WRITE => u64_at(record, 32),
        SPILL => u64_at(record, 16),
        WRITE_EMBEDDED => u64::from(u32_at(record, 52)).next_multiple_of(8),
        _ => 0,
    }
}

/// The records of a whole stream, of a machine with this one's byte order.
///
/// # Panics
/// It is none.
pub fn pieces(stream: &[u8]) -> Vec<Piece> {
    let (mut pieces, mut at) = (Vec::new(), 0);
    while at < stream.len() {
        let record = &stream[at..at + RECORD];
        let end = at + RECORD + payload(record) as usize;
        pieces.push(Piece { kind: u32_at(record, 0), bytes: at..end });
        at = end;
    }
    pieces
}

/// Fletcher-4, a word at a time.
#[derive(Clone, Copy, Default)]
struct Sum([u64; 4]);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let [a, b, c, d] = &mut self.0;
        for at in (0..bytes.len()).step_by(4) {
            *a = a.wrapping_add(u32_at(bytes, at).into());
            *b = b.wrapping_add(*a);
            *c = c.wrapping_add(*b);
            *d = d.wrapping_add(*c);
        }
    }

    fn put(self, place: &mut [u8]) {
        for (word, place) in self.0.into_iter().zip(place.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Puts records together to a stream in which every checksum is right.
pub fn mended<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut stream, mut sum) = (Vec::new(), Sum::default());
    for record in records {
        let at = stream.len();
        stream.extend_from_slice(record);
        let record = &mut stream[at..];
        let kind = u32_at(record, 0);
        if kind == BEGIN {
            sum = Sum::default();
        }
        if kind == END {
            sum.put(&mut record[8..40]);
        }
        sum.add(&record[..SUM]);
        if kind != BEGIN {
            sum.put(&mut record[SUM..RECORD]);
        }
        sum.add(&record[SUM..]);
    }
    stream
}
