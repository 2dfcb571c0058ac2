//! The kernels on AVX2.
//!
//! Doubling 32 bytes takes three instructions, one less than by compare and mask: a shuffle yields zero for the bytes
//! whose highest bit is set and 0x1d for the others, so that it reduces exactly the wrong ones, and what comes out is
//! off by 0x1d everywhere. As all that follows is linear, a loop over columns is in the end off by a constant that only
//! depends on their number, and that is taken away there ([`offset`]).
//!
//! Reconstruction sums up the known columns by the same loop and multiplies only the few sums with the inverse matrix,
//! by nibble shuffles: a column costs doublings instead of products.
//!
//! The functions are safe to call on any processor: one without the instructions gets the portable kernels. Inner
//! functions are instantiated for each set of parities so that all sums stay in registers. What remains behind the last
//! whole vector goes through the portable kernels.

#![allow(unsafe_code)]

use std::arch::x86_64::*;

use crate::PARITY_MAX;
use crate::field::{NIBBLES, Nibbles, multiply};
use crate::kernel::{self, System, check_shapes, with_tails};

/// Vectors of each column that are summed up together: as many as leave registers for the data beside three sums.
const LANES: usize = 4;
/// Their bytes.
const STEP: usize = 32 * LANES;

/// Whether these kernels run as such here.
pub(crate) fn is_there() -> bool {
    is_x86_feature_detected!("avx2")
}

/// Horner.
pub(crate) fn horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    check_shapes(columns, outputs);
    if !is_there() {
        return kernel::horner(columns, outputs);
    }
    // SAFETY: AVX2 was just detected; the shapes were just checked, and `N` is the number of outputs.
    let done = unsafe {
        match outputs.len() {
            1 => generate_of::<1, 0b001>(columns, outputs),
            2 => generate_of::<2, 0b011>(columns, outputs),
            _ => generate_of::<3, 0b111>(columns, outputs),
        }
    };
    with_tails(columns, outputs, done, kernel::horner);
}

/// Reconstruction.
pub(crate) fn recover<'s>(system: &System<'s>, outputs: &mut [&mut [u8]]) {
    system.check_shapes(outputs);
    if !is_there() {
        return kernel::recover(system, outputs);
    }
    // SAFETY: AVX2 was just detected; the shapes were just checked, and `N` is the number of outputs and of parities,
    // `SET` the set of the latter.
    let done = unsafe {
        match system.powers {
            [0] => recover_of::<1, 0b001>(system, outputs),
            [1] => recover_of::<1, 0b010>(system, outputs),
            [2] => recover_of::<1, 0b100>(system, outputs),
            [0, 1] => recover_of::<2, 0b011>(system, outputs),
            [0, 2] => recover_of::<2, 0b101>(system, outputs),
            [1, 2] => recover_of::<2, 0b110>(system, outputs),
            _ => recover_of::<3, 0b111>(system, outputs),
        }
    };
    if done < outputs[0].len() {
        let behind =
            |columns: &[&'s [u8]]| columns.iter().map(|column| column.get(done..).unwrap_or_default()).collect();
        let (columns, parities): (Vec<&[u8]>, Vec<&[u8]>) = (behind(system.columns), behind(system.parities));
        let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[done..]).collect();
        kernel::recover(&System { columns: &columns, parities: &parities, ..*system }, &mut outputs);
    }
}

/// The members of a set of parities given by bits, in order; zeros behind the last.
const fn powers_of(set: u8) -> [usize; PARITY_MAX] {
    let mut powers = [0; PARITY_MAX];
    let (mut found, mut power) = (0, 0);
    while power < PARITY_MAX {
        if set >> power & 1 != 0 {
            powers[found] = power;
            found += 1;
        }
        power += 1;
    }
    powers
}

/// What [`shifted`] is off by for each power: 0x1d for a doubling; the second of two doubles that of the first.
const OFF: [u8; PARITY_MAX] = [0, 0x1d, 0x3a ^ 0x1d];

