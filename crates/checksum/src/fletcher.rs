//! Fletcher-2 and Fletcher-4, the portable kernels.
//!
//! Fletcher-4 over the 32-bit words `x[0..n]` keeps four running sums modulo 2^64 (`module/zcommon/zfs_fletcher.c`):
//! `a += x; b += a; c += b; d += c` for each word.
//!
//! A kernel with `L` lanes gives lane `j` the words `x[j], x[L+j], x[2L+j], …` and sums each lane alone. With `m` words
//! per lane, the word at step `t` weighs `k = m - t` in its lane's `b`, `k(k+1)/2` in `c`, `k(k+1)(k+2)/6` in `d`; in
//! the whole stream it weighs the same polynomials at `L·k - j`. [`combine`] rewrites the latter in terms of the
//! former, so the lanes never meet until the end.

use crate::Words;

/// The portable Fletcher-4: four interleaved lanes so that the additions of one word need not wait for the word before.
pub fn fletcher_4_scalar(bytes: &[u8]) -> Words {
    scalar(bytes, u32::from_le_bytes)
}

/// The portable Fletcher-4 over big-endian words.
pub fn fletcher_4_scalar_swapped(bytes: &[u8]) -> Words {
    scalar(bytes, u32::from_be_bytes)
}

#[inline(always)]
fn scalar(bytes: &[u8], word: impl Fn([u8; 4]) -> u32 + Copy) -> Words {
    let (groups, rest) = bytes.as_chunks::<16>();
    let mut lanes = [[0u64; 4]; 4];
    for group in groups {
        for (a, bytes) in lanes[0].iter_mut().zip(group.as_chunks::<4>().0) {
            *a = a.wrapping_add(u64::from(word(*bytes)));
        }
        for order in 1..4 {
            let lower = lanes[order - 1];
            for (sum, term) in lanes[order].iter_mut().zip(lower) {
                *sum = sum.wrapping_add(term);
            }
        }
    }
    finish(combine(&lanes), rest, word)
}

