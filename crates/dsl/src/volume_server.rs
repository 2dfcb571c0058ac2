//! Whoever serves an open volume is told what changes under it.

use futures::future::BoxFuture;

/// See the module text.
pub trait Server: Send + Sync {
    /// It has so many bytes from now on; when this is over, nothing is on its way behind its end.
    fn resized(&self, size: u64) -> BoxFuture<'_, ()>;

    /// Whether it may be written (property `readonly`).
    fn set_read_only(&self, read_only: bool);
}
