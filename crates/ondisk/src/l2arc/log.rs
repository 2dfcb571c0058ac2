//! A log block and its entries (`l2arc_log_blk_phys_t`, `l2arc_log_ent_phys_t`): 64 KiB before it is compressed.

use super::pointer::{LOG_BLOCK_SIZE, LogPointer, WORDS};
use super::{field, size_field, to_size_field, turned};
use crate::blkptr::Dva;
use crate::compression::Compression;
use crate::embedded::ByteOrder;
use crate::error::Error;
use crate::ids::Txg;
use crate::le::{put_words, u64_at};

/// Most entries of one (`L2ARC_LOG_BLK_MAX_ENTRIES`).
pub const LOG_ENTRIES_MAX: usize = 1022;

const MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
const WHAT: &str = "cache device log block";
/// Bytes before the first entry.
const HEAD: usize = 128;
const ENTRY: usize = 64;
const _: () = assert!(HEAD + LOG_ENTRIES_MAX * ENTRY <= LOG_BLOCK_SIZE);
/// `ARC_STATE_MRU` (`include/sys/arc.h`): read or written once lately.
const STATE_RECENT: u64 = 1;

/// A block on a cache device. All offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The block's first address in the pool (`le_dva`).
    pub dva: Dva,
    /// The group in which it was written there (`le_birth`).
    pub birth: Txg,
    /// Its size (`le_prop`).
    pub lsize: u64,
    /// Its size as it is stored, here as in the pool (`le_prop`).
    pub psize: u64,
    /// How it is compressed (`le_prop`).
    pub compression: Compression,
    /// Whether it is metadata (`le_prop`, from `arc_buf_contents_t`).
    pub is_metadata: bool,
    /// Whether it is encrypted or authenticated (`le_prop`).
    pub is_protected: bool,
    /// Where it lies on the device (`le_daddr`).
    pub offset: u64,
}

impl LogEntry {
    fn to_words(self) -> [u64; 8] {
        let [first, second] = self.dva.to_words();
        // One more than the kind: there was another one once.
        let kind = if self.is_metadata { 2 } else { 1 };
        let prop = to_size_field(self.lsize, 0)
            | to_size_field(self.psize, 16)
            | u64::from(self.compression.number() & 0x7f) << 32
            | kind << 48
            | u64::from(self.is_protected) << 56
            | STATE_RECENT << 57;
        [first, second, self.birth.0, prop, self.offset, 0, 0, 0]
    }

    fn from_words(words: [u64; 8]) -> Self {
        let prop = words[3];
        Self {
            dva: Dva::from_words([words[0], words[1]]),
            birth: Txg(words[2]),
            lsize: size_field(prop, 0),
            psize: size_field(prop, 16),
            compression: Compression::from_number(field(prop, 32, 7) as u8),
            is_metadata: field(prop, 48, 8) == 2,
            is_protected: field(prop, 56, 1) == 1,
            offset: words[4],
        }
    }
}

/// A log block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The one before the one before it (`lb_prev_lbp`).
    pub previous: LogPointer,
    /// What was written since the one before it, in that order.
    pub entries: Vec<LogEntry>,
}

impl LogBlock {
    /// The log block as it is before it is compressed.
    ///
    /// # Panics
    /// With more than [`LOG_ENTRIES_MAX`] entries, or one whose sizes do not fit.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.entries.len() <= LOG_ENTRIES_MAX, "a log block has {LOG_ENTRIES_MAX} entries at most");
        let mut bytes = vec![0; LOG_BLOCK_SIZE];
        put_words(&mut bytes, 0, &[MAGIC]);
        put_words(&mut bytes, 8, &self.previous.to_words());
        for (index, entry) in self.entries.iter().enumerate() {
            put_words(&mut bytes, HEAD + index * ENTRY, &entry.to_words());
        }
        bytes
    }

    /// Decodes a log block of `entries` entries, as the device's header says, that was decompressed and whose checksum
    /// matched.
    ///
    /// # Errors
    /// Too few bytes, no magic number, more entries than fit.
    pub fn decode(bytes: &[u8], entries: u64) -> Result<Self, Error> {
        Error::need(WHAT, bytes, LOG_BLOCK_SIZE)?;
        let count = usize::try_from(entries).ok().filter(|&count| count <= LOG_ENTRIES_MAX);
        let count = count.ok_or_else(|| Error::field(WHAT, "dh_log_entries", entries))?;
        let order = match u64_at(bytes, 0) {
            MAGIC => ByteOrder::Little,
            magic if magic == MAGIC.swap_bytes() => ByteOrder::Big,
            found => return Err(Error::BadMagic { what: WHAT, found }),
        };
        let word = |at: usize| turned(u64_at(bytes, at), order);
        let pointer: [u64; WORDS] = std::array::from_fn(|index| word(8 + 8 * index));
        let entry = |index: usize| {
            let at = HEAD + index * ENTRY;
            LogEntry::from_words(std::array::from_fn(|field| word(at + 8 * field)))
        };
        Ok(Self { previous: LogPointer::from_words(&pointer), entries: (0..count).map(entry).collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sector::Sectors;

    prop_compose! {
        fn an_entry()(
            vdev in 0u32..1 << 24, offset in 0u64..1 << 40, asize in 1u64..1 << 24, gang: bool, birth: u64,
            lsize in 1u64..=1 << 15, psize in 1u64..=1 << 15, number in 0u8..20, is_metadata: bool,
            is_protected: bool, place: u64,
        ) -> LogEntry {
            let dva = Dva { vdev, offset: Sectors(offset).bytes(), asize: Sectors(asize).bytes(), gang };
            LogEntry {
                dva, birth: Txg(birth), lsize: Sectors(lsize).bytes(), psize: Sectors(psize).bytes(),
                compression: Compression::from_number(number), is_metadata, is_protected, offset: place,
            }
        }
    }

    fn turned_over(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks_exact(8).flat_map(|word| word.iter().rev().copied().collect::<Vec<_>>()).collect()
    }

    proptest! {
        #[test]
        fn a_log_block_reads_back(entries in proptest::collection::vec(an_entry(), 0..20), place: u64) {
            let previous = LogPointer { checksum: [1, 2, 3, place], ..LogPointer::default() };
            let block = LogBlock { previous, entries };
            let bytes = block.encode();
            let count = block.entries.len() as u64;
            prop_assert_eq!(LogBlock::decode(&bytes, count), Ok(block.clone()));
            prop_assert_eq!(LogBlock::decode(&turned_over(&bytes), count), Ok(block));
        }

        #[test]
        fn hostile_bytes_are_read_or_refused(seed: u64, count in 0u64..2000, magic: bool, length in 0usize..70_000) {
            let byte = |at: usize| (seed.rotate_left(at as u32 % 64) as u8) ^ at as u8;
            let mut bytes: Vec<u8> = (0..length).map(byte).collect();
            if magic && length >= 8 {
                bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            }
            let decoded = LogBlock::decode(&bytes, count);
            let is_whole = magic && length >= LOG_BLOCK_SIZE && count <= LOG_ENTRIES_MAX as u64;
            prop_assert_eq!(decoded.is_ok(), is_whole);
            if let Ok(block) = decoded {
                // Also what makes no sense can be held against the ring.
                let ring = super::super::Ring { start: 1, end: 1 << 30, hand: 9, evict: 8, is_first: false };
                let _ = block.previous.is_valid(&ring);
                prop_assert!(block.entries.iter().all(|entry| entry.psize <= 32 << 20));
            }
        }
    }
}
