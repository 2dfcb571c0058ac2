//! zstd and zstd-fast (`module/zstd/zfs_zstd.c`, `include/sys/zstd/zstd.h`).
//!
//! A block is an 8-byte header and one magicless Zstandard frame without content size and checksum:
//!
//! ```text
//!  0               4       5               8
//!  +---------------+-------+---------------+----------------
//!  | frame length  | level | zstd version  | frame …
//!  +---------------+-------+---------------+----------------
//!   u32 big-endian   u8      u24 big-endian
//! ```
//!
//! Releases before 2.0.4 on big-endian hosts put the level after the version; such blocks are read too. The level is
//! the number of `enum zio_zstd_levels`, which OpenZFS checks before it decompresses.

use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};

use zstd::zstd_safe::{CCtx, CParameter, DCtx, DParameter, FrameFormat, version_number};

use crate::error::DecompressError;
use crate::lz4;

/// The level that stands for "the algorithm's default" (`ZIO_COMPLEVEL_DEFAULT`).
pub const LEVEL_DEFAULT: i32 = 255;

const HEADER: usize = 8;
/// `ZIO_ZSTD_LEVEL_DEFAULT`.
const DEFAULT: i32 = 3;
/// `ZIO_ZSTD_LEVEL_19`.
const SLOWEST: i32 = 19;
/// `ZIO_ZSTD_LEVEL_FAST_1`: the stored number of the level -1.
const FAST_FIRST: i32 = 103;
/// What the stored numbers from [`FAST_FIRST`] on mean to zstd, negated.
const FAST: [i32; 21] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 500, 1000];

/// Blocks at least this long, in bytes, are first tried with cheaper algorithms (`zstd_abort_size`).
const TRIAL_SIZE: usize = 128 << 10;
/// Levels from this one on are worth a trial (`zstd_cutoff_level`).
const TRIAL_LEVEL: i32 = 3;

/// zstd's own level for a number of `enum zio_zstd_levels`, or `None` if it names no level.
pub fn level_from_stored(stored: u8) -> Option<i32> {
    match i32::from(stored) {
        level @ 1..=SLOWEST => Some(level),
        fast => FAST.get(usize::try_from(fast - FAST_FIRST).ok()?).map(|level| -level),
    }
}

/// The number of `enum zio_zstd_levels` for zstd's own level: 1..=19, or one of the negative levels that have a number.
pub fn level_to_stored(level: i32) -> Option<u8> {
    match level {
        1..=SLOWEST => u8::try_from(level).ok(),
        _ => {
            let index = FAST.iter().position(|fast| -fast == level)?;
            u8::try_from(FAST_FIRST as usize + index).ok()
        }
    }
}

/// The stored number for whatever a caller may ask for.
fn stored_level(asked: i32) -> Option<u8> {
    match asked {
        0 | LEVEL_DEFAULT => level_to_stored(DEFAULT),
        1.. => u8::try_from(asked).ok().filter(|&stored| level_from_stored(stored).is_some()),
        _ => level_to_stored(asked),
    }
}

struct Compressor {
    context: CCtx<'static>,
    level: i32,
}

impl Compressor {
    fn new() -> Option<Self> {
        let mut context = CCtx::try_create()?;
        for parameter in [
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::CompressionLevel(DEFAULT),
        ] {
            context.set_parameter(parameter).ok()?;
        }
        Some(Self { context, level: DEFAULT })
    }

    fn run(&mut self, level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
        if self.level != level {
            self.context.set_parameter(CParameter::CompressionLevel(level)).ok()?;
            self.level = level;
        }
        self.context.compress2(output, input).ok()
    }

    /// Incompressible data costs dearly at the higher levels: what neither lz4 nor zstd-1 shrinks is left alone.
    fn run_if_worth_it(&mut self, level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
        let worth_a_trial = level >= TRIAL_LEVEL && input.len() >= TRIAL_SIZE;
        if worth_a_trial && lz4::compress(input, output).is_none() {
            self.run(1, input, output)?;
        }
        self.run(level, input, output)
    }
}

/// Compressors that nobody uses now. As many are made as are used at a time: one for each thread would be more, and at
/// the higher levels one takes up to 80 MiB.
static IDLE: Mutex<Vec<Compressor>> = Mutex::new(Vec::new());

