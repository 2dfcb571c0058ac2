//! A pool's blocks: what the layers above ask of them ([`BlockStore`]), where they go (allocator, metaslabs), and how
//! they are written, verified, repaired and cached ([`Store`]).
#![forbid(unsafe_code)]

pub mod accounting;
pub mod allocator;
pub mod block_store;
mod born;
pub mod cache;
mod copies;
mod durable;
pub mod error;
mod gang_read;
mod gang_write;
mod group;
mod histogram;
pub mod in_flight;
mod large;
mod loading;
mod log;
mod map_reader;
pub mod memory;
pub mod metaslab;
mod pinned;
pub mod policy;
pub mod range_set;
mod read;
pub mod room;
pub mod space_met;
pub mod store;
mod store_blocks;
pub mod suspension;
mod syncing;
pub mod txg;
mod vdev_table;
mod write;

pub use accounting::SpaceAccounting;
pub use allocator::{Allocator, Attempt, MetaslabId};
pub use block_store::BlockStore;
pub use cache::{BlockCache, Caching};
pub use error::{Result, ZioError};
pub use gang_read::free_gang;
pub use group::{Geometry, Group, Written};
pub use histogram::Histogram;
pub use in_flight::{Admitted, InFlight, Memory};
pub use map_reader::{MapAt, MapReader};
pub use metaslab::Metaslab;
pub use pinned::Pinned;
pub use platter_vdev::Priority;
pub use policy::{Bookmark, WritePolicy};
pub use range_set::{RangeError, RangeSet};
pub use room::Room;
pub use space_met::SpaceMet;
pub use store::{Store, StoreState};
pub use suspension::{FailMode, Phase, Suspension};
pub use syncing::{may_fail, must_succeed};
pub use txg::{Needs, Tx, TxgGate};
pub use vdev_table::{TOP_VDEVS_MAX, VdevTable};
