//! ondisk
#![forbid(unsafe_code)]
