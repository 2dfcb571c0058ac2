//! The checksums that block pointers carry, as pure functions from bytes to four 64-bit words.
//!
//! Invariants:
//! - a result is the `zc_word[4]` of `zio_cksum_t` as host integers: it compares equal to the words decoded from a
//!   block pointer of either byte order (`module/zfs/zio_checksum.c`, `include/sys/zio_checksum.h`);
//! - every kernel chosen for a processor gives the same words as the portable one; the choice only changes speed;
//! - lengths are those of ZFS blocks. Bytes after the last whole word of a Fletcher sum (4 bytes, or 16 for Fletcher-2)
//!   do not take part, exactly as in ZFS, whose blocks are always multiples of 512 bytes.
//!
//! The salted checksums (skein, edonr, blake3) need the pool's salt: [`Checksums`] knows all kinds, while [`compute`]
//! answers `None` for these.

#![deny(unsafe_code)]

mod edonr;
mod fletcher;
mod fletcher_choice;
#[cfg(target_arch = "x86_64")]
mod fletcher_x86;
mod salted;
mod sha;
mod skein;
mod unsalted;

use platter_ondisk::Checksum;

pub use fletcher::{fletcher_2, fletcher_2_swapped, fletcher_4_scalar, fletcher_4_scalar_swapped};
pub use fletcher_choice::{fletcher_4, fletcher_4_kernel, fletcher_4_kernels, fletcher_4_swapped};
pub use salted::{Checksums, SALT_SIZE, is_known, needs_salt};
pub use sha::{sha256, sha512, sha512_swapped};
pub use unsalted::{compute, compute_swapped};

/// The four words of a checksum in the order of `zio_cksum_t`, as host integers.
pub type Words = [u64; 4];
