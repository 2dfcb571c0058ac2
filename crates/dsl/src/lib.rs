//! Data sets: directories, their properties, space and limits, and all that is done with them in the pool's own object
//! set (MOS).
#![forbid(unsafe_code)]

pub mod accounting;
pub mod at_creation;
pub mod change_properties;
pub mod claimed_log;
pub mod contents;
pub mod counting;
pub mod counts;
pub mod dataset;
pub mod dataset_report;
pub mod datasets;
pub mod deadlist;
pub mod destroy;
pub mod dir;
pub mod effects;
pub mod empty_bpobj;
pub mod encryption;
pub mod environment;
pub mod error;
pub mod features;
pub mod filesystem_space;
pub mod freeing;
pub mod history;
pub mod inheritance;
pub mod intent;
pub mod limits;
pub mod mos;
pub mod mos_access;
pub mod mos_properties;
pub mod new_dataset;
pub mod origin;
pub mod pool;
pub mod rename;
pub mod snapshot;
pub mod space;
pub mod stored_property;
pub mod sync;
pub mod tasks;
pub mod tree;
pub mod unreadable;
pub mod used_space;
pub mod version;
pub mod version_limits;
pub mod watched;
pub mod zapify;

pub use environment::{FilesystemMaker, FilesystemOptions, Randomness};
pub use error::{PoolError, Result};
pub use filesystem_space::FilesystemSpace;
pub use pool::DslPool;
