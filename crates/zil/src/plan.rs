//! Packing records into log blocks (`zil_lwb_assign`, `zil_lwb_plan`, `zil_lwb_predict`).
//!
//! A block's size was chosen when the block before it was written, so the first block takes what fits and the next ones
//! are made to measure. A write that does not fit is split; other records are not.

use platter_ondisk::Txg;
use platter_ondisk::zil::ZIL_CHAIN_SIZE;
use platter_ondisk::zil::block::{BLOCK_SIZE_MAX, BLOCK_SIZE_MIN, capacity};
use platter_ondisk::zil::record::{Record, RecordHeader, WRITE_SIZE, Write, WriteData};

/// A rest of a block smaller than this is left unused rather than filled with a piece of a write, in bytes.
const PIECE_MIN: usize = 4096;

/// A block to be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// Size in bytes.
    pub size: usize,
    /// Its records.
    pub records: Vec<u8>,
    /// The last group with a record in it.
    pub max_txg: Txg,
}

/// Sizes of the last commits, from which the next one's is guessed.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    last: [usize; 8],
    at: usize,
}

impl Sizes {
    /// Notes a commit of this many bytes.
    pub fn note(&mut self, bytes: usize) {
        self.last[self.at] = bytes;
        self.at = (self.at + 1) % self.last.len();
    }

    /// The size of a block that holds a commit like the last ones.
    pub fn next(&self) -> usize {
        size_for(self.last.iter().copied().max().unwrap_or(0))
    }
}

/// The block size for this many bytes of records, at most the largest.
pub(crate) fn size_for(bytes: usize) -> usize {
    (bytes + ZIL_CHAIN_SIZE).next_multiple_of(BLOCK_SIZE_MIN).min(BLOCK_SIZE_MAX)
}

/// Packs `records` into blocks, the first of which has `first` bytes. `sequence` is the last number given to a record
/// and moves on. Returns `None` when a record fits no block.
pub(crate) fn plan(first: usize, records: Vec<(Txg, Record)>, sequence: &mut u64) -> Option<Vec<Planned>> {
    let mut blocks = vec![Planned { size: first, records: Vec::new(), max_txg: Txg(0) }];
    let mut left: usize = records.iter().map(|(_, record)| estimate(record)).sum();
    let mut scratch = Vec::new();
    for (txg, record) in records {
        let mut rest = Some(record);
        while let Some(record) = rest.take() {
            let block = blocks.last_mut().expect("there is one");
            let room = capacity(block.size) - block.records.len();
            let (piece, remainder) = split(record, room);
            scratch.clear();
            let divisible = matches!(&piece, Record::Write(Write { data: WriteData::Inline(_), .. }));
            if !divisible || estimate(&piece) <= room {
                piece.encode(RecordHeader { txg, sequence: *sequence + 1 }, &mut scratch);
            }
            if !scratch.is_empty() && scratch.len() <= room {
                *sequence += 1;
                block.records.extend_from_slice(&scratch);
                block.max_txg = block.max_txg.max(txg);
                left = left.saturating_sub(scratch.len());
                rest = remainder;
                continue;
            }
            // Each piece of a split write has a head of its own, so that more may be left than was counted.
            let whole = join(piece, remainder);
            let size = size_for(left.max(scratch.len()).max(estimate(&whole)));
            if scratch.len() > capacity(size) && !divisible {
                return None;
            }
            blocks.push(Planned { size, records: Vec::new(), max_txg: Txg(0) });
            rest = Some(whole);
        }
    }
    Some(blocks)
}

/// About how many bytes a record takes.
fn estimate(record: &Record) -> usize {
    match record {
        Record::Write(Write { data: WriteData::Inline(data), .. }) => WRITE_SIZE + data.len().next_multiple_of(8),
        // Names and fields: close enough for choosing a size.
        _ => 512,
    }
}

/// The part of a write that fits `room` bytes, and the rest. Records that fit, or cannot be split, stay whole.
fn split(record: Record, room: usize) -> (Record, Option<Record>) {
    match record {
        Record::Write(Write { object, offset, length, data: WriteData::Inline(mut data) })
            if WRITE_SIZE + data.len() > room && room >= WRITE_SIZE + PIECE_MIN =>
        {
            let tail = data.split_off((room - WRITE_SIZE) / 8 * 8);
            let here = data.len() as u64;
            let part = |offset, data: Vec<u8>| {
                Record::Write(Write { object, offset, length: data.len() as u64, data: WriteData::Inline(data) })
            };
            debug_assert_eq!(length, here + tail.len() as u64);
            (part(offset, data), Some(part(offset + here, tail)))
        }
        whole => (whole, None),
    }
}

