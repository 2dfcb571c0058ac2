//! The inner loops of RAID-Z, portable, and what faster ones have in common with them.
//!
//! - *Horner*: parity columns from data columns, `acc = acc·g ⊕ D[i]` for each column in order, in registers: every
//!   data byte is read once and every parity byte written once, whatever the number of parities.
//! - *Recover*: lost data columns from the others and as many parities. One way is *combine*, up to three outputs, each
//!   a sum of sources times coefficients.
//!
//! All take columns of equal length; an empty slice stands for a column of zeros.

use crate::PARITY_MAX;
use crate::field::{NIBBLES, multiply, power_of_two};

/// `outputs.len()` parities over `columns`, each as long as every output or empty.
pub(crate) type Horner = fn(columns: &[&[u8]], outputs: &mut [&mut [u8]]);
/// `outputs[k] = Σ coefficients[i][k] · sources[i]`, each source as long as every output or empty.
pub(crate) type Combine = fn(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]);

/// `outputs` are the columns that the system says are lost.
type Recover = fn(system: &System<'_>, outputs: &mut [&mut [u8]]);

/// A set of kernels by its name.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    pub name: &'static str,
    pub horner: Horner,
    pub recover: Recover,
}

/// The portable ones.
pub(crate) const SCALAR: Kernels = Kernels { name: "scalar", horner, recover };

/// What there is to recover lost data columns from.
#[derive(Clone, Copy)]
pub(crate) struct System<'s> {
    /// All data columns, the lost ones as if they were zero.
    pub columns: &'s [&'s [u8]],
    /// Which parities are used, ascending, as many as columns are lost: 0, 1, 2 for P, Q, R.
    pub powers: &'s [usize],
    /// Their columns.
    pub parities: &'s [&'s [u8]],
    /// The lost columns from the parities, less what the other columns add to these: `inverse[m][s]` is the coefficient
    /// of parity `s` in lost column `m`.
    pub inverse: [[u8; PARITY_MAX]; PARITY_MAX],
}

impl System<'_> {
    /// Panics unless the shapes are those the kernels rely on.
    pub fn check_shapes(&self, outputs: &[&mut [u8]]) {
        let length = check_shapes(self.columns, outputs);
        let count = outputs.len();
        assert!(self.powers.len() == count && self.parities.len() == count, "as many parities as lost columns");
        assert!(self.powers.is_sorted_by(|a, b| a < b) && self.powers[count - 1] < PARITY_MAX, "{:?}", self.powers);
        assert!(self.parities.iter().all(|parity| parity.len() == length), "parities of different lengths");
    }

    /// Recovers with the inverse multiplied into the coefficients of all columns, in one pass.
    pub fn recover_by(&self, horner: Horner, combine: Combine, outputs: &mut [&mut [u8]]) {
        let mut sources = self.parities.to_vec();
        sources.extend(self.columns);
        if self.powers == [0] {
            // One column from P: plain exclusive or, for which the parity loop is the fastest.
            return horner(&sources, outputs);
        }
        let mut coefficients: Vec<[u8; PARITY_MAX]> = Vec::with_capacity(sources.len());
        coefficients.extend((0..self.powers.len()).map(|s| self.inverse.map(|row| row[s])));
        coefficients.extend((0..self.columns.len()).map(|i| {
            self.powers.iter().enumerate().fold([0; PARITY_MAX], |mut sums, (s, &power)| {
                let weight = weight(power, self.columns.len(), i);
                for (sum, row) in sums.iter_mut().zip(self.inverse) {
                    *sum ^= multiply(row[s], weight);
                }
                sums
            })
        }));
        combine(&sources, &coefficients, outputs);
    }
}

/// The weight of data column `i` of `n` in parity column `k`, where P, Q, R are 0, 1, 2: `(2^k)^(n-1-i)`.
pub(crate) fn weight(k: usize, n: usize, i: usize) -> u8 {
    power_of_two(k * (n - 1 - i))
}

