//! What a block of a ZAP is, by its first word.

use crate::zap::damage::ZapDamage;

/// First word of a leaf block (`ZBT_LEAF`).
pub const BLOCK_TYPE_LEAF: u64 = 1 << 63;
/// First word of a fat ZAP's header block (`ZBT_HEADER`).
pub const BLOCK_TYPE_HEADER: u64 = (1 << 63) + 1;
/// First word of a micro ZAP (`ZBT_MICRO`).
pub const BLOCK_TYPE_MICRO: u64 = (1 << 63) + 3;

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

fn get_u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
