//! What the engine tells about pools and data sets: plain values, unformatted; the command line formats them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::vdev_properties::VdevProperties;
use serde::{Deserialize, Serialize};

/// Operation and byte counts of a vdev since the pool was opened, and its errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    /// Read operations.
    pub read_ops: u64,
    /// Write operations.
    pub write_ops: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Failed reads.
    pub read_errors: u64,
    /// Failed writes.
    pub write_errors: u64,
    /// Blocks whose checksum was wrong on this vdev.
    pub checksum_errors: u64,
    /// Transfers that took longer than 30 seconds; leaves.
    #[serde(default)]
    pub slow_ios: u64,
    /// Bytes rewritten because a read found them wrong.
    #[serde(default)]
    pub self_healed: u64,
    /// Bytes rewritten by scrub and resilver.
    #[serde(default)]
    pub scan_processed: u64,
    /// Trims.
    #[serde(default)]
    pub trim_ops: u64,
    /// Bytes given up by them.
    #[serde(default)]
    pub trim_bytes: u64,
    /// Trims that failed; leaves.
    #[serde(default)]
    pub trim_errors: u64,
    /// Writes over free space that failed; leaves.
    #[serde(default)]
    pub initialize_errors: u64,
}

impl IoCounts {
    /// Adds the transfers of a vdev below; errors are each vdev's own.
    pub fn add_transfers(&mut self, below: &Self) {
        self.read_ops += below.read_ops;
        self.write_ops += below.write_ops;
        self.read_bytes += below.read_bytes;
        self.write_bytes += below.write_bytes;
        self.trim_ops += below.trim_ops;
        self.trim_bytes += below.trim_bytes;
    }
}

/// How many classes of transfers there are.
pub const CLASSES: usize = 7;

/// Queues, latencies and sizes of a vdev's transfers, for `zpool iostat -lqrw`; interior vdevs have the sum of their
/// leaves. Index 0 is reads and 1 writes; classes are in the order sync read, async read, sync write, async write,
/// scrub, trim, initialize. Bucket `b` of a histogram counts values from `2^b` on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendedStats {
    /// Transfers that wait, by class.
    pub pending: [u64; CLASSES],
    /// Transfers under way, by class.
    pub active: [u64; CLASSES],
    /// Nanoseconds in queue and device together.
    pub total_wait: [Vec<u64>; 2],
    /// Nanoseconds in the device.
    pub disk_wait: [Vec<u64>; 2],
    /// Nanoseconds in the queue, by class.
    pub queue_wait: [Vec<u64>; CLASSES],
    /// Bytes of transfers that travelled alone, by class.
    pub individual: [Vec<u64>; CLASSES],
    /// Bytes of transfers that were joined from several, by class.
    pub aggregated: [Vec<u64>; CLASSES],
}

impl ExtendedStats {
    /// Adds those of a vdev below.
    pub fn add(&mut self, below: &Self) {
        fn histogram(sum: &mut Vec<u64>, below: &[u64]) {
            sum.resize(sum.len().max(below.len()), 0);
            for (sum, own) in sum.iter_mut().zip(below) {
                *sum += own;
            }
        }
        for class in 0..CLASSES {
            self.pending[class] += below.pending[class];
            self.active[class] += below.active[class];
            histogram(&mut self.queue_wait[class], &below.queue_wait[class]);
            histogram(&mut self.individual[class], &below.individual[class]);
            histogram(&mut self.aggregated[class], &below.aggregated[class]);
        }
        for direction in 0..2 {
            histogram(&mut self.total_wait[direction], &below.total_wait[direction]);
            histogram(&mut self.disk_wait[direction], &below.disk_wait[direction]);
        }
    }
}

/// What a report shall contain beyond the ordinary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The objects with permanent errors.
    pub errors: bool,
    /// [`ExtendedStats`] of every vdev.
    pub extended: bool,
}

/// How far work on all that is free of a leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafWorkState {
    /// It goes on, or will when the device is there.
    Active,
    /// It was given up.
    Canceled,
    /// It waits until somebody lets it go on.
    Suspended,
    /// It is done.
    Complete,
}

