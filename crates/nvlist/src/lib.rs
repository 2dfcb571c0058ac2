//! nvlist
#![forbid(unsafe_code)]