/// Panics unless the shapes are those the kernels rely on; returns the common length.
pub(crate) fn check_shapes(columns: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    assert!((1..=PARITY_MAX).contains(&outputs.len()), "{} outputs", outputs.len());
    let length = outputs[0].len();
    assert!(outputs.iter().all(|output| output.len() == length), "outputs of different lengths");
    assert!(columns.iter().all(|column| column.is_empty() || column.len() == length), "columns of different lengths");
    length
}

/// Runs `tail` over the bytes from `done` on.
#[cfg(target_arch = "x86_64")]
pub(crate) fn with_tails(
    columns: &[&[u8]],
    outputs: &mut [&mut [u8]],
    done: usize,
    tail: impl Fn(&[&[u8]], &mut [&mut [u8]]),
) {
    if done == outputs[0].len() {
        return;
    }
    let columns: Vec<&[u8]> = columns.iter().map(|column| column.get(done..).unwrap_or_default()).collect();
    let mut outputs: Vec<&mut [u8]> = outputs.iter_mut().map(|output| &mut output[done..]).collect();
    tail(&columns, &mut outputs);
}

/// How many 64-bit words a step of the portable Horner kernel takes of each column: enough for a compiler to make
/// vector instructions of the loops.
const LANES: usize = 8;
const STEP: usize = 8 * LANES;

/// Each of the eight bytes of `x`, doubled.
#[inline(always)]
fn double(x: u64) -> u64 {
    let carries = (x >> 7) & 0x0101_0101_0101_0101;
    // carries times 0x1d, which is 16 + 8 + 4 + 1; no sum within a byte carries over.
    let reduction = (carries << 4) | (carries << 3) | (carries << 2) | carries;
    ((x & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ reduction
}

/// The portable Horner kernel.
pub(crate) fn horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    check_shapes(columns, outputs);
    match outputs.len() {
        1 => horner_of::<1>(columns, outputs),
        2 => horner_of::<2>(columns, outputs),
        _ => horner_of::<3>(columns, outputs),
    }
}

fn horner_of<const N: usize>(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let length = outputs[0].len();
    for at in (0..length).step_by(STEP) {
        let width = STEP.min(length - at);
        let mut sums = [[0u64; LANES]; N];
        for column in columns {
            for (k, sum) in sums.iter_mut().enumerate() {
                for _ in 0..k {
                    sum.iter_mut().for_each(|word| *word = double(*word));
                }
            }
            let Some(bytes) = column.get(at..at + width) else { continue };
            let mut padded = [0; STEP];
            let bytes: &[u8; STEP] = match bytes.first_chunk() {
                Some(whole) => whole,
                None => {
                    padded[..width].copy_from_slice(bytes);
                    &padded
                }
            };
            for (lane, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                for sum in &mut sums {
                    sum[lane] ^= u64::from_ne_bytes(*word);
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(&sums) {
            for (target, word) in output[at..at + width].chunks_mut(8).zip(sum) {
                target.copy_from_slice(&word.to_ne_bytes()[..target.len()]);
            }
        }
    }
}

/// The portable Recover kernel.
pub(crate) fn recover(system: &System<'_>, outputs: &mut [&mut [u8]]) {
    system.recover_by(horner, combine, outputs);
}

/// The portable Combine kernel: byte by byte through nibble tables.
pub(crate) fn combine(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]) {
    check_shapes(sources, outputs);
    assert_eq!(sources.len(), coefficients.len(), "one row of coefficients for each source");
    for (k, output) in outputs.iter_mut().enumerate() {
        output.fill(0);
        for (source, row) in sources.iter().zip(coefficients) {
            let table = &NIBBLES[usize::from(row[k])];
            for (byte, &x) in output.iter_mut().zip(source.iter()) {
                *byte ^= table.low[usize::from(x & 15)] ^ table.high[usize::from(x >> 4)];
            }
        }
    }
}
