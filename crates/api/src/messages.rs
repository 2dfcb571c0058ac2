//! The API's vocabulary: what travels as JSON between the command line (or any other client) and the daemon. Which of
//! these can be asked, and what answers which, is in [`ask`](crate::ask).
//!
//! Values are raw (bytes, counts, seconds since the epoch); clients format them. Every failure is an [`ErrorBody`]: its
//! `message` is complete ("cannot create 'tank': …"): clients print it as it is, and act on its kind.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::report::{DatasetReport, Properties};
use crate::report::{PoolReport, VdevReport};
use crate::request::{CreateRequest, ImportRequest, NewVolume, PoolOperation};
use serde::{Deserialize, Serialize};

/// What kind of failure it is, for whoever acts on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Anything that is no other kind.
    #[default]
    Failed,
    /// The request makes no sense.
    Malformed,
    /// A daemon of this version has no such operation.
    UnknownOperation,
    /// There is no pool of that name.
    NoSuchPool,
    /// There is no such data set, device or property.
    NotFound,
    /// It exists already.
    Exists,
    /// Somebody uses it.
    Busy,
    /// `-f` would override it.
    NeedsForce,
    /// Devices are missing, damaged, or do not answer.
    Unavailable,
    /// This version cannot do it.
    Unsupported,
    /// It is not this user's to ask.
    Denied,
    /// The file system is mounted already.
    MountBusy,
    /// The daemon is ending: it is for the next one to answer.
    DaemonEnds,
    /// No answer came, and the operation may or may not have happened.
    Lost,
}

/// A failure, worded for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorBody {
    /// What failed and why, possibly in several lines.
    pub message: String,
    /// The way out, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// What kind of failure it is.
    #[serde(default)]
    pub kind: ErrorKind,
}

impl ErrorBody {
    /// A failure of no special kind.
    pub fn new(message: impl Into<String>) -> Self {
        Self::of_kind(ErrorKind::Failed, message)
    }

    /// A failure of this kind.
    pub fn of_kind(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, kind }
    }

    /// Adds the way out.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The exit code with which a command ends: 1 when something failed, 2 when what was asked for makes no sense.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Malformed | ErrorKind::UnknownOperation => 2,
            _ => 1,
        }
    }
}

/// Result of an operation that did its main work but may have met problems on the way (a file system that could not be
/// mounted after its pool was imported). Each problem is a complete message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Name of the thing made, where that is not known to the caller (import by guid).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Complete messages; empty when all went well.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Asks how the daemon is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetStatus {}

/// Ends the daemon when all pools are closed; answers with what could not be done in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopDaemon {}

/// How the daemon is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Process id.
    pub pid: u32,
    /// Version of the program.
    pub version: String,
    /// Its `PLATTER_HOME`.
    pub home: PathBuf,
    /// When it started, seconds since the epoch.
    pub started: u64,
    /// Imported pools.
    pub pools: Vec<String>,
    /// Pools it should have but could not open, with the reason.
    pub unavailable: BTreeMap<String, String>,
    /// Number of mounted file systems.
    pub mounts: u64,
    /// Bytes that the block caches of all pools hold.
    #[serde(default)]
    pub cached: u64,
    /// Bytes that they may hold at the moment.
    #[serde(default)]
    pub cache_most: u64,
    /// Pools that wait for a device that does not answer, with its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub silent: BTreeMap<String, String>,
}

/// Sets how much is logged, or only asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetLogLevel {
    /// `info`, or levels of parts: `info,platter_spa=debug`; `None` leaves it as it is.
    pub level: Option<String>,
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevel {
    /// `info`, or levels of parts: `info,platter_spa=debug`.
    pub level: String,
}

/// Asks what happened to pools.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetEvents {
    /// After the event of this number.
    #[serde(default)]
    pub after: u64,
    /// Wait a moment for one when there is none.
    #[serde(default)]
    pub wait: bool,
}

/// Forgets all events; answers with how many there were.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearEvents {}

/// Asks which pools there are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListPools {}

/// Which pools there are.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolNames {
    /// Names, sorted; pools that could not be opened at daemon start are among them.
    pub pools: Vec<String>,
}

/// Asks for everything about a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetPool {
    /// Its name.
    pub pool: String,
    /// The names of damaged files too.
    #[serde(default)]
    pub errors: bool,
    /// Queues and histograms too.
    #[serde(default)]
    pub extended: bool,
}

/// Asks for a pool's history.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetHistory {
    /// Its name.
    pub pool: String,
}

/// Asks for a pool's latest transaction groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetTxgs {
    /// Its name.
    pub pool: String,
    /// Those after this one.
    #[serde(default)]
    pub after: u64,
}

