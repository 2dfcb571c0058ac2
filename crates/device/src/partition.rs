//! A partition of a disk.

/// A partition, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Number, from 1.
    pub number: u32,
    /// Type, as it stands on disk.
    pub kind: [u8; 16],
    /// First byte.
    pub start: u64,
    /// Length.
    pub size: u64,
    /// Name, as far as it is valid UTF-16.
    pub name: String,
}
