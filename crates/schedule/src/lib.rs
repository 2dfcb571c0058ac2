//! Which snapshots a data set gets by itself, and which of them go again: the policy, without a pool, a clock, a task.
//!
//! # The idea
//! ```text
//! now ─► slot: the last hour, day, ... that has begun      is there a snapshot of it? else one is due
//! snapshots called auto_TIME_KIND, of each kind the newest stay; the others are surplus
//! ```
//! A snapshot is named for the beginning of its slot, so one that was missed, while the machine slept, is made when it
//! wakes, once; and whoever asks twice in a slot gets one.
//!
//! # Invariants
//! - Nothing is ever surplus that does not have such a name, to the letter, or whose kind the schedule does not name.
//! - The newest of a kind are never surplus.
#![forbid(unsafe_code)]

pub mod plan;
pub mod slot;

pub use plan::{due, next, surplus};
pub use slot::{Moment, Slot};
