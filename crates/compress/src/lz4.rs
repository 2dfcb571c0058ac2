//! lz4: a raw LZ4 block behind its length as a big-endian u32 (`module/zfs/lz4_zfs.c`).

use std::cell::RefCell;

use lz4_flex::block;

use crate::DecompressError;

const HEADER: usize = 4;

thread_local! {
    /// The compressor wants room for the worst case, more than the caller is willing to store.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn compress(input: &[u8], output: &mut [u8]) -> Option<usize> {
    let (header, body) = output.split_first_chunk_mut::<HEADER>()?;
    SCRATCH.with_borrow_mut(|scratch| {
        let worst = block::get_maximum_output_size(input.len());
        if scratch.len() < worst {
            scratch.resize(worst, 0);
        }
        let length = block::compress_into(input, scratch).ok()?;
        body.get_mut(..length)?.copy_from_slice(&scratch[..length]);
        *header = u32::try_from(length).ok()?.to_be_bytes();
        Some(HEADER + length)
    })
}

pub(crate) fn decompress(input: &[u8], output: &mut [u8]) -> Result<(), DecompressError> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Err(DecompressError::BadLength { stated: HEADER, available: input.len() });
    };
    let length = u32::from_be_bytes(*header) as usize;
    let bad = DecompressError::BadLength { stated: length.saturating_add(HEADER), available: input.len() };
    let stream = rest.get(..length).ok_or(bad)?;
    let expected = output.len();
    match block::decompress_into(stream, output) {
        Ok(actual) if actual == expected => Ok(()),
        Ok(actual) => Err(DecompressError::WrongSize { algorithm: "lz4", actual, expected }),
        Err(_) => Err(DecompressError::Corrupt("lz4")),
    }
}
