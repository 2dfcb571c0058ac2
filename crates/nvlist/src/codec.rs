//! Lists from and to bytes, whichever the encoding.

use crate::error::Error;
use crate::layout::{ENCODING_NATIVE, ENCODING_XDR, Endian, HEADER_SIZE};
use crate::types::NvList;
use crate::{native, xdr};

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
