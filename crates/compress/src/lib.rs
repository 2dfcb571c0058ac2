//! Block compression as OpenZFS stores it: pure functions from bytes to bytes.
//!
//! Invariants:
//! - a compressed block is what OpenZFS decompresses to the same bytes; it need not be the same compressed bytes;
//! - [`compress`] never writes past the output it is given, which the caller makes as small as the saving it asks for;
//! - [`decompress`] fills its output exactly or fails; whatever the input holds it neither panics nor takes memory that
//!   depends on it. What the output holds after a failure is unspecified;
//! - working memory is kept per thread, so that compressing or decompressing a block allocates nothing after the first.

#![forbid(unsafe_code)]

mod error;
mod gzip;
mod lz4;
mod lzjb;
mod zero;
mod zle;
mod zstd_frame;

pub use error::DecompressError;
use platter_ondisk::Compression;
pub use zero::is_zero;
pub use zstd_frame::{
    LEVEL_DEFAULT, level_from_stored as zstd_level_from_stored, level_to_stored as zstd_level_to_stored,
};

/// Compresses `input` into the front of `output` and returns how many bytes it took, or `None` when they do not fit.
///
/// `output` has the largest size
/// worth having: `zio_compress_data` asks for a saving of at least one eighth, so callers pass `lsize - lsize / 8`
/// bytes. `level` matters for zstd only: the stored level (`enum zio_zstd_levels`: 1..=19, 103.. for the fast ones), a
/// negative number for a fast level, 0 or [`LEVEL_DEFAULT`] for the default; the levels of gzip are part of `kind`.
/// `None` also answers an unknown `kind` or level and "off": the block is then stored as it is, which is always right.
/// `output` may hold anything beyond the returned length. `EMPTY` takes a block of zeros to `Some(0)`, which the
/// caller stores as a hole.
pub fn compress(kind: Compression, level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    let most = output.len();
    let taken = match kind {
        Compression::ON | Compression::LZ4 => lz4::compress(input, output),
        Compression::LZJB => lzjb::compress(input, output),
        Compression::EMPTY => is_zero(input).then_some(0),
        Compression::ZLE => zle::compress(input, output),
        Compression::ZSTD => zstd_frame::compress(level, input, output),
        _ => kind.gzip_level().and_then(|level| gzip::compress(level.into(), input, output)),
    };
    debug_assert!(taken.is_none_or(|taken| taken <= most), "nothing is written past the output");
    taken
}

/// Bytes that [`compress`] takes beside its input and output at most, about, for `length` bytes of input.
pub fn workspace(kind: Compression, level: i32, length: u64) -> u64 {
    if kind == Compression::ZSTD { zstd_frame::workspace(level, length) } else { 0 }
}

/// Decompresses `input`, the block as stored, into all of `output`, whose length is the block's logical size.
///
/// `input` may be followed by the padding that fills the last sector.
pub fn decompress(kind: Compression, input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    match kind {
        Compression::OFF => {
            let stored = input.get(..output.len());
            let bad = DecompressError::BadLength { stated: output.len(), available: input.len() };
            output.copy_from_slice(stored.ok_or(bad)?);
            Ok(())
        }
        Compression::LZ4 => lz4::decompress(input, output),
        Compression::LZJB => lzjb::decompress(input, output),
        Compression::ZLE => zle::decompress(input, output),
        Compression::ZSTD => zstd_frame::decompress(input, output),
        _ if kind.gzip_level().is_some() => gzip::decompress(input, output),
        _ => Err(DecompressError::UnknownKind(kind)),
    }
}

/// Whether `kind` names an algorithm that [`decompress`] knows.
pub fn is_supported(kind: Compression) -> bool {
    let own = [Compression::OFF, Compression::LZJB, Compression::ZLE, Compression::LZ4, Compression::ZSTD];
    own.contains(&kind) || kind.gzip_level().is_some()
}
