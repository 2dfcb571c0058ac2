//! dmu
#![forbid(unsafe_code)]
