//! A property's value as it is stored.

/// A locally set property as stored: a number for native numeric and index properties, text for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredProperty {
    /// One 8-byte integer.
    Number(u64),
    /// A string.
    Text(String),
}
