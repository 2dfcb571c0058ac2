//! Fletcher-4 on x86-64 vectors, 8 lanes.
//!
//! Sums live in the 64-bit elements of vector registers, which they never leave until the end. With AVX-512 each
//! element is a lane. With AVX2 there would be but 4 of them in a vector, and widening the words would take time, so
//! elements are two lanes at once: what is added up is a pair of words as it lies in memory, `even + 2^32·odd`, and
//! once more the odd word alone. Everything is linear and modulo 2^64, so the sums of the even words are those of the
//! pairs less 2^32 times those of the odd ones, exactly, however often they wrap.
//!
//! The functions are safe to call on any processor: one without the instructions gets the portable kernel.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::Words;
use crate::fletcher::{combine, finish, fletcher_4_scalar, fletcher_4_scalar_swapped};

/// Whether [`avx2`] runs as such here.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Whether [`avx512`] runs as such here.
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && has_avx2()
}

/// Fletcher-4 with AVX2.
pub(crate) fn avx2(bytes: &[u8]) -> Words {
    if !has_avx2() {
        return fletcher_4_scalar(bytes);
    }
    // SAFETY: AVX2 was just detected.
    unsafe { avx2_lanes::<false>(bytes) }
}

/// Fletcher-4 over big-endian words with AVX2.
pub(crate) fn avx2_swapped(bytes: &[u8]) -> Words {
    if !has_avx2() {
        return fletcher_4_scalar_swapped(bytes);
    }
    // SAFETY: AVX2 was just detected.
    unsafe { avx2_lanes::<true>(bytes) }
}

/// Fletcher-4 with AVX-512.
pub(crate) fn avx512(bytes: &[u8]) -> Words {
    if !has_avx512() {
        return avx2(bytes);
    }
    // SAFETY: AVX-512F, AVX-512BW and AVX2 were just detected.
    unsafe { avx512_lanes::<false>(bytes) }
}

/// Fletcher-4 over big-endian words with AVX-512.
pub(crate) fn avx512_swapped(bytes: &[u8]) -> Words {
    if !has_avx512() {
        return avx2_swapped(bytes);
    }
    // SAFETY: AVX-512F, AVX-512BW and AVX2 were just detected.
    unsafe { avx512_lanes::<true>(bytes) }
}

fn word<const SWAP: bool>(bytes: [u8; 4]) -> u32 {
    if SWAP { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

/// How far ahead of the sums memory is asked for, bytes. Processors do so themselves, but too late for words that are
/// in no cache.
const AHEAD: usize = 1024;
/// Bytes of a turn of the loop. With fewer, its speed depends on where in memory the linker happens to put it.
const TURN: usize = 256;

#[target_feature(enable = "avx2")]
fn avx2_lanes<const SWAP: bool>(bytes: &[u8]) -> Words {
    let (turns, rest) = bytes.as_chunks::<TURN>();
    let order = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    let reverse = _mm256_broadcastsi128_si256(order);
    let mut pairs = [_mm256_setzero_si256(); 4];
    let mut odd = [_mm256_setzero_si256(); 4];
    for turn in turns {
        for (index, group) in turn.as_chunks::<32>().0.iter().enumerate() {
            if index % 2 == 0 {
                // One for each cache line. A hint may point anywhere.
                _mm_prefetch::<_MM_HINT_T0>(group.as_ptr().wrapping_add(AHEAD).cast());
            }
            // SAFETY: `group` is 32 readable bytes; the load needs no alignment.
            let mut words = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
            if SWAP {
                words = _mm256_shuffle_epi8(words, reverse);
            }
            add(&mut pairs, words);
            add(&mut odd, _mm256_srli_epi64::<32>(words));
        }
    }
    let (pairs, odd) = (pairs.map(elements), odd.map(elements));
    let lanes: [[u64; 8]; 4] = std::array::from_fn(|order| {
        std::array::from_fn(|lane| match (pairs[order][lane / 2], odd[order][lane / 2]) {
            (pair, odd) if lane % 2 == 0 => pair.wrapping_sub(odd << 32),
            (_, odd) => odd,
        })
    });
    finish(combine(&lanes), rest, word::<SWAP>)
}

/// One step of four lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn add(sums: &mut [__m256i; 4], words: __m256i) {
    let mut term = words;
    for sum in sums {
        *sum = _mm256_add_epi64(*sum, term);
        term = *sum;
    }
}

fn elements(vector: __m256i) -> [u64; 4] {
    // SAFETY: both are 32 bytes, and all bytes make valid numbers.
    unsafe { std::mem::transmute(vector) }
}

#[target_feature(enable = "avx512f,avx512bw,avx2")]
fn avx512_lanes<const SWAP: bool>(bytes: &[u8]) -> Words {
    let (groups, rest) = bytes.as_chunks::<32>();
    let reverse = _mm256_broadcastsi128_si256(_mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12));
    let zero = _mm512_setzero_si512();
    let (mut a, mut b, mut c, mut d) = (zero, zero, zero, zero);
    for group in groups {
        // SAFETY: `group` is 32 readable bytes; the load needs no alignment.
        let mut words = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
        if SWAP {
            words = _mm256_shuffle_epi8(words, reverse);
        }
        a = _mm512_add_epi64(a, _mm512_cvtepu32_epi64(words));
        b = _mm512_add_epi64(b, a);
        c = _mm512_add_epi64(c, b);
        d = _mm512_add_epi64(d, c);
    }
    let mut lanes = [[0u64; 8]; 4];
    for (slot, sum) in lanes.iter_mut().zip([a, b, c, d]) {
        // SAFETY: `slot` is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(slot.as_mut_ptr().cast(), sum) };
    }
    finish(combine(&lanes), rest, word::<SWAP>)
}
