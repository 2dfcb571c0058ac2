//! What can be wrong with an encoded list.

/// An encoded list that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes end before the list does.
    #[error("the list ends early, at byte {at}")]
    Truncated {
        /// Offset of the read that failed.
        at: usize,
    },
    /// A value that the encoding does not allow.
    #[error("{what} is {value:#x} at byte {at}, which the encoding does not allow")]
    BadValue {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u64,
        /// Where it is.
        at: usize,
    },
    /// A string that has no end, or one inside it.
    #[error("the string at byte {at} is not valid text")]
    BadString {
        /// Where it starts.
        at: usize,
    },
    /// Lists are nested deeper than any writer nests them.
    #[error("lists are nested more than {limit} deep")]
    TooDeep {
        /// The limit.
        limit: usize,
    },
}
