//! The kernels on x86-64 vectors: AVX2 (doubling by compare and mask, products by nibble shuffles) and AVX-512 with
//! GFNI (every product by a constant is one bit-matrix instruction).
//!
//! The functions are safe to call on any processor: one without the instructions gets the next slower kernel. Inner
//! functions are instantiated for each number of outputs so that all accumulators stay in registers. What remains
//! behind the last whole vector goes through the portable kernel.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::PARITY_MAX;
use crate::field::{AFFINE, NIBBLES, affine};
use crate::kernel::{self, check_shapes};

/// Whether the AVX2 kernels run as such here.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Whether the AVX-512 kernels run as such here.
pub(crate) fn has_avx512_gfni() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni")
}

/// Runs `tail` over the bytes from `done` on.
fn with_tails(columns: &[&[u8]], outputs: &mut [&mut [u8]], done: usize, tail: impl Fn(&[&[u8]], &mut [&mut [u8]])) {
    if done == outputs[0].len() {
        return;
    }
    let columns: Vec<&[u8]> = columns.iter().map(|column| column.get(done..).unwrap_or_default()).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[done..]).collect();
    tail(&columns, &mut outputs);
}

/// Horner with AVX2.
pub(crate) fn avx2_horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    check_shapes(columns, outputs);
    if !has_avx2() {
        return kernel::horner(columns, outputs);
    }
    // SAFETY: AVX2 was just detected; the shapes were just checked, and `N` is the number of outputs.
    let done = unsafe {
        match outputs.len() {
            1 => avx2_horner_of::<1>(columns, outputs),
            2 => avx2_horner_of::<2>(columns, outputs),
            _ => avx2_horner_of::<3>(columns, outputs),
        }
    };
    with_tails(columns, outputs, done, kernel::horner);
}

/// Combine with AVX2.
pub(crate) fn avx2_combine(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]) {
    check_shapes(sources, outputs);
    assert_eq!(sources.len(), coefficients.len(), "one row of coefficients for each source");
    if !has_avx2() {
        return kernel::combine(sources, coefficients, outputs);
    }
    // SAFETY: AVX2 was just detected; the shapes were just checked, every source has its coefficients, and `N` is
    // the number of outputs.
    let done = unsafe {
        match outputs.len() {
            1 => avx2_combine_of::<1>(sources, coefficients, outputs),
            2 => avx2_combine_of::<2>(sources, coefficients, outputs),
            _ => avx2_combine_of::<3>(sources, coefficients, outputs),
        }
    };
    with_tails(sources, outputs, done, |sources, outputs| kernel::combine(sources, coefficients, outputs));
}

/// Horner with AVX-512 and GFNI.
pub(crate) fn avx512_horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    check_shapes(columns, outputs);
    if !has_avx512_gfni() {
        return avx2_horner(columns, outputs);
    }
    // SAFETY: AVX-512F, AVX-512BW and GFNI were just detected; the shapes were just checked, and `N` is the number of
    // outputs.
    let done = unsafe {
        match outputs.len() {
            1 => avx512_horner_of::<1>(columns, outputs),
            2 => avx512_horner_of::<2>(columns, outputs),
            _ => avx512_horner_of::<3>(columns, outputs),
        }
    };
    with_tails(columns, outputs, done, kernel::horner);
}

/// Combine with AVX-512 and GFNI.
pub(crate) fn avx512_combine(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]) {
    check_shapes(sources, outputs);
    assert_eq!(sources.len(), coefficients.len(), "one row of coefficients for each source");
    if !has_avx512_gfni() {
        return avx2_combine(sources, coefficients, outputs);
    }
    // SAFETY: AVX-512F, AVX-512BW and GFNI were just detected; the shapes were just checked, every source has
    // its coefficients, and `N` is the number of outputs.
    let done = unsafe {
        match outputs.len() {
            1 => avx512_combine_of::<1>(sources, coefficients, outputs),
            2 => avx512_combine_of::<2>(sources, coefficients, outputs),
            _ => avx512_combine_of::<3>(sources, coefficients, outputs),
        }
    };
    with_tails(sources, outputs, done, |sources, outputs| kernel::combine(sources, coefficients, outputs));
}

