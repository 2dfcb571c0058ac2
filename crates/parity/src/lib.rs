//! RAID-Z parity: the P, Q and R columns over data columns, and the data back from any of them.
//!
//! With data columns `D[0..n]` (`module/zfs/vdev_raidz.c`):
//!
//! ```text
//! P = Σ          D[i]        Q = Σ 2^(n-1-i)·D[i]        R = Σ 4^(n-1-i)·D[i]
//! ```
//!
//! over GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, byte by byte.
//!
//! Invariants:
//! - a data column shorter than the longest counts as padded with zeros; the padding weighs nothing but keeps its
//!   place;
//! - parity columns are as long as the longest data column;
//! - every kernel chosen for a processor gives the same bytes as the portable one; the choice only changes speed;
//! - wrong shapes (lengths, counts, indices) are programming errors and panic; the *contents* of columns never do.

#![deny(unsafe_code)]

mod choice;
mod field;
mod kernel;
#[cfg(target_arch = "x86_64")]
mod kernel_avx2;
#[cfg(target_arch = "x86_64")]
mod kernel_avx512;
mod raidz;

pub use choice::{kernel_name, kernel_names};
pub use raidz::{ReconstructError, generate, generate_with, reconstruct, reconstruct_with};

/// The most parity columns a RAID-Z group has.
pub const PARITY_MAX: usize = 3;

/// The most data columns a RAID-Z group has (`VDEV_RAIDZ_MAX_COLS` - 1: 255 children, one of them parity).
pub const DATA_MAX: usize = 254;
