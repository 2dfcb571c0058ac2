//! device
#![forbid(unsafe_code)]
