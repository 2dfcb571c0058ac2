//! Which function each number of `enum zio_checksum` stands for (`zio_checksum_table`, `module/zfs/zio_checksum.c`),
//! as far as no salt is needed.

use crate::{
    Checksum, Words, fletcher_2, fletcher_2_swapped, fletcher_4, fletcher_4_swapped, sha256, sha512, sha512_swapped,
};

/// The checksum of a block that a host of this machine's (little-endian) byte order wrote.
///
/// For the self-describing kinds (label, gang header, intent log) the caller
/// first puts the verifier into the trailing `zio_eck_t`. `None` means the kind is unknown, inherited or salted.
pub fn compute(kind: Checksum, bytes: &[u8]) -> Option<Words> {
    match kind {
        Checksum::OFF | Checksum::NOPARITY => Some([0; 4]),
        Checksum::ON | Checksum::FLETCHER_4 | Checksum::ZILOG2 => Some(fletcher_4(bytes)),
        Checksum::FLETCHER_2 | Checksum::ZILOG => Some(fletcher_2(bytes)),
        Checksum::LABEL | Checksum::GANG_HEADER | Checksum::SHA256 => Some(sha256(bytes)),
        Checksum::SHA512 => Some(sha512(bytes)),
        _ => None,
    }
}

/// Like [`compute`] for a block that a host of the other (big-endian) byte order wrote.
pub fn compute_swapped(kind: Checksum, bytes: &[u8]) -> Option<Words> {
    match kind {
        Checksum::ON | Checksum::FLETCHER_4 | Checksum::ZILOG2 => Some(fletcher_4_swapped(bytes)),
        Checksum::FLETCHER_2 | Checksum::ZILOG => Some(fletcher_2_swapped(bytes)),
        Checksum::SHA512 => Some(sha512_swapped(bytes)),
        _ => compute(kind, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_unsalted_kinds_are_computed() {
        for kind in (0..=u8::MAX).map(Checksum::from_number) {
            assert_eq!(
                compute(kind, &[1; 512]).is_some(),
                (Checksum::ON..=Checksum::SHA512).contains(&kind),
                "kind {kind}"
            );
            assert_eq!(
                compute_swapped(kind, &[1; 512]).is_some(),
                (Checksum::ON..=Checksum::SHA512).contains(&kind),
                "kind {kind}"
            );
        }
    }

    #[test]
    fn on_is_fletcher_4_and_off_is_zero() {
        let bytes: Vec<u8> = (0..4096u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(compute(Checksum::ON, &bytes), Some(fletcher_4(&bytes)));
        assert_eq!(compute(Checksum::OFF, &bytes), Some([0; 4]));
        assert_eq!(compute(Checksum::NOPARITY, &bytes), Some([0; 4]));
    }
}