/// Everything about a pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolView {
    /// The engine's report.
    pub report: PoolReport,
    /// Pool properties.
    pub properties: Properties,
    /// Damaged files as paths, only when asked for.
    pub damaged_files: Vec<String>,
    /// Nanoseconds since the pool was opened: the time over which its counters ran.
    pub open_ns: u64,
    /// The daemon's time of day, seconds since the epoch.
    pub now: u64,
}

/// `zpool create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatePool {
    /// What to make.
    pub request: CreateRequest,
    /// Quotas of users, groups and projects in its first file system.
    #[serde(default)]
    pub quotas: Vec<IdQuota>,
    /// Only check and show.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answer to [`CreatePool`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CreatedPool {
    /// The tree that would be made, for a dry run.
    pub layout: Option<VdevReport>,
    /// What may be wrong with it, and is done all the same.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// How it went.
    pub outcome: Outcome,
}

/// Answer to [`ImportPool`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImportedPool {
    /// What was not done beside the import itself.
    pub outcome: Outcome,
    /// Why file systems of it are not mounted that should be.
    pub unmounted: Vec<String>,
    /// Devices that did not answer, and were passed over.
    #[serde(default)]
    pub silent: Vec<PathBuf>,
}

/// `zpool import` of one pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// Which pool and how.
    pub request: ImportRequest,
    /// Whether to mount its file systems (`-N` says no).
    #[serde(default)]
    pub mount: bool,
}

/// Looks for pools that can be imported.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchPools {
    /// Folders, files and devices to look at; empty for the default places.
    pub search: Vec<PathBuf>,
    /// Devices that did not answer a moment ago: they are passed over without another try.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<PathBuf>,
}

/// What becomes of a pool that is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// It can be imported elsewhere.
    #[default]
    Export,
    /// It is no pool any more.
    Destroy,
}

/// `zpool export` and `zpool destroy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosePool {
    /// Its name.
    pub pool: String,
    /// Which of the two.
    #[serde(default)]
    pub closing: Closing,
    /// Unmount busy file systems too; an export gives up what its devices do not take.
    #[serde(default)]
    pub force: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Does something to a pool that is open; the answer is a [`Changed`](crate::request::Changed).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperatePool {
    /// Its name.
    pub pool: String,
    /// What to do.
    pub operation: PoolOperation,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zpool labelclear`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearLabel {
    /// Absolute path of a file or device.
    pub device: PathBuf,
    /// Also when its pool was not destroyed.
    #[serde(default)]
    pub force: bool,
}

/// A data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatasetView {
    /// The engine's report, with `mountpoint` resolved (inheritance and alternate root applied) and `mounted` added.
    #[serde(flatten)]
    pub report: DatasetReport,
    /// Where it is mounted now.
    pub mounted_at: Option<PathBuf>,
}

/// Asks for data sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDatasets {
    /// This one and those below it; `None` asks for all of all pools. A snapshot is asked for by its full name.
    #[serde(default)]
    pub under: Option<String>,
    /// With their snapshots, of each the oldest first.
    #[serde(default)]
    pub snapshots: bool,
    /// With their bookmarks, of each the oldest first.
    #[serde(default)]
    pub bookmarks: bool,
}

/// Data sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Datasets {
    /// Parents before children, pools by name.
    pub datasets: Vec<DatasetView>,
}

/// `zfs create`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateDataset {
    /// Full name.
    pub name: String,
    /// What a volume is made with; a file system without.
    #[serde(default)]
    pub volume: Option<NewVolume>,
    /// Initial local properties.
    pub properties: BTreeMap<String, String>,
    /// Initial quotas of users, groups and projects.
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
    /// Only check.
    #[serde(default)]
    pub dry_run: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Answer to [`CreateDataset`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CreatedDataset {
    /// Names made (or that would be made), parents first; none when it was there already.
    pub created: Vec<String>,
    /// What a volume gets beside what was given, as it was worked out: `volsize`, `volblocksize`, `refreservation`.
    #[serde(default)]
    pub worked_out: Vec<(String, u64)>,
    /// What is unwise about a volume, in OpenZFS's words; empty when nothing is.
    #[serde(default)]
    pub warning: String,
    /// How mounting went.
    pub outcome: Outcome,
}

/// `zfs destroy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyDataset {
    /// Full name.
    pub name: String,
    /// Its children too.
    #[serde(default)]
    pub recursive: bool,
    /// Clones of its snapshots too, wherever they are, with all that depends on those.
    #[serde(default)]
    pub clones: bool,
    /// Unmount even when busy.
    #[serde(default)]
    pub force: bool,
    /// Only check and list.
    #[serde(default)]
    pub dry_run: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Answer to [`DestroyDataset`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DestroyedDatasets {
    /// Names destroyed (or that would be), children first.
    pub destroyed: Vec<String>,
    /// Those that could not be.
    pub outcome: Outcome,
}

/// `zfs set` and `zfs inherit`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetDatasetProperties {
    /// Full name.
    pub name: String,
    /// New values; `null` inherits.
    pub properties: BTreeMap<String, Option<String>>,
    /// Inherit in all descendants too (`zfs inherit -r`).
    #[serde(default)]
    pub recursive: bool,
    /// Instead of inheriting, go back to the value that came with a stream, if one did (`zfs inherit -S`).
    #[serde(default)]
    pub received: bool,
    /// Leave mounts alone (`zfs set -u`).
    #[serde(default)]
    pub no_mount: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Whose use of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// Users'.
    User,
    /// Groups'.
    Group,
    /// Projects'.
    Project,
}

/// What one user, group or project uses and may use; a limit of 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdUsage {
    /// Number of the user, group or project.
    pub id: u64,
    /// Bytes.
    pub used: u64,
    /// Bytes.
    pub quota: u64,
    /// Objects; `None` while they are not counted.
    pub objects_used: Option<u64>,
    /// Objects.
    pub objects_quota: u64,
}

/// Asks what users, groups or projects use of a file system.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetUserspace {
    /// Full name of the file system.
    pub name: String,
    /// Whose use.
    pub whose: Whose,
}

