//! Pools: their devices and configuration, how they are made, opened, watched and left, and the loop that turns changes
//! into transaction groups on disk (`module/zfs/spa.c`, `spa_config.c`, `vdev_label.c`, `dsl_scan.c`).
//!
//! # The problem
//! A pool is nothing but what its devices hold, and devices come and go, lie about what they are, belong to somebody
//! else, and lose power at any moment. Whoever opens a pool must find the newest state that is whole, and whoever
//! writes it must never leave a moment in which there is none.
//!
//! # The idea
//! ```text
//! discover ─► labels of all devices ─► best uberblock ─► MOS ─► configuration ─► the pool (`import`)
//!                                                                                    │
//!           tasks, data sets, totals, MOS, space maps ─► flush ─► labels ─► uberblock ─► labels (`sync`)
//! ```
//! A group is written beside what is there, flushed, and only then named by an uberblock; before that moment a crash
//! finds the old state, after it the new one. Everything else works on a running pool and meets the sync loop through
//! tasks: devices that change (`change`, `exchange`) and are judged (`verdicts`), spares (`spares`, `takeover`), scrub
//! and resilver (`scan`),
//! another host that must be kept off (`multihost`).
//!
//! [`Pool`] is what front ends hold; `Core` is what the operations share, and its `dsl` the data sets.
//!
//! # Invariants
//! - The uberblock is never written before everything that it leads to was flushed.
//! - Which device a leaf is, its labels decide and never its path (`identity`).
//! - A device that missed something is believed only about what it cannot have missed (`dtl`, `scan_proof`).
//! - A pool that is open for writing has its locks, and with `multihost` its heartbeat, from before its devices are
//!   opened until after they are closed.
//! - What cannot be done in a group suspends the pool; what must not happen ends its writing and never the daemon.
//!
//! # Where to start
//! `pool` lists what can be done; then `sync`, `import` and `create` from top to bottom; `labels` and `config` for what
//! is on the devices outside the blocks; `status` for what is told.
#![forbid(unsafe_code)]

mod absent_logs;
mod activity;
mod advice;
mod allocating;
mod assemble;
mod autoreplace;
mod autotrim;
mod aux_label;
mod aux_list;
mod cache_devices;
mod cache_label;
mod cache_list;
mod caches;
mod change;
mod claim;
pub mod config;
mod config_object;
mod core;
mod course;
mod create;
mod ddt;
pub mod deleted_files;
mod discover;
mod dtl;
mod environment;
mod error_heads;
#[cfg(test)]
mod error_heads_tests;
mod error_holders;
mod error_log;
mod error_scrub;
mod error_scrub_state;
mod event_log;
pub mod events;
mod exchange;
mod expansion;
mod family;
mod free_commands;
mod free_state;
mod free_walk;
mod free_work;
mod identity;
mod import;
mod import_check;
mod importable;
#[cfg(test)]
mod judged;
mod label_check;
mod label_search;
pub mod labels;
#[cfg(test)]
mod large_pool;
mod late_writes;
mod leave;
mod locked;
mod log_spacemaps;
mod logs;
mod logs_away;
mod look_inside;
mod lost;
#[cfg(test)]
mod lost_ends;
mod map_reader;
mod member_check;
mod memory;
mod multihost;
#[cfg(test)]
mod nested_vdevs;
mod new_damage;
mod new_devices;
mod object_path;
mod open_vdevs;
mod path_look;
mod place;
mod plan;
pub mod pool;
mod pool_events;
pub mod pool_locks;
mod pool_properties;
mod rebuild;
mod rebuild_state;
mod rebuild_store;
mod rebuild_walk;
#[cfg(test)]
mod refused;
mod removal;
mod returns;
mod salt;
mod scan;
mod scan_issue;
mod scan_need;
mod scan_order;
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
mod split;
mod split_off;
mod split_pairs;
mod split_plan;
mod status;
mod sync;
mod takeover;
#[cfg(test)]
mod test_environment;
#[cfg(test)]
mod trimmed;
pub mod txgs;
mod upgrade;
mod vdev_names;
mod vdev_properties;
mod vdev_setting;
mod vdev_zaps;
mod verdict_flags;
mod verdicts;
mod wait_while;
mod writable;

pub use environment::{Environment, HostId, HostIdentity, TrimLimits};
pub use events::Events;
pub use leave::Unwritten;
pub use memory::{MemoryBudget, MemoryLimits};
pub use platter_device::{DeviceSource, Idleness, SystemDevices};
pub use platter_vdev::set_transfers_before_background;
pub use pool::Pool;
