//! What a command asks of the engine, already parsed from its arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::delegation::{ByKey, Creator};
use crate::faults::Cause;
use crate::report::VdevReport;

/// A top-level vdev to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
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
    /// A separate intent log device: one leaf, or a mirror of several.
    Log(Vec<PathBuf>),
    /// No vdev, but hot spares.
    Spare(Vec<PathBuf>),
    /// No vdev, but cache devices.
    Cache(Vec<PathBuf>),
}

impl VdevRequest {
    /// The paths of its leaves.
    pub fn leaves(&self) -> &[PathBuf] {
        match self {
            Self::Leaf(path) => std::slice::from_ref(path),
            Self::Mirror(children)
            | Self::Raidz { children, .. }
            | Self::Log(children)
            | Self::Spare(children)
            | Self::Cache(children) => children,
        }
    }

    /// Whether these are hot spares.
    pub fn is_spare(&self) -> bool {
        matches!(self, Self::Spare(_))
    }

    /// Whether these are cache devices.
    pub fn is_cache(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    /// Whether it becomes a part of the tree of vdevs.
    pub fn is_top(&self) -> bool {
        !self.is_spare() && !self.is_cache()
    }

    /// Whether data sets can live on it: a pool needs one such (`zfs_allocatable_devs`, `lib/libzfs/libzfs_util.c`).
    pub fn holds_data(&self) -> bool {
        self.is_top() && !matches!(self, Self::Log(_))
    }
}

/// `zpool create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    /// `-t`: the name in memory, while the labels have `name`.
    #[serde(default)]
    pub temporary_name: Option<String>,
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

/// A change of a pool's devices or identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum PoolChange {
    /// `zpool add`.
    Add {
        /// Top-level vdevs.
        vdevs: Vec<VdevRequest>,
        /// `-f`, or `--allow-in-use`.
        force: bool,
        /// log2 of the sector size; 0 takes the pool's `ashift` property, or else what the devices say.
        ashift: u64,
        /// Whether an ashift that no other vdev has is all right (`-f`, `--allow-ashift-mismatch`).
        any_ashift: bool,
        /// `-n`: only check and show.
        dry_run: bool,
    },
    /// `zpool online`.
    Online {
        /// Name, path or guid.
        device: String,
        /// `-e`: all that it has now is to be used.
        #[serde(default)]
        expand: bool,
    },
    /// `zpool offline`.
    Offline {
        /// Name, path or guid.
        device: String,
        /// `-t`: until the next import.
        temporary: bool,
    },
    /// `zpool offline -f`: somebody says that it has failed.
    Fault {
        /// Name, path or guid.
        device: String,
        /// `-t`: until the next import.
        temporary: bool,
    },
    /// Carries out the verdict that a device's errors have earned.
    Judge {
        /// Name, path or guid.
        device: String,
        /// Which errors.
        cause: Cause,
    },
    /// `zpool attach` and `zpool replace`.
    Attach {
        /// The device that is there: name, path or guid.
        device: String,
        /// The new one's path.
        new: PathBuf,
        /// Whether it takes the other one's place.
        replaces: bool,
        /// `-f`.
        force: bool,
        /// log2 of the sector size; 0 for the vdev's, if the device's fits.
        ashift: u64,
        /// `-s`: it is reconstructed sequentially, and a scrub follows.
        #[serde(default)]
        sequential: bool,
    },
    /// `zpool detach`.
    Detach {
        /// Name, path or guid.
        device: String,
    },
    /// `zpool remove`.
    Remove {
        /// Name, path or guid.
        device: String,
    },
    /// `zpool reguid`.
    Reguid {
        /// `-g`.
        guid: Option<u64>,
    },
    /// `zpool upgrade`: enables every feature that this version writes and that is among these names.
    Upgrade {
        /// Names; `None` for all.
        features: Option<Vec<String>>,
    },
    /// `zpool reopen`.
    Reopen,
    /// `zpool trim` and `zpool initialize`.
    Free {
        /// What is done with what is free.
        work: FreeWork,
        /// Names, paths or guids of leaves; none: all.
        devices: Vec<String>,
    },
}

/// What is done with what is free of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum FreeWork {
    /// The devices are told.
    Trim(TrimAction),
    /// It is written over.
    Initialize(InitializeAction),
}

/// What `zpool trim` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum TrimAction {
    /// Starts, or goes on with what was suspended.
    Start {
        /// Bytes a second; 0 for as fast as the device does it, or as it was when it was suspended.
        rate: u64,
        /// `-d`.
        secure: bool,
    },
    /// `-s`.
    Suspend,
    /// `-c`.
    Cancel,
}

/// What `zpool initialize` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum InitializeAction {
    /// Starts, or goes on with what was suspended.
    Start,
    /// `-s`.
    Suspend,
    /// `-c`.
    Cancel,
    /// `-u`: forgets that it was.
    Uninitialize,
}

/// What to do with a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubAction {
    /// Start or resume.
    Start,
    /// `-C`: start with what is newer than what the last scrub saw, or resume.
    Continue,
    /// `-e`: look at what is known to be damaged, or resume that.
    Errors,
    /// Pause.
    Pause,
    /// Stop and forget where it was.
    Stop,
    /// No scrub: a resilver begins anew, if a device needs one (`zpool resilver`).
    Resilver,
}

