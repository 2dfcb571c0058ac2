//! Where a stream has one file: its object's record, and those of its blocks, which come right behind it.

use std::collections::BTreeMap;

use platter_ondisk::{ObjectId, ObjectType};

use crate::contents::{BlockPlace, block_of};
use crate::error::StreamError;
use crate::record::{OBJECT_END, Record};

/// Most files that are remembered, and most blocks of one.
const FILES_MAX: usize = 1 << 24;
const BLOCKS_MAX: usize = 1 << 22;

/// Where the records of files begin, in bytes of whatever holds the stream.
#[derive(Debug, Default)]
pub struct Files(BTreeMap<ObjectId, u64>);

impl Files {
    /// Takes note of a record that begins at `at`.
    ///
    /// # Errors
    /// There are too many files.
    pub fn note(&mut self, record: &Record, at: u64) -> Result<(), StreamError> {
        let Record::Object(object) = record else { return Ok(()) };
        if ![ObjectType::PLAIN_FILE_CONTENTS, ObjectType::DIRECTORY_CONTENTS].contains(&object.object_type) {
            return Ok(());
        }
        if self.0.len() >= FILES_MAX {
            return Err(StreamError::Unsupported("it has more files than can be looked at".into()));
        }
        self.0.insert(object.object, at);
        Ok(())
    }

    /// Where that of this object begins.
    pub fn place(&self, object: ObjectId) -> Option<u64> {
        self.0.get(&object).copied()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Where a file's blocks are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OneFile {
    blocks: BTreeMap<u64, BlockPlace>,
    /// Bytes that were left out on purpose, from and until.
    redacted: Vec<(u64, u64)>,
    /// Where the payload of its spill block is, and how long.
    pub spill: Option<(u64, usize)>,
}

/// A piece of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// So many bytes that are zero.
    Zeros(u64),
    /// Of this block, from this byte on, so many.
    Block(BlockPlace, usize, usize),
}

impl OneFile {
    /// Takes note of a record behind that of the object itself, whose payload begins at `at`. Whether it is still about
    /// this object.
    ///
    /// # Errors
    /// It has too many blocks.
    pub fn note(&mut self, object: ObjectId, record: &Record, at: u64) -> Result<bool, StreamError> {
        if let Some((of, offset, place)) = block_of(record, at) {
            if of == object && self.blocks.len() >= BLOCKS_MAX {
                return Err(StreamError::Unsupported("a file has more blocks than can be looked at".into()));
            }
            if of == object {
                self.blocks.insert(offset, place);
            }
            return Ok(of == object);
        }
        Ok(match record {
            Record::Free(free) => free.object == object,
            Record::Redact(free) => {
                let end = if free.length == OBJECT_END { u64::MAX } else { free.offset.saturating_add(free.length) };
                if free.object == object {
                    self.redacted.push((free.offset, end));
                }
                free.object == object
            }
            Record::Spill(spill) => {
                if spill.object == object {
                    self.spill = Some((at, spill.length as usize));
                }
                spill.object == object
            }
            // They say what is not there, wherever they stand.
            Record::FreeObjects(_) => true,
            _ => false,
        })
    }

    /// The bytes from `from` until `until`, in order.
    ///
    /// # Errors
    /// Some were left out on purpose.
    pub fn pieces(&self, from: u64, until: u64) -> Result<Vec<Piece>, StreamError> {
        if self.redacted.iter().any(|&(begin, end)| begin < until && end > from) {
            return Err(StreamError::Unsupported("these bytes were left out of it (redacted)".into()));
        }
        let (mut pieces, mut at) = (Vec::new(), from);
        let before = self.blocks.range(..=from).next_back().map_or(from, |(&offset, _)| offset);
        for (&offset, place) in self.blocks.range(before..until) {
            let end = offset.saturating_add(place.length as u64).min(until);
            if end <= at {
                continue;
            }
            if offset > at {
                pieces.push(Piece::Zeros(offset - at));
                at = offset;
            }
            pieces.push(Piece::Block(*place, (at - offset) as usize, (end - at) as usize));
            at = end;
        }
        if at < until {
            pieces.push(Piece::Zeros(until - at));
        }
        Ok(pieces)
    }
}

#[cfg(test)]
mod tests {
    use platter_ondisk::{Checksum, Compression, Guid};

    use super::*;
    use crate::record::{Free, Write};

    fn write(object: u64, offset: u64) -> Record {
        Record::Write(Write {
            object: ObjectId(object),
            object_type: ObjectType::PLAIN_FILE_CONTENTS,
            offset,
            logical_size: 100,
            to_guid: Guid(1),
            checksum_type: Checksum::OFF,
            flags: 0,
            compression: Compression::INHERIT,
            key: Default::default(),
            compressed_size: 0,
        })
    }

    #[test]
    fn bytes_are_pieced_together() {
        let (mut file, object) = (OneFile::default(), ObjectId(7));
        assert!(file.note(object, &write(7, 100), 1000).unwrap() && file.note(object, &write(7, 300), 2000).unwrap());
        assert!(!file.note(object, &write(8, 0), 3000).unwrap());
        let shape = |from, until| {
            let pieces = file.pieces(from, until).unwrap();
            let shown = |piece: Piece| match piece {
                Piece::Zeros(count) => (0, 0, count as usize),
                Piece::Block(place, from, count) => (place.at, from, count),
            };
            pieces.into_iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(shape(0, 500), [(0, 0, 100), (1000, 0, 100), (0, 0, 100), (2000, 0, 100), (0, 0, 100)]);
        assert_eq!(shape(150, 310), [(1000, 50, 50), (0, 0, 100), (2000, 0, 10)]);
        assert_eq!(shape(210, 220), [(0, 0, 10)]);
        assert_eq!(shape(400, 400), []);
        let free = Free { object, offset: 600, length: OBJECT_END, to_guid: Guid(1) };
        file.note(object, &Record::Redact(free), 0).unwrap();
        assert!(file.pieces(500, 600).is_ok() && file.pieces(500, 601).is_err());
    }
}
