//! The checksums that block pointers carry, as pure functions from bytes to four 64-bit words.
//!
//! Invariants:
//! - a result is the `zc_word[4]` of `zio_cksum_t` as host integers: it compares equal to the words decoded from a
//!   block pointer of either byte order (`module/zfs/zio_checksum.c`, `include/sys/zio_checksum.h`);
//! - every kernel chosen for a processor gives the same words as the portable one; the choice only changes speed;
//! - lengths are those of ZFS blocks. Bytes after the last whole word of a Fletcher sum (4 bytes, or 16 for Fletcher-2)
//!   do not take part, exactly as in ZFS, whose blocks are always multiples of 512 bytes.
//!
//! The salted checksums (skein, edonr, blake3) are not here: [`compute`] answers `None` for them.

#![deny(unsafe_code)]

mod fletcher;
#[cfg(target_arch = "x86_64")]
mod fletcher_x86;
mod kind;
mod sha;

pub use fletcher::{
    fletcher_2, fletcher_2_swapped, fletcher_4, fletcher_4_kernel, fletcher_4_kernels, fletcher_4_scalar,
    fletcher_4_scalar_swapped, fletcher_4_swapped,
};
pub use kind::{compute, compute_swapped, is_supported};
pub use sha::{sha256, sha512, sha512_swapped};

/// The four words of a checksum in the order of `zio_cksum_t`, as host integers.
pub type Words = [u64; 4];

/// The numbers of `enum zio_checksum` (`include/sys/zio.h`) as stored in block pointers and properties.
pub mod kinds {
    /// Take the parent dataset's value; never in a block pointer.
    pub const INHERIT: u8 = 0;
    /// The default, which is [`FLETCHER_4`].
    pub const ON: u8 = 1;
    /// No checksum: all words are zero.
    pub const OFF: u8 = 2;
    /// SHA-256 of a label area, seeded by its own offset.
    pub const LABEL: u8 = 3;
    /// SHA-256 of a gang header, seeded by its own address.
    pub const GANG_HEADER: u8 = 4;
    /// Fletcher-2 of an intent log block (pools before version 26).
    pub const ZILOG: u8 = 5;
    /// Fletcher-2 over 64-bit words.
    pub const FLETCHER_2: u8 = 6;
    /// Fletcher-4 over 32-bit words.
    pub const FLETCHER_4: u8 = 7;
    /// SHA-256.
    pub const SHA256: u8 = 8;
    /// Fletcher-4 of an intent log block.
    pub const ZILOG2: u8 = 9;
    /// No checksum and no repair: all words are zero.
    pub const NOPARITY: u8 = 10;
    /// SHA-512/256 (`org.illumos:sha512`).
    pub const SHA512: u8 = 11;
    /// Skein-512/256, keyed by the pool's salt.
    pub const SKEIN: u8 = 12;
    /// Edon-R, keyed by the pool's salt.
    pub const EDONR: u8 = 13;
    /// BLAKE3, keyed by the pool's salt.
    pub const BLAKE3: u8 = 14;
}
