//! A fat ZAP's header block and its pointer table (`zap_phys_t`).
//!
//! ```text
//!   0  block type     u64   ZBT_HEADER
//!   8  magic          u64   0x2F52AB2AB
//!  16  table          5 × u64: first block, blocks, shift, next copy's first block, blocks copied to it
//!  56  free block     u64   one past the last block in use
//!  64  leaves         u64
//!  72  entries        u64
//!  80  salt           u64
//!  88  normalisation  u64
//!  96  flags          u64
//! half of the block:  embedded pointer table
//! ```
//!
//! The pointer table has `2^shift` words; word `hash >> (64 - shift)` is the number of the leaf block for that hash.
//! It sits in the second half of this block (`blocks == 0`) or, once that is too small, in blocks of its own. While it
//! grows, `next` names a table twice the size that is filled block by block.

use crate::le::u64_at;
use crate::zap::block_kind::BLOCK_TYPE_HEADER;
use crate::zap::cursor::hash_bits;
use crate::zap::damage::ZapDamage;

/// `ZAP_MAGIC`.
pub const MAGIC: u64 = 0x2_F52A_B2AB;
/// Bytes of the header's fields.
pub const HEADER_SIZE: usize = 104;
/// Byte offset of the entry count within the header.
pub const ENTRIES_AT: usize = 72;

const WHAT: &str = "fat ZAP header";

/// Where the pointer table is (`zap_table_phys`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointerTable {
    /// First block of the table; 0 when it is embedded in the header.
    pub block: u64,
    /// Blocks of the table; 0 when it is embedded in the header.
    pub blocks: u64,
    /// log2 of the number of pointers.
    pub shift: u64,
    /// First block of the larger copy being made; 0 when none is.
    pub next_block: u64,
    /// Blocks already copied to it.
    pub copied: u64,
}

/// The header's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatHeader {
    /// The pointer table.
    pub table: PointerTable,
    /// Number of the first block never used.
    pub free_block: u64,
    /// Leaf blocks.
    pub leaves: u64,
    /// Entries in all leaves.
    pub entries: u64,
    /// Start value of the hash; never 0.
    pub salt: u64,
    /// `u8_textprep` flags.
    pub normalization: u64,
    /// `zap_flags_t`.
    pub flags: u64,
}

/// log2 of the number of pointers in a table embedded in a header of `2^block_shift` bytes.
pub const fn embedded_shift(block_shift: u32) -> u32 {
    block_shift - 3 - 1
}

/// log2 of a fat ZAP's block size, when `size` is one.
///
/// # Errors
/// Not a power of two from 1 KiB to 1 MiB (the chunk numbers of larger leaves would not fit 16 bits).
pub fn block_shift(size: usize) -> Result<u32, ZapDamage> {
    if size.is_power_of_two() && (1 << 10..=1 << 20).contains(&size) {
        Ok(size.trailing_zeros())
    } else {
        Err(ZapDamage::new("fat ZAP", format!("blocks of {size} bytes")))
    }
}

impl FatHeader {
    /// A new header with an embedded table for blocks of `2^block_shift` bytes: block 1 is to be the only leaf.
    pub fn new(block_shift: u32, salt: u64, normalization: u64, flags: u64) -> Self {
        let table = PointerTable { shift: u64::from(embedded_shift(block_shift)), ..PointerTable::default() };
        Self { table, free_block: 2, leaves: 1, entries: 0, salt, normalization, flags }
    }

    /// Checks and decodes block 0.
    ///
    /// # Errors
    /// Anything that contradicts itself.
    pub fn decode(block: &[u8]) -> Result<Self, ZapDamage> {
        let shift = block_shift(block.len())?;
        let word = |index: usize| u64_at(block, index * 8);
        if word(0) != BLOCK_TYPE_HEADER || word(1) != MAGIC {
            return Err(ZapDamage::new(WHAT, format!("block type {:#x}, magic {:#x}", word(0), word(1))));
        }
        let table =
            PointerTable { block: word(2), blocks: word(3), shift: word(4), next_block: word(5), copied: word(6) };
        let header = Self {
            table,
            free_block: word(7),
            leaves: word(8),
            entries: word(9),
            salt: word(10),
            normalization: word(11),
            flags: word(12),
        };
        header.check(shift)?;
        Ok(header)
    }

