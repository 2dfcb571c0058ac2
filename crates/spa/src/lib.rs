//! A pool's blocks: where they go (allocator, metaslabs), how they are written, verified, repaired and cached.
#![forbid(unsafe_code)]

pub mod allocator;
mod block_store;
mod born;
pub mod cache;
mod copies;
mod durable;
mod gang_read;
mod gang_write;
mod group;
mod histogram;
mod large;
mod loading;
mod log;
mod map_reader;
pub mod metaslab;
mod pinned;
pub mod range_set;
mod read;
pub mod store;
mod syncing;
mod vdev_table;
mod write;

pub use allocator::{Allocator, Attempt, MetaslabId};
pub use cache::{BlockCache, Caching};
pub use gang_read::free_gang;
pub use group::{Geometry, Group, Written};
pub use histogram::Histogram;
pub use map_reader::{MapAt, MapReader};
pub use metaslab::Metaslab;
pub use pinned::Pinned;
pub use range_set::{RangeError, RangeSet};
pub use store::{Store, StoreState};
pub use syncing::{may_fail, must_succeed};
pub use vdev_table::{TOP_VDEVS_MAX, VdevTable};
