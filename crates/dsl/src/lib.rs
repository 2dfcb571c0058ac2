//! Pools and data sets: everything that is stored in the pool's own object set (MOS), and the loop that turns changes
//! into transaction groups on disk.
#![forbid(unsafe_code)]

mod accounting;
mod activity;
mod block_properties;
mod change;
mod change_properties;
pub mod config;
mod config_object;
mod core;
mod counting;
mod create;
mod dataset;
mod dataset_report;
mod ddt;
mod deadlist;
mod destroy;
mod dir;
mod discover;
mod dtl;
pub mod encryption;
mod environment;
pub mod error;
mod error_log;
mod event_log;
pub mod events;
mod exchange;
pub mod features;
mod filesystem_space;
mod freeing;
mod history;
mod identity;
mod import;
mod intent;
pub mod labels;
#[cfg(test)]
mod large_pool;
mod late_writes;
mod leave;
mod limits;
mod log_spacemaps;
#[cfg(test)]
mod lost_ends;
mod map_reader;
mod member_check;
mod memory;
mod mos;
mod multihost;
pub mod names;
#[cfg(test)]
mod nested_vdevs;
mod new_dataset;
pub mod numbers;
mod open_vdevs;
mod origin;
pub mod pool;
pub mod pool_locks;
mod pool_properties;
pub mod properties;
mod rename;
pub mod report;
pub mod request;
mod salt;
mod scan_proof;
mod scan_walk;
mod scrub;
mod space;
mod space_check;
mod space_maps;
mod spare_label;
mod spares;
mod status;
mod sync;
mod takeover;
#[cfg(test)]
mod test_environment;
mod tree;
pub mod txgs;
mod upgrade;
pub mod version;
mod version_limits;
mod watched;
mod zapify;

pub use environment::{Environment, FilesystemMaker, FilesystemOptions, HostId, HostIdentity, WallClock};
pub use error::{PoolError, Result};
pub use events::{Event, EventValue, Events};
pub use filesystem_space::FilesystemSpace;
pub use leave::Unwritten;
pub use memory::MemoryBudget;
pub use platter_device::{DeviceSource, Idleness, SystemDevices};
pub use pool::Pool;
pub use txgs::{TxgReport, TxgsReport};
