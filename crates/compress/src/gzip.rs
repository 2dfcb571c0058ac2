//! gzip-1 to gzip-9: a bare zlib stream (RFC 1950), not a gzip file (`module/zfs/gzip.c`).

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::error::DecompressError;

thread_local! {
    static COMPRESSORS: RefCell<[Option<Compressor>; 9]> = const { RefCell::new([const { None }; 9]) };
    static DECOMPRESSOR: RefCell<Option<Decompressor>> = const { RefCell::new(None) };
}

/// `level` is 1..=9.
pub(crate) fn compress(level: i32, input: &[u8], output: &mut [u8]) -> Option<usize> {
    COMPRESSORS.with_borrow_mut(|compressors| {
        let slot = compressors.get_mut(usize::try_from(level - 1).ok()?)?;
        if slot.is_none() {
            *slot = Some(Compressor::new(CompressionLvl::new(level).ok()?));
        }
        slot.as_mut()?.zlib_compress(input, output).ok()
    })
}

/// The stream says where it ends, so padding after it does no harm.
pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let expected = output.len();
    let result = DECOMPRESSOR
        .with_borrow_mut(|decompressor| decompressor.get_or_insert_default().zlib_decompress(input, output));
    match result {
        Ok(actual) if actual == expected => Ok(()),
        Ok(actual) => Err(DecompressError::WrongSize { algorithm: "gzip", actual, expected }),
        Err(DecompressionError::BadData | DecompressionError::InsufficientSpace) => {
            Err(DecompressError::Corrupt("gzip"))
        }
    }
}
