//! What the daemon and its clients say to each other, and what both know of it: operations, reports, names, sizes, the
//! properties of pools and data sets.
//!
//! Nothing here does anything to a pool: the engine acts on these requests, and fills in these reports.
#![forbid(unsafe_code)]

pub mod ask;
pub mod block_properties;
pub mod delegation;
pub mod disks;
pub mod error;
pub mod event;
pub mod faults;
pub mod features;
pub mod job;
pub mod messages;
pub mod names;
pub mod notify;
pub mod numbers;
pub mod pool_properties;
pub mod properties;
pub mod property_kind;
pub mod report;
pub mod request;
pub mod schedule;
pub mod schedules;
pub mod snapshots;
pub mod splits;
pub mod stored_property;
pub mod streams;
pub mod txgs;
pub mod vdev_properties;

/// Version of the program, which client and daemon share.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
