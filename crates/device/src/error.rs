//! Why a device could not be opened, read, written or flushed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What was being done to a device when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making earlier writes stable.
    Flush,
    /// Giving up what nobody needs.
    Trim,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Trim => "trim",
        })
    }
}

/// A device's failure. Offsets and lengths are in bytes.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeviceError {
    /// The path could not be opened at all.
    #[error("cannot open '{}': {source}", path.display())]
    Open {
        /// What was to be opened.
        path: PathBuf,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// Somebody else uses the device; nothing was changed.
    #[error("'{}' is in use: {reason}", path.display())]
    InUse {
        /// The device.
        path: PathBuf,
        /// By whom or what, for a person.
        reason: String,
    },
    /// Who else uses what lies behind the device cannot be known; nothing was changed.
    #[error("'{}' cannot be locked: {detail}", path.display())]
    NotLockable {
        /// The device.
        path: PathBuf,
        /// Why, and what to do, for a person.
        detail: String,
    },
    /// Neither a regular file nor a block device.
    #[error("'{}' is {what}, not a file or a block device", path.display())]
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What it is instead.
        what: &'static str,
    },
    /// The device answered a transfer with an error.
    #[error("{operation} of {length} bytes at offset {offset} of '{device}' failed: {source}")]
    Io {
        /// The device's name.
        device: String,
        /// What was tried.
        operation: Operation,
        /// Where it began.
        offset: u64,
        /// How much was asked for.
        length: u64,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The device ends before the bytes that should be there (a truncated file).
    #[error("{operation} of {length} bytes at offset {offset} of '{device}' leaves the device, which ends at {size}")]
    Truncated {
        /// The device's name.
        device: String,
        /// What was tried.
        operation: Operation,
        /// Where it began.
        offset: u64,
        /// How much was asked for.
        length: u64,
        /// Where the device ends.
        size: u64,
    },
    /// The device was there and is no longer.
    #[error("'{device}' is gone: {reason}")]
    Gone {
        /// The device's name.
        device: String,
        /// How that was noticed.
        reason: String,
    },
    /// The lease on the device ended before all of a write was handed to it.
    #[error("'{0}' may not be written any more")]
    TooLate(String),
    /// The device, or the file system below it, cannot give up ranges; or not so that nobody can find what was there.
    #[error("'{0}' cannot be trimmed")]
    NotTrimmable(String),
    /// A write to a device that was opened for reading only.
    #[error("'{0}' was opened read-only")]
    ReadOnly(String),
    /// The device is too small for what it is to hold.
    #[error("'{device}' is too small: {size} bytes, at least {least} are needed")]
    TooSmall {
        /// The device's name.
        device: String,
        /// Its size.
        size: u64,
        /// The least size that would do.
        least: u64,
    },
    /// The partition table cannot be used.
    #[error("partition table of '{device}': {detail}")]
    PartitionTable {
        /// The device's name.
        device: String,
        /// What is wrong with it.
        detail: String,
    },
}

impl DeviceError {
    /// An [`DeviceError::Open`].
    pub fn open(path: impl Into<PathBuf>, source: impl Into<io::Error>) -> Self {
        Self::Open { path: path.into(), source: Arc::new(source.into()) }
    }

    /// Whether the path named nothing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// A device operation's result.
pub type Result<T> = std::result::Result<T, DeviceError>;