/// Work on all that is free of a leaf: a trim, or initializing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafWork {
    /// How far.
    pub state: LeafWorkState,
    /// When it began, or ended; seconds since the epoch.
    pub time: u64,
    /// Bytes that are done.
    pub done: u64,
    /// Bytes in all, about.
    pub total: u64,
}

/// How far a sequential reconstruction is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RebuildPhase {
    /// It goes on, or will when its devices are there.
    #[default]
    Active,
    /// Nobody needed it any more.
    Canceled,
    /// It came to its end.
    Complete,
}

/// The sequential reconstruction of devices of one top-level vdev, running or last (`vdev_rebuild_stat_t`). A pass is
/// what was done since it began, or went on after an import. Sizes in bytes, times in seconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildReport {
    /// How far.
    pub phase: RebuildPhase,
    /// When it began.
    pub start_time: u64,
    /// When it ended; 0 while it goes on.
    pub end_time: u64,
    /// How long it ran, in milliseconds.
    pub scan_time_ms: u64,
    /// Allocated bytes that were looked at.
    pub scanned: u64,
    /// Bytes that were read.
    pub issued: u64,
    /// Bytes that were written.
    pub rebuilt: u64,
    /// Allocated bytes in all, about.
    pub to_scan: u64,
    /// What could not be read or written.
    pub errors: u64,
    /// How long this pass has run, in milliseconds.
    pub pass_time_ms: u64,
    /// What this pass has looked at.
    pub pass_scanned: u64,
    /// What this pass has read.
    pub pass_issued: u64,
    /// What this pass has passed over.
    pub pass_skipped: u64,
}

/// One vdev with its children, as `zpool status`, `list -v` and `iostat -v` show it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct VdevReport {
    /// Name as shown: pool name for the root, `raidz1-0`, `mirror-1`, or the leaf's path (its last part for disks).
    pub name: String,
    /// `root`, `raidz`, `mirror`, `file`, `disk`, `missing`.
    pub kind: String,
    /// Whether it is a separate intent log device; top-level vdevs.
    #[serde(default)]
    pub is_log: bool,
    /// Whether it is a cache device.
    #[serde(default)]
    pub is_cache: bool,
    /// Guid.
    pub guid: u64,
    /// Path of a leaf.
    pub path: Option<String>,
    /// ONLINE, DEGRADED, FAULTED, OFFLINE, UNAVAIL, REMOVED.
    pub state: String,
    /// The remark after the counters ("was /path/d5", "corrupted data", "cannot open", "too many errors").
    pub note: Option<String>,
    /// Whether a running scrub is repairing it ("(repairing)").
    pub repairing: bool,
    /// Allocated bytes; top-level vdevs and root.
    pub allocated: u64,
    /// Allocatable bytes; top-level vdevs and root.
    pub size: u64,
    /// Bytes by which it could grow.
    pub expand_size: u64,
    /// Fragmentation in percent; top-level vdevs and root.
    pub fragmentation: Option<u64>,
    /// Usable bytes of a leaf's device.
    #[serde(default)]
    pub physical_size: u64,
    /// Bytes that a device must have to take this leaf's place; what an interior vdev needs of its metaslabs.
    #[serde(default)]
    pub replacement_size: u64,
    /// `size` as data sets see it, without parity and padding; top-level vdevs and root.
    #[serde(default)]
    pub deflated_size: u64,
    /// Sector shift.
    pub ashift: u64,
    /// Counters.
    pub counts: IoCounts,
    /// Queues and histograms, when asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<ExtendedStats>,
    /// What was set of its properties.
    #[serde(default, skip_serializing_if = "VdevProperties::is_empty")]
    pub properties: VdevProperties,
    /// Whether no new blocks are put on the top-level vdev that it is or is part of.
    #[serde(default)]
    pub non_allocating: bool,
    /// Whether a leaf sits out of reads; leaves of RAID-Z groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sits_out: Option<bool>,
    /// Whether a leaf's device can be trimmed.
    #[serde(default)]
    pub trim_support: bool,
    /// A leaf's last trim by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim: Option<LeafWork>,
    /// A leaf's last initializing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialize: Option<LeafWork>,
    /// A top-level vdev's last sequential reconstruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<RebuildReport>,
    /// Children.
    pub children: Vec<VdevReport>,
}

