//! What is wrong with a block that cannot be decompressed.

use platter_ondisk::Compression;

/// Why a block could not be decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The number is none of `enum zio_compress`, or names no algorithm.
    #[error("unknown compression number {0}")]
    UnknownKind(Compression),
    /// The stored length reaches beyond the stored bytes, or there are fewer bytes than a header.
    #[error("the compressed length {stated} does not fit the {available} bytes stored")]
    BadLength {
        /// Bytes that the block's header announces, header included.
        stated: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The bytes are no stream of this algorithm.
    #[error("corrupt {0} stream")]
    Corrupt(&'static str),
    /// The stream is sound but does not expand to the block's logical size.
    #[error("the {algorithm} stream expands to {actual} bytes where the block has {expected}")]
    WrongSize {
        /// The algorithm's name as in the `compression` property.
        algorithm: &'static str,
        /// Bytes that came out.
        actual: usize,
        /// Bytes that the block pointer promises.
        expected: usize,
    },
}
