//! What is said about data sets and the pool's history to whoever asks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
    /// Whether this version can mount it for writing; else the reason.
    pub read_only_reason: Option<String>,
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
