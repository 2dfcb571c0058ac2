//! All checksums of one pool: those that need its salt are ready to be used.
//!
//! Salted checksums are keyed hashes, so that nobody without the pool can make two blocks of the same checksum (the
//! comment "salted checksums" in `module/zfs/zio_checksum.c`). The salt is 32 random bytes in the MOS.

use crate::edonr::EdonR;
use crate::skein::Skein;
use crate::{Checksum, Words, unsalted};

/// Bytes of a pool's salt (`zio_cksum_salt_t`).
pub const SALT_SIZE: usize = 32;

/// Whether `kind` is a checksum that a block can have.
pub fn is_known(kind: Checksum) -> bool {
    (Checksum::ON..Checksum::END).contains(&kind)
}

/// Whether checksum `kind` depends on the pool's salt.
pub fn needs_salt(kind: Checksum) -> bool {
    matches!(kind, Checksum::SKEIN | Checksum::EDONR | Checksum::BLAKE3)
}

/// The checksums of a pool with a certain salt.
#[derive(Clone, Debug)]
pub struct Checksums {
    salt: [u8; SALT_SIZE],
    skein: Skein,
    edonr: EdonR,
}

impl Checksums {
    /// Prepares the salted checksums.
    pub fn new(salt: [u8; SALT_SIZE]) -> Self {
        Self { salt, skein: Skein::new(256, &salt), edonr: EdonR::keyed(&salt) }
    }

    /// The salt.
    pub fn salt(&self) -> &[u8; SALT_SIZE] {
        &self.salt
    }

    /// As [`crate::compute`], the salted kinds included.
    pub fn compute(&self, kind: Checksum, bytes: &[u8]) -> Option<Words> {
        self.salted(kind, bytes).or_else(|| unsalted::compute(kind, bytes))
    }

    /// As [`crate::compute_swapped`], the salted kinds included: their digests do not depend on the writer's byte
    /// order, but the words that are made of them do.
    pub fn compute_swapped(&self, kind: Checksum, bytes: &[u8]) -> Option<Words> {
        let swapped = self.salted(kind, bytes).map(|words| words.map(u64::swap_bytes));
        swapped.or_else(|| unsalted::compute_swapped(kind, bytes))
    }

    fn salted(&self, kind: Checksum, bytes: &[u8]) -> Option<Words> {
        match kind {
            Checksum::SKEIN => self.skein.hash(bytes).first_chunk().copied(),
            Checksum::EDONR => Some(first_words(&self.edonr.finish(bytes))),
            Checksum::BLAKE3 => Some(first_words(blake3::keyed_hash(&self.salt, bytes).as_bytes())),
            _ => None,
        }
    }
}

fn first_words(digest: &[u8]) -> Words {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn salted_kinds_depend_on_salt_and_bytes() {
        let (one, other) = (Checksums::new([1; 32]), Checksums::new([2; 32]));
        for kind in [Checksum::SKEIN, Checksum::EDONR, Checksum::BLAKE3] {
            let sum = one.compute(kind, &[7; 4096]).unwrap();
            assert_ne!(Some(sum), other.compute(kind, &[7; 4096]));
            assert_ne!(Some(sum), one.compute(kind, &[7; 4608]));
            assert_eq!(one.compute_swapped(kind, &[7; 4096]), Some(sum.map(u64::swap_bytes)));
            assert_eq!(unsalted::compute(kind, &[7; 4096]), None, "no salted kind without its salt");
        }
    }

    #[test]
    fn every_kind_a_pointer_can_have_is_computed() {
        let sums = Checksums::new([3; 32]);
        for kind in (0..=u8::MAX).map(Checksum::from_number) {
            assert_eq!(sums.compute(kind, &[1; 512]).is_some(), is_known(kind), "kind {kind}");
            assert_eq!(sums.compute_swapped(kind, &[1; 512]).is_some(), is_known(kind), "kind {kind}");
            let without = unsalted::compute(kind, &[1; 512]).is_some();
            assert_eq!(without, is_known(kind) && !needs_salt(kind), "kind {kind}");
        }
    }
}
