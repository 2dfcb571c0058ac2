//! Where a stream goes to, and where it comes from: pipes and files are others' to open.

use futures::future::BoxFuture;

use crate::error::Result;

/// Takes a stream.
pub trait StreamSink: Send {
    /// Takes the next bytes of the stream, waiting as long as whoever reads it is behind.
    fn put(&mut self, bytes: Vec<u8>) -> BoxFuture<'_, Result<()>>;
}

/// Gives a stream.
pub trait StreamSource: Send {
    /// Fills `out` with the next bytes; fewer, and how many, where the stream ends.
    fn fill<'a>(&'a mut self, out: &'a mut [u8]) -> BoxFuture<'a, Result<usize>>;
}
