//! vdev
#![forbid(unsafe_code)]
