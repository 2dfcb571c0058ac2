//! What can be wrong with a structure read from a device. Every decoder of this crate returns this type; none panics
//! on untrusted bytes.

/// A structure that is not what the format says it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the structure does.
    #[error("{what}: needs {need} bytes, only {have} are there")]
    Truncated {
        /// The structure.
        what: &'static str,
        /// Bytes it needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// A field holds a value that the format does not allow.
    #[error("{what}: field {field} holds {value:#x}, which the format does not allow")]
    BadField {
        /// The structure.
        what: &'static str,
        /// The field, under OpenZFS's name where it has one.
        field: &'static str,
        /// What it holds.
        value: u64,
    },
    /// The magic number is missing.
    #[error("{what}: no magic number (found {found:#x})")]
    BadMagic {
        /// The structure.
        what: &'static str,
        /// What stands in its place.
        found: u64,
    },
    /// The checksum stored inside the structure is not that of its bytes.
    #[error("{what}: the embedded checksum does not match")]
    BadChecksum {
        /// The structure.
        what: &'static str,
    },
    /// The name/value list inside the structure is damaged.
    #[error("name/value list: {0}")]
    Nvlist(#[from] platter_nvlist::Error),
}

impl Error {
    pub(crate) fn field(what: &'static str, field: &'static str, value: impl Into<u64>) -> Self {
        Self::BadField { what, field, value: value.into() }
    }

    /// Fails unless `bytes` holds at least `need`.
    pub(crate) fn need(what: &'static str, bytes: &[u8], need: usize) -> Result<(), Self> {
        if bytes.len() < need { Err(Self::Truncated { what, need, have: bytes.len() }) } else { Ok(()) }
    }
}
