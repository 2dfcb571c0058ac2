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
mod block_kind;
mod cursor;
mod damage;
pub mod fat;
pub mod hash;
pub mod leaf;
pub mod leaf_edit;
#[cfg(test)]
mod leaf_tests;
mod limits;
pub mod micro;
pub mod name;

pub use block_kind::{BLOCK_TYPE_HEADER, BLOCK_TYPE_LEAF, BLOCK_TYPE_MICRO, BlockKind};
pub use cursor::{FLAG_HASH64, FLAG_PRE_HASHED_KEY, FLAG_UINT64_KEY, cd_limit, cursor, cursor_parts, hash_bits};
pub use damage::ZapDamage;
pub use fat::{FatHeader, PointerTable};
pub use hash::{hash_name, hash_words};
pub use leaf::{Leaf, LeafEntry};
pub use leaf_edit::{LeafMut, Outcome};
pub use limits::{FAT_BLOCK_SHIFT, MICRO_SIZE_LIMIT, MICRO_SIZE_MAX, NAME_LEN_MAX, VALUE_LEN_MAX};
pub use micro::{MicroEntry, MicroHeader};
