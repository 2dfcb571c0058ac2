//! A log block: records between, or behind, a chain link (`zil_read_log_block` in `module/zfs/zil.c`; the embedded
//! checksum: `module/zfs/zio_checksum.c`).
//!
//! ```text
//! ZILOG2 (pools of version 23 and later)         ZILOG (before)
//! 0        184              used          size   0              used            size-184   size
//! | link   | records ...    | nothing     |      | records ...  | nothing       | link     |
//! ```
//!
//! `used` counts the link in ZILOG2 and leaves it out in ZILOG. A ZILOG2 checksum covers `used` bytes rounded up to
//! 4096, so that whoever writes a block need not write its rest. While the checksum is computed, the block pointer's
//! own four words stand in its place: two random numbers of the chain, the object set, and the block's sequence number.
//! The next block's pointer has the same words with the number one higher. So a block of another chain, or an old block
//! at the same place, never passes.

use super::{ZIL_CHAIN_SIZE, ZilChain};
use crate::blkptr::BlkPtr;
use crate::checksum::Checksum;
use crate::embedded::ZEC_MAGIC;
use crate::error::Error;
use crate::le::put_words;

/// Least size of a ZILOG2 block and unit of what its checksum covers, in bytes (`ZIL_MIN_BLKSZ`).
pub const BLOCK_SIZE_MIN: usize = 4096;
/// Largest log block, in bytes (`zil_maxblocksize`, 128 KiB).
pub const BLOCK_SIZE_MAX: usize = 128 << 10;
/// Which word of a log block's pointer counts the blocks (`ZIL_ZC_SEQ`).
pub const SEQUENCE_WORD: usize = 3;

const WHAT: &str = "log block";
/// Size of the four words at the end of the link, in bytes.
const CHECKSUM_SIZE: usize = 32;

/// Where the chain link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// At the start (ZILOG2).
    Slim,
    /// At the end (ZILOG).
    Trailing,
}

impl Layout {
    /// The layout of the block that `bp` points to; `None` when it is no log block.
    pub fn of(bp: &BlkPtr) -> Option<Self> {
        match bp.checksum_kind() {
            Checksum::ZILOG2 => Some(Self::Slim),
            Checksum::ZILOG => Some(Self::Trailing),
            _ => None,
        }
    }

    /// `enum zio_checksum` of its blocks.
    pub fn checksum_kind(self) -> Checksum {
        match self {
            Self::Slim => Checksum::ZILOG2,
            Self::Trailing => Checksum::ZILOG,
        }
    }
}

/// The number of a log block in its chain.
pub fn sequence(bp: &BlkPtr) -> u64 {
    bp.checksum()[SEQUENCE_WORD]
}

/// What a pointer's checksum words must be for the block after the one with `seed`.
pub fn next_seed(seed: [u64; 4]) -> [u64; 4] {
    let mut next = seed;
    next[SEQUENCE_WORD] = next[SEQUENCE_WORD].wrapping_add(1);
    next
}

/// Bytes of records that a block of `size` bytes holds.
pub const fn capacity(size: usize) -> usize {
    size.saturating_sub(ZIL_CHAIN_SIZE)
}

/// Bytes at the start of a block that its checksum covers, and where the link stands.
fn extent(layout: Layout, bytes: &[u8]) -> Result<(usize, usize), Error> {
    match layout {
        Layout::Slim => {
            let link = ZilChain::decode(bytes)?;
            let covered =
                usize::try_from(link.used).ok().and_then(|used| used.checked_next_multiple_of(BLOCK_SIZE_MIN));
            match covered {
                // The link itself is always among what is covered.
                Some(covered) if link.magic == ZEC_MAGIC && (ZIL_CHAIN_SIZE..=bytes.len()).contains(&covered) => {
                    Ok((covered, 0))
                }
                _ => Err(Error::field(WHAT, "zc_nused", link.used)),
            }
        }
        Layout::Trailing => {
            Error::need(WHAT, bytes, ZIL_CHAIN_SIZE)?;
            Ok((bytes.len(), bytes.len() - ZIL_CHAIN_SIZE))
        }
    }
}

/// Builds a block of `size` bytes with `records` in it. `seed` is the checksum in the block's own pointer, `hash` the
/// function of the layout (Fletcher-4 for [`Layout::Slim`], Fletcher-2 for [`Layout::Trailing`]).
///
/// # Panics
/// When `records` is longer than [`capacity`], or `size` no multiple of 4096 in the slim layout.
pub fn build(
    layout: Layout,
    size: usize,
    next: &BlkPtr,
    records: &[u8],
    seed: [u64; 4],
    hash: impl Fn(&[u8]) -> [u64; 4],
) -> Vec<u8> {
    assert!(records.len() <= capacity(size), "{} bytes of records for a block of {size}", records.len());
    let mut bytes = vec![0; size];
    let (link_at, records_at, used) = match layout {
        Layout::Slim => {
            assert!(size.is_multiple_of(BLOCK_SIZE_MIN), "a log block of {size} bytes");
            (0, ZIL_CHAIN_SIZE, ZIL_CHAIN_SIZE + records.len())
        }
        Layout::Trailing => (size - ZIL_CHAIN_SIZE, 0, records.len()),
    };
    bytes[records_at..records_at + records.len()].copy_from_slice(records);
    let mut link = ZilChain { next: *next, used: used as u64, magic: ZEC_MAGIC, checksum: seed };
    link.encode(&mut bytes[link_at..]);
    let (covered, _) = extent(layout, &bytes).expect("just built");
    link.checksum = hash(&bytes[..covered]);
    link.encode(&mut bytes[link_at..]);
    bytes
}

/// Checks the block with the pointer's checksum `seed` and returns the next block's pointer and the records.
///
/// # Errors
/// When it is not the block that was meant: the chain ends before it. Blocks of big-endian machines are
/// [`Error::BadMagic`].
pub fn open(
    layout: Layout,
    bytes: &[u8],
    seed: [u64; 4],
    hash: impl Fn(&[u8]) -> [u64; 4],
) -> Result<(BlkPtr, &[u8]), Error> {
    let (covered, link_at) = extent(layout, bytes)?;
    let link = ZilChain::decode(&bytes[link_at..])?;
    if link.magic != ZEC_MAGIC {
        return Err(Error::BadMagic { what: WHAT, found: link.magic });
    }
    let mut seeded = bytes[..covered].to_vec();
    put_words(&mut seeded, link_at + ZIL_CHAIN_SIZE - CHECKSUM_SIZE, &seed);
    if hash(&seeded) != link.checksum {
        return Err(Error::BadChecksum { what: WHAT });
    }
    if link.next.checksum() != next_seed(seed) {
        return Err(Error::field(WHAT, "zc_next_blk", sequence(&link.next)));
    }
    let used = link.used as usize;
    let records = match layout {
        Layout::Slim => bytes.get(ZIL_CHAIN_SIZE..used),
        Layout::Trailing => bytes[..link_at].get(..used),
    };
    Ok((link.next, records.ok_or(Error::field(WHAT, "zc_nused", link.used))?))
}
