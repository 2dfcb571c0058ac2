//! When a device counts as failed: the policy, without a device, a clock or a task. `docs/faults.md` tells it to a
//! person; the numbers are in [`policy`].
//!
//! # The problem
//! A disk seldom dies at once. It fails now and then, and so does one that is well: a count of errors that grows over
//! years says nothing. And what fails is often not the disk but what is between: a cable, a controller, the memory of
//! the host. To give up disks for that costs the pool.
//!
//! # The idea
//! ```text
//! counters of every device, once a second ─► Diagnosis ─► findings: a verdict, a change, nobody's fault
//!                                              └ Window, for each device and kind of error: how many, how lately
//! ```
//! Who calls looks at the devices, and carries out and tells what is found.
//!
//! # Invariants
//! - The same looks at the same times give the same findings.
//! - What is remembered of a device is bounded, however many errors it has.
//! - A device gets a verdict for one kind of errors once, until it is cleared.
//!
//! # Where to start
//! `diagnosis` is the policy; `words` what is said of it.
#![forbid(unsafe_code)]

pub mod diagnosis;
pub mod policy;
mod window;
pub mod words;

pub use diagnosis::{Diagnosis, Finding, Moment};
