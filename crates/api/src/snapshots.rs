//! What is asked of snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `zfs snapshot`: all of them, at one moment, or none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeSnapshots {
    /// Full names, in one pool.
    pub names: Vec<String>,
    /// Of all data sets below those that are named, too.
    #[serde(default)]
    pub recursive: bool,
    /// Properties of each of them.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs destroy` of snapshots.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroySnapshots {
    /// Full name of the data set.
    pub dataset: String,
    /// Which, without the data set's name: names and ranges of them (`first%last`), parted by commas.
    pub which: String,
    /// Those of data sets below, too.
    #[serde(default)]
    pub recursive: bool,
    /// Those that are held or have clones are destroyed when that ends.
    #[serde(default)]
    pub defer: bool,
    /// Only check and list.
    #[serde(default)]
    pub dry_run: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Answer to [`DestroySnapshots`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DestroyedSnapshots {
    /// Full names of those destroyed (or that would be).
    pub destroyed: Vec<String>,
    /// Bytes that are free by that, or would be.
    pub reclaimed: u64,
}

/// `zfs rename` of a snapshot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameSnapshot {
    /// Full name.
    pub from: String,
    /// Full new name, of the same data set.
    pub to: String,
    /// Those of that name of data sets below, too.
    #[serde(default)]
    pub recursive: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs hold` and `zfs release`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HoldSnapshot {
    /// Full name.
    pub name: String,
    /// By what it is held.
    pub tag: String,
    /// Those of that name of data sets below, too.
    #[serde(default)]
    pub recursive: bool,
    /// Takes it back.
    #[serde(default)]
    pub release: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Asks by what snapshots are held.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetHolds {
    /// Full name of a snapshot.
    pub name: String,
    /// Those of that name of data sets below, too.
    #[serde(default)]
    pub recursive: bool,
}

/// Answer to [`GetHolds`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    /// Each snapshot's full name with its tags, and when each was set in seconds since the epoch; parents first.
    pub holds: Vec<(String, BTreeMap<String, u64>)>,
}

/// `zfs rollback`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RollbackDataset {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Later ones are destroyed.
    #[serde(default)]
    pub recursive: bool,
    /// Unmount even when busy.
    #[serde(default)]
    pub force: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}