/// Undoes [`split`].
fn join(piece: Record, remainder: Option<Record>) -> Record {
    match (piece, remainder) {
        (Record::Write(mut first), Some(Record::Write(second))) => {
            if let (WriteData::Inline(data), WriteData::Inline(more)) = (&mut first.data, second.data) {
                data.extend_from_slice(&more);
                first.length = data.len() as u64;
            }
            Record::Write(first)
        }
        (piece, _) => piece,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use platter_ondisk::zil::record::records;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Applies writes and removals to a model, to compare what goes in with what comes out.
    fn replayed<'a>(all: impl Iterator<Item = (Txg, &'a Record)>) -> (Vec<u8>, Vec<Vec<u8>>) {
        let (mut file, mut names) = (Vec::new(), Vec::new());
        for (_, record) in all {
            match record {
                Record::Write(Write { offset, data: WriteData::Inline(data), .. }) => {
                    let end = *offset as usize + data.len();
                    if file.len() < end {
                        file.resize(end, 0);
                    }
                    file[*offset as usize..end].copy_from_slice(data);
                }
                Record::Remove { name, .. } => names.push(name.clone()),
                other => panic!("{other:?}"),
            }
        }
        (file, names)
    }

    proptest! {
        #[test]
        fn blocks_hold_all_records_in_order(
            lengths in vec((any::<bool>(), 1..300_000usize, 0..50_000u64), 1..12),
            first in 1..=32usize,
        ) {
            let written: Vec<(Txg, Record)> = lengths
                .iter()
                .enumerate()
                .map(|(at, &(is_write, length, offset))| {
                    let record = if is_write {
                        let data: Vec<u8> = (0..length).map(|i| (i * 7 + at) as u8).collect();
                        Record::Write(Write { object: 3, offset, length: length as u64, data: WriteData::Inline(data) })
                    } else {
                        let name = vec![b'a' + at as u8; 1 + length % 255];
                        Record::Remove { any_case: false, directory: false, parent: 4, name }
                    };
                    (Txg(100 + at as u64 / 5), record)
                })
                .collect();
            let mut sequence = 41;
            let blocks = plan(first * 4096, written.clone(), &mut sequence).unwrap();
            prop_assert_eq!(blocks[0].size, first * 4096);
            let mut read = Vec::new();
            for block in &blocks {
                prop_assert!(block.records.len() <= capacity(block.size));
                prop_assert!(block.size <= BLOCK_SIZE_MAX && block.size.is_multiple_of(BLOCK_SIZE_MIN));
                for record in records(&block.records) {
                    let (header, record) = record.unwrap();
                    prop_assert!(header.txg <= block.max_txg);
                    prop_assert_eq!(header.sequence, 42 + read.len() as u64);
                    read.push((header.txg, record));
                }
            }
            prop_assert_eq!(sequence, 41 + read.len() as u64);
            let before = replayed(written.iter().map(|(txg, record)| (*txg, record)));
            let after = replayed(read.iter().map(|(txg, record)| (*txg, record)));
            prop_assert!(before == after);
            // Not more blocks than sensible: each but the first and the last is well filled.
            for block in blocks.iter().skip(1).rev().skip(1) {
                prop_assert!(block.records.len() + WRITE_SIZE + PIECE_MIN + 512 >= capacity(block.size));
            }
        }
    }

    /// A PostgreSQL bulk load hung its fsync: the heads of split writes were not counted as left to be written, so that
    /// the last blocks were made too small for the rest, which was neither taken nor split, one after the other.
    #[test]
    fn megabytes_of_split_writes_come_to_an_end() {
        for tail in (0..40).map(|n| n * 500) {
            let lengths = (0..60).map(|n| 120_000 + n * 100).chain([4000 + tail]);
            let written: Vec<(Txg, Record)> = lengths
                .map(|length| {
                    let data = WriteData::Inline(vec![1; length]);
                    (Txg(1), Record::Write(Write { object: 1, offset: 0, length: length as u64, data }))
                })
                .collect();
            let total: usize = written.iter().map(|(_, record)| estimate(record)).sum();
            let blocks = plan(4096, written, &mut 0).unwrap();
            assert!(blocks.len() <= total / capacity(BLOCK_SIZE_MAX) + 3, "{} blocks", blocks.len());
        }
    }

    #[test]
    fn a_record_larger_than_any_block_is_refused() {
        let record = Record::SetXattr { object: 1, name: b"n".to_vec(), value: vec![0; 200_000] };
        assert_eq!(plan(4096, vec![(Txg(1), record)], &mut 0), None);
    }

    #[test]
    fn the_next_block_is_as_large_as_recent_commits_were() {
        let mut sizes = Sizes::default();
        assert_eq!(sizes.next(), 4096);
        sizes.note(10_000);
        assert_eq!(sizes.next(), 12288);
        for _ in 0..8 {
            sizes.note(100);
        }
        assert_eq!(sizes.next(), 4096);
        sizes.note(1 << 20);
        assert_eq!(sizes.next(), BLOCK_SIZE_MAX);
    }
}
