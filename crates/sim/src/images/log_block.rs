//! Blocks of an intent log: where things stand in them, their chained checksum, and changes that know both.

use platter_checksum::{fletcher_2, fletcher_4};
use platter_ondisk::blkptr::{BLKPTR_SIZE, BlkPtr};
use platter_ondisk::zil::block::{self, BLOCK_SIZE_MIN, Layout};
use platter_ondisk::zil::{ZIL_CHAIN_SIZE, ZilChain, record};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::RngCore;

use super::numbers::{interesting, numbers_in, put};

/// Bytes of a record's own header, and where a record of written data has its pointer (`lr_write_t`).
const RECORD_HEADER: usize = 32;
const WRITE_POINTER: usize = 64;
const WRITE_LENGTH: usize = 48;
/// Where a link has the next block's pointer, the bytes in use and the checksum (`zil_chain_t`).
const NEXT: usize = 8;
const USED: usize = NEXT + BLKPTR_SIZE;
const CHECKSUM: usize = ZIL_CHAIN_SIZE - 32;

fn hash(layout: Layout) -> fn(&[u8]) -> [u64; 4] {
    match layout {
        Layout::Slim => fletcher_4,
        Layout::Trailing => fletcher_2,
    }
}

/// Where the pointer to the next block stands.
pub fn next_at(layout: Layout, size: usize) -> usize {
    link_at(layout, size) + NEXT
}

fn link_at(layout: Layout, size: usize) -> usize {
    match layout {
        Layout::Slim => 0,
        Layout::Trailing => size - ZIL_CHAIN_SIZE,
    }
}

/// Whether it is the block that a pointer with this checksum means.
pub fn is_good(layout: Layout, bytes: &[u8], seed: [u64; 4]) -> bool {
    block::open(layout, bytes, seed, hash(layout)).is_ok()
}

/// Where its records begin, each with its length.
fn records(layout: Layout, bytes: &[u8]) -> Vec<(usize, usize)> {
    let link = link_at(layout, bytes.len());
    let Ok(chain) = ZilChain::decode(&bytes[link..]) else { return Vec::new() };
    let (mut at, end) = match layout {
        Layout::Slim => (ZIL_CHAIN_SIZE, chain.used as usize),
        Layout::Trailing => (0, chain.used as usize),
    };
    let mut found = Vec::new();
    while let Some(Ok((.., length))) = bytes.get(at..end).filter(|rest| !rest.is_empty()).map(record::decode) {
        found.push((at, length));
        at += length;
    }
    found
}

/// Where pointers to blocks of data stand in its records.
pub fn pointers(layout: Layout, bytes: &[u8]) -> Vec<usize> {
    let writes = records(layout, bytes).into_iter().filter(|&(at, length)| {
        // Only a write without data in itself leads to some.
        let is_write = bytes[at] == record::types::WRITE as u8;
        is_write && length < WRITE_POINTER + BLKPTR_SIZE + 8 && at + WRITE_POINTER + BLKPTR_SIZE <= bytes.len()
    });
    writes.map(|(at, _)| at + WRITE_POINTER).collect()
}

/// Gives a block that may be anything the checksum by which it passes as the block with this seed.
pub fn seal(layout: Layout, bytes: &mut [u8], seed: [u64; 4]) {
    let link = link_at(layout, bytes.len());
    let covered = match layout {
        Layout::Slim => {
            let used = u64::from_le_bytes(bytes[USED..USED + 8].try_into().expect("eight bytes"));
            let covered = usize::try_from(used).ok().and_then(|used| used.checked_next_multiple_of(BLOCK_SIZE_MIN));
            covered.filter(|&covered| covered >= ZIL_CHAIN_SIZE && covered <= bytes.len())
        }
        Layout::Trailing => Some(bytes.len()),
    };
    // A length that no checksum covers ends the chain, whatever stands in it.
    let Some(covered) = covered else { return };
    let words = |bytes: &mut [u8], words: [u64; 4]| {
        for (chunk, word) in bytes[link + CHECKSUM..link + ZIL_CHAIN_SIZE].chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
    };
    words(bytes, seed);
    let checksum = hash(layout)(&bytes[..covered]);
    words(bytes, checksum);
}

/// Changes the link, or a record. `bp` leads to the block, `other` to any block of the pool.
pub fn change(layout: Layout, bp: &BlkPtr, other: &BlkPtr, bytes: &mut [u8], random: &mut ChaCha20Rng) -> String {
    let link = link_at(layout, bytes.len());
    let next_at = link + NEXT;
    let all = records(layout, bytes);
    let writes: Vec<usize> = all
        .iter()
        .filter(|&&(at, length)| bytes[at] == record::types::WRITE as u8 && length >= record::WRITE_SIZE)
        .map(|&(at, _)| at)
        .collect();
    match random.next_u32() % 9 {
        8 if !writes.is_empty() => {
            // A write whose data is elsewhere, as this version makes none: the last record of the block.
            let at = writes[random.next_u32() as usize % writes.len()];
            let end = at + record::WRITE_SIZE;
            put(bytes, at + 8, record::WRITE_SIZE as u64);
            put(bytes, at + WRITE_LENGTH, if random.next_u32().is_multiple_of(2) { other.lsize() } else { 100 });
            other.encode(&mut bytes[at + WRITE_POINTER..]);
            put(bytes, link + USED, end as u64);
            format!("the record at {at} leads to {other:?}")
        }
        0 | 1 => {
            let text = match random.next_u32() % 3 {
                0 => {
                    bp.encode(&mut bytes[next_at..next_at + BLKPTR_SIZE]);
                    "the log's next block is itself".to_owned()
                }
                // Its addresses, sizes and kinds.
                _ => numbers_in(bytes, next_at..next_at + 80, random),
            };
            if !random.next_u32().is_multiple_of(4) {
                // Without the number that follows it is no link.
                let mut next = BlkPtr::decode(&bytes[next_at..]);
                next.set_checksum(block::next_seed(bp.checksum()));
                next.encode(&mut bytes[next_at..next_at + BLKPTR_SIZE]);
            }
            format!("link: {text}")
        }
        2 => {
            let used = match random.next_u32() % 3 {
                0 => bytes.len() as u64,
                1 => u64::from(random.next_u32()) % bytes.len() as u64,
                _ => interesting(random),
            };
            put(bytes, link + USED, used);
            format!("{used:#x} bytes used")
        }
        3..=6 if !all.is_empty() => {
            let (at, length) = all[random.next_u32() as usize % all.len()];
            match random.next_u32() % 3 {
                0 => {
                    let kind = u64::from(random.next_u32() % (record::types::CLONE_RANGE as u32 + 2));
                    put(bytes, at, kind);
                    format!("record at {at} is of type {kind}")
                }
                1 => numbers_in(bytes, at..at + RECORD_HEADER, random),
                _ => numbers_in(bytes, at + RECORD_HEADER..at + length.min(RECORD_HEADER + 256), random),
            }
        }
        _ => numbers_in(bytes, 0..bytes.len(), random),
    }
}
