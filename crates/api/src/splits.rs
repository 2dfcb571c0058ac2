//! `zpool split`: a pool made of one device of each mirror of another one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::messages::Outcome;
use crate::report::VdevReport;

/// How `zpool split` makes a pool of devices of another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitRequest {
    /// The new pool's name.
    pub new_name: String,
    /// Devices that leave their mirrors; where none is named, the last one does.
    #[serde(default)]
    pub devices: Vec<PathBuf>,
    /// `-o`, but for `altroot`.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// `-n`: the layout is told, and nothing is done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A pool that was, or would be, split off.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SplitOff {
    /// What it is made of.
    pub layout: VdevReport,
    /// Its guid; 0 as long as it is not there.
    pub guid: u64,
}

/// `zpool split`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitPool {
    /// The pool whose devices leave.
    pub pool: String,
    /// What is made of them.
    pub request: SplitRequest,
    /// `-R`: the new pool is imported below this folder.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Whether it is imported read-only then.
    #[serde(default)]
    pub read_only: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Answer to [`SplitPool`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SplitAnswer {
    /// The new pool.
    pub split: SplitOff,
    /// What was not done beside the split itself.
    pub outcome: Outcome,
    /// Why file systems of it are not mounted that should be.
    #[serde(default)]
    pub unmounted: Vec<String>,
}
