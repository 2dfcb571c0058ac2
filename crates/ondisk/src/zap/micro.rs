//! The micro ZAP: one block of 64-byte slots (`mzap_phys_t`).
//!
//! ```text
//!   0  block type      u64   ZBT_MICRO
//!   8  salt            u64   never 0
//!  16  normalisation   u64   u8_textprep flags
//!  24  zero            40 bytes
//!  64  slot 0, slot 1, …     each: value u64, cd u32, zero u16, name 50 bytes with its terminating zero
//! ```
//!
//! A slot is free when its name is empty. Slots are in no order; readers sort by (hash, cd).

use crate::le::{u32_at, u64_at};
use crate::zap::block_kind::BLOCK_TYPE_MICRO;
use crate::zap::damage::ZapDamage;
use crate::zap::limits::MICRO_SIZE_LIMIT;

/// Bytes of a slot, and of the header before the first one.
pub const SLOT_SIZE: usize = 64;
/// Bytes of a slot's name, its terminating zero included (`MZAP_NAME_LEN`).
pub const NAME_SIZE: usize = 50;
/// The block grows by this many bytes when it is full.
pub const GROWTH: usize = 512;

const NAME_AT: usize = 14;

const _: () = assert!(NAME_AT + NAME_SIZE == SLOT_SIZE);

/// The header of a micro ZAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroHeader {
    /// Start value of the hash; never 0.
    pub salt: u64,
    /// `u8_textprep` flags that names are normalised with before they are hashed.
    pub normalization: u64,
}

/// A slot in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroEntry<'a> {
    /// The name without its terminating zero.
    pub name: &'a [u8],
    /// The value.
    pub value: u64,
    /// Tells names of equal hash apart; unique among them.
    pub cd: u32,
}

impl MicroHeader {
    /// Checks and decodes the header of `block`.
    ///
    /// # Errors
    /// Wrong block type, or a size no micro ZAP has.
    pub fn decode(block: &[u8]) -> Result<Self, ZapDamage> {
        if block.len() < 2 * SLOT_SIZE || block.len() > MICRO_SIZE_LIMIT || !block.len().is_multiple_of(SLOT_SIZE) {
            return Err(ZapDamage::new("micro ZAP", format!("{} bytes long", block.len())));
        }
        if u64_at(block, 0) != BLOCK_TYPE_MICRO {
            return Err(ZapDamage::new("micro ZAP", format!("block type {:#x}", u64_at(block, 0))));
        }
        Ok(Self { salt: u64_at(block, 8), normalization: u64_at(block, 16) })
    }

    /// Writes the header over the first 64 bytes of `block`.
    pub fn encode(&self, block: &mut [u8]) {
        block[..SLOT_SIZE].fill(0);
        block[..8].copy_from_slice(&BLOCK_TYPE_MICRO.to_le_bytes());
        block[8..16].copy_from_slice(&self.salt.to_le_bytes());
        block[16..24].copy_from_slice(&self.normalization.to_le_bytes());
    }
}

/// Number of slots in a block of `size` bytes.
pub const fn slots(size: usize) -> usize {
    size / SLOT_SIZE - 1
}

/// Byte offset of slot `index`.
pub const fn slot_offset(index: usize) -> usize {
    (index + 1) * SLOT_SIZE
}

/// Slot `index` (below [`slots`]) of `block`; `None` when it is free.
///
/// # Errors
/// The name has no terminating zero.
pub fn entry(block: &[u8], index: usize) -> Result<Option<MicroEntry<'_>>, ZapDamage> {
    let slot = &block[slot_offset(index)..slot_offset(index) + SLOT_SIZE];
    let name = &slot[NAME_AT..];
    match name.iter().position(|&byte| byte == 0) {
        Some(0) => Ok(None),
        Some(length) => Ok(Some(MicroEntry { name: &name[..length], value: u64_at(slot, 0), cd: u32_at(slot, 8) })),
        None => Err(ZapDamage::new("micro ZAP", format!("the name in slot {index} does not end"))),
    }
}

/// The slots in use with their index, in slot order.
pub fn entries(block: &[u8]) -> impl Iterator<Item = Result<(usize, MicroEntry<'_>), ZapDamage>> {
    (0..slots(block.len())).filter_map(|index| match entry(block, index) {
        Ok(entry) => entry.map(|entry| Ok((index, entry))),
        Err(damage) => Some(Err(damage)),
    })
}

/// The bytes of a slot in use. `entry.name` must be 1 to 49 bytes without zeros ([`fits`]).
pub fn encode_slot(entry: &MicroEntry<'_>) -> [u8; SLOT_SIZE] {
    assert!(fits(entry.name), "a name no micro ZAP can hold");
    let mut slot = [0; SLOT_SIZE];
    slot[..8].copy_from_slice(&entry.value.to_le_bytes());
    slot[8..12].copy_from_slice(&entry.cd.to_le_bytes());
    slot[NAME_AT..NAME_AT + entry.name.len()].copy_from_slice(entry.name);
    slot
}

/// Whether a micro ZAP can hold `name`.
pub fn fits(name: &[u8]) -> bool {
    !name.is_empty() && name.len() < NAME_SIZE && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_survives_encoding() {
        let mut block = vec![0; 512];
        MicroHeader { salt: 77, normalization: 0 }.encode(&mut block);
        let long = [b'x'; 49];
        let slot = encode_slot(&MicroEntry { name: &long, value: 5, cd: 3 });
        block[slot_offset(6)..slot_offset(6) + SLOT_SIZE].copy_from_slice(&slot);
        assert_eq!(MicroHeader::decode(&block).unwrap().salt, 77);
        let all: Vec<_> = entries(&block).map(Result::unwrap).collect();
        assert_eq!(all, [(6, MicroEntry { name: &long, value: 5, cd: 3 })]);
    }

    #[test]
    fn an_endless_name_is_damage() {
        let mut block = vec![0; 512];
        MicroHeader { salt: 1, normalization: 0 }.encode(&mut block);
        block[slot_offset(2)..slot_offset(3)].fill(b'a');
        assert!(entries(&block).any(|entry| entry.is_err()));
    }
}
