//! The vdev tree: leaves with their queues, mirrors and RAID-Z groups. Turns one block's read or write at a top-level
//! vdev into the devices' transfers, and rebuilds and repairs what is missing or wrong.
//!
//! Invariants:
//! - offsets given to a [`TopVdev`] are those of block pointers: they count from the end of the front labels;
//! - what a verified read returns passed the caller's check, whatever the devices delivered;
//! - an error is counted against a child only when the child is proven wrong: its bytes differ from those that passed.
#![forbid(unsafe_code)]

mod allocation_class;
mod child;
pub mod error;
mod extent;
pub mod geometry;
pub mod histograms;
mod interior;
pub mod leaf;
mod mirror;
pub mod missing;
mod opener;
mod outcome;
pub mod priority;
mod purpose;
mod queue;
mod raidz;
mod raidz_attempt;
pub mod raidz_map;
pub mod shape;
pub mod spec;
pub mod state;
pub mod stats;
pub mod top;
mod view;

pub use allocation_class::AllocationClass;
pub use error::{Result, VdevError};
pub use extent::{Extent, Verify};
pub use geometry::Layout;
pub use histograms::{Histograms, HistogramsSnapshot};
pub use leaf::{Leaf, LeafTrouble, Opening, Remainder};
pub use missing::MissingRanges;
pub use opener::{DeviceOpener, OpenError};
pub use outcome::{ReadOutcome, ScrubOutcome};
pub use priority::{PerClass, Priority};
pub use shape::Arrangement;
pub use spec::{VdevKind, VdevSpec};
pub use state::{Condition, VdevAux, VdevState};
pub use stats::{Stats, StatsSnapshot};
pub use top::TopVdev;
