//! What can go wrong with a stream in a file.

use std::io;
use std::path::{Path, PathBuf};

use platter_fuse::FuseError;
use platter_stream::StreamError;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The stream in a file makes no sense.
    #[error("'{}': {source}", path.display())]
    Senseless {
        /// The file.
        path: PathBuf,
        /// Why.
        source: StreamError,
    },
    /// The stream in a file is not what is asked for, or has not what is asked for.
    #[error("'{}': {what}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// It cannot be shown.
    #[error(transparent)]
    Mount(#[from] FuseError),
    /// Threads to show it cannot be had.
    #[error("cannot start: {0}")]
    Start(io::Error),
}

/// The result of anything here.
pub type Result<T> = std::result::Result<T, ArchiveError>;

/// A file cannot be read.
pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> ArchiveError {
    move |source| ArchiveError::Unreadable { path: path.to_owned(), source }
}

/// What is in a file makes no sense.
pub(crate) fn senseless(path: &Path) -> impl Fn(StreamError) -> ArchiveError {
    move |source| ArchiveError::Senseless { path: path.to_owned(), source }
}

/// The refusal of what is in a file.
pub(crate) fn other(path: &Path, what: impl Into<String>) -> ArchiveError {
    ArchiveError::Other { path: path.to_owned(), what: what.into() }
}
