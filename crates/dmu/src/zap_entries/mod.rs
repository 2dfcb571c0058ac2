//! Entries of a ZAP and how they are found: names and values, and the index of a micro ZAP in memory.

pub(crate) mod index;
pub(crate) mod key;
pub(crate) mod shared;
pub(crate) mod value;
