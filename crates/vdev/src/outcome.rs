//! What operations on a block found and did.

/// What a read found besides the data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Bytes rewritten on children that had them wrong.
    pub repaired_bytes: u64,
    /// Children whose bytes were wrong or could not be read, by index.
    pub bad_children: Vec<usize>,
    /// Whether the data had to be rebuilt or taken from another copy.
    pub reconstructed: bool,
}

/// What a scrub of one block found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubOutcome {
    /// Bytes read from the devices.
    pub examined_bytes: u64,
    /// Bytes rewritten.
    pub repaired_bytes: u64,
    /// Bytes that should have been rewritten and could not: their children have the block's group in their dirty time
    /// log.
    pub unrepaired_bytes: u64,
    /// Children whose bytes were wrong or could not be read, by index.
    pub bad_children: Vec<usize>,
}

/// What came of rewriting what was wrong. Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rewritten {
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

impl std::iter::Sum for Rewritten {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), |a, b| Self { done: a.done + b.done, failed: a.failed + b.failed })
    }
}
