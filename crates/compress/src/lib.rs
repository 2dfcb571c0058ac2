//! compress
#![forbid(unsafe_code)]
