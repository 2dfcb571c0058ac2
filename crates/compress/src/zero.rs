//! Recognising blocks of zeros, which ZFS stores as holes (`zio_compress_zeroed_cb` in older releases).

/// Whether every byte is zero. Stops at the first run of 256 bytes that is not.
pub fn is_zero(bytes: &[u8]) -> bool {
    // A block of data nearly always differs within its first bytes; asking them first keeps the usual answer cheap.
    let (first, _) = bytes.split_at(bytes.len().min(16));
    if first.iter().any(|&byte| byte != 0) {
        return false;
    }
    let (runs, rest) = bytes.as_chunks::<256>();
    // No early exit inside a run, so that the compiler makes vector instructions of it.
    runs.iter().all(|run| run.iter().fold(0, |seen, byte| seen | byte) == 0) && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_set_bit_anywhere_is_seen() {
        for length in [0, 1, 15, 16, 17, 255, 256, 257, 511, 512, 4096, 4099] {
            let mut bytes = vec![0u8; length];
            assert!(is_zero(&bytes), "{length} zeros");
            for at in 0..length {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "byte {at} of {length}");
                bytes[at] = 0;
            }
        }
    }
}
