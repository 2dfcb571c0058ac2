//! zio
#![forbid(unsafe_code)]
