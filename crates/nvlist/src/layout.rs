//! Numbers and small rules of the format that both encodings share.

/// How deep lists may be nested (`nvpair_max_recursion` of OpenZFS's tools; its kernel module stops at 20).
pub const MAX_DEPTH: usize = 100;
/// `NV_UNIQUE_NAME`: a list holds each name once.
pub const NV_UNIQUE_NAME: u32 = 0x1;
/// `NV_UNIQUE_NAME_TYPE`: a list holds each name once per type.
pub const NV_UNIQUE_NAME_TYPE: u32 = 0x2;

/// Size of the header before the list itself, in bytes.
pub(crate) const HEADER_SIZE: usize = 4;
/// Encodings, as the header has them.
pub(crate) const ENCODING_NATIVE: u8 = 0;
pub(crate) const ENCODING_XDR: u8 = 1;
/// `NV_VERSION`.
pub(crate) const VERSION: i32 = 0;
/// Size of `nvlist_t` inside a native value, in bytes.
pub(crate) const NVLIST_T_SIZE: usize = 24;
/// Size of `nvpair_t` without its name, in bytes.
pub(crate) const NVPAIR_T_SIZE: usize = 16;

/// Byte order of a native encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// Rounds up to a multiple of `to`, a power of two.
pub(crate) fn align(n: usize, to: usize) -> usize {
    (n + to - 1) & !(to - 1)
}

/// A C string ends at its first zero byte, so nothing behind one is written.
pub(crate) fn c_bytes(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}
