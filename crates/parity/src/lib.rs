//! parity
#![forbid(unsafe_code)]
