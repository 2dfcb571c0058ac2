//! What is asked of snapshots.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::messages::IdQuota;

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
    /// Their clones too, with all that depends on those.
    #[serde(default)]
    pub clones: bool,
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
    /// Full names of what was destroyed before, as it depended on them.
    #[serde(default)]
    pub dependents: Vec<String>,
    /// What of that could not be destroyed.
    #[serde(default)]
    pub problems: Vec<String>,
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

/// Asks how much was written since earlier snapshots and bookmarks (`written@…`, `written#…`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetWritten {
    /// Full names of data sets and snapshots of them.
    pub names: Vec<String>,
    /// The earlier ones, with their mark in front: by full name (`@tank/home@monday`), or one of that name of each data
    /// set (`#monday`).
    pub since: Vec<String>,
}

/// Answer to [`GetWritten`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Of each name of which it can be told: the name, the snapshot or bookmark as it was given, bytes.
    pub written: Vec<(String, String, u64)>,
}

/// Asks how many files of a file system have no name any more and are still to be freed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetDeleteQueue {
    /// The file system.
    pub name: String,
}

/// Answer to [`GetDeleteQueue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteQueue {
    /// Files; none of what is not mounted.
    pub files: usize,
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
    /// Their clones too, with all that depends on those.
    #[serde(default)]
    pub clones: bool,
    /// Unmount even when busy.
    #[serde(default)]
    pub force: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs clone`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloneSnapshot {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name of the clone.
    pub name: String,
    /// Initial local properties.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Initial quotas of users, groups and projects, besides those of the snapshot.
    #[serde(default)]
    pub quotas: Vec<IdQuota>,
    /// Make missing parents too; being there already is then no error.
    #[serde(default)]
    pub parents: bool,
    /// Such parents get `canmount=off` (`-pp`).
    #[serde(default)]
    pub parents_unmounted: bool,
    /// Mount it when its properties say so (`-u` says no).
    #[serde(default)]
    pub mount: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs promote`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromoteDataset {
    /// Full name.
    pub name: String,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs diff`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiffSnapshots {
    /// Full name of the earlier snapshot.
    pub from: String,
    /// Full name of the later one, or of the file system for what is there now.
    pub to: String,
    /// Under which name a pipe was handed over. Into it goes a line with a [`DiffHeader`], and one with a [`DiffEntry`]
    /// for each difference as it is found, by object number, each as JSON.
    pub descriptor: String,
}

/// What became of a file. In paths, what is no printable character of ASCII is a backslash and four octal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Became {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It was changed.
    Modified,
    /// It was changed, and has so many names more (or fewer).
    Links(i64),
    /// It has this path now.
    Renamed(String),
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffEntry {
    /// What became of it.
    pub became: Became,
    /// Its kind: `B` block device, `C` character device, `/` folder, `|` pipe, `@` symbolic link, `=` socket, `F` file.
    pub kind: char,
    /// When it was last changed, in seconds since the epoch.
    pub seconds: i64,
    /// And nanoseconds.
    pub nanoseconds: u32,
    /// Path below the mount point; of what was renamed the old one.
    pub path: String,
}

/// What is true of all differences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffHeader {
    /// Where the file system is mounted, in the form of a path; empty for the root.
    pub mounted_at: String,
}
