//! Pools: their devices and configuration, how they are made, opened, watched and left, and the loop that turns changes
//! into transaction groups on disk.
#![forbid(unsafe_code)]

mod activity;
mod change;
mod claim;
pub mod config;
mod config_object;
mod core;
mod course;
mod create;
mod ddt;
mod discover;
mod dtl;
mod environment;
mod error_log;
mod event_log;
pub mod events;
mod exchange;
mod identity;
mod import;
pub mod labels;
#[cfg(test)]
mod large_pool;
mod late_writes;
mod leave;
mod locked;
mod log_spacemaps;
mod logs;
#[cfg(test)]
mod lost_ends;
mod map_reader;
mod member_check;
mod memory;
mod multihost;
#[cfg(test)]
mod nested_vdevs;
mod new_devices;
mod open_vdevs;
mod path_look;
mod place;
mod plan;
pub mod pool;
mod pool_events;
pub mod pool_locks;
mod pool_properties;
mod salt;
mod scan;
mod scan_place;
mod scan_proof;
mod scan_state;
mod scan_store;
mod scan_walk;
mod space_check;
mod space_maps;
mod spare_flags;
mod spare_label;
mod spare_list;
mod spare_looks;
mod spares;
mod status;
mod sync;
mod takeover;
#[cfg(test)]
mod test_environment;
pub mod txgs;
mod upgrade;
mod vdev_names;

pub use environment::{Environment, HostId, HostIdentity};
pub use events::Events;
pub use leave::Unwritten;
pub use memory::MemoryBudget;
pub use platter_device::{DeviceSource, Idleness, SystemDevices};
pub use pool::Pool;