/// Continues `sums` over the whole words of `rest`, one by one.
#[inline(always)]
pub(crate) fn finish(sums: Words, rest: &[u8], word: impl Fn([u8; 4]) -> u32) -> Words {
    let [mut a, mut b, mut c, mut d] = sums;
    for bytes in rest.as_chunks::<4>().0 {
        a = a.wrapping_add(u64::from(word(*bytes)));
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    [a, b, c, d]
}

/// The sums of the whole stream from those of its `L` lanes (`lanes[0]` holds every lane's `a`, and so on).
///
/// The factors follow from the module's opening: `L·k - j` put into `k(k+1)/2` and `k(k+1)(k+2)/6` and expressed in the
/// basis {1, k, k(k+1)/2, k(k+1)(k+2)/6}. They are integers for the lane counts 4, 8 and 16.
pub(crate) fn combine<const L: usize>(lanes: &[[u64; L]; 4]) -> Words {
    const { assert!(L == 4 || L == 8 || L == 16) };
    let mut sums = [0u64; 4];
    let l = L as i64;
    for j in 0..l {
        let [a, b, c, d] = lanes.map(|sums| sums[j as usize]);
        let weigh = |factor: i64, sum: u64| (factor as u64).wrapping_mul(sum);
        let terms = [
            a,
            weigh(l, b).wrapping_add(weigh(-j, a)),
            weigh(l * l, c).wrapping_add(weigh(-(l * (l + 2 * j - 1)) / 2, b)).wrapping_add(weigh(j * (j - 1) / 2, a)),
            weigh(l * l * l, d)
                .wrapping_add(weigh(-(l * l * (l + j - 1)), c))
                .wrapping_add(weigh((l * l * l + 3 * l * l * (j - 1) + 3 * l * j * j - 6 * l * j + 2 * l) / 6, b))
                .wrapping_add(weigh(-(j * (j - 1) * (j - 2)) / 6, a)),
        ];
        for (sum, term) in sums.iter_mut().zip(terms) {
            *sum = sum.wrapping_add(term);
        }
    }
    sums
}

/// Fletcher-2 over little-endian 64-bit words: two interleaved streams, each with two sums; words in order a0, a1, b0,
/// b1.
pub fn fletcher_2(bytes: &[u8]) -> Words {
    two_streams(bytes, u64::from_le_bytes)
}

/// Fletcher-2 over big-endian 64-bit words.
pub fn fletcher_2_swapped(bytes: &[u8]) -> Words {
    two_streams(bytes, u64::from_be_bytes)
}

#[inline(always)]
fn two_streams(bytes: &[u8], word: impl Fn([u8; 8]) -> u64) -> Words {
    let [mut a0, mut a1, mut b0, mut b1] = [0u64; 4];
    for pair in bytes.as_chunks::<16>().0 {
        let (halves, _) = pair.as_chunks::<8>();
        a0 = a0.wrapping_add(word(halves[0]));
        a1 = a1.wrapping_add(word(halves[1]));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    [a0, a1, b0, b1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fletcher_choice::{available, fletcher_4};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// The definition, word by word.
    fn by_definition(bytes: &[u8]) -> Words {
        finish([0; 4], bytes, u32::from_le_bytes)
    }

    fn swap_words(bytes: &[u8]) -> Vec<u8> {
        bytes.chunks(4).flat_map(|word| word.iter().rev().copied()).collect()
    }

    fn noise(length: usize, mut seed: u64) -> Vec<u8> {
        (0..length)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect()
    }

    #[test]
    fn every_kernel_agrees_with_the_definition_at_every_short_length() {
        for length in (0..2048).step_by(4) {
            let bytes = noise(length, 0x9e3779b97f4a7c15 ^ length as u64);
            let expected = by_definition(&bytes);
            for kernels in available() {
                assert_eq!((kernels.native)(&bytes), expected, "{} over {length} bytes", kernels.name);
                assert_eq!((kernels.swapped)(&swap_words(&bytes)), expected, "{} over {length} bytes", kernels.name);
            }
        }
    }

    #[test]
    fn sums_wrap_instead_of_saturating() {
        // 16 MiB of ones overflows c and d many times: the largest block a pool may hold.
        let bytes = vec![0xff; 16 << 20];
        let expected = by_definition(&bytes);
        for kernels in available() {
            assert_eq!((kernels.native)(&bytes), expected, "{}", kernels.name);
        }
    }

    #[test]
    fn fletcher_2_of_counting_words() {
        let bytes: Vec<u8> = (1..=4u64).flat_map(u64::to_le_bytes).collect();
        assert_eq!(fletcher_2(&bytes), [1 + 3, 2 + 4, 1 + (1 + 3), 2 + (2 + 4)]);
        let foreign: Vec<u8> = (1..=4u64).flat_map(u64::to_be_bytes).collect();
        assert_eq!(fletcher_2_swapped(&foreign), fletcher_2(&bytes));
    }

    #[test]
    fn fletcher_4_of_counting_words() {
        // a = 1+2+3, b = 1+3+6, c = 1+4+10, d = 1+5+15
        let bytes: Vec<u8> = (1..=3u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(fletcher_4(&bytes), [6, 10, 15, 21]);
    }

    proptest! {
        #[test]
        fn kernels_agree_on_any_bytes_at_any_alignment(bytes in vec(any::<u8>(), 0..9000), skip in 0usize..64) {
            let bytes = &bytes[skip.min(bytes.len())..];
            let whole = &bytes[..bytes.len() / 4 * 4];
            let expected = by_definition(whole);
            for kernels in available() {
                prop_assert_eq!((kernels.native)(whole), expected);
                prop_assert_eq!((kernels.native)(bytes), expected);
                prop_assert_eq!((kernels.swapped)(&swap_words(whole)), expected);
            }
        }

        #[test]
        fn one_flipped_bit_changes_the_sum(mut bytes in vec(any::<u8>(), 512..=512), bit in 0usize..4096) {
            let before = (fletcher_2(&bytes), fletcher_4(&bytes));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_ne!(before.0, fletcher_2(&bytes));
            prop_assert_ne!(before.1, fletcher_4(&bytes));
        }
    }
}
