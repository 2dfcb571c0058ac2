//! What a path leads to.

/// What a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing that could be looked at; the reason is for a person.
    Missing(String),
    /// A regular file and its size in bytes.
    File(u64),
    /// A block device.
    BlockDevice,
    /// A folder.
    Folder,
    /// Something that cannot hold a pool.
    Other,
}
