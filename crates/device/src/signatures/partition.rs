//! One partition, as a table of whatever kind tells it.

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in its name.
    pub number: u32,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Its bytes.
    pub size: u64,
}
