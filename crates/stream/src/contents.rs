//! Which files a stream of a file system has, without receiving it. Nothing is read here: whoever has the stream tells
//! of its records, and reads the blocks of directories where they are said to lie.
//!
//! Memory is taken for directories alone, and bounded; a block is in memory while it is looked at.

use std::collections::BTreeMap;

use platter_ondisk::zap::{BlockKind, Leaf, MicroEntry, MicroHeader, micro};
use platter_ondisk::{Compression, ObjectId, ObjectType, byteswap};

use crate::error::StreamError;
use crate::record::{Embedded, Record, Write};

/// Most blocks of directories that are remembered.
const BLOCKS_MAX: usize = 1 << 20;
/// The object that leads to the others (`MASTER_NODE_OBJ`), and its entry for the topmost directory.
const MASTER_NODE: ObjectId = ObjectId(1);
const ROOT: &[u8] = b"ROOT";
/// What leads to files, and says what their attributes are.
const LEADING: [ObjectType; 4] = [
    ObjectType::MASTER_NODE,
    ObjectType::DIRECTORY_CONTENTS,
    ObjectType::SA_ATTR_REGISTRATION,
    ObjectType::SA_ATTR_LAYOUTS,
];
/// A directory's entry is an object's number and, in its upper bits, what it is (`ZFS_DIRENT_MAKE`).
const NUMBER_BITS: u32 = 48;
const KIND_SHIFT: u32 = 60;
/// `DT_DIR`, `DT_REG`.
const DIRECTORY: u64 = 4;
const REGULAR: u64 = 8;

/// A block of an object in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPlace {
    /// Where its payload begins, in bytes of whatever holds the stream.
    pub at: u64,
    /// Bytes of the payload.
    pub stored: usize,
    /// Bytes of the block.
    pub length: usize,
    /// How the payload is compressed.
    pub compression: Compression,
    /// Bytes of it that are compressed.
    used: usize,
    object_type: ObjectType,
}

impl BlockPlace {
    fn of_write(write: &Write, at: u64) -> Self {
        let stored = write.payload_size() as usize;
        let compression = if write.is_compressed() { write.compression } else { Compression::OFF };
        let length = write.logical_size as usize;
        Self { at, stored, length, compression, used: stored, object_type: write.object_type }
    }

    fn of_embedded(embedded: &Embedded, at: u64) -> Self {
        let used = embedded.payload_size as usize;
        let stored = used.next_multiple_of(8);
        // Shorter than the block: what is behind is zero.
        let (length, compression) = (embedded.logical_size as usize, embedded.compression);
        Self { at, stored, length, compression, used, object_type: ObjectType::PLAIN_FILE_CONTENTS }
    }

    /// The block, of its payload.
    ///
    /// # Errors
    /// The payload has another length, or is not what was compressed.
    pub fn contents(&self, payload: &[u8], swapped: bool) -> Result<Vec<u8>, StreamError> {
        let mut block = vec![0; self.length];
        let payload = payload.get(..self.used).filter(|_| payload.len() == self.stored);
        let Some(payload) = payload else { return StreamError::malformed("a block of another length") };
        if self.compression == Compression::OFF {
            let length = payload.len().min(block.len());
            block[..length].copy_from_slice(&payload[..length]);
        } else if platter_compress::decompress(self.compression, payload, &mut block).is_err() {
            return StreamError::malformed("a block that cannot be expanded");
        }
        if swapped {
            byteswap::byteswap(self.object_type, &mut block);
        }
        Ok(block)
    }
}

/// Where a record's block is in a stream, if it has one: of which object, at which of its bytes.
pub fn block_of(record: &Record, at: u64) -> Option<(ObjectId, u64, BlockPlace)> {
    match record {
        Record::Write(write) => Some((write.object, write.offset, BlockPlace::of_write(write, at))),
        Record::WriteEmbedded(embedded) => {
            Some((embedded.object, embedded.offset, BlockPlace::of_embedded(embedded, at)))
        }
        _ => None,
    }
}

/// What an entry of a directory leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Anything else.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: Vec<u8>,
    /// The object.
    pub object: ObjectId,
    /// What that is.
    pub kind: EntryKind,
}

