//! What can go wrong in a benchmark: always said with what was being done.

use std::io;

/// A measurement or its preparation that failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program or a check said no.
    #[error("{0}")]
    Said(String),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// A result of this crate.
pub type Result<T, E = BenchError> = std::result::Result<T, E>;

/// Says with an error what was being done.
pub trait While<T> {
    /// Adds what was being done to an error.
    fn on(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> While<T> for std::result::Result<T, E> {
    fn on(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| BenchError::Io { what: what(), source: error.into() })
    }
}

/// An error that is a sentence.
pub fn said<T>(sentence: impl Into<String>) -> Result<T> {
    Err(BenchError::Said(sentence.into()))
}
