//! The block pipeline: from the contents of a block to a pointer that leads to it, and back (`module/zfs/zio.c`,
//! `module/zfs/metaslab.c`, `module/zfs/arc.c`).
//!
//! # The problem
//! The layers above think in blocks with contents. Below there are devices with free ranges here and there. Between the
//! two a block is compressed, given a checksum, placed on one or more vdevs, written, and its pointer filled in; and
//! read again years later, when some of the copies have rotted.
//!
//! # The idea
//! ```text
//! write   hole? embedded? ─► compress ─► checksum ─► place ─► issue ──► pointer
//!                                                    │   └ no run is long enough: gang
//!                                                    └ allocator: vdev by free space, metaslab, run
//! read    embedded? cached? ─► gang? ─► choose a copy ─► issue ─► verify ─► decompress ─► contents
//!                                          └ the next one ◄───────┘ └ what was wrong is rewritten from what is right
//! free    this group's list ─► maturing for some groups ─► free ranges
//! ```
//! [`BlockStore`] is what the layers above see, and tests put a store in memory behind it. [`Store`] is the real one:
//! the vdevs, the allocator and the cache. A block is never changed where it is: who wants it otherwise writes another
//! one and frees this one, and what was freed is not used again until the group that freed it can no longer be gone
//! back to.
//!
//! Groups are the other half of the crate, since a block is always written in one: [`TxgGate`] lets transactions join
//! the open group, holds them back when too much waits for the devices or nothing would fit any more, and tells who
//! waits that a group is on disk. When devices cannot do what they must, [`Suspension`] holds everybody until somebody
//! resumes.
//!
//! # Invariants
//! - What a read returns matched the pointer's checksum; the cache holds nothing else.
//! - Allocation and freeing happen in the syncing group only, but for the intent log's blocks.
//! - Space that was freed is not reused before the group's uberblock is on stable storage.
//! - A write that failed is tried again or ends the pool's writing; no uberblock ever leads to it.
//!
//! # Where to start
//! `write` and `read` are one block's way (`scrub` and `free` what else becomes of it); `allocator`, `group` and
//! `metaslab` are space; `store` holds it together; `txg` is the gate.
#![forbid(unsafe_code)]

pub mod accounting;
pub mod allocator;
pub mod block_store;
mod born;
pub mod cache;
mod compressed;
mod copies;
mod disabled;
mod disabling;
mod durable;
pub mod errno;
pub mod error;
mod free;
mod gang_tree;
mod gang_write;
mod group;
mod heal;
mod histogram;
pub mod in_flight;
pub mod l2arc;
mod large;
mod loading;
mod log;
mod log_bias;
mod lost;
mod map_reader;
pub mod memory;
pub mod metaslab;
mod pinned;
pub mod policy;
pub mod range_set;
mod read;
mod read_stored;
pub mod room;
mod scan_queue;
mod scrub;
pub mod space_met;
pub mod store;
pub mod suspension;
mod syncing;
pub mod txg;
mod vdev_table;
mod waiting_blocks;
mod write;

pub use accounting::SpaceAccounting;
pub use allocator::{Allocator, Attempt, MetaslabId};
pub use block_store::{BlockReader, BlockStore};
pub use cache::{BlockCache, Caching};
pub use disabled::Disabled;
pub use error::{Result, ZioError};
pub use free::free_gang;
pub use group::{Geometry, Group, Written};
pub use heal::Condition;
pub use histogram::Histogram;
pub use in_flight::{Admitted, InFlight, Memory};
pub use l2arc::{CacheDevice, L2arc};
pub use log_bias::LogBias;
pub use map_reader::{MapAt, MapReader};
pub use metaslab::Metaslab;
pub use pinned::Pinned;
pub use platter_vdev::Priority;
pub use policy::{Bookmark, WritePolicy};
pub use range_set::{RangeError, RangeSet};
pub use room::Room;
pub use scan_queue::{ENTRY_BYTES, ScanQueue};
pub use space_met::SpaceMet;
pub use store::{Store, StoreState};
pub use suspension::{FailMode, Phase, Suspension};
pub use syncing::{may_fail, must_succeed};
pub use txg::{Needs, Tx, TxgGate};
pub use vdev_table::{TOP_VDEVS_MAX, VdevTable};
