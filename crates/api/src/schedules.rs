//! The request for what data sets get snapshots by themselves, and how that goes.

use serde::{Deserialize, Serialize};

/// `platter schedule`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListSchedules {
    /// A data set, with those below it; all when it is missing.
    #[serde(default)]
    pub under: Option<String>,
}

/// The schedule of one data set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleReport {
    /// Full name.
    pub dataset: String,
    /// Property `platter:snap` in force.
    pub schedule: String,
    /// Whether it came with a stream: then nothing is taken here, as the snapshots come with streams, too.
    pub received: bool,
    /// Whether what is too many is destroyed.
    pub prunes: bool,
    /// How many of its snapshots are there.
    pub kept: u64,
    /// The newest of them, without the data set.
    pub newest: Option<String>,
    /// When the next one is due, in seconds since 1970.
    pub next: Option<u64>,
    /// What went wrong last time.
    pub problem: Option<String>,
}
