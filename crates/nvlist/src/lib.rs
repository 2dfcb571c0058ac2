//! Name/value lists (`module/nvpair/nvpair.c`, `include/sys/nvpair.h`): the format of labels, pool configurations,
//! history records and much else.
//!
//! An encoded list begins with four bytes: encoding (0 native, 1 XDR), byte order of the writer (1 little-endian), two
//! zeros. XDR is big-endian everywhere and what goes on disk; native is the writer's memory layout.
//!
//! True in this crate at all times:
//! - Pairs keep their order: encode writes them in the order in which they were added or read.
//! - Adding a name that is there replaces the pair and moves it to the end, as OpenZFS does for lists with unique
//!   names.
//! - Decoding takes memory in proportion to the input, nests at most [`MAX_DEPTH`] lists and never panics.
//! - Text is UTF-8 here. OpenZFS stores any bytes; what is not UTF-8 is read with U+FFFD in its place.
#![forbid(unsafe_code)]

mod error;
mod list;
mod native;
mod show;
mod value;
mod xdr;

pub use error::Error;
pub use list::NvList;
pub use value::{DataType, Value};

/// How deep lists may be nested (`nvpair_max_recursion` of OpenZFS's tools; its kernel module stops at 20).
pub const MAX_DEPTH: usize = 100;
/// `NV_UNIQUE_NAME`: a list holds each name once.
pub const NV_UNIQUE_NAME: u32 = 0x1;
/// `NV_UNIQUE_NAME_TYPE`: a list holds each name once per type.
pub const NV_UNIQUE_NAME_TYPE: u32 = 0x2;

/// Size of the header before the list itself, in bytes.
const HEADER_SIZE: usize = 4;
const ENCODING_NATIVE: u8 = 0;
const ENCODING_XDR: u8 = 1;
/// `NV_VERSION`.
const VERSION: i32 = 0;
/// Size of `nvlist_t` inside a native value, in bytes.
const NVLIST_T_SIZE: usize = 24;
/// Size of `nvpair_t` without its name, in bytes.
const NVPAIR_T_SIZE: usize = 16;

/// Byte order of a native encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endian {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl NvList {
    /// Decodes a list in either encoding and, for the native one, either byte order. Bytes after the list's end are
    /// ignored (labels are padded with zeros).
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let header = bytes.get(..HEADER_SIZE).ok_or(Error::Truncated { at: bytes.len() })?;
        match (header[0], header[1]) {
            (ENCODING_XDR, _) => xdr::decode(bytes),
            (ENCODING_NATIVE, 1) => native::decode(bytes, Endian::Little),
            (ENCODING_NATIVE, 0) => native::decode(bytes, Endian::Big),
            (ENCODING_NATIVE, order) => Err(Error::BadValue { what: "byte order", value: order.into(), at: 1 }),
            (encoding, _) => Err(Error::BadValue { what: "encoding", value: encoding.into(), at: 0 }),
        }
    }

    /// The XDR encoding, byte for byte what `nvlist_pack(NV_ENCODE_XDR)` gives on a little-endian machine.
    pub fn encode_xdr(&self) -> Vec<u8> {
        xdr::encode(self)
    }

    /// The native encoding of a little-endian machine.
    ///
    /// # Panics
    /// When a name is longer than 32766 bytes, which this encoding cannot hold.
    pub fn encode_native(&self) -> Vec<u8> {
        native::encode(self, Endian::Little)
    }

    /// The native encoding in a chosen byte order; see [`Self::encode_native`].
    pub fn encode_native_as(&self, endian: Endian) -> Vec<u8> {
        native::encode(self, endian)
    }
}

/// Rounds up to a multiple of `to`, a power of two.
fn align(n: usize, to: usize) -> usize {
    (n + to - 1) & !(to - 1)
}

/// A C string ends at its first zero byte, so nothing behind one is written.
fn c_bytes(text: &str) -> &[u8] {
    let bytes = text.as_bytes();
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}
