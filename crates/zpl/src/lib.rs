//! zpl
#![forbid(unsafe_code)]
