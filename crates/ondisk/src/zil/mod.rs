//! The intent log's structures (`include/sys/zil.h`): the header in the object set, the chain link in each log block
//! ([`block`]), and the records in them ([`record`]).

pub mod attributes;
pub mod block;
mod encode;
pub mod record;
pub mod set;
#[cfg(test)]
mod tests;

use crate::blkptr::{BLKPTR_SIZE, BlkPtr};
use crate::error::Error;
use crate::ids::Txg;
use crate::le::{put_words, u64_at, words_at};

/// Size of `zil_header_t`, in bytes.
pub const ZIL_HEADER_SIZE: usize = 192;
/// Size of `zil_chain_t`, in bytes.
pub const ZIL_CHAIN_SIZE: usize = 184;

/// `ZIL_REPLAY_NEEDED`.
pub const ZIL_REPLAY_NEEDED: u64 = 0x1;
/// `ZIL_CLAIM_LR_SEQ_VALID`: `claim_lr_seq` is set.
pub const ZIL_CLAIM_LR_SEQ_VALID: u64 = 0x2;

/// `zil_header_t`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ZilHeader {
    /// Group in which the log's blocks were claimed after a crash; 0 when never.
    pub claim_txg: Txg,
    /// Highest sequence number replayed.
    pub replay_seq: u64,
    /// First block of the chain; a hole when there is no log.
    pub log: BlkPtr,
    /// Highest block sequence number claimed.
    pub claim_blk_seq: u64,
    /// `ZIL_*` flags.
    pub flags: u64,
    /// Highest record sequence number claimed.
    pub claim_lr_seq: u64,
}

impl ZilHeader {
    /// Decodes the header from 192 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("ZIL header", bytes, ZIL_HEADER_SIZE)?;
        Ok(Self {
            claim_txg: Txg(u64_at(bytes, 0)),
            replay_seq: u64_at(bytes, 8),
            log: BlkPtr::decode(&bytes[16..]),
            claim_blk_seq: u64_at(bytes, 16 + BLKPTR_SIZE),
            flags: u64_at(bytes, 24 + BLKPTR_SIZE),
            claim_lr_seq: u64_at(bytes, 32 + BLKPTR_SIZE),
        })
    }

    /// Writes the header over the first 192 bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        out[..ZIL_HEADER_SIZE].fill(0);
        put_words(out, 0, &[self.claim_txg.0, self.replay_seq]);
        self.log.encode(&mut out[16..]);
        put_words(out, 16 + BLKPTR_SIZE, &[self.claim_blk_seq, self.flags, self.claim_lr_seq]);
    }

    /// Whether there is no log.
    pub fn is_empty(&self) -> bool {
        self.log.is_hole()
    }
}

/// `zil_chain_t`: at the start (ZILOG2) or the end (ZILOG) of a log block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZilChain {
    /// The next block, allocated ahead; the chain ends where it cannot be read.
    pub next: BlkPtr,
    /// Bytes of the block in use, the chain link itself included when it stands at the start.
    pub used: u64,
    /// The trailer's magic.
    pub magic: u64,
    /// The embedded checksum.
    pub checksum: [u64; 4],
}

impl ZilChain {
    /// Decodes the link from 184 bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        Error::need("ZIL chain", bytes, ZIL_CHAIN_SIZE)?;
        Ok(Self {
            next: BlkPtr::decode(&bytes[8..]),
            used: u64_at(bytes, 8 + BLKPTR_SIZE),
            magic: u64_at(bytes, 16 + BLKPTR_SIZE),
            checksum: words_at(bytes, 24 + BLKPTR_SIZE),
        })
    }

    /// Writes the link over the first 184 bytes of `out`.
    pub fn encode(&self, out: &mut [u8]) {
        out[..8].fill(0);
        self.next.encode(&mut out[8..]);
        put_words(out, 8 + BLKPTR_SIZE, &[self.used, self.magic]);
        put_words(out, 24 + BLKPTR_SIZE, &self.checksum);
    }
}

const _: () = assert!(ZIL_HEADER_SIZE == 16 + BLKPTR_SIZE + 3 * 8 + 3 * 8);
const _: () = assert!(ZIL_CHAIN_SIZE == 16 + BLKPTR_SIZE + crate::embedded::ECK_SIZE);
