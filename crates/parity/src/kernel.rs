//! The two inner loops of RAID-Z, portable, and the choice among the faster ones.
//!
//! - *Horner*: parity columns from data columns, `acc = acc·g ⊕ D[i]` for each column in order, in registers: every data
//!   byte is read once and every parity byte written once, whatever the number of parities.
//! - *Combine*: up to three outputs, each a sum of sources times coefficients: reconstruction.
//!
//! Both take columns of equal length; an empty slice stands for a column of zeros.

use std::sync::OnceLock;

use crate::PARITY_MAX;
use crate::field::Nibbles;

/// `outputs.len()` parities over `columns`, each as long as every output or empty.
type Horner = fn(columns: &[&[u8]], outputs: &mut [&mut [u8]]);
/// `outputs[k] = Σ coefficients[i][k] · sources[i]`, each source as long as every output or empty.
type Combine = fn(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]);

/// A set of kernels by its name.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    pub name: &'static str,
    pub horner: Horner,
    pub combine: Combine,
}

const SCALAR: Kernels = Kernels { name: "scalar", horner, combine };

/// Every set of kernels this machine can run, slowest first.
pub(crate) fn available() -> &'static [Kernels] {
    static AVAILABLE: OnceLock<Vec<Kernels>> = OnceLock::new();
    AVAILABLE.get_or_init(|| {
        #[allow(unused_mut)]
        let mut kernels = vec![SCALAR];
        #[cfg(target_arch = "x86_64")]
        {
            use crate::kernel_x86 as x86;
            if x86::has_avx2() {
                kernels.push(Kernels { name: "avx2", horner: x86::avx2_horner, combine: x86::avx2_combine });
            }
            if x86::has_avx512_gfni() {
                let (horner, combine) = (x86::avx512_horner, x86::avx512_combine);
                kernels.push(Kernels { name: "avx512-gfni", horner, combine });
            }
        }
        kernels
    })
}

/// The kernels to use when nobody asks for others.
pub(crate) fn best() -> Kernels {
    *available().last().expect("the scalar kernels are always there")
}

/// The set of this name; panics if this machine cannot run it.
pub(crate) fn named(name: &str) -> Kernels {
    *available().iter().find(|kernels| kernels.name == name).expect("a kernel this machine has")
}

/// The name of the kernels this machine uses.
pub fn kernel_name() -> &'static str {
    best().name
}

/// The names of all kernels this machine can run, slowest first. For tests and benchmarks.
pub fn kernel_names() -> Vec<&'static str> {
    available().iter().map(|kernels| kernels.name).collect()
}

/// Panics unless the shapes are those the kernels rely on; returns the common length.
pub(crate) fn check_shapes(columns: &[&[u8]], outputs: &[&mut [u8]]) -> usize {
    assert!((1..=PARITY_MAX).contains(&outputs.len()), "{} outputs", outputs.len());
    let length = outputs[0].len();
    assert!(outputs.iter().all(|output| output.len() == length), "outputs of different lengths");
    assert!(columns.iter().all(|column| column.is_empty() || column.len() == length), "columns of different lengths");
    length
}

const WORD: usize = 8;

/// Each of the eight bytes of `x`, doubled.
#[inline(always)]
fn double(x: u64) -> u64 {
    let carries = (x >> 7) & 0x0101_0101_0101_0101;
    ((x & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ (carries * 0x1d)
}

/// The portable Horner kernel: eight bytes at a time.
pub(crate) fn horner(columns: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let length = check_shapes(columns, outputs);
    let mut at = 0;
    while at < length {
        let width = WORD.min(length - at);
        let (mut p, mut q, mut r) = (0u64, 0u64, 0u64);
        for column in columns {
            q = double(q);
            r = double(double(r));
            if let Some(bytes) = column.get(at..at + width) {
                let mut word = [0; WORD];
                word[..width].copy_from_slice(bytes);
                let data = u64::from_le_bytes(word);
                p ^= data;
                q ^= data;
                r ^= data;
            }
        }
        for (output, value) in outputs.iter_mut().zip([p, q, r]) {
            output[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        }
        at += width;
    }
}

/// The portable Combine kernel: byte by byte through nibble tables.
pub(crate) fn combine(sources: &[&[u8]], coefficients: &[[u8; PARITY_MAX]], outputs: &mut [&mut [u8]]) {
    check_shapes(sources, outputs);
    assert_eq!(sources.len(), coefficients.len(), "one row of coefficients for each source");
    for (k, output) in outputs.iter_mut().enumerate() {
        output.fill(0);
        for (source, row) in sources.iter().zip(coefficients) {
            let table = Nibbles::of(row[k]);
            for (byte, &x) in output.iter_mut().zip(source.iter()) {
                *byte ^= table.low[usize::from(x & 15)] ^ table.high[usize::from(x >> 4)];
            }
        }
    }
}
