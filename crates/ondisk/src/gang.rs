//! The gang header (`include/sys/zio.h`): a block that could not be allocated in one piece names its pieces here.
//!
//! ```text
//! 0            128          256          384       472       512
//! | pointer    | pointer    | pointer    | zeros   | trailer |
//! ```
//!
//! Since the feature `dynamic_gang_header` a header may be as large as the vdev's sector; it then holds more pointers,
//! with the trailer still in the last 40 bytes.

use crate::blkptr::{BLKPTR_SIZE, BlkPtr, Dva};
use crate::embedded::{self, ECK_SIZE, ZEC_MAGIC};
use crate::ids::Txg;
use crate::le::u64_at;
use crate::sector::SECTOR;

/// Size of the header without `dynamic_gang_header`, in bytes (`SPA_OLD_GANGBLOCKSIZE`).
pub const HEADER_SIZE: usize = SECTOR as usize;

/// Pointers in a header of `size` bytes (`gbh_nblkptrs`).
pub const fn pointer_count(size: usize) -> usize {
    size.saturating_sub(ECK_SIZE) / BLKPTR_SIZE
}

const _: () = assert!(pointer_count(HEADER_SIZE) == 3);

/// The verifier of the header at `dva` (the gang pointer's first copy, whichever copy is read) of a block physically
/// born in `birth`.
pub fn verifier(dva: &Dva, birth: Txg) -> [u64; 4] {
    [u64::from(dva.vdev), dva.offset, birth.0, 0]
}

/// Whether the header's own checksum (SHA-256, given as `hash`) is right for its place.
pub fn verify(header: &[u8], verifier: [u64; 4], hash: impl Fn(&[u8]) -> [u64; 4]) -> bool {
    embedded::verify("gang header", header, verifier, hash).is_ok()
}

/// The pointers of a header, holes included, in the order of the block's bytes; turned when a big-endian machine wrote
/// them.
pub fn pointers(header: &[u8]) -> Vec<BlkPtr> {
    let swapped = header.len() >= ECK_SIZE && u64_at(header, header.len() - ECK_SIZE) == ZEC_MAGIC.swap_bytes();
    let decode = |chunk| {
        let bp = BlkPtr::decode(chunk);
        if swapped { BlkPtr { words: bp.words.map(u64::swap_bytes) } } else { bp }
    };
    header.chunks_exact(BLKPTR_SIZE).take(pointer_count(header.len())).map(decode).collect()
}

/// A header of `size` bytes that holds `pointers`, sealed for its place.
///
/// # Panics
/// When there are more pointers than [`pointer_count`] allows.
pub fn build(size: usize, pointers: &[BlkPtr], verifier: [u64; 4], hash: impl Fn(&[u8]) -> [u64; 4]) -> Vec<u8> {
    assert!(pointers.len() <= pointer_count(size), "a gang header has no room for {} pointers", pointers.len());
    let mut header = vec![0; size];
    for (bp, chunk) in pointers.iter().zip(header.chunks_exact_mut(BLKPTR_SIZE)) {
        bp.encode(chunk);
    }
    embedded::seal(&mut header, verifier, hash);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dnode::tests::any_blkptr;
    use crate::embedded::test_hash;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_built_header_verifies_and_gives_back_its_pointers(
            bps in prop::collection::vec(any_blkptr(), 0..=3), verifier in any::<[u64; 4]>(),
        ) {
            let header = build(HEADER_SIZE, &bps, verifier, test_hash);
            prop_assert!(verify(&header, verifier, test_hash));
            prop_assert!(!verify(&header, verifier.map(|word| !word), test_hash));
            let read = pointers(&header);
            prop_assert_eq!(&read[..bps.len()], &bps[..]);
            prop_assert!(read[bps.len()..].iter().all(BlkPtr::is_hole));
        }

        #[test]
        fn any_bytes_give_pointers_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..1200)) {
            prop_assert_eq!(pointers(&bytes).len(), pointer_count(bytes.len()));
        }
    }
}
