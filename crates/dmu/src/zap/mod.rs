//! The ZFS attribute processor: name → integers maps, micro and fat (`module/zfs/zap*.c`).
//!
//! Invariants:
//! - the object's block 0 tells the shape; a micro ZAP becomes fat when it must and never turns back;
//! - writers of one object exclude each other and readers, through the lock in what all who have it open
//!   share; nothing is called under that lock but the object itself;
//! - names are unique byte strings; two names of one hash differ in their collision differentiator, which an entry
//!   keeps for life. So a cursor (hash, differentiator) stays valid whatever else comes and goes.

mod copy;
mod fat;
mod live;
mod micro;
mod numbers;
#[cfg(test)]
mod tests;

pub use crate::zap_entries::value::{ZapEntry, ZapValue};
pub use live::{NewZap, Zap};
