//! What an operation can fail with. Each protocol has its own numbers for these.

use platter_zio::ZioError;
use platter_zpl::ZplError;

/// A failed operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VfsError {
    /// Permission bits or the access list keep the caller from it.
    #[error("permission denied")]
    Denied,
    /// Only the owner or root may do it, or nobody at all.
    #[error("operation not permitted")]
    NotPermitted,
    /// What is to be closed is not open.
    #[error("it is not open")]
    NotOpen,
    /// The file system is not served any more.
    #[error("the file system is not served any more")]
    Over,
    /// The file system itself says so.
    #[error(transparent)]
    File(#[from] ZplError),
}

impl VfsError {
    /// Whether devices failed or what they had was damaged, which is nothing that the caller did.
    pub fn is_loss(&self) -> bool {
        matches!(
            self,
            Self::File(ZplError::Zio(
                ZioError::Checksum { .. } | ZioError::Io(_) | ZioError::Corrupt { .. } | ZioError::Suspended(..)
            ))
        )
    }
}

/// The result of an operation.
pub type Result<T> = std::result::Result<T, VfsError>;
