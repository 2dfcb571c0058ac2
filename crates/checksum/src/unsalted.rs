//! Which function each number of `enum zio_checksum` stands for (`zio_checksum_table`, `module/zfs/zio_checksum.c`),
//! as far as no salt is needed.

use crate::{
    Words, fletcher_2, fletcher_2_swapped, fletcher_4, fletcher_4_swapped, kinds, sha256, sha512, sha512_swapped,
};

/// The checksum of a block that a host of this machine's (little-endian) byte order wrote.
///
/// `kind` is a number of `enum zio_checksum`. For the self-describing kinds (label, gang header, intent log) the caller
/// first puts the verifier into the trailing `zio_eck_t`. `None` means the kind is unknown, inherited or salted.
pub fn compute(kind: u8, bytes: &[u8]) -> Option<Words> {
    match kind {
        kinds::OFF | kinds::NOPARITY => Some([0; 4]),
        kinds::ON | kinds::FLETCHER_4 | kinds::ZILOG2 => Some(fletcher_4(bytes)),
        kinds::FLETCHER_2 | kinds::ZILOG => Some(fletcher_2(bytes)),
        kinds::LABEL | kinds::GANG_HEADER | kinds::SHA256 => Some(sha256(bytes)),
        kinds::SHA512 => Some(sha512(bytes)),
        _ => None,
    }
}

/// Like [`compute`] for a block that a host of the other (big-endian) byte order wrote.
pub fn compute_swapped(kind: u8, bytes: &[u8]) -> Option<Words> {
    match kind {
        kinds::ON | kinds::FLETCHER_4 | kinds::ZILOG2 => Some(fletcher_4_swapped(bytes)),
        kinds::FLETCHER_2 | kinds::ZILOG => Some(fletcher_2_swapped(bytes)),
        kinds::SHA512 => Some(sha512_swapped(bytes)),
        _ => compute(kind, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_unsalted_kinds_are_computed() {
        for kind in 0..=u8::MAX {
            assert_eq!(compute(kind, &[1; 512]).is_some(), (kinds::ON..=kinds::SHA512).contains(&kind), "kind {kind}");
            assert_eq!(
                compute_swapped(kind, &[1; 512]).is_some(),
                (kinds::ON..=kinds::SHA512).contains(&kind),
                "kind {kind}"
            );
        }
    }

    #[test]
    fn on_is_fletcher_4_and_off_is_zero() {
        let bytes: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(compute(kinds::ON, &bytes), Some(fletcher_4(&bytes)));
        assert_eq!(compute(kinds::OFF, &bytes), Some([0; 4]));
        assert_eq!(compute(kinds::NOPARITY, &bytes), Some([0; 4]));
    }
}
