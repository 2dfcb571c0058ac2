//! Errors of pool and data set operations, worded for the person at the command line.

use platter_api::error::Refused;
use platter_zio::ZioError;

/// What went wrong. `Display` gives the reason only ("no such pool"): the command puts "cannot create 'tank': " before
/// it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PoolError {
    /// The request itself is malformed (exit code 2 with usage when it is a syntax matter, else 1).
    #[error("{0}")]
    Invalid(String),
    /// Something is wrong with devices, or with a group of them, that a pool was to be made of; a complete message.
    #[error("{0}")]
    Devices(String),
    /// No such pool, data set or property.
    #[error("{0}")]
    NotFound(String),
    /// It exists already.
    #[error("{0}")]
    Exists(String),
    /// Something is in use; says by whom.
    #[error("{0}")]
    Busy(String),
    /// `-f` would override it; the second text is the hint.
    #[error("{reason}\n{hint}")]
    NeedsForce {
        /// Why it was refused.
        reason: String,
        /// How to override, in OpenZFS's words ("use '-f' to override the following errors:").
        hint: String,
    },
    /// Devices are missing or damaged; the pool cannot be opened. Multi-line: names each device by guid and last path.
    #[error("{0}")]
    Unavailable(String),
    /// Too many devices of the pool fail: its I/O waits for them.
    #[error(
        "pool I/O is currently suspended{}",
        if *is_begun { "; what was begun is done when it goes on" } else { "" }
    )]
    Suspended {
        /// The pool's name.
        pool: String,
        /// Whether the change was begun, and is done when the pool goes on.
        is_begun: bool,
    },
    /// Active features that this version cannot write (or read).
    #[error("{0}")]
    Unsupported(String),
    /// Below the pool: blocks, devices, space.
    #[error(transparent)]
    Engine(#[from] ZioError),
}

impl From<Refused> for PoolError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Invalid(text) => Self::Invalid(text),
            Refused::Unsupported(text) => Self::Unsupported(text),
        }
    }
}

impl PoolError {
    /// [`PoolError::Invalid`] with its text.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::Invalid(text.into())
    }
}

/// The result of pool operations.
pub type Result<T> = std::result::Result<T, PoolError>;
