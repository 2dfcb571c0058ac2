//! The checksum that labels, uberblocks and gang headers carry in their own last 40 bytes (`zio_eck_t`,
//! `include/sys/zio.h`; `module/zfs/zio_checksum.c`).
//!
//! ```text
//! size-40        size-32                                  size
//! | magic (8)    | checksum: four words (32)              |
//! ```
//!
//! While it is computed, a *verifier* stands in the checksum's place: numbers that say where the structure belongs. A
//! perfect copy of a label at another offset therefore does not verify. All words are in the writer's byte order, which
//! the magic tells.

use crate::error::Error;
use crate::le::{put_u64, put_words, u64_at, words_at};

/// Size of `zio_eck_t`, in bytes.
pub const ECK_SIZE: usize = 40;
/// `ZEC_MAGIC`.
pub const ZEC_MAGIC: u64 = 0x0210_da7a_b10c_7a11;

/// The byte order of whoever wrote a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// As this crate writes.
    Little,
    /// To be turned before use.
    Big,
}

fn put_trailer(bytes: &mut [u8], words: [u64; 4], order: ByteOrder) {
    let at = bytes.len() - ECK_SIZE;
    put_u64(bytes, at, turned(ZEC_MAGIC, order));
    put_words(bytes, at + 8, &words.map(|word| turned(word, order)));
}

fn turned(word: u64, order: ByteOrder) -> u64 {
    match order {
        ByteOrder::Little => word,
        ByteOrder::Big => word.swap_bytes(),
    }
}

/// Writes the trailer of `bytes` for the place that `verifier` names. `hash` is SHA-256 as four words.
pub fn seal(bytes: &mut [u8], verifier: [u64; 4], hash: impl Fn(&[u8]) -> [u64; 4]) {
    put_trailer(bytes, verifier, ByteOrder::Little);
    let checksum = hash(bytes);
    put_trailer(bytes, checksum, ByteOrder::Little);
}

/// As [`seal`], by a machine of this byte order.
#[cfg(test)]
pub(crate) fn seal_as(bytes: &mut [u8], verifier: [u64; 4], order: ByteOrder, hash: impl Fn(&[u8]) -> [u64; 4]) {
    put_trailer(bytes, verifier, order);
    let checksum = hash(bytes);
    put_trailer(bytes, checksum, order);
}

/// Checks the trailer of `bytes` and tells the writer's byte order. `what` names the structure in errors.
pub fn verify(
    what: &'static str,
    bytes: &[u8],
    verifier: [u64; 4],
    hash: impl Fn(&[u8]) -> [u64; 4],
) -> Result<ByteOrder, Error> {
    Error::need(what, bytes, ECK_SIZE)?;
    let at = bytes.len() - ECK_SIZE;
    let order = match u64_at(bytes, at) {
        ZEC_MAGIC => ByteOrder::Little,
        magic if magic == ZEC_MAGIC.swap_bytes() => ByteOrder::Big,
        found => return Err(Error::BadMagic { what, found }),
    };
    let expected = words_at::<4>(bytes, at + 8).map(|word| turned(word, order));
    let mut copy = bytes.to_vec();
    put_trailer(&mut copy, verifier, order);
    if hash(&copy) == expected { Ok(order) } else { Err(Error::BadChecksum { what }) }
}

/// The verifier of a label part or uberblock: its byte offset on the device.
pub fn label_verifier(offset: u64) -> [u64; 4] {
    [offset, 0, 0, 0]
}

/// A stand-in for SHA-256 in this crate's tests: any mixing function of all bytes will do.
#[cfg(test)]
pub(crate) fn test_hash(bytes: &[u8]) -> [u64; 4] {
    std::array::from_fn(|lane| {
        bytes.iter().fold(lane as u64 + 1, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_structure_verifies_only_at_its_place_and_unchanged() {
        let mut bytes = vec![7; 512];
        seal(&mut bytes, label_verifier(4096), test_hash);
        assert_eq!(verify("x", &bytes, label_verifier(4096), test_hash), Ok(ByteOrder::Little));
        assert_eq!(verify("x", &bytes, label_verifier(0), test_hash), Err(Error::BadChecksum { what: "x" }));
        for at in [0, 100, 511] {
            bytes[at] ^= 1;
            assert!(verify("x", &bytes, label_verifier(4096), test_hash).is_err());
            bytes[at] ^= 1;
        }
    }

    #[test]
    fn a_big_endian_writers_trailer_verifies() {
        let mut bytes = vec![9; 512];
        put_trailer(&mut bytes, label_verifier(8), ByteOrder::Big);
        let checksum = test_hash(&bytes);
        put_trailer(&mut bytes, checksum, ByteOrder::Big);
        assert_eq!(verify("x", &bytes, label_verifier(8), test_hash), Ok(ByteOrder::Big));
    }
}
