//! Parity of whole columns and reconstruction of missing ones.
//!
//! Columns may differ in length, so the work is cut at every length that occurs: within a cut each column is either
//! whole or absent, which is what the kernels understand.
//!
//! A set of missing data columns `M` and as many good parity columns `S` give the linear system
//! `Σ_{j∈M} g_s^(n-1-j)·D[j] = parity_s ⊕ Σ_{i∉M} g_s^(n-1-i)·D[i]` for each `s ∈ S`, where `g` is 1, 2, 4 for P, Q, R.
//! Its matrix is of Vandermonde's kind with distinct nonzero nodes and so always has an inverse: every combination of
//! missing columns up to the number of good parities is recoverable. Kernels either sum up the known columns and
//! multiply the sums with the inverse, or multiply the inverse into the columns' coefficients first; one pass over the
//! known columns yields the missing ones.

use crate::choice;
use crate::field::invert;
use crate::kernel::{Kernels, System, weight};
use crate::{DATA_MAX, PARITY_MAX};

/// Why data columns could not be reconstructed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconstructError {
    /// More data columns are missing than good parity columns are there.
    NotEnoughParity {
        /// Data columns to reconstruct.
        missing: usize,
        /// Parity columns that were given.
        available: usize,
    },
}

impl std::fmt::Display for ReconstructError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotEnoughParity { missing, available } => {
                write!(f, "{missing} data columns are missing and only {available} parity columns are good")
            }
        }
    }
}

impl std::error::Error for ReconstructError {}

/// Computes the first `parity` of the columns P, Q, R over `data` into `out`.
///
/// Each of `out` must be as long as the longest of `data` (in RAID-Z the first); shorter data columns count as padded
/// with zeros. Panics on other shapes.
pub fn generate(parity: usize, data: &[&[u8]], out: &mut [&mut [u8]]) {
    run_generate(choice::best(), parity, data, out);
}

/// [`generate`] with the kernel of this name, one of [`crate::kernel_names`]. For tests and benchmarks.
pub fn generate_with(kernel_name: &str, parity: usize, data: &[&[u8]], out: &mut [&mut [u8]]) {
    run_generate(choice::named(kernel_name), parity, data, out);
}

/// Recomputes the data columns `missing` from the others and from the parity columns.
///
/// `parity[k]` is column P, Q or R for `k` = 0, 1, 2, or `None` where it is not to be trusted (slots may be left out at
/// the end). The first columns that are there are used, as many as data columns are missing. `missing` names distinct
/// indices into `data`, in any order; those columns have their right lengths and any contents, and are overwritten.
/// Parity columns must be as long as the longest data column. Panics on other shapes.
pub fn reconstruct(
    data: &mut [&mut [u8]],
    parity: &[Option<&[u8]>],
    missing: &[usize],
) -> Result<(), ReconstructError> {
    run_reconstruct(choice::best(), data, parity, missing)
}

/// [`reconstruct`] with the kernel of this name, one of [`crate::kernel_names`]. For tests and benchmarks.
pub fn reconstruct_with(
    kernel_name: &str,
    data: &mut [&mut [u8]],
    parity: &[Option<&[u8]>],
    missing: &[usize],
) -> Result<(), ReconstructError> {
    run_reconstruct(choice::named(kernel_name), data, parity, missing)
}

/// The ranges between consecutive lengths that occur, from 0 to the longest.
fn cuts(lengths: impl Iterator<Item = usize>) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut ends: Vec<usize> = lengths.filter(|&length| length > 0).collect();
    ends.sort_unstable();
    ends.dedup();
    let mut start = 0;
    ends.into_iter().map(move |end| std::mem::replace(&mut start, end)..end)
}

/// The part of `column` in `cut`, or the empty slice if the column is shorter: cuts end at every column's end, so a
/// column never ends inside one.
fn part<'a>(column: &'a [u8], cut: &std::ops::Range<usize>) -> &'a [u8] {
    column.get(cut.clone()).unwrap_or_default()
}

fn longest(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.max().unwrap_or(0)
}

fn run_generate(kernels: Kernels, parity: usize, data: &[&[u8]], out: &mut [&mut [u8]]) {
    assert!((1..=PARITY_MAX).contains(&parity) && out.len() == parity, "{parity} parities into {} columns", out.len());
    assert!(data.len() <= DATA_MAX, "{} data columns", data.len());
    let length = longest(data.iter().map(|column| column.len()));
    assert!(out.iter().all(|column| column.len() == length), "parity columns are as long as the longest data column");
    let mut columns: Vec<&[u8]> = Vec::with_capacity(data.len());
    for cut in cuts(data.iter().map(|column| column.len())) {
        columns.clear();
        columns.extend(data.iter().map(|column| part(column, &cut)));
        let mut rest = out.iter_mut();
        let mut outputs: [&mut [u8]; PARITY_MAX] =
            std::array::from_fn(|_| rest.next().map(|column| &mut column[cut.clone()]).unwrap_or_default());
        (kernels.horner)(&columns, &mut outputs[..parity]);
    }
}