impl VdevReport {
    /// The vdevs right below that hold data: those of other classes are shown apart.
    pub fn ordinary(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(|child| !child.is_log)
    }

    /// Whether devices of a vdev right below are sequentially reconstructed.
    pub fn is_rebuilding(&self) -> bool {
        self.children.iter().any(VdevReport::is_rebuilt)
    }

    /// Whether devices of this top-level vdev are sequentially reconstructed.
    pub fn is_rebuilt(&self) -> bool {
        self.rebuild.is_some_and(|rebuild| rebuild.phase == RebuildPhase::Active)
    }

    /// The separate intent log devices right below.
    pub fn logs(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(|child| child.is_log)
    }
}

/// A scrub, running or last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScanReport {
    /// Whether it is a resilver: it began because a device came back.
    #[serde(default)]
    pub resilver: bool,
    /// `none`, `scanning`, `paused`, `finished`, `canceled`.
    pub state: String,
    /// Start, seconds since the epoch.
    pub start_time: u64,
    /// End, seconds since the epoch; 0 while running.
    pub end_time: u64,
    /// When it was paused; 0 when not.
    pub pause_time: u64,
    /// Bytes to examine (allocated when it began).
    pub to_examine: u64,
    /// Bytes examined.
    pub examined: u64,
    /// Bytes issued (read and verified).
    pub issued: u64,
    /// Bytes rewritten.
    pub repaired: u64,
    /// Blocks that could not be repaired.
    pub errors: u64,
    /// Examined bytes/s over the last window; 0 when unknown.
    pub rate: u64,
    /// Seconds to go by that rate.
    pub eta_seconds: Option<u64>,
    /// Seconds spent scanning (pauses excluded).
    pub elapsed_seconds: u64,
    /// Whether a resilver follows at once: a device came back, or missed something, meanwhile.
    #[serde(default)]
    pub resilver_follows: bool,
}

/// A scrub of what is known to be damaged, running or last (`zpool scrub -e`).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ErrorScrubReport {
    /// `none`, `scanning`, `paused`, `finished`, `canceled`.
    pub state: String,
    /// Start, seconds since the epoch.
    pub start_time: u64,
    /// End, seconds since the epoch; 0 while running.
    pub end_time: u64,
    /// When it was paused; 0 when not.
    pub pause_time: u64,
    /// Objects still to be looked at.
    pub to_examine: u64,
    /// Objects looked at.
    pub examined: u64,
}

/// An object with unrepairable blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DamagedObject {
    /// Data set's object number in the MOS; 0 for the MOS itself ("`<metadata>`").
    pub dataset_id: u64,
    /// Data set's name; empty when it no longer exists.
    pub dataset: String,
    /// Object number.
    pub object: u64,
}

/// A whole pool.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolReport {
    /// Name.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// State of the root vdev.
    pub state: String,
    /// Last synced group.
    pub txg: u64,
    /// `spa_version`: 5000 for pools with feature flags.
    pub version: u64,
    /// The text after `status:`, when something is wrong or notable.
    pub status: Option<String>,
    /// The text after `action:`.
    pub action: Option<String>,
    /// OpenZFS message id ("ZFS-8000-2Q"), for the `see:` line.
    pub message_id: Option<String>,
    /// The vdev tree; its root is the pool.
    pub vdevs: VdevReport,
    /// Cache devices.
    #[serde(default)]
    pub caches: Vec<VdevReport>,
    /// Hot spares, with states AVAIL, INUSE and UNAVAIL.
    #[serde(default)]
    pub spares: Vec<VdevReport>,
    /// Scrub.
    pub scan: ScanReport,
    /// Scrub of what is known to be damaged.
    #[serde(default)]
    pub error_scrub: ErrorScrubReport,
    /// Bytes of destroyed data sets that are still to be freed; at least 1 while any are.
    #[serde(default)]
    pub freeing: u64,
    /// Number of known permanent errors.
    pub error_count: u64,
    /// Objects with permanent errors, only when asked for. The front end turns them into file names.
    pub errors: Vec<DamagedObject>,
    /// Whether it was opened read-only.
    pub read_only: bool,
    /// Alternate root.
    pub altroot: Option<String>,
    /// Whether the pool stopped after failed writes.
    pub suspended: bool,
}

