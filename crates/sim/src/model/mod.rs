//! Models of time held against what was measured elsewhere.

pub mod published;
