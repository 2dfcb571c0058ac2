//! checksum
#![forbid(unsafe_code)]
