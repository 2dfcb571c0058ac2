//! spa
#![forbid(unsafe_code)]