thread_local! {
    static DECOMPRESSOR: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

pub(crate) fn compress(asked: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    let stored = stored_level(asked)?;
    let level = level_from_stored(stored)?;
    let (header, frame) = output.split_first_chunk_mut::<HEADER>()?;
    let idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut compressor = idle.or_else(Compressor::new)?;
    let length = compressor.run_if_worth_it(level, input, frame);
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).push(compressor);
    let length = length?;
    header[..4].copy_from_slice(&u32::try_from(length).ok()?.to_be_bytes());
    header[4..].copy_from_slice(&(u32::from(stored) << 24 | version_number()).to_be_bytes());
    Some(HEADER + length)
}

/// See [`crate::workspace`]: tables of up to 16 bytes for each of the input, of fewer entries at the lower levels.
pub(crate) fn workspace(asked: i32, length: u64) -> u64 {
    let most = match stored_level(asked).and_then(level_from_stored) {
        Some(10..) => 80 << 20,
        Some(5..) => 20 << 20,
        _ => 2 << 20,
    };
    length.saturating_mul(16).min(most)
}

/// The stored level of a header's second word, in either of its two layouts: the version's top byte is always zero and
/// tells which one it is.
fn header_level(word: [u8; 4]) -> Option<u8> {
    let stored = match word {
        [level, 0, _, _] => level,
        [0, _, _, level] => level,
        _ => return None,
    };
    level_from_stored(stored).map(|_| stored)
}

pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    const CORRUPT: DecompressError = DecompressError::Corrupt("zstd");
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Err(DecompressError::BadLength { stated: HEADER, available: input.len() });
    };
    let [a, b, c, d, level @ ..] = *header;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    header_level(level).ok_or(CORRUPT)?;
    let bad = DecompressError::BadLength { stated: length.saturating_add(HEADER), available: input.len() };
    let frame = rest.get(..length).ok_or(bad)?;
    let expected = output.len();
    let actual = DECOMPRESSOR.with_borrow_mut(|slot| {
        if slot.is_none() {
            let mut context = DCtx::try_create().ok_or(CORRUPT)?;
            context.set_parameter(DParameter::Format(FrameFormat::Magicless)).map_err(|_| CORRUPT)?;
            *slot = Some(context);
        }
        let context = slot.as_mut().ok_or(CORRUPT)?;
        context.decompress(output, frame).map_err(|_| CORRUPT)
    })?;
    if actual != expected {
        return Err(DecompressError::WrongSize { algorithm: "zstd", actual, expected });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_levels_are_those_of_openzfs() {
        // enum zio_zstd_levels in include/sys/zio_compress.h
        let known = [(1, 1), (19, 19), (103, -1), (112, -10), (113, -20), (121, -100), (122, -500), (123, -1000)];
        for (stored, level) in known {
            assert_eq!(level_from_stored(stored), Some(level));
            assert_eq!(level_to_stored(level), Some(stored));
        }
        for stored in [0, 20, 101, 102, 124, 251, 255] {
            assert_eq!(level_from_stored(stored), None, "{stored}");
        }
        for level in [0, 20, -11, -1001, i32::MIN, i32::MAX] {
            assert_eq!(level_to_stored(level), None, "{level}");
        }
    }

    #[test]
    fn the_header_holds_length_level_and_version_as_openzfs_lays_them() {
        let input = [7u8; 4096];
        let mut output = [0xaa; 1024];
        let used = compress(19, &input, &mut output).unwrap();
        assert_eq!(u32::from_be_bytes(*output.first_chunk().unwrap()) as usize, used - HEADER);
        assert_eq!(output[4], 19);
        assert_eq!(u32::from_be_bytes([0, output[5], output[6], output[7]]), version_number());
    }

    #[test]
    fn a_header_of_an_old_big_endian_writer_is_read() {
        let input = [7u8; 4096];
        let mut output = [0; 1024];
        let used = compress(3, &input, &mut output).unwrap();
        output[4..8].rotate_left(1);
        let mut back = [0; 4096];
        decompress(&output[..used], &mut back).unwrap();
        assert_eq!(back, input);
    }
}
