//! Whole lifetimes of pools, each from one seed: days of virtual time with files made, changed and checked, disks that
//! lie, forget, hang and go away, crashes, exports, imports and scrubs.
//!
//! | file | idea |
//! |---|---|
//! | `files` | what a file system must hold, and what it may hold after a crash |
//! | `load` | what is done to files |
//! | `layout` | how disks are arranged, and what they are |
//! | `machine` | disks, power, faults; pools created, crashed, exported and imported |
//! | `story` | one lifetime as far as it has come |
//! | `chapters` | one lifetime from beginning to end |
//! | `returns` | disks that come back, several at once, and a pool that is taken at its word |
//! | `drill` | nothing but returns, in the middle of scans |
//! | `sound` | nothing but scans, which must find nothing |
//! | `latecomers` | readers who ask for what was freed |
//! | `hosts` | heartbeats that stall, and another host that takes the pool |
//! | `trims` | disks that are told what is free |
//! | `growing` | pools that become larger |
//! | `spares` | hot spares that stand in for disks, and go or stay |
//! | `cache_disks`, `caches` | cache devices, which may do what they like |
//! | `kept`, `kept_volume` | what snapshots and clones hold, and the volume |
//! | `volumes` | a volume that is written and cleared |
//! | `volume_snapshots` | snapshots of the volume, to which it goes back |
//! | `snapshots` | snapshots, clones and bookmarks, which hold to the end what they held |
//! | `ballast` | a pool that is nearly full all the time |
//! | `log_disks`, `logs` | a separate log that comes and goes |
//! | `splits` | a pool that one disk of each mirror leaves |
//! | `loss` | more damage than redundancy covers |
//! | `suite` | many seeds |
//! | `aviary` | proof that lives find deliberate bugs |
//!
//! Invariant: everything follows from the seed. Faults are kept to as many disks as redundancy covers until a scrub has
//! set everything right; so whatever is read must be right, always.

#[cfg(feature = "canary")]
pub mod aviary;
mod ballast;
mod cache_disks;
mod caches;
mod chapters;
mod drill;
mod exchanges;
mod files;
mod growing;
mod hosts;
mod kept;
mod kept_volume;
mod latecomers;
mod layout;
mod load;
mod log_disks;
mod logs;
mod loss;
mod machine;
mod returns;
mod snapshots;
mod sound;
mod spares;
mod splits;
mod story;
mod suite;
mod trims;
mod volume_snapshots;
mod volumes;

pub use chapters::{live, live_noting};
pub use drill::drill;
pub use latecomers::late;
pub use sound::sound;
pub use story::{Outcome, Terms};
pub use suite::{Failure, Totals, live_all};
