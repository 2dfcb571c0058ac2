//! The kernels on AVX-512 with GFNI, where every product by a constant is one bit-matrix instruction.
//!
//! The functions are safe to call on any processor: one without the instructions gets slower kernels. Inner functions
//! are instantiated for each number of outputs so that all accumulators stay in registers. What remains behind the last
//! whole vector goes through the portable kernels.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::PARITY_MAX;
use crate::field::{AFFINE, affine};
use crate::kernel::{self, System, check_shapes, with_tails};
use crate::kernel_avx2;

/// Whether these kernels run as such here.
pub(crate) fn is_there() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("gfni")
}

/// Horner.
pub(crate) fn horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    check_shapes(columns, outputs);
    if !is_there() {
        return kernel_avx2::horner(columns, outputs);
    }
    // SAFETY: AVX-512F, AVX-512BW and GFNI were just detected; the shapes were just checked, and `N` is the number of
    // outputs.
    let done = unsafe {
        match outputs.len() {
            1 => horner_of::<1>(columns, outputs),
            2 => horner_of::<2>(columns, outputs),
            _ => horner_of::<3>(columns, outputs),
        }
    };
    with_tails(columns, outputs, done, kernel::horner);
}

/// Reconstruction.
pub(crate) fn recover(system: &System<'_>, outputs: &mut [&mut [u8]]) {
    system.recover_by(horner, combine, outputs);
}

/// Combine.
fn combine(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]) {
    check_shapes(sources, outputs);
    assert_eq!(sources.len(), coefficients.len(), "one row of coefficients for each source");
    if !is_there() {
        return kernel::combine(sources, coefficients, outputs);
    }
    // SAFETY: AVX-512F, AVX-512BW and GFNI were just detected; the shapes were just checked, every source has
    // its coefficients, and `N` is the number of outputs.
    let done = unsafe {
        match outputs.len() {
            1 => combine_of::<1>(sources, coefficients, outputs),
            2 => combine_of::<2>(sources, coefficients, outputs),
            _ => combine_of::<3>(sources, coefficients, outputs),
        }
    };
    with_tails(sources, outputs, done, |sources, outputs| kernel::combine(sources, coefficients, outputs));
}

/// The parities over all whole vectors; returns how many bytes that were.
///
/// Relies on [`check_shapes`] having passed and on `N == outputs.len()`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn horner_of<const N: usize>(columns: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
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
fn combine_of<const N: usize>(
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
