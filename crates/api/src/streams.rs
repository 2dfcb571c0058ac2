//! What is asked about streams. Their bytes go past this API: the client hands the daemon its standard output or input
//! over the socket for descriptors, under a name that the request repeats.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `zfs send` of one snapshot, file system or volume, or `zfs send -t`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendStream {
    /// Full name of the snapshot or data set; of what is resumed the token says it.
    #[serde(default)]
    pub snapshot: String,
    /// What a receive that was broken off has left in the data set.
    #[serde(default)]
    pub saved: bool,
    /// Full name of the snapshot or bookmark since which changes are sent.
    #[serde(default)]
    pub since: Option<String>,
    /// Blocks beyond 128 KiB as they are.
    #[serde(default)]
    pub large_blocks: bool,
    /// Blocks that are in their pointers as they are.
    #[serde(default)]
    pub embedded: bool,
    /// Compressed blocks as they are.
    #[serde(default)]
    pub compressed: bool,
    /// Where a receive was broken off.
    #[serde(default)]
    pub token: Option<String>,
    /// Full name of the redaction bookmark whose blocks are left out (`--redact`).
    #[serde(default)]
    pub redact: Option<String>,
    /// Several snapshots, or their properties.
    #[serde(default)]
    pub package: Option<Package>,
    /// Under which name the descriptor was handed over; none to be told what would be sent.
    #[serde(default)]
    pub descriptor: Option<String>,
}

/// What a stream of several snapshots has, beside the one that is named.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Package {
    /// Those in between, too (`-I`).
    #[serde(default)]
    pub all_between: bool,
    /// Data sets below, too (`-R`).
    #[serde(default)]
    pub replicate: bool,
    /// Properties (`-p`).
    #[serde(default)]
    pub properties: bool,
    /// Properties as they were received alone (`-b`).
    #[serde(default)]
    pub backup: bool,
    /// Holds (`-h`).
    #[serde(default)]
    pub holds: bool,
    /// Data sets that are left out (`-X`).
    #[serde(default)]
    pub without: Vec<String>,
    /// Data sets that lack the snapshot are left out (`-s`).
    #[serde(default)]
    pub skip_missing: bool,
}

/// Answer to [`SendStream`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentStream {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name of the one before.
    pub since: Option<String>,
    /// About how many bytes the stream has.
    pub estimate: u64,
    /// How many were sent.
    pub bytes: u64,
    /// Of a package: each of its snapshots, the one before it, and about how many bytes that takes.
    #[serde(default)]
    pub parts: Vec<(String, Option<String>, u64)>,
    /// What a package leaves out because it is younger than the snapshot.
    #[serde(default)]
    pub younger: Vec<String>,
    /// What a package leaves out because it was asked to.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What of a package could not be sent.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// Which part of a snapshot's name in a stream becomes part of its name here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceivedName {
    /// The snapshot's own name, unless the target names one.
    #[default]
    Own,
    /// All but the pool's (`-d`).
    WithoutPool,
    /// The last element (`-e`).
    Tail,
}

/// `zfs receive`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveStream {
    /// A data set or a snapshot.
    pub target: String,
    /// What of the stream's name is put behind it.
    #[serde(default)]
    pub named: ReceivedName,
    /// What changed since in the target, or is newer, is given up (`-F`).
    #[serde(default)]
    pub force: bool,
    /// Nothing is received: damaged blocks of the snapshot, which is there, are healed (`-c`).
    #[serde(default)]
    pub heal: bool,
    /// What was received stays when the stream breaks off (`-s`).
    #[serde(default)]
    pub resumable: bool,
    /// What is new is not mounted (`-u`).
    #[serde(default)]
    pub unmounted: bool,
    /// Nothing is received (`-n`).
    #[serde(default)]
    pub dry_run: bool,
    /// Tags that hold snapshots are not taken from the stream (`-h`).
    #[serde(default)]
    pub without_holds: bool,
    /// Properties of what is received (`-o`).
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
    /// Properties that are not taken from the stream (`-x`).
    #[serde(default)]
    pub without: Vec<String>,
    /// Full name of the snapshot of which it becomes a clone (`-o origin=`).
    #[serde(default)]
    pub origin: Option<String>,
    /// Under which name the descriptor was handed over.
    pub descriptor: String,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// Answer to [`ReceiveStream`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedStream {
    /// The snapshots, in the order of the stream.
    pub parts: Vec<ReceivedPart>,
    /// What could not be done afterwards (mounting).
    pub problems: Vec<String>,
}

/// A snapshot that was received.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedPart {
    /// The snapshot's full name here.
    pub snapshot: String,
    /// Its full name where it was sent.
    pub sent_as: String,
    /// Whether the stream builds on an earlier snapshot.
    pub incremental: bool,
    /// Bytes received.
    pub bytes: u64,
    /// Whether it was there already.
    pub was_there: bool,
    /// Of a snapshot that was there and was to be healed: how many blocks were.
    #[serde(default)]
    pub healed: Option<u64>,
}

/// `zfs receive -A`: gives up what a receive that was broken off has left.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbortReceive {
    /// The data set.
    pub target: String,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs bookmark`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateBookmark {
    /// Full name of a snapshot or bookmark.
    pub source: String,
    /// Full name of the new bookmark.
    pub bookmark: String,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs redact`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Redact {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// The new bookmark's own name.
    pub bookmark: String,
    /// Full names of snapshots that descend from it: what none of them has is left out.
    pub others: Vec<String>,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs destroy` of a bookmark.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestroyBookmark {
    /// Its full name.
    pub bookmark: String,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}
