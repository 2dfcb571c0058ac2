//! The vdev tree: from one block of a top-level vdev to transfers of its devices, and back from whatever the devices
//! deliver to bytes that are right.
//!
//! # The problem
//! Devices fail in many ways: they go away, they deliver errors, they deliver wrong bytes without an error, they come
//! back with bytes from before. Whoever reads a block wants it right all the same, whoever writes one wants to know
//! that enough devices have it, and every device is to be kept busy with as few, as large transfers as it can take.
//!
//! # The idea
//! ```text
//! TopVdev        a block's offset and size; rests on one Shape at a time
//!   └ Shape      how its children hold blocks: Interior = mirror (also of one) or RAID-Z
//!       └ Child  leaves that hold the same bytes: one, or several while a device is replaced
//!           └ Leaf   one device: its condition, what it missed, its counters
//!               └ Queue   which transfers run at once, in which order, joined with neighbours
//! ```
//! An operation takes a *view* of the vdev when it begins and works on that shape to its end. A shape never changes:
//! devices that join or leave make another one, and the exchange waits until nobody uses the old one.
//!
//! The caller of a read gives a check (the checksum, usually). A child whose bytes do not pass is wrong, and is given
//! the right ones once some other child had them; a mirror asks the next side, RAID-Z rebuilds from parity, trying out
//! which columns are wrong when none says so itself. A leaf that missed writes knows the groups it missed
//! ([`MissingRanges`]), so that it is read last and resilvered without being compared.
//!
//! # Invariants
//! - Offsets given to a [`TopVdev`] are those of block pointers: they count from the end of the front labels.
//! - What a verified read returns passed the caller's check, whatever the devices delivered.
//! - An error is counted against a child only when the child is proven wrong: its bytes differ from those that passed.
//! - A write says that it succeeded only when every child has it that the group's redundancy counts on, or is noted to
//!   lack it.
//!
//! # Where to start
//! `top` has the operations, `interior` what the two kinds of them have in common, `mirror` and `raidz` what is
//! special; `leaf` is a device, `queue` its order of work, and `priority` the one table of the classes of I/O.
#![forbid(unsafe_code)]

mod allocation_class;
mod cache_leaf;
mod child;
mod copy;
pub mod error;
mod extent;
pub mod geometry;
pub mod histograms;
mod interior;
pub mod leaf;
mod lists;
mod mirror;
pub mod missing;
mod opener;
mod outcome;
mod outlier;
pub mod priority;
mod purpose;
mod queue;
mod queue_class;
mod raidz;
mod raidz_attempt;
pub mod raidz_map;
pub mod shape;
pub mod sit_out;
mod slow_child;
pub mod spec;
pub mod state;
pub mod stats;
pub mod top;
mod trim;
mod trouble;
mod turns;
mod view;
mod yielding;

pub use allocation_class::AllocationClass;
pub use copy::{Copied, Copies, FIRST_GROUP};
pub use error::{Result, VdevError};
pub use extent::{Extent, Knowledge, Verify};
pub use geometry::Layout;
pub use histograms::{Histograms, HistogramsSnapshot};
pub use leaf::{Leaf, Opening};
pub use missing::{MissingRanges, Remainder};
pub use opener::{DeviceOpener, OpenError};
pub use outcome::{ReadOutcome, ScrubOutcome};
pub use platter_device::{TrimKind, TrimSupport};
pub use priority::{PerClass, Priority};
pub use shape::Arrangement;
pub use spec::{VdevKind, VdevSpec};
pub use state::{Condition, VdevAux, VdevState};
pub use stats::{Stats, StatsSnapshot};
pub use top::TopVdev;
pub use trouble::LeafTrouble;
pub use yielding::set_owed as set_transfers_before_background;
