//! What can be wrong with a stream.

/// Why a stream is not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamError {
    /// It does not begin as a stream does.
    #[error("invalid stream (bad magic number)")]
    BadMagic,
    /// Its bytes are not those that were sent.
    #[error("invalid stream (checksum mismatch)")]
    Checksum,
    /// It makes no sense: what does not.
    #[error("invalid stream ({0})")]
    Malformed(String),
    /// It is of a kind that is not received here: which.
    #[error("{0}")]
    Unsupported(String),
}

impl StreamError {
    pub(crate) fn malformed<T>(what: impl Into<String>) -> Result<T, Self> {
        Err(Self::Malformed(what.into()))
    }
}
