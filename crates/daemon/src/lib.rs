//! The daemon: the one process of a `PLATTER_HOME` that owns imported pools and mounts, and the API it answers.
//!
//! What holds at all times:
//! - at most one daemon runs in a home (an exclusive lock on `daemon.lock`, held until the process ends);
//! - a pool is listed in `pools.json` exactly from its successful creation or import to its export or destruction, so
//!   that the next daemon opens it again after a crash or a stop;
//! - operations that change a pool or its mounts run one at a time and to their end, whether or not the client still
//!   listens; those of other pools do not wait for them.
//!
//! Layers, from the outside: [`server`] (HTTP) → [`state`] (operations) → [`engine`] and [`mounter`] (traits,
//! with the real engine and FUSE behind them). [`client`] is the other end of [`server`] and starts the daemon when
//! there is none. What other users than the owner may ask for says [`secpolicy`]; they come through [`public`].
#![forbid(unsafe_code)]

mod asker;
pub mod client;
pub mod damaged;
mod dataset_space;
pub mod dead_mounts;
pub mod denied;
pub mod descriptors;
mod diff_entries;
pub mod engine;
pub mod fault_records;
mod freed_memory;
pub mod fuse_mounter;
pub mod guest_pipe;
mod guests;
pub mod home;
mod jobs;
mod lingering;
pub mod log;
pub mod machine;
mod memory_limit;
pub mod mount_plan;
pub mod mounter;
pub mod mounts_file;
pub mod notify;
pub mod pipe;
pub mod places;
mod pool_locks;
mod pool_volumes;
pub mod pools_file;
pub mod process;
pub mod public;
pub mod real_engine;
pub mod run;
pub mod running_streams;
mod same_places;
mod secpolicy;
pub mod server;
mod shown_snapshots;
pub mod snapshot_requests;
mod spared_memory;
pub mod state;
pub mod vigil;
pub use platter_fuse::mountinfo;