/// A pool found by `zpool import`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ImportableReport {
    /// Name in its labels.
    pub name: String,
    /// Guid.
    pub guid: u64,
    /// ONLINE, DEGRADED, UNAVAIL.
    pub state: String,
    /// The text after `status:`.
    pub status: Option<String>,
    /// The text after `action:`.
    pub action: Option<String>,
    /// Host that used it last, when it was not exported.
    pub last_host: Option<String>,
    /// Vdev tree (counts are zero).
    pub vdevs: VdevReport,
    /// Whether the labels say the pool was destroyed.
    pub destroyed: bool,
}

/// What a search for pools found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FoundPools {
    /// Pools that could be imported, or why they could not.
    pub pools: Vec<ImportableReport>,
    /// Devices that did not answer, and were passed over: they may be of these pools, or of others.
    pub silent: Vec<PathBuf>,
}

/// A raw property value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PropertyValue {
    /// A number (bytes, ratio × 100, percent, guid, seconds since the epoch…): the property's kind says which.
    Number(u64),
    /// A string or the name of an enumerated value ("on", "lz4").
    Text(String),
}

/// Where a property's value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PropertySource {
    /// Statistics and facts ("-").
    None,
    /// Built-in default.
    Default,
    /// Set here.
    Local,
    /// Set on this ancestor.
    Inherited(String),
    /// For this mount or import only.
    Temporary,
    /// Came with a received stream.
    Received,
}

/// A property with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Property {
    /// Raw value.
    pub value: PropertyValue,
    /// Its source.
    pub source: PropertySource,
}

/// Properties by name.
pub type Properties = BTreeMap<String, Property>;

/// What a data set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatasetKind {
    /// A file system.
    Filesystem,
    /// A block device.
    Volume,
    /// A file system or volume as it was.
    Snapshot,
    /// Where a snapshot was.
    Bookmark,
}

impl DatasetKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Filesystem, Self::Volume, Self::Snapshot, Self::Bookmark];

    /// As property `type` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "filesystem",
            Self::Volume => "volume",
            Self::Snapshot => "snapshot",
            Self::Bookmark => "bookmark",
        }
    }
}

/// A data set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DatasetReport {
    /// Full name.
    pub name: String,
    /// What it is.
    pub kind: DatasetKind,
    /// All native properties plus user properties. `mounted` is not among them (the daemon knows).
    pub properties: Properties,
    /// Values that came with streams, also those that another one hides or that are not to have an effect here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub received: BTreeMap<String, PropertyValue>,
    /// Whether this version can mount it for writing; else the reason.
    pub read_only_reason: Option<String>,
}

impl DatasetReport {
    /// A property that is a number.
    pub fn number(&self, property: &str) -> Option<u64> {
        match self.properties.get(property)?.value {
            PropertyValue::Number(number) => Some(number),
            PropertyValue::Text(_) => None,
        }
    }
}

/// One entry of a pool's history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Seconds since the epoch.
    pub time: u64,
    /// The command, or the internal event's text.
    pub text: String,
    /// Whether it is an internal event (`history -i`).
    pub internal: bool,
    /// Who and where (`history -l`): user id, host, zone.
    pub who: Option<(u64, String, String)>,
    /// Group of an internal event.
    pub txg: Option<u64>,
}
