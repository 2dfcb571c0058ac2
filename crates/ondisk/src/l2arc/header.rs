//! The header of a cache device (`l2arc_dev_hdr_phys_t`). It carries its own checksum, as labels do, at the end of the
//! device's sector.

use super::pointer::{LogPointer, WORDS};
use super::turned;
use crate::embedded::{self, ByteOrder};
use crate::error::Error;
use crate::ids::Guid;
use crate::label::VDEV_LABEL_START_SIZE;
use crate::le::{put_words, u64_at};

/// Where it lies on the device, bytes.
pub const HEADER_OFFSET: u64 = VDEV_LABEL_START_SIZE;

const MAGIC: u64 = 0x5a46_5343_4143_4845;
/// `L2ARC_PERSISTENT_VERSION`.
const VERSION: u64 = 1;
const WHAT: &str = "cache device header";
/// Bytes of the structure; what follows in a larger sector is zeros up to the checksum.
const SIZE: u64 = 512;
/// Words before the two pointers, and of everything before the padding.
const POINTERS_AT: usize = 9;
const HEAD_WORDS: usize = POINTERS_AT + 2 * WORDS + 4;
const _: () = assert!(HEAD_WORDS * 8 + 30 * 8 + embedded::ECK_SIZE == SIZE as usize);
/// `L2ARC_DEV_HDR_EVICT_FIRST`.
const FLAG_FIRST: u64 = 1;

/// Bytes of the header on a device of this `ashift`: the ring begins behind them.
pub fn header_size(ashift: u32) -> u64 {
    SIZE.max(1 << ashift)
}

/// What a cache device says of itself. All offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceHeader {
    /// The pool whose blocks it has (`dh_spa_guid`).
    pub pool: Guid,
    /// Which device it is (`dh_vdev_guid`).
    pub vdev: Guid,
    /// Entries of each log block; 0 without a log (`dh_log_entries`).
    pub log_entries: u64,
    /// Up to where was given up what lies behind the last log block (`dh_evict`).
    pub evict: u64,
    /// Nothing was written over yet (`dh_flags`).
    pub is_first: bool,
    /// The first byte of the ring (`dh_start`).
    pub start: u64,
    /// The byte behind its last one (`dh_end`).
    pub end: u64,
    /// The last log block, and the one before it (`dh_start_lbps`).
    pub last: [LogPointer; 2],
    /// What all log blocks take together (`dh_lb_asize`).
    pub log_size: u64,
    /// How many there are (`dh_lb_count`).
    pub log_count: u64,
    /// When all of it was last trimmed, seconds since the epoch (`dh_trim_action_time`).
    pub trim_time: u64,
    /// Whether all of it was trimmed (`dh_trim_state`).
    pub trim_state: u64,
}

impl DeviceHeader {
    /// The header as it is written on a device of this `ashift`. `hash` is SHA-256 as four words.
    pub fn encode(&self, ashift: u32, hash: impl Fn(&[u8]) -> [u64; 4]) -> Vec<u8> {
        let mut bytes = vec![0; header_size(ashift) as usize];
        let mut words = vec![MAGIC, VERSION, self.pool.0, self.vdev.0, self.log_entries, self.evict];
        words.extend([if self.is_first { FLAG_FIRST } else { 0 }, self.start, self.end]);
        words.extend(self.last.iter().flat_map(|pointer| pointer.to_words()));
        words.extend([self.log_size, self.log_count, self.trim_time, self.trim_state]);
        assert_eq!(words.len(), HEAD_WORDS, "every field is there");
        put_words(&mut bytes, 0, &words);
        embedded::seal(&mut bytes, embedded::label_verifier(HEADER_OFFSET), hash);
        bytes
    }

    /// Checks and decodes the header of a device of this `ashift`.
    ///
    /// # Errors
    /// Too few bytes, another magic number or version, a checksum that does not match.
    pub fn decode(bytes: &[u8], ashift: u32, hash: impl Fn(&[u8]) -> [u64; 4]) -> Result<Self, Error> {
        let size = header_size(ashift) as usize;
        Error::need(WHAT, bytes, size)?;
        let order = match u64_at(bytes, 0) {
            MAGIC => ByteOrder::Little,
            magic if magic == MAGIC.swap_bytes() => ByteOrder::Big,
            found => return Err(Error::BadMagic { what: WHAT, found }),
        };
        embedded::verify(WHAT, &bytes[..size], embedded::label_verifier(HEADER_OFFSET), hash)?;
        let words: [u64; HEAD_WORDS] = std::array::from_fn(|at| turned(u64_at(bytes, 8 * at), order));
        if words[1] != VERSION {
            return Err(Error::field(WHAT, "dh_version", words[1]));
        }
        let (first, behind) = words[POINTERS_AT..].split_at(WORDS);
        let (second, behind) = behind.split_at(WORDS);
        Ok(Self {
            pool: Guid(words[2]),
            vdev: Guid(words[3]),
            log_entries: words[4],
            evict: words[5],
            is_first: words[6] & FLAG_FIRST != 0,
            start: words[7],
            end: words[8],
            last: [LogPointer::from_words(first), LogPointer::from_words(second)],
            log_size: behind[0],
            log_count: behind[1],
            trim_time: behind[2],
            trim_state: behind[3],
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::compression::Compression;
    use crate::embedded::test_hash;

    fn example(seed: u64) -> DeviceHeader {
        let pointer = |n: u64| LogPointer {
            checksum: [n, 2, 3, 4],
            ..LogPointer::new(n << 9, 4096, Compression::LZ4, n << 8, n << 7)
        };
        DeviceHeader {
            pool: Guid(seed),
            vdev: Guid(seed ^ 1),
            log_entries: seed % 1023,
            evict: seed << 3,
            is_first: seed.is_multiple_of(2),
            start: 4 << 20,
            end: seed,
            last: [pointer(seed % 1000), pointer(seed % 77)],
            log_size: 9,
            log_count: 1,
            trim_time: 5,
            trim_state: 4,
        }
    }

    proptest! {
        #[test]
        fn a_header_reads_back(seed: u64, ashift in 9u32..=16) {
            let bytes = example(seed).encode(ashift, test_hash);
            prop_assert_eq!(bytes.len() as u64, header_size(ashift));
            prop_assert_eq!(DeviceHeader::decode(&bytes, ashift, test_hash), Ok(example(seed)));
        }

        #[test]
        fn no_changed_bit_passes(seed: u64, bit in 0usize..512 * 8) {
            let mut bytes = example(seed).encode(9, test_hash);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(DeviceHeader::decode(&bytes, 9, test_hash).is_err());
        }

        #[test]
        fn hostile_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..600), magic: bool) {
            if magic && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&MAGIC.to_le_bytes());
            }
            prop_assert!(DeviceHeader::decode(&bytes, 9, test_hash).is_err());
        }
    }

    #[test]
    fn another_machines_byte_order_is_read_too() {
        let little = example(12).encode(9, test_hash);
        let mut big: Vec<u8> = little[..512 - embedded::ECK_SIZE]
            .chunks_exact(8)
            .flat_map(|word| word.iter().rev().copied().collect::<Vec<_>>())
            .collect();
        big.resize(512, 0);
        embedded::seal_as(&mut big, embedded::label_verifier(HEADER_OFFSET), ByteOrder::Big, test_hash);
        assert_eq!(DeviceHeader::decode(&big, 9, test_hash), Ok(example(12)));
    }
}