/// Each of the 32 bytes of `x`, doubled.
#[target_feature(enable = "avx2")]
#[inline]
fn avx2_double(x: __m256i) -> __m256i {
    let carries = _mm256_cmpgt_epi8(_mm256_setzero_si256(), x);
    _mm256_xor_si256(_mm256_add_epi8(x, x), _mm256_and_si256(carries, _mm256_set1_epi8(0x1d)))
}

/// The parities over all whole vectors; returns how many bytes that were.
///
/// Relies on [`check_shapes`] having passed and on `N == outputs.len()`.
#[target_feature(enable = "avx2")]
fn avx2_horner_of<const N: usize>(columns: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
    const LANES: usize = 2;
    const STEP: usize = 32 * LANES;
    let whole = outputs[0].len() / STEP * STEP;
    for at in (0..whole).step_by(STEP) {
        let mut sums = [[_mm256_setzero_si256(); LANES]; N];
        for column in columns {
            for (k, sum) in sums.iter_mut().enumerate() {
                for value in sum {
                    *value = match k {
                        0 => *value,
                        1 => avx2_double(*value),
                        _ => avx2_double(avx2_double(*value)),
                    };
                }
            }
            if column.is_empty() {
                continue;
            }
            for lane in 0..LANES {
                // SAFETY: the column is not empty, so it is as long as the outputs, and `at + STEP <= whole`.
                let data = unsafe { _mm256_loadu_si256(column.as_ptr().add(at + 32 * lane).cast()) };
                for sum in &mut sums {
                    sum[lane] = _mm256_xor_si256(sum[lane], data);
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(sums) {
            for (lane, value) in sum.into_iter().enumerate() {
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { _mm256_storeu_si256(output.as_mut_ptr().add(at + 32 * lane).cast(), value) };
            }
        }
    }
    whole
}

/// The combinations over all whole vectors; returns how many bytes that were.
///
/// Relies on [`check_shapes`] having passed, on `N == outputs.len()` and on coefficients for each source.
#[target_feature(enable = "avx2")]
fn avx2_combine_of<const N: usize>(
    sources: &[&[u8]],
    coefficients: &[[u8; PARITY_MAX]],
    outputs: &mut [&mut [u8]],
) -> usize {
    const LANES: usize = 2;
    const STEP: usize = 32 * LANES;
    let whole = outputs[0].len() / STEP * STEP;
    let low_nibbles = _mm256_set1_epi8(15);
    for at in (0..whole).step_by(STEP) {
        let mut sums = [[_mm256_setzero_si256(); LANES]; N];
        for (source, row) in sources.iter().zip(coefficients) {
            if source.is_empty() {
                continue;
            }
            let mut low = [_mm256_setzero_si256(); LANES];
            let mut high = [_mm256_setzero_si256(); LANES];
            for lane in 0..LANES {
                // SAFETY: the source is not empty, so it is as long as the outputs, and `at + STEP <= whole`.
                let data = unsafe { _mm256_loadu_si256(source.as_ptr().add(at + 32 * lane).cast()) };
                low[lane] = _mm256_and_si256(data, low_nibbles);
                high[lane] = _mm256_and_si256(_mm256_srli_epi16::<4>(data), low_nibbles);
            }
            for (sum, &coefficient) in sums.iter_mut().zip(row) {
                let table = &NIBBLES[usize::from(coefficient)];
                // SAFETY: a table has 16 bytes for each nibble; the loads need no alignment.
                let (of_low, of_high) = unsafe {
                    (_mm_loadu_si128(table.low.as_ptr().cast()), _mm_loadu_si128(table.high.as_ptr().cast()))
                };
                let of_low = _mm256_broadcastsi128_si256(of_low);
                let of_high = _mm256_broadcastsi128_si256(of_high);
                for lane in 0..LANES {
                    let product = _mm256_xor_si256(
                        _mm256_shuffle_epi8(of_low, low[lane]),
                        _mm256_shuffle_epi8(of_high, high[lane]),
                    );
                    sum[lane] = _mm256_xor_si256(sum[lane], product);
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(sums) {
            for (lane, value) in sum.into_iter().enumerate() {
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { _mm256_storeu_si256(output.as_mut_ptr().add(at + 32 * lane).cast(), value) };
            }
        }
    }
    whole
}

/// The parities over all whole vectors; returns how many bytes that were.
///
/// Relies on [`check_shapes`] having passed and on `N == outputs.len()`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn avx512_horner_of<const N: usize>(columns: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
    const LANES: usize = 4;
    const STEP: usize = 64 * LANES;
    const TWO: u64 = affine(2);
    const FOUR: u64 = affine(4);
    let (two, four) = (_mm512_set1_epi64(TWO as i64), _mm512_set1_epi64(FOUR as i64));
    let whole = outputs[0].len() / STEP * STEP;
    for at in (0..whole).step_by(STEP) {
        let mut sums = [[_mm512_setzero_si512(); LANES]; N];
        for column in columns {
            for (k, sum) in sums.iter_mut().enumerate() {
                for value in sum {
                    *value = match k {
                        0 => *value,
                        1 => _mm512_gf2p8affine_epi64_epi8::<0>(*value, two),
                        _ => _mm512_gf2p8affine_epi64_epi8::<0>(*value, four),
                    };
                }
            }
            if column.is_empty() {
                continue;
            }
            for lane in 0..LANES {
                // SAFETY: the column is not empty, so it is as long as the outputs, and `at + STEP <= whole`.
                let data = unsafe { _mm512_loadu_si512(column.as_ptr().add(at + 64 * lane).cast()) };
                for sum in &mut sums {
                    sum[lane] = _mm512_xor_si512(sum[lane], data);
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(sums) {
            for (lane, value) in sum.into_iter().enumerate() {
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { _mm512_storeu_si512(output.as_mut_ptr().add(at + 64 * lane).cast(), value) };
            }
        }
    }
    whole
}

/// The combinations over all whole vectors; returns how many bytes that were.
///
/// Relies on [`check_shapes`] having passed, on `N == outputs.len()` and on coefficients for each source.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn avx512_combine_of<const N: usize>(
    sources: &[&[u8]],
    coefficients: &[[u8; PARITY_MAX]],
    outputs: &mut [&mut [u8]],
) -> usize {
    const LANES: usize = 4;
    const STEP: usize = 64 * LANES;
    let whole = outputs[0].len() / STEP * STEP;
    for at in (0..whole).step_by(STEP) {
        let mut sums = [[_mm512_setzero_si512(); LANES]; N];
        for (source, row) in sources.iter().zip(coefficients) {
            if source.is_empty() {
                continue;
            }
            let factors: [__m512i; N] = std::array::from_fn(|k| _mm512_set1_epi64(AFFINE[usize::from(row[k])] as i64));
            for lane in 0..LANES {
                // SAFETY: the source is not empty, so it is as long as the outputs, and `at + STEP <= whole`.
                let data = unsafe { _mm512_loadu_si512(source.as_ptr().add(at + 64 * lane).cast()) };
                for (sum, factor) in sums.iter_mut().zip(factors) {
                    sum[lane] = _mm512_xor_si512(sum[lane], _mm512_gf2p8affine_epi64_epi8::<0>(data, factor));
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(sums) {
            for (lane, value) in sum.into_iter().enumerate() {
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { _mm512_storeu_si512(output.as_mut_ptr().add(at + 64 * lane).cast(), value) };
            }
        }
    }
    whole
}