fn run_reconstruct(
    kernels: Kernels,
    data: &mut [&mut [u8]],
    parity: &[Option<&[u8]>],
    missing: &[usize],
) -> Result<(), ReconstructError> {
    let n = data.len();
    assert!(n <= DATA_MAX && parity.len() <= PARITY_MAX, "{n} data columns with {} parities", parity.len());
    let length = longest(data.iter().map(|column| column.len()));
    let good = parity.iter().enumerate().filter_map(|(k, column)| column.map(|bytes| (k, bytes)));
    let good: Vec<(usize, &[u8])> = good.collect();
    assert!(good.iter().all(|(_, column)| column.len() == length), "parity is as long as the longest data column");
    if missing.is_empty() {
        return Ok(());
    }
    if missing.len() > good.len() {
        return Err(ReconstructError::NotEnoughParity { missing: missing.len(), available: good.len() });
    }
    assert!(missing.iter().all(|&j| j < n), "missing columns {missing:?} of {n}");

    let lengths: Vec<usize> = data.iter().map(|column| column.len()).collect();
    let mut lost: Vec<(usize, &mut [u8])> = missing.iter().map(|&j| (j, std::mem::take(&mut data[j]))).collect();
    let mut columns: Vec<&[u8]> = Vec::with_capacity(n);
    for cut in cuts(lengths.into_iter()) {
        columns.clear();
        columns.extend(data.iter().map(|column| part(column, &cut)));
        recover_cut(kernels, &columns, &good, &mut lost, &cut);
    }
    for (j, column) in lost {
        data[j] = column;
    }
    Ok(())
}

