//! What a command asks of the engine, already parsed from its arguments.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A top-level vdev to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VdevRequest {
    /// One file, disk or partition (absolute path).
    Leaf(PathBuf),
    /// A mirror of leaves.
    Mirror(Vec<PathBuf>),
    /// RAID-Z with this parity (1..=3).
    Raidz {
        /// Parity columns.
        parity: u8,
        /// Leaves.
        children: Vec<PathBuf>,
    },
}

/// `zpool create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CreateRequest {
    /// Pool name.
    pub name: String,
    /// Top-level vdevs.
    pub vdevs: Vec<VdevRequest>,
    /// `-f`.
    pub force: bool,
    /// `-o name=value`, `ashift`, `feature@x` included.
    pub pool_properties: BTreeMap<String, String>,
    /// `-O name=value` for the root data set; `-m` arrives as `mountpoint`.
    pub dataset_properties: BTreeMap<String, String>,
    /// `-R`.
    pub altroot: Option<PathBuf>,
    /// The command line, for the pool's history.
    pub history: String,
}

/// What `zfs set` or `zfs inherit` makes of a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// This value.
    Value(String),
    /// The parent's.
    Inherit,
    /// The one that came with a stream, else the parent's (`inherit -S`).
    Received,
}

/// `zpool import` of one pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImportRequest {
    /// Name or decimal guid as given.
    pub pool: String,
    /// New name.
    pub new_name: Option<String>,
    /// `-d` folders or devices; empty searches the default places.
    pub search: Vec<PathBuf>,
    /// `-f`.
    pub force: bool,
    /// `-o` properties (`readonly=on` among them).
    pub properties: BTreeMap<String, String>,
    /// `-R`.
    pub altroot: Option<PathBuf>,
    /// The command line, for the pool's history.
    pub history: String,
}
