//! The bytes of one data block: how long they may be, and how they are made that long.

use std::sync::LazyLock;

use platter_buffer::{Buf, BufMut};
use platter_ondisk::blkptr::BLOCK_SIZE_MAX;
use platter_ondisk::sector::SECTOR;
use platter_zio::{Result, ZioError};

/// A run of zeros of `length` bytes; shares memory up to 1 MiB.
pub(crate) fn zeros(length: usize) -> Buf {
    static ZEROS: LazyLock<Buf> = LazyLock::new(|| Buf::zeroed(1 << 20));
    if length <= ZEROS.len() { ZEROS.slice(..length) } else { Buf::zeroed(length) }
}

/// `block` with exactly `size` bytes: zeros are added, or the end cut off.
pub(crate) fn resized(block: Buf, size: usize) -> Buf {
    if block.len() == size {
        return block;
    }
    let mut grown = BufMut::zeroed(size);
    let length = block.len().min(size);
    grown[..length].copy_from_slice(&block[..length]);
    grown.freeze()
}

/// Fails for what no data block can be long: whole sectors, 16 MiB at most.
pub(crate) fn check_block_size(size: u32) -> Result<()> {
    if size == 0 || u64::from(size) > BLOCK_SIZE_MAX || !u64::from(size).is_multiple_of(SECTOR) {
        return Err(ZioError::Invalid(format!("a block size of {size} bytes")));
    }
    Ok(())
}
