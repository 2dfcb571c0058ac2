//! Name/value lists.
#![forbid(unsafe_code)]
mod error;
pub use error::Error;
