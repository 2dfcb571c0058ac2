//! What an operation on a volume can fail with.

use platter_zio::{ZioError, errno};

/// A failed operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// It, or its pool, or this snapshot, is read-only.
    #[error("read-only volume")]
    ReadOnly,
    /// Behind the volume's end.
    #[error("behind the end of the volume")]
    BehindEnd,
    /// `seek` found nothing to the end.
    #[error("no such data or hole")]
    NoSuchOffset,
    /// A layer below failed.
    #[error(transparent)]
    Zio(#[from] ZioError),
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, VolumeError>;

impl VolumeError {
    /// The `errno` to answer a process with: that of a disk.
    pub fn errno(&self) -> i32 {
        match self {
            Self::ReadOnly => errno::EROFS,
            Self::BehindEnd => errno::ENOSPC,
            Self::NoSuchOffset => errno::ENXIO,
            Self::Zio(error) => error.errno(),
        }
    }
}