    fn check(&self, block_shift: u32) -> Result<(), ZapDamage> {
        let table = &self.table;
        let embedded = u64::from(embedded_shift(block_shift));
        let damage = |detail: String| Err(ZapDamage::new(WHAT, detail));
        if table.shift >= u64::from(hash_bits(self.flags)) {
            return damage(format!("a pointer table of 2^{} pointers", table.shift));
        }
        if (table.block == 0) != (table.blocks == 0) {
            return damage(format!("{} pointer table blocks at block {}", table.blocks, table.block));
        }
        if table.blocks == 0 {
            if table.shift != embedded || table.next_block != 0 {
                return damage(format!("an embedded table of 2^{} pointers", table.shift));
            }
        } else if table.shift <= embedded || table.blocks != 1 << (table.shift - embedded - 1) {
            return damage(format!("2^{} pointers in {} blocks", table.shift, table.blocks));
        }
        let last = self.free_block.min(1 << 40);
        let fits = |first: u64, count: u64| first.checked_add(count).is_some_and(|end| end <= last);
        if last != self.free_block || self.free_block < 2 || !fits(table.block, table.blocks) {
            return damage(format!("{} blocks in use, table at {}", self.free_block, table.block));
        }
        if table.next_block != 0 && (!fits(table.next_block, table.blocks * 2) || table.copied >= table.blocks) {
            return damage(format!("a growing table at {} with {} blocks copied", table.next_block, table.copied));
        }
        Ok(())
    }

    /// Encodes the fields (not the embedded table) for the start of block 0.
    pub fn encode(&self) -> [u8; HEADER_SIZE] {
        let table = &self.table;
        let words = [
            BLOCK_TYPE_HEADER,
            MAGIC,
            table.block,
            table.blocks,
            table.shift,
            table.next_block,
            table.copied,
            self.free_block,
            self.leaves,
            self.entries,
            self.salt,
            self.normalization,
            self.flags,
        ];
        let mut bytes = [0; HEADER_SIZE];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Index of `hash`'s pointer in the table.
    pub fn pointer_index(&self, hash: u64) -> u64 {
        prefix(hash, self.table.shift as u32)
    }

    /// Byte offset within the object of pointer `index`, for blocks of `2^block_shift` bytes.
    pub fn pointer_offset(&self, index: u64, block_shift: u32) -> u64 {
        let start = if self.table.blocks == 0 { 1 << (block_shift - 1) } else { self.table.block << block_shift };
        start + index * 8
    }
}

/// The top `length` bits of `hash`.
pub const fn prefix(hash: u64, length: u32) -> u64 {
    if length == 0 { 0 } else { hash >> (64 - length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(header: &FatHeader) -> Vec<u8> {
        let mut block = vec![0; 1 << 14];
        block[..HEADER_SIZE].copy_from_slice(&header.encode());
        block
    }

    #[test]
    fn a_header_survives_encoding() {
        let mut header = FatHeader::new(14, 99, 0, 0);
        assert_eq!(header.table.shift, 10);
        assert_eq!(FatHeader::decode(&block(&header)).unwrap(), header);
        header.table = PointerTable { block: 40, blocks: 2, shift: 12, next_block: 50, copied: 1 };
        header.free_block = 54;
        assert_eq!(FatHeader::decode(&block(&header)).unwrap(), header);
    }

    #[test]
    fn contradictions_are_damage() {
        let good = FatHeader::new(14, 99, 0, 0);
        let with = |change: fn(&mut FatHeader)| {
            let mut header = good;
            change(&mut header);
            FatHeader::decode(&block(&header))
        };
        assert!(with(|h| h.table.shift = 11).is_err());
        assert!(with(|h| h.table.shift = 60).is_err());
        assert!(with(|h| h.table.block = 7).is_err());
        assert!(with(|h| h.free_block = u64::MAX).is_err());
        assert!(with(|h| h.table = PointerTable { block: 9, blocks: 1, shift: 11, next_block: 0, copied: 0 }).is_err());
    }
}
