//! The ZAP's hash: a reflected CRC-64 (ECMA-182) whose register starts with the ZAP's salt, of which only the top bits
//! are used (`zap_hash` in `module/zfs/zap_impl.c`, `ZFS_CRC64_POLY` in `include/sys/dmu.h`).

use crate::zap::cursor::{FLAG_PRE_HASHED_KEY, hash_bits};

const POLYNOMIAL: u64 = 0xC96C_5795_D787_0F42;

const TABLE: [u64; 256] = {
    let mut table = [0u64; 256];
    let mut i = 0;
    while i < 256 {
        let mut word = i as u64;
        let mut bit = 0;
        while bit < 8 {
            word = (word >> 1) ^ if word & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[i] = word;
        i += 1;
    }
    table
};

const _: () = assert!(TABLE[128] == POLYNOMIAL);

fn step(hash: u64, byte: u8) -> u64 {
    (hash >> 8) ^ TABLE[usize::from(hash as u8 ^ byte)]
}

fn top_bits(hash: u64, flags: u64) -> u64 {
    hash & !(u64::MAX >> hash_bits(flags))
}

/// CRC-64 of `bytes` with the register starting at `seed` and no final inversion.
pub fn crc64(seed: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(seed, |hash, &byte| step(hash, byte))
}

/// Hash of a (normalised) name without its terminating zero, in a ZAP with this `salt` and these flags.
pub fn hash_name(salt: u64, name: &[u8], flags: u64) -> u64 {
    top_bits(crc64(salt, name), flags)
}

/// Hash of a name that is an array of words (`ZAP_FLAG_UINT64_KEY`).
pub fn hash_words(salt: u64, words: &[u64], flags: u64) -> u64 {
    let hash = if flags & FLAG_PRE_HASHED_KEY != 0 {
        words.first().copied().unwrap_or(0)
    } else {
        words.iter().fold(salt, |hash, word| crc64(hash, &word.to_le_bytes()))
    };
    top_bits(hash, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc_is_ecma_182_reflected() {
        // The catalogue's check value of CRC-64/XZ, which inverts before and after.
        assert_eq!(!crc64(!0, b"123456789"), 0x995D_C9BB_DF19_39FA);
    }

    #[test]
    fn only_the_top_bits_are_used() {
        assert_eq!(hash_name(1, b"name", 0) << 28, 0);
        assert_eq!(hash_name(1, b"name", crate::zap::FLAG_HASH64) << 48, 0);
        assert_ne!(hash_name(1, b"name", 0), hash_name(3, b"name", 0));
    }
}
