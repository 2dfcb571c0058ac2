//! What a file operation can fail with, and the `errno` each failure is told to a process as.

use platter_zio::ZioError;
pub use platter_zio::errno;

/// A failed file operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ZplError {
    /// The name or object does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The object was freed while somebody still knew its number.
    #[error("stale file handle")]
    Stale,
    /// The name exists already.
    #[error("file exists")]
    Exists,
    /// A directory was needed.
    #[error("not a directory")]
    NotDirectory,
    /// A directory was given where none is allowed.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("directory not empty")]
    NotEmpty,
    /// The name is longer than 255 bytes, or a symbolic link's target is longer than 4095.
    #[error("name too long")]
    NameTooLong,
    /// The file system takes only UTF-8 names (`utf8only=on`).
    #[error("the name is not UTF-8")]
    NotUtf8,
    /// The link count would overflow.
    #[error("too many links")]
    TooManyLinks,
    /// The offset or size is beyond what the format holds.
    #[error("file too large")]
    FileTooLarge,
    /// An argument makes no sense (a directory moved below itself, a bad offset, ...).
    #[error("invalid argument: {0}")]
    Invalid(&'static str),
    /// The file is immutable or append-only.
    #[error("operation not permitted")]
    NotPermitted,
    /// The file system does not know how to do this.
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    /// `seek` found nothing to the end of the file.
    #[error("no such data or hole")]
    NoSuchOffset,
    /// The file system is mounted read-only; says why.
    #[error("read-only file system: {0}")]
    ReadOnly(String),
    /// Two file systems were named.
    #[error("invalid cross-device link")]
    CrossDevice,
    /// The caller may not do this to that kind of file.
    #[error("permission denied")]
    Denied,
    /// An extended attribute's value is larger than 64 KiB.
    #[error("the attribute's value is too large")]
    ValueTooLarge,
    /// The extended attribute does not exist.
    #[error("no such attribute")]
    NoAttribute,
    /// A layer below failed.
    #[error(transparent)]
    Zio(#[from] ZioError),
}

/// The result of a file operation.
pub type Result<T> = std::result::Result<T, ZplError>;

impl ZplError {
    /// The `errno` to answer a process with.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NotFound => errno::ENOENT,
            Self::Stale => errno::ESTALE,
            Self::Exists => errno::EEXIST,
            Self::NotDirectory => errno::ENOTDIR,
            Self::IsDirectory => errno::EISDIR,
            Self::NotEmpty => errno::ENOTEMPTY,
            Self::NameTooLong => errno::ENAMETOOLONG,
            Self::NotUtf8 => errno::EILSEQ,
            Self::TooManyLinks => errno::EMLINK,
            Self::FileTooLarge => errno::EFBIG,
            Self::Invalid(_) => errno::EINVAL,
            Self::NotPermitted => errno::EPERM,
            Self::NotSupported(_) => errno::EOPNOTSUPP,
            Self::NoSuchOffset => errno::ENXIO,
            Self::ReadOnly(_) => errno::EROFS,
            Self::CrossDevice => errno::EXDEV,
            Self::Denied => errno::EACCES,
            Self::ValueTooLarge => errno::E2BIG,
            Self::NoAttribute => errno::ENODATA,
            Self::Zio(error) => error.errno(),
        }
    }
}
