//! Blocks of a ZAP object, ZFS's name → integers map (`include/sys/zap_impl.h`, `include/sys/zap_leaf.h`,
//! `module/zfs/zap*.c`).
//!
//! A ZAP has one of two shapes, told apart by the first word of block 0 ([`BlockKind::of`]):
//! - **micro** ([`micro`]): one block, 64-byte slots, names below 50 bytes, values of exactly one 8-byte integer;
//! - **fat** ([`fat`], [`leaf`]): block 0 is a header with a pointer table, indexed by the top bits of a name's hash;
//!   each pointer names a leaf block, which holds the entries of one hash prefix as chains of 24-byte chunks.
//!
//! Invariants:
//! - all multi-byte fields are little-endian here; blocks of big-endian pools are swapped before they get here.
//!   The integers of names and values inside leaf chunks are big-endian on every machine;
//! - no function trusts a block: indices are checked before use and chains are followed for at most as many steps as
//!   the block has chunks.

pub mod assigned;
pub mod fat;
pub mod hash;
pub mod leaf;
pub mod leaf_edit;
#[cfg(test)]
mod leaf_tests;
pub mod micro;
pub mod name;

pub use fat::{FatHeader, PointerTable};
pub use hash::{hash_name, hash_words};
pub use leaf::{Leaf, LeafEntry};
pub use leaf_edit::{LeafMut, Outcome};
pub use micro::{MicroEntry, MicroHeader};

/// First word of a leaf block (`ZBT_LEAF`).
pub const BLOCK_TYPE_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's header block (`ZBT_HEADER`).
pub const BLOCK_TYPE_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP (`ZBT_MICRO`).
pub const BLOCK_TYPE_MICRO: u64 = (1 << 63) + 3;

/// `ZAP_FLAG_HASH64`: 48 bits of the hash are used instead of 28.
pub const FLAG_HASH64: u64 = 1;
/// `ZAP_FLAG_UINT64_KEY`: names are arrays of 64-bit words.
pub const FLAG_UINT64_KEY: u64 = 2;
/// `ZAP_FLAG_PRE_HASHED_KEY`: the name's first word serves as its hash.
pub const FLAG_PRE_HASHED_KEY: u64 = 4;

/// Longest name in bytes that every OpenZFS reads (`ZAP_MAXNAMELEN` less the terminating zero).
pub const NAME_LEN_MAX: usize = 255;
/// Longest value in bytes (`ZAP_MAXVALUELEN`).
pub const VALUE_LEN_MAX: usize = 8192;
/// log2 of the block size of the fat ZAPs we make (`fzap_default_block_shift`).
pub const FAT_BLOCK_SHIFT: u32 = 14;
/// Size in bytes beyond which a micro ZAP becomes a fat one (`zap_micro_max_size`, `SPA_OLD_MAXBLOCKSIZE`).
pub const MICRO_SIZE_MAX: usize = 128 << 10;
/// Size in bytes of the largest micro ZAP that any OpenZFS writes (`MZAP_MAX_SIZE`, feature `large_microzap`).
pub const MICRO_SIZE_LIMIT: usize = 1 << 20;

/// A ZAP block that does not make sense: what, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("damaged {what}: {detail}")]
pub struct ZapDamage {
    /// The structure's name.
    pub what: &'static str,
    /// What was found.
    pub detail: String,
}

impl ZapDamage {
    pub(crate) fn new(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, detail: detail.into() }
    }
}

/// The shape of a ZAP, by its block 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// A micro ZAP.
    Micro,
    /// A fat ZAP's header.
    Header,
}

impl BlockKind {
    /// The shape of the ZAP whose block 0 is `block`.
    ///
    /// # Errors
    /// The first word is neither.
    pub fn of(block: &[u8]) -> Result<Self, ZapDamage> {
        match get_u64(block, 0) {
            Some(BLOCK_TYPE_MICRO) => Ok(Self::Micro),
            Some(BLOCK_TYPE_HEADER) => Ok(Self::Header),
            other => Err(ZapDamage::new("ZAP block 0", format!("block type {:#x}", other.unwrap_or(0)))),
        }
    }
}

/// Bits of the 64-bit hash in use under `flags` (`zap_hashbits`).
pub const fn hash_bits(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { 48 } else { 28 }
}

/// Largest collision differentiator plus one under `flags` (`zap_maxcd`).
pub const fn cd_limit(flags: u64) -> u32 {
    if flags & FLAG_HASH64 != 0 { 0xffff } else { u32::MAX }
}

/// A place in hash order as one word: the hash in the low [`hash_bits`] bits, the collision differentiator above
/// (`zap_cursor_serialize`).
pub const fn cursor(hash: u64, cd: u32, flags: u64) -> u64 {
    let bits = hash_bits(flags);
    hash >> (64 - bits) | (cd as u64) << bits
}

/// The hash and collision differentiator of a [`cursor`].
pub const fn cursor_parts(cursor: u64, flags: u64) -> (u64, u32) {
    let bits = hash_bits(flags);
    let cd = cursor >> bits;
    (cursor << (64 - bits), if cd >= cd_limit(flags) as u64 { 0 } else { cd as u32 })
}

fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_keeps_hash_and_differentiator() {
        for flags in [0, FLAG_HASH64] {
            let hash = 0xfedc_ba98_7654_3210 & !(u64::MAX >> hash_bits(flags));
            assert_eq!(cursor_parts(cursor(hash, 5, flags), flags), (hash, 5));
        }
        assert_eq!(cursor_parts(0, 0), (0, 0));
    }
}
