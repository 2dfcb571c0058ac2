//! Crash exploration: every write and flush of a short workload is recorded; every state of the disks that a crash may
//! leave is imported and compared with a model.
//!
//! | file | idea |
//! |---|---|
//! | `operation` | what workloads are made of |
//! | `disks` | those of them that bring a disk in or take one out |
//! | `contents` | what they write |
//! | `served` | what they are done to |
//! | `model`, `branches` | what the file system, its snapshots and clones must hold |
//! | `expect` | which contents a crash may leave |
//! | `record`, `fork` | the disks |
//! | `states` | from what was written to what a crash may leave |
//! | `explore` | one workload |
//! | `mended` | whether a scrub found something |
//! | `space` | whether what is reachable is in use, and counted right |
//! | `suite` | many of them |
//! | `judge` | zdb's opinion on a sample |
//! | `aviary` | proof that it finds deliberate bugs |

#[cfg(feature = "canary")]
pub mod aviary;
pub mod branches;
pub mod contents;
pub mod disks;
pub mod expect;
pub mod explore;
pub mod fork;
pub mod judge;
pub mod mended;
pub mod model;
pub mod operation;
pub mod record;
pub mod served;
pub mod space;
pub mod states;
pub mod suite;
mod words;
