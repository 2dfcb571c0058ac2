//! The queue classes of I/O.

/// Queue class of an I/O (`zio_priority_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for the bytes.
    SyncRead,
    /// Prefetch.
    AsyncRead,
    /// Somebody waits for the bytes to be stable.
    SyncWrite,
    /// A transaction group's ordinary data.
    AsyncWrite,
    /// Scrub and resilver.
    Scrub,
}