/// What is done to a pool that is open. What is done to its data sets is a [`DatasetOperation`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum PoolOperation {
    /// Its devices or identity.
    Change(PoolChange),
    /// `zpool set`.
    Set {
        /// Property.
        property: String,
        /// New value.
        value: String,
    },
    /// `zpool set` of a device's property.
    SetVdev {
        /// Name, path or guid.
        device: String,
        /// Property.
        property: String,
        /// New value.
        value: String,
    },
    /// `zpool scrub`.
    Scrub(ScrubAction),
    /// `zpool clear`.
    Clear {
        /// Only this device: name, path or guid.
        device: Option<String>,
    },
    /// `zpool sync`.
    Sync {
        /// Write a group also when nothing is dirty.
        force: bool,
    },
}

/// A volume to be made (`zfs create -V`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Bytes; rounded up to whole blocks.
    pub size: u64,
    /// Bytes of a block; one that suits the pool when none is asked for.
    pub block_size: Option<u64>,
    /// Nothing is reserved for it.
    #[serde(default)]
    pub sparse: bool,
}

/// What is done to one data set, when it is settled what becomes of mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatasetOperation {
    /// Makes a file system or a volume.
    Create {
        /// Full name; its parent is there.
        name: String,
        /// What a volume is made with.
        volume: Option<NewVolume>,
        /// Local properties.
        properties: BTreeMap<String, String>,
        /// Whose it is; nobody's when the pool's owner makes it for himself.
        creator: Option<Creator>,
    },
    /// Destroys it.
    Destroy {
        /// Full name.
        name: String,
    },
    /// Gives it, and what is below it, another name.
    Rename {
        /// Full name.
        from: String,
        /// Full new name, in the same pool.
        to: String,
    },
    /// Sets properties.
    Set {
        /// Full name.
        name: String,
        /// What becomes of which property.
        settings: Vec<(String, Setting)>,
    },
    /// Makes a data set that begins as what a snapshot is.
    Clone {
        /// Full name of the snapshot.
        snapshot: String,
        /// Full name; its parent is there.
        name: String,
        /// Local properties.
        properties: BTreeMap<String, String>,
        /// Whose it is; nobody's when the pool's owner makes it for himself.
        creator: Option<Creator>,
    },
    /// Lets a clone and the data set that it was made of change places.
    Promote {
        /// Full name.
        name: String,
    },
    /// Allows something to somebody.
    Allow {
        /// Full name.
        name: String,
        /// Permissions and permission sets by key.
        granted: ByKey,
    },
    /// Takes that back.
    Unallow {
        /// Full name.
        name: String,
        /// By key what is allowed no longer; nothing stands for everything.
        revoked: BTreeMap<String, Option<BTreeSet<String>>>,
    },
    /// Makes it what its latest snapshot is.
    Rollback {
        /// Full name.
        name: String,
        /// That snapshot's own name.
        snapshot: String,
    },
}

/// What is done to snapshots of one pool, to all that are named or to none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotOperation {
    /// Takes them.
    Take {
        /// Full names.
        names: Vec<String>,
        /// Properties of each of them.
        properties: BTreeMap<String, String>,
    },
    /// Destroys those that are there.
    Destroy {
        /// Full names.
        names: Vec<String>,
        /// Those that are held or have clones are destroyed when that ends.
        defer: bool,
    },
    /// Gives a snapshot, and those of that name below, another name.
    Rename {
        /// Full name of the data set.
        dataset: String,
        /// The snapshot's own name.
        from: String,
        /// Its new one.
        to: String,
        /// Those of data sets below, too.
        recursive: bool,
    },
    /// Keeps those that are there from being destroyed.
    Hold {
        /// Full names.
        names: Vec<String>,
        /// By what they are held.
        tag: String,
    },
    /// Takes that back.
    Release {
        /// Full names.
        names: Vec<String>,
        /// By what they are held.
        tag: String,
    },
    /// Sets properties of one.
    Set {
        /// Full name.
        name: String,
        /// What becomes of which property; `None` takes it away.
        properties: BTreeMap<String, Option<String>>,
    },
}

/// What came of a [`PoolOperation`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Changed {
    /// The vdevs that would be added, for a dry run.
    pub layout: Option<VdevReport>,
    /// The version that a pool had which has feature flags now.
    #[serde(default)]
    pub from_version: Option<u64>,
    /// Names of the features that were enabled.
    pub features: Vec<String>,
    /// The state of the device that was brought online.
    pub state: Option<String>,
    /// Why that device is not used.
    #[serde(default)]
    pub reason: Option<String>,
    /// What was refused of some devices while it was done to others: a line each.
    #[serde(default)]
    pub problems: Vec<String>,
    /// What may be wrong with what was added: a line each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// `zpool import` of one pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportRequest {
    /// Name or decimal guid as given.
    pub pool: String,
    /// New name.
    pub new_name: Option<String>,
    /// `-d` folders or devices; empty searches the default places.
    pub search: Vec<PathBuf>,
    /// Devices that did not answer a moment ago: they are passed over without another try.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<PathBuf>,
    /// `-f`.
    pub force: bool,
    /// `-D`: a destroyed pool.
    #[serde(default)]
    pub destroyed: bool,
    /// `-m`: without separate intent logs that are not there. What only they have is given up.
    #[serde(default)]
    pub missing_logs: bool,
    /// `-t`: the new name is for this import only.
    #[serde(default)]
    pub temporary_name: bool,
    /// `-o` properties (`readonly=on` among them).
    pub properties: BTreeMap<String, String>,
    /// `-R`.
    pub altroot: Option<PathBuf>,
    /// The command line, for the pool's history.
    pub history: String,
    /// It is opened because it was open before: one that its labels call exported or destroyed is left alone.
    #[serde(default)]
    pub was_open: bool,
    /// The pool has reached this group: what is found with less is an old copy of it, and left alone.
    #[serde(default)]
    pub least_txg: u64,
}
