//! Errors of the block pipeline.

use platter_ondisk::Txg;

use crate::policy::Bookmark;

/// What can go wrong between an object and its blocks.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ZioError {
    /// No copy of a block could be read and verified.
    #[error("block {bookmark} is damaged in every copy: {detail}")]
    Checksum {
        /// Which block.
        bookmark: Bookmark,
        /// What was tried.
        detail: String,
    },
    /// A device refused to read, write or flush and redundancy could not help.
    #[error("device error: {0}")]
    Io(String),
    /// The pool (or a quota) has no room.
    #[error("out of space")]
    NoSpace,
    /// A quota or reservation forbids it.
    #[error("quota exceeded")]
    Quota,
    /// A structure does not make sense; says which and where.
    #[error("damaged {what}: {detail}")]
    Corrupt {
        /// The structure's name.
        what: &'static str,
        /// Where it is and what was found.
        detail: String,
    },
    /// The thing asked for does not exist.
    #[error("no such {0}")]
    NotFound(String),
    /// The thing to be made exists already.
    #[error("{0} already exists")]
    Exists(String),
    /// A value is outside what the format or this version allows.
    #[error("{0}")]
    Invalid(String),
    /// The pool or object set cannot be written to.
    #[error("read-only")]
    ReadOnly,
    /// The pool stopped (export, failed write): nothing more is accepted.
    #[error("the pool is suspended in txg {0}: {1}")]
    Suspended(Txg, String),
}

impl ZioError {
    /// A [`ZioError::Corrupt`] with its text.
    pub fn corrupt(what: &'static str, detail: impl Into<String>) -> Self {
        Self::Corrupt { what, detail: detail.into() }
    }

    /// Whether what was to be read is gone for good; a device that does not answer may come back.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Checksum { .. } | Self::Corrupt { .. })
    }
}

/// The pipeline's result.
pub type Result<T> = std::result::Result<T, ZioError>;
