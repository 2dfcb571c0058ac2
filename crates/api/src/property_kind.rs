//! Kinds of properties, by what values they take.

/// What values a property takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One of these names, stored as its number.
    Index(&'static [(&'static str, u64)]),
    /// `recordsize`: a power of two of bytes.
    RecordSize,
    /// Bytes; "none" is 0.
    Bytes,
    /// A number of things; "none" is the largest number.
    Count,
    /// `special_small_blocks`: bytes, 0 or a power of two.
    SmallBlocks,
    /// A path, `none` or `legacy`.
    Mountpoint,
    /// Free text.
    Text,
}
