//! The API's vocabulary: what travels as JSON between the command line (or any other client) and the daemon.
//!
//! Paths are versioned (`/v1/…`). Values are raw (bytes, counts, seconds since the epoch); clients format them. Every
//! failure is an [`ErrorBody`] whose `message` is complete ("cannot create 'tank': …"): clients print it as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::report::{DatasetReport, Properties};
use crate::report::{PoolReport, VdevReport};
use crate::request::{CreateRequest, ImportRequest, PoolOperation};
use serde::{Deserialize, Serialize};

/// Prefix of all paths of this version of the API.
pub const VERSION_PREFIX: &str = "/v1";

/// A failure, worded for a person, with the exit code a command should end with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ErrorBody {
    /// What failed and why, possibly in several lines.
    pub message: String,
    /// The way out, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// 1 = failed, 2 = the request makes no sense; [`MOUNT_BUSY`].
    pub exit_code: u8,
}

impl ErrorBody {
    /// An ordinary failure (exit code 1).
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, exit_code: 1 }
    }

    /// Adds the way out.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
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

/// `GET /v1/daemon`.
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
    /// Pools that wait for a device that does not answer, with its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub silent: BTreeMap<String, String>,
}

/// `GET /v1/daemon/log-level` answers with it, `POST` sets it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLevel {
    /// `info`, or levels of parts: `info,platter_spa=debug`.
    pub level: String,
}

/// `GET /v1/pools`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolNames {
    /// Names, sorted; pools that could not be opened at daemon start are among them.
    pub pools: Vec<String>,
}

/// `GET /v1/pools/{name}[?errors=true][&extended=true]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolView {
    /// The engine's report.
    pub report: PoolReport,
    /// Pool properties.
    pub properties: Properties,
    /// Damaged files as paths, only with `?errors=true`.
    pub damaged_files: Vec<String>,
    /// Nanoseconds since the pool was opened: the time over which its counters ran.
    pub open_ns: u64,
    /// The daemon's time of day, seconds since the epoch.
    pub now: u64,
}

/// `POST /v1/pools`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
}

/// `POST /v1/import`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImportPool {
    /// Which pool and how.
    pub request: ImportRequest,
    /// Whether to mount its file systems (`-N` says no).
    #[serde(default)]
    pub mount: bool,
}

/// `POST /v1/import/search`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SearchPools {
    /// Folders, files and devices to look at; empty for the default places.
    pub search: Vec<PathBuf>,
}

/// `POST /v1/pools/{name}/export` and `…/destroy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClosePool {
    /// Unmount busy file systems too.
    #[serde(default)]
    pub force: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Does something to a pool that is open; the answer is a [`Changed`](crate::request::Changed).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OperatePool {
    /// Its name.
    pub pool: String,
    /// What to do.
    pub operation: PoolOperation,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `POST /v1/labelclear`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClearLabel {
    /// Absolute path of a file or device.
    pub device: PathBuf,
    /// Also when its pool was not destroyed.
    #[serde(default)]
    pub force: bool,
}

/// One data set of `GET /v1/datasets`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatasetView {
    /// The engine's report, with `mountpoint` resolved (inheritance and alternate root applied) and `mounted` added.
    #[serde(flatten)]
    pub report: DatasetReport,
    /// Where it is mounted now.
    pub mounted_at: Option<PathBuf>,
}

/// `GET /v1/datasets[?under=NAME]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Datasets {
    /// Parents before children, pools by name.
    pub datasets: Vec<DatasetView>,
}

/// `POST /v1/datasets`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CreateDataset {
    /// Full name.
    pub name: String,
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
    /// How mounting went.
    pub outcome: Outcome,
}

/// `POST /v1/datasets/destroy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DestroyDataset {
    /// Full name.
    pub name: String,
    /// Its children too.
    #[serde(default)]
    pub recursive: bool,
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

/// `POST /v1/datasets/properties`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

impl Whose {
    /// As it stands in a query.
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }
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

/// `GET /v1/datasets/userspace?name=NAME&whose=user|group|project`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Userspace {
    /// By number.
    pub usage: Vec<IdUsage>,
}

/// A quota of a user, group or project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

/// `POST /v1/datasets/idquota`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetIdQuota {
    /// Full name of the file system.
    pub name: String,
    /// What to set.
    #[serde(flatten)]
    pub quota: IdQuota,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `POST /v1/datasets/rename`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

/// One entry of `GET /v1/mounts`.
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

/// Exit code of a request to a daemon that ends (`EX_TEMPFAIL`): to be asked of the next one.
pub const DAEMON_ENDS: u8 = 75;

/// Which file it is, as stat(2) tells; device numbers as major and minor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileIdentity {
    /// Number of its file system.
    pub file_system: (u32, u32),
    /// Its number there.
    pub inode: u64,
    /// The device that it stands for, or zeros.
    pub device: (u32, u32),
}

/// A path as a command sees it. `POST /v1/places` with some asks whether the daemon sees the same there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPath {
    /// Absolute.
    pub path: PathBuf,
    /// What is there; `None` when nothing is found.
    pub file: Option<FileIdentity>,
}

/// Exit code of mount(8) for what is mounted already.
pub const MOUNT_BUSY: u8 = 32;

/// `POST /v1/mounts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MountRequest {
    /// One data set; `None` mounts everything that is mounted by itself (`zfs mount -a`).
    pub dataset: Option<String>,
    /// Also over a folder that is not empty, whatever the property `overlay` says (`zfs mount -O`).
    #[serde(default)]
    pub overlay: bool,
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

/// `POST /v1/unmount`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UnmountRequest {
    /// Data set name or absolute path of a mount point; `None` unmounts everything.
    pub target: Option<String>,
    /// Also when busy.
    #[serde(default)]
    pub force: bool,
}