/// Computes those of the lost columns, given with their places, that reach into `cut`, from as many parities.
fn recover_cut(
    kernels: Kernels,
    columns: &[&[u8]],
    good: &[(usize, &[u8])],
    lost: &mut [(usize, &mut [u8])],
    cut: &std::ops::Range<usize>,
) {
    let (mut places, mut outputs) = (Vec::with_capacity(PARITY_MAX), Vec::with_capacity(PARITY_MAX));
    for (j, column) in lost {
        if let Some(bytes) = column.get_mut(cut.clone()) {
            places.push(*j);
            outputs.push(bytes);
        }
    }
    if outputs.is_empty() {
        return;
    }
    let (powers, parities): (Vec<usize>, Vec<&[u8]>) =
        good[..places.len()].iter().map(|&(k, column)| (k, &column[cut.clone()])).unzip();
    let mut matrix = [[0; PARITY_MAX]; PARITY_MAX];
    for (row, &k) in matrix.iter_mut().zip(&powers) {
        for (cell, &j) in row.iter_mut().zip(&places) {
            *cell = weight(k, columns.len(), j);
        }
    }
    let inverse = invert(matrix, places.len()).expect("distinct columns give independent equations");
    (kernels.recover)(&System { columns, powers: &powers, parities: &parities, inverse }, &mut outputs);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choice::available;
    use crate::field::multiply;
    use proptest::prelude::*;

    fn noise(length: usize, mut seed: u64) -> Vec<u8> {
        seed |= 1;
        (0..length)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                (seed >> 11) as u8
            })
            .collect()
    }

    /// Columns as RAID-Z lays them: the first `long` are one sector longer than the others.
    fn columns(count: usize, long: usize, short_length: usize, sector: usize, seed: u64) -> Vec<Vec<u8>> {
        (0..count)
            .map(|i| noise(short_length + if i < long { sector } else { 0 }, seed.wrapping_mul(31) + i as u64 * 977))
            .collect()
    }

    /// The formulas of the crate's opening, byte by byte.
    fn by_definition(parity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let length = data.iter().map(Vec::len).max().unwrap_or(0);
        (0..parity)
            .map(|k| {
                (0..length)
                    .map(|at| {
                        data.iter().enumerate().fold(0, |sum, (i, column)| {
                            sum ^ multiply(weight(k, data.len(), i), column.get(at).copied().unwrap_or(0))
                        })
                    })
                    .collect()
            })
            .collect()
    }

    fn generated(kernels: Kernels, parity: usize, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let length = data.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = vec![vec![0xa5; length]; parity];
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut views: Vec<&mut [u8]> = out.iter_mut().map(Vec::as_mut_slice).collect();
        run_generate(kernels, parity, &data, &mut views);
        out
    }

    /// Every set of `size` numbers below `n`.
    fn subsets(n: usize, size: usize) -> Vec<Vec<usize>> {
        if size == 0 {
            return vec![vec![]];
        }
        let with_last = |last: usize| {
            subsets(last, size - 1).into_iter().map(move |mut set| {
                set.push(last);
                set
            })
        };
        (size - 1..n).flat_map(with_last).collect()
    }

    /// Loses `missing`, rebuilds from exactly the parities of `rows`, and compares.
    fn survives(kernels: Kernels, data: &[Vec<u8>], parity: &[Vec<u8>], rows: &[usize], missing: &[usize]) -> bool {
        let mut damaged = data.to_vec();
        for &j in missing {
            damaged[j].fill(0x5a);
        }
        let given: Vec<Option<&[u8]>> =
            (0..parity.len()).map(|k| rows.contains(&k).then_some(parity[k].as_slice())).collect();
        let mut views: Vec<&mut [u8]> = damaged.iter_mut().map(Vec::as_mut_slice).collect();
        run_reconstruct(kernels, &mut views, &given, missing).unwrap();
        damaged == data
    }

    #[test]
    fn every_kernel_generates_what_the_formulas_say() {
        for (count, long, short, sector) in [
            (1, 1, 0, 512),
            (1, 0, 512, 512),
            (2, 1, 1024, 512),
            (6, 3, 4096, 512),
            (6, 0, 4096, 4096),
            (9, 4, 333, 77),
        ] {
            let data = columns(count, long, short, sector, 7);
            for parity in 1..=PARITY_MAX {
                let expected = by_definition(parity, &data);
                for &kernels in available() {
                    assert!(generated(kernels, parity, &data) == expected, "{} {count}/{long}", kernels.name);
                }
            }
        }
    }

    #[test]
    fn every_combination_of_missing_columns_and_good_parities_is_rebuilt() {
        for &kernels in available() {
            for (count, long) in [(1, 1), (2, 0), (3, 2), (5, 1), (8, 3)] {
                let data = columns(count, long, 512, 512, count as u64);
                let parity = by_definition(PARITY_MAX, &data);
                for size in 1..=PARITY_MAX.min(count) {
                    for rows in subsets(PARITY_MAX, size) {
                        for missing in subsets(count, size) {
                            let fine = survives(kernels, &data, &parity, &rows, &missing);
                            assert!(fine, "{}: parities {rows:?}, columns {missing:?} of {count}", kernels.name);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn the_widest_group_is_rebuilt_from_its_last_and_first_columns() {
        let data = columns(DATA_MAX, 100, 64, 64, 3);
        let parity = by_definition(PARITY_MAX, &data);
        for &kernels in available() {
            for missing in [[0, 1, 2], [0, 127, 253], [253, 0, 100], [251, 252, 253]] {
                assert!(survives(kernels, &data, &parity, &[0, 1, 2], &missing), "{} {missing:?}", kernels.name);
            }
        }
    }

    #[test]
    fn a_column_that_is_absent_altogether_is_zero() {
        let mut data = columns(3, 3, 0, 4096, 5);
        data[2].clear();
        let parity = by_definition(3, &data);
        for &kernels in available() {
            assert!(generated(kernels, 3, &data) == parity);
            assert!(survives(kernels, &data, &parity, &[1, 2], &[0, 2]));
        }
    }

    #[test]
    fn too_few_parities_are_an_error_and_leave_the_data_alone() {
        let mut data = columns(4, 2, 512, 512, 9);
        let before = data.clone();
        let parity = by_definition(1, &data);
        let mut views: Vec<&mut [u8]> = data.iter_mut().map(Vec::as_mut_slice).collect();
        let result = reconstruct(&mut views, &[None, Some(&parity[0])], &[1, 2]);
        assert_eq!(result, Err(ReconstructError::NotEnoughParity { missing: 2, available: 1 }));
        assert_eq!(data, before);
    }

    proptest! {
        #[test]
        fn whatever_is_lost_up_to_the_parity_comes_back(
            count in 1usize..20, long in 0usize..20, short in 0usize..1500, sector in 1usize..600,
            parity in 1usize..=3, order in any::<u64>(), seed in any::<u64>(),
        ) {
            let data = columns(count, long.min(count), short, sector, seed);
            let expected = by_definition(parity, &data);
            let lost = parity.min(count).min(1 + order as usize % 3);
            let choices = subsets(count, lost);
            let mut missing = choices[(order >> 8) as usize % choices.len()].clone();
            missing.rotate_left((order >> 40) as usize % lost);
            let rows = subsets(parity, lost);
            let rows = &rows[(order >> 50) as usize % rows.len()];
            for &kernels in available() {
                prop_assert_eq!(&generated(kernels, parity, &data), &expected);
                prop_assert!(survives(kernels, &data, &expected, rows, &missing), "{} {:?}", kernels.name, missing);
            }
        }
    }
}