/// How far the sum of parity `power` over `count` columns is off.
fn offset(power: usize, count: usize) -> u8 {
    (1..count).fold(0, |off, _| multiply(off, 1 << power) ^ OFF[power])
}

/// `x · 2^power ⊕ data`, off by `OFF[power]`, for each of 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
fn shifted(power: usize, x: __m256i, data: __m256i) -> __m256i {
    let reduction = _mm256_set1_epi8(0x1d);
    match power {
        0 => _mm256_xor_si256(x, data),
        1 => {
            let lacking = _mm256_shuffle_epi8(reduction, x);
            _mm256_xor_si256(_mm256_xor_si256(lacking, data), _mm256_add_epi8(x, x))
        }
        _ => {
            // What is lacking of the first doubling does not reach the highest bit, so both shuffles can run at once.
            let doubled = _mm256_add_epi8(x, x);
            let once = _mm256_xor_si256(_mm256_shuffle_epi8(reduction, x), doubled);
            let lacking = _mm256_shuffle_epi8(reduction, doubled);
            _mm256_xor_si256(_mm256_xor_si256(lacking, data), _mm256_add_epi8(once, once))
        }
    }
}

/// The columns from the first that is not zero on, and how far each sum over them is off.
#[target_feature(enable = "avx2")]
fn prepare<'c, 'd, const N: usize, const SET: u8>(columns: &'c [&'d [u8]]) -> (&'c [&'d [u8]], [__m256i; N]) {
    let leading = columns.iter().take_while(|column| column.is_empty()).count();
    let columns = &columns[leading..];
    let mut off = [_mm256_setzero_si256(); N];
    for (off, power) in off.iter_mut().zip(powers_of(SET)) {
        *off = _mm256_set1_epi8(offset(power, columns.len()) as i8);
    }
    (columns, off)
}

/// The sums of the parities in `SET` over `STEP` bytes of each column from `at` on.
///
/// # Safety
/// `prepare` made `columns` and `off`; each column is empty or has `at + STEP` bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sums<const N: usize, const SET: u8>(
    columns: &[&[u8]],
    off: &[__m256i; N],
    at: usize,
) -> [[__m256i; LANES]; N] {
    let powers = const { powers_of(SET) };
    let zero = _mm256_setzero_si256();
    let Some((first, others)) = columns.split_first() else { return [[zero; LANES]; N] };
    let mut sums = [[zero; LANES]; N];
    for lane in 0..LANES {
        // SAFETY: the first column is not empty.
        let data = unsafe { load(first, at + 32 * lane) };
        sums.iter_mut().for_each(|sum| sum[lane] = data);
    }
    for column in others {
        if column.is_empty() {
            for (k, sum) in sums.iter_mut().enumerate() {
                sum.iter_mut().for_each(|value| *value = shifted(powers[k], *value, zero));
            }
            continue;
        }
        for lane in 0..LANES {
            // SAFETY: this column is not empty.
            let data = unsafe { load(column, at + 32 * lane) };
            for (k, sum) in sums.iter_mut().enumerate() {
                sum[lane] = shifted(powers[k], sum[lane], data);
            }
        }
    }
    for ((k, sum), off) in sums.iter_mut().enumerate().zip(off) {
        if powers[k] != 0 {
            sum.iter_mut().for_each(|value| *value = _mm256_xor_si256(*value, *off));
        }
    }
    sums
}

/// # Safety
/// `column` has `at + 32` bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(column: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 32 <= column.len());
    // SAFETY: as the caller warrants; the load needs no alignment.
    unsafe { _mm256_loadu_si256(column.as_ptr().add(at).cast()) }
}

/// # Safety
/// `column` has `at + 32` bytes.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store(column: &mut [u8], at: usize, value: __m256i) {
    debug_assert!(at + 32 <= column.len());
    // SAFETY: as the caller warrants; the store needs no alignment.
    unsafe { _mm256_storeu_si256(column.as_mut_ptr().add(at).cast(), value) };
}