/// The directories of a stream: where their blocks are.
#[derive(Debug, Default)]
pub struct Directories {
    /// The object whose records come, and its type, which those of blocks in their pointers do not say.
    current: Option<(ObjectId, ObjectType)>,
    blocks: BTreeMap<(ObjectId, u64), BlockPlace>,
}

impl Directories {
    /// Takes note of a record whose payload begins at `at`.
    ///
    /// # Errors
    /// There are too many directories.
    pub fn note(&mut self, record: &Record, at: u64) -> Result<(), StreamError> {
        if let Record::Object(object) = record {
            self.current = Some((object.object, object.object_type));
        }
        let Some((object, offset, mut place)) = block_of(record, at) else { return Ok(()) };
        if let Some((_, object_type)) = self.current.filter(|(current, _)| *current == object) {
            place.object_type = object_type;
        }
        if !LEADING.contains(&place.object_type) {
            return Ok(());
        }
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(StreamError::Unsupported("it has more directories than can be looked at".into()));
        }
        self.blocks.insert((object, offset), place);
        Ok(())
    }

    /// Where the blocks of a directory are.
    pub fn blocks_of(&self, object: ObjectId) -> Vec<BlockPlace> {
        self.blocks.range((object, 0)..=(object, u64::MAX)).map(|(_, place)| *place).collect()
    }

    /// Where the blocks of this type are.
    pub fn blocks_of_type(&self, object_type: ObjectType) -> Vec<BlockPlace> {
        self.blocks.values().filter(|place| place.object_type == object_type).copied().collect()
    }

    /// Where the blocks of what leads to the topmost directory are.
    pub fn blocks_of_master(&self) -> Vec<BlockPlace> {
        self.blocks_of(MASTER_NODE)
    }
}

/// Names and values in one block of a map.
///
/// # Errors
/// It makes no sense.
pub(crate) fn named(block: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u64>)>, StreamError> {
    let damaged = |what: &dyn std::fmt::Display| StreamError::Malformed(format!("a directory: {what}"));
    if matches!(BlockKind::of(block), Ok(BlockKind::Micro)) {
        MicroHeader::decode(block).map_err(|error| damaged(&error))?;
        let named = |entry: MicroEntry<'_>| (entry.name.to_vec(), vec![entry.value]);
        let entries = micro::entries(block).map(|entry| entry.map(|(_, entry)| named(entry)));
        return entries.collect::<Result<_, _>>().map_err(|error| damaged(&error));
    }
    // Of a large map only its leaves have entries; its table of pointers is passed over.
    let Ok(leaf) = Leaf::open(block) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in leaf.entries_from(0, 0).map_err(|error| damaged(&error))? {
        let mut name = leaf.name(&entry, 1).map_err(|error| damaged(&error))?;
        if name.last() == Some(&0) {
            name.pop();
        }
        let value = leaf.value(&entry).map_err(|error| damaged(&error))?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        let size = usize::from(entry.value_integer_size).clamp(1, 8);
        found.push((name, value.chunks_exact(size).map(number).collect()));
    }
    Ok(found)
}

/// The entries in one block of a directory.
///
/// # Errors
/// It makes no sense.
pub fn entries(block: &[u8]) -> Result<Vec<Entry>, StreamError> {
    let entry = |(name, values): (Vec<u8>, Vec<u64>)| {
        let value = *values.first()?;
        let kind = match value >> KIND_SHIFT {
            DIRECTORY => EntryKind::Directory,
            REGULAR => EntryKind::File,
            _ => EntryKind::Other,
        };
        Some(Entry { name, object: ObjectId(value & ((1 << NUMBER_BITS) - 1)), kind })
    };
    Ok(named(block)?.into_iter().filter_map(entry).collect())
}

/// The topmost directory, if this block of the object that leads to it has it.
///
/// # Errors
/// It makes no sense.
pub fn root(block: &[u8]) -> Result<Option<ObjectId>, StreamError> {
    let found = named(block)?.into_iter().find(|(name, _)| name == ROOT);
    Ok(found.and_then(|(_, values)| values.first().copied()).map(ObjectId))
}
