//! Pools and data sets: everything that is stored in the pool's own object set (MOS), and the loop that turns changes
//! into transaction groups on disk.
#![forbid(unsafe_code)]

mod accounting;
mod block_properties;
mod change;
mod change_properties;
pub mod config;
mod config_object;
mod core;
mod create;
mod dataset;
mod dataset_report;
mod ddt;
mod deadlist;
mod destroy;
mod dir;
mod discover;
mod dtl;
pub mod environment;
pub mod error;
mod error_log;
pub mod features;
mod history;
mod import;
mod intent;
pub mod labels;
mod limits;
mod log_spacemaps;
mod member_check;
mod mos;
pub mod names;
pub mod numbers;
mod open_vdevs;
mod origin;
pub mod pool;
mod pool_properties;
pub mod properties;
mod rename;
pub mod report;
pub mod request;
mod salt;
mod scrub;
mod space;
mod space_maps;
mod status;
mod sync;
mod tree;
pub mod version;
mod version_limits;
mod zapify;

pub use environment::{Environment, FilesystemMaker, FilesystemOptions, WallClock};
pub use error::{PoolError, Result};
pub use pool::Pool;
