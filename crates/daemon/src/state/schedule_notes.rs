//! What is remembered of schedules between two looks: nothing that a restart would miss.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use platter_schedule::Moment;

/// What is known of one data set.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// The property as it was then.
    pub(super) schedule: String,
    pub(super) received: bool,
    pub(super) prunes: bool,
    /// Nothing is due before.
    pub(super) until: Option<Moment>,
    pub(super) problem: Option<String>,
}

/// What is known of all.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    pub(super) kept: Mutex<BTreeMap<String, Kept>>,
    /// Pools that are at it.
    pub(super) busy: Mutex<BTreeSet<String>>,
}
