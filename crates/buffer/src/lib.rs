//! buffer
#![forbid(unsafe_code)]
