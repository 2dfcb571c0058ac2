//! Reading and writing little-endian numbers at fixed places. Callers have checked the length: these panic when the
//! place is outside the slice.

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn words_at<const N: usize>(bytes: &[u8], at: usize) -> [u64; N] {
    std::array::from_fn(|i| u64_at(bytes, at + 8 * i))
}

pub(crate) fn put_u16(out: &mut [u8], at: usize, value: u16) {
    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

pub(crate) fn put_words(out: &mut [u8], at: usize, words: &[u64]) {
    for (i, &word) in words.iter().enumerate() {
        put_u64(out, at + 8 * i, word);
    }
}
