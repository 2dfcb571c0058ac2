//! dsl
#![forbid(unsafe_code)]