/// The parities over all whole steps; returns how many bytes that were.
///
/// # Safety
/// [`check_shapes`] passed, and there are `N` outputs.
#[target_feature(enable = "avx2")]
unsafe fn generate_of<const N: usize, const SET: u8>(columns: &[&[u8]], outputs: &mut [&mut [u8]]) -> usize {
    let whole = outputs[0].len() / STEP * STEP;
    let Some((outputs, _)) = outputs.split_first_chunk_mut::<N>() else { unreachable!("as many outputs as sums") };
    let (columns, off) = prepare::<N, SET>(columns);
    for at in (0..whole).step_by(STEP) {
        // SAFETY: a column that is not empty is as long as the outputs, and `at + STEP <= whole`.
        let sums = unsafe { sums::<N, SET>(columns, &off, at) };
        for (output, sum) in outputs.iter_mut().zip(sums) {
            for (lane, value) in sum.into_iter().enumerate() {
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { store(output, at + 32 * lane, value) };
            }
        }
    }
    whole
}

/// The products of 32 bytes with one coefficient.
#[target_feature(enable = "avx2")]
#[inline]
fn product(table: &Nibbles, low: __m256i, high: __m256i) -> __m256i {
    // SAFETY: a table has 16 bytes for each nibble; the loads need no alignment.
    let (of_low, of_high) =
        unsafe { (_mm_loadu_si128(table.low.as_ptr().cast()), _mm_loadu_si128(table.high.as_ptr().cast())) };
    _mm256_xor_si256(
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of_low), low),
        _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of_high), high),
    )
}

/// The lost columns over all whole steps; returns how many bytes that were.
///
/// # Safety
/// [`System::check_shapes`] passed, there are `N` outputs, and `SET` are the parities of the system.
#[target_feature(enable = "avx2")]
unsafe fn recover_of<const N: usize, const SET: u8>(system: &System<'_>, outputs: &mut [&mut [u8]]) -> usize {
    let whole = outputs[0].len() / STEP * STEP;
    let Some((outputs, _)) = outputs.split_first_chunk_mut::<N>() else { unreachable!("as many outputs as sums") };
    let Some((parities, _)) = system.parities.split_first_chunk::<N>() else { unreachable!("as many parities") };
    let (columns, off) = prepare::<N, SET>(system.columns);
    let tables = system.inverse.map(|row| row.map(|cell| &NIBBLES[usize::from(cell)]));
    // P is the plain sum of all columns, so the last lost one is what the others leave of it.
    let products = if SET & 1 != 0 { N - 1 } else { N };
    let nibble = _mm256_set1_epi8(15);
    for at in (0..whole).step_by(STEP) {
        // SAFETY: a column that is not empty is as long as the outputs, and `at + STEP <= whole`.
        let mut sums = unsafe { sums::<N, SET>(columns, &off, at) };
        for lane in 0..LANES {
            for (sum, parity) in sums.iter_mut().zip(parities) {
                // SAFETY: parities are as long as the outputs.
                sum[lane] = _mm256_xor_si256(sum[lane], unsafe { load(parity, at + 32 * lane) });
            }
        }
        for lane in 0..LANES {
            let (mut low, mut high) = ([nibble; N], [nibble; N]);
            for (k, sum) in sums.iter().enumerate() {
                low[k] = _mm256_and_si256(sum[lane], nibble);
                high[k] = _mm256_and_si256(_mm256_srli_epi16::<4>(sum[lane]), nibble);
            }
            let mut left = sums[0][lane];
            for m in 0..products {
                let mut value = product(tables[m][0], low[0], high[0]);
                for k in 1..N {
                    value = _mm256_xor_si256(value, product(tables[m][k], low[k], high[k]));
                }
                left = _mm256_xor_si256(left, value);
                // SAFETY: `at + STEP <= whole`, which is no more than the output's length.
                unsafe { store(outputs[m], at + 32 * lane, value) };
            }
            if products < N {
                // SAFETY: as above.
                unsafe { store(outputs[N - 1], at + 32 * lane, left) };
            }
        }
    }
    whole
}
