//! What a file system is made and mounted with.

use std::sync::Arc;

use platter_zil::Zil;

use crate::attr::Timestamp;

/// Makes a new file system (`zfs_create_fs`).
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// ZPL version, 3 to 5. Before 5 files have znodes instead of system attributes.
    pub version: u64,
    /// Property `normalization` as stored (0: none).
    pub normalization: u64,
    /// Property `utf8only` as stored.
    pub utf8only: u64,
    /// Property `casesensitivity` as stored (0: sensitive).
    pub case_sensitivity: u64,
    /// Owner of the root directory.
    pub uid: u32,
    /// Group of the root directory.
    pub gid: u32,
    /// Time stamped on the root directory.
    pub now: Timestamp,
    /// Random number from which the hash salts of the new ZAPs are drawn.
    pub salt_seed: u64,
}

impl Default for CreateOptions {
    fn default() -> Self {
        Self {
            version: platter_ondisk::znode::ZPL_VERSION,
            normalization: 0,
            utf8only: 0,
            case_sensitivity: 0,
            uid: 0,
            gid: 0,
            now: Timestamp::default(),
            salt_seed: 0,
        }
    }
}

/// When reading a file changes its access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimeMode {
    /// Never (`atime=off`).
    Off,
    /// Only when it would be older than the last change, or older than a day (`relatime=on`).
    #[default]
    Relative,
    /// Always (`atime=on`, `relatime=off`).
    Always,
}

/// Where new extended attributes go (property `xattr`); all are read wherever they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Attributes of namespace `user.` are refused (`xattr=off`).
    Off,
    /// Files of a hidden directory (`xattr=dir`).
    Dir,
    /// The file's own attributes, as long as they fit (`xattr=on` or `sa`).
    #[default]
    Sa,
}

/// How a file system is mounted.
#[derive(Clone, Default)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Access times.
    pub atime: AtimeMode,
    /// Extended attributes.
    pub xattr: XattrMode,
    /// Whether files have POSIX access control lists (`acltype=posix`).
    pub posix_acl: bool,
    /// Random number from which the hash salts of new directories are drawn.
    pub salt_seed: u64,
    /// The intent log; without one `fsync` waits for a transaction group.
    pub log: Option<Arc<Zil>>,
    /// Most files whose attributes are kept in memory; 0 takes the default (64 Ki).
    pub znodes_max: usize,
}
