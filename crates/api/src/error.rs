//! Why a request makes no sense.

/// A refusal of what was asked, worded for the person at the command line; `Display` gives the reason only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The request itself is malformed.
    #[error("{0}")]
    Invalid(String),
    /// It means something, but not to this version.
    #[error("{0}")]
    Unsupported(String),
}

impl Refused {
    /// [`Refused::Invalid`] with its text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// The result of looking at a request.
pub type Result<T> = std::result::Result<T, Refused>;
