//! fuse
#![forbid(unsafe_code)]