/// What they use.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Userspace {
    /// By number.
    pub usage: Vec<IdUsage>,
}

/// A quota of a user, group or project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdQuota {
    /// Whose quota.
    pub whose: Whose,
    /// Number of the user, group or project.
    pub id: u64,
    /// Of objects rather than bytes.
    #[serde(default)]
    pub objects: bool,
    /// 0 removes it.
    pub value: u64,
}

/// `zfs set userquota@…` and its kin.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetIdQuota {
    /// Full name of the file system.
    pub name: String,
    /// What to set.
    pub quota: IdQuota,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs rename`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameDataset {
    /// Full name.
    pub from: String,
    /// Full new name, in the same pool.
    pub to: String,
    /// Make missing parents of the new name.
    #[serde(default)]
    pub parents: bool,
    /// Such parents get `canmount=off` (`-pp`).
    #[serde(default)]
    pub parents_unmounted: bool,
    /// Unmount even when busy.
    #[serde(default)]
    pub force: bool,
    /// Leave mounts alone (`zfs rename -u`).
    #[serde(default)]
    pub no_mount: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Asks what is mounted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListMounts {}

/// What is mounted where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountEntry {
    /// Data set.
    pub dataset: String,
    /// Where.
    pub mountpoint: PathBuf,
}

/// Mount options that `zfs mount -o` takes: those that stand for properties, and the plain ones of mount(8).
pub const MOUNT_OPTIONS: [&str; 19] = [
    "defaults",
    "remount",
    "ro",
    "rw",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "xattr",
    "noxattr",
    "async",
    "nomand",
];

/// Which file it is, as stat(2) tells; device numbers as major and minor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileIdentity {
    /// Number of its file system.
    pub file_system: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// The device that it stands for, or zeros.
    pub device: (u32, u32),
}

/// Asks whether the daemon sees the same at these paths as a command.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckPlaces {
    /// What the command sees.
    pub places: Vec<SeenPath>,
}

/// A path as a command sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenPath {
    /// Absolute.
    pub path: PathBuf,
    /// What is there; `None` when nothing is found.
    pub file: Option<FileIdentity>,
}

/// `zfs mount`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// One data set; `None` mounts everything that is mounted by itself (`zfs mount -a`).
    pub dataset: Option<String>,
    /// Also over a folder that is not empty, whatever the property `overlay` says (`zfs mount -O`).
    #[serde(default)]
    pub overlay: bool,
    /// Also what was received without some of its blocks (`zfs mount -f`).
    #[serde(default)]
    pub incomplete: bool,
    /// Mount options of this mount only (`ro`, `rw`, `noatime`…).
    #[serde(default)]
    pub options: Vec<String>,
    /// Everything below the data set that is mounted by itself too (`zfs mount -R`).
    #[serde(default)]
    pub recursive: bool,
    /// Where: mount(8) says that of a file system with `mountpoint=legacy` (`mount.zfs`).
    #[serde(default)]
    pub at: Option<PathBuf>,
    /// With `at`: of a file system that has another mount point (`-o zfsutil`).
    #[serde(default)]
    pub zfsutil: bool,
}

/// Answer to [`MountRequest`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MountOutcome {
    /// File systems looked at: what `zfs mount -v` counts.
    pub considered: u64,
    /// Those that could not be mounted.
    pub problems: Vec<String>,
}

/// `zfs unmount`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnmountRequest {
    /// Data set name or absolute path of a mount point; `None` unmounts everything.
    pub target: Option<String>,
    /// Also when busy.
    #[serde(default)]
    pub force: bool,
}
