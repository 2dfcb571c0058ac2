//! Linux `errno` values; they are the same on every architecture this runs on.
#![allow(missing_docs, reason = "the names are POSIX's")]

use crate::error::ZioError;

pub const EPERM: i32 = 1;
pub const ENOENT: i32 = 2;
pub const EIO: i32 = 5;
pub const E2BIG: i32 = 7;
pub const EACCES: i32 = 13;
pub const EEXIST: i32 = 17;
pub const EXDEV: i32 = 18;
pub const ENOTDIR: i32 = 20;
pub const EISDIR: i32 = 21;
pub const EINVAL: i32 = 22;
pub const ENXIO: i32 = 6;
pub const EFBIG: i32 = 27;
pub const ENOSPC: i32 = 28;
pub const EROFS: i32 = 30;
pub const EMLINK: i32 = 31;
pub const ENAMETOOLONG: i32 = 36;
pub const ENOTEMPTY: i32 = 39;
pub const ENODATA: i32 = 61;
pub const EILSEQ: i32 = 84;
pub const EOPNOTSUPP: i32 = 95;
pub const ESTALE: i32 = 116;
pub const EDQUOT: i32 = 122;

impl ZioError {
    /// The `errno` to answer a process with.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoSpace => ENOSPC,
            Self::Quota => EDQUOT,
            Self::NotFound(_) => ENOENT,
            Self::Exists(_) => EEXIST,
            Self::Invalid(_) => EINVAL,
            Self::ReadOnly => EROFS,
            Self::Checksum { .. } | Self::Io(_) | Self::Corrupt { .. } | Self::Suspended(..) => EIO,
        }
    }
}
