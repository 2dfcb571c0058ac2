//! SHA-2 in the word order ZFS stores (`module/zfs/sha2_zfs.c`).
//!
//! SHA-256 words are the digest read as big-endian integers on every host; SHA-512/256 words are the digest in the
//! writer's own byte order, so a foreign writer's words need a swap.

use crate::Words;
use sha2::{Digest, Sha256, Sha512_256};

fn words_of(digest: &[u8], word: impl Fn([u8; 8]) -> u64) -> Words {
    let mut words = [0; 4];
    for (slot, bytes) in words.iter_mut().zip(digest.as_chunks::<8>().0) {
        *slot = word(*bytes);
    }
    words
}

/// SHA-256.
pub fn sha256(bytes: &[u8]) -> Words {
    words_of(&Sha256::digest(bytes), u64::from_be_bytes)
}

/// SHA-512/256 as a little-endian host writes it.
pub fn sha512(bytes: &[u8]) -> Words {
    words_of(&Sha512_256::digest(bytes), u64::from_le_bytes)
}

/// SHA-512/256 as a big-endian host writes it.
pub fn sha512_swapped(bytes: &[u8]) -> Words {
    words_of(&Sha512_256::digest(bytes), u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_abc_is_the_standards_vector() {
        // FIPS 180-2, appendix B.1; the same vector as in tests/functional/checksum/sha2_test.c.
        let expected = [0xba7816bf8f01cfea, 0x414140de5dae2223, 0xb00361a396177a9c, 0xb410ff61f20015ad];
        assert_eq!(sha256(b"abc"), expected);
    }

    #[test]
    fn sha512_256_of_abc_is_the_standards_vector_in_writer_order() {
        let expected = [0x53048e2681941ef9u64, 0x9b2e29b76b4c7dab, 0xe4c2d0c634fc6d46, 0xe0e2f13107e7af23];
        assert_eq!(sha512_swapped(b"abc"), expected);
        assert_eq!(sha512(b"abc"), expected.map(u64::swap_bytes));
    }
}
