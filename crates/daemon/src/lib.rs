//! daemon
#![forbid(unsafe_code)]
