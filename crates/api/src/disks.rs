//! The disks of the machine: `platter disks`.

use serde::{Deserialize, Serialize};

/// Lists the disks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListDisks {}

/// A disk. What nobody tells is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Its path.
    pub path: String,
    /// Who made it.
    pub vendor: Option<String>,
    /// What its maker calls it.
    pub model: Option<String>,
    /// Its serial number.
    pub serial: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Bytes of the smallest transfer.
    pub logical_sector: u32,
    /// Bytes that it writes as one, as it says.
    pub physical_sector: u32,
    /// Bytes that it writes as one where its model is known to say something else.
    pub known_sector: Option<u32>,
    /// Whether it turns.
    pub rotational: bool,
    /// Whether it can be pulled out.
    pub removable: bool,
    /// Whether it takes blocks back that are not needed any more.
    pub discards: bool,
    /// Whether it may keep what was written in memory until it is flushed.
    pub write_cache: Option<bool>,
    /// How it is attached.
    pub transport: Option<String>,
    /// In degrees Celsius.
    pub temperature: Option<i64>,
    /// The pools that it, or a partition of it, is labelled for, with the path that is.
    pub pools: Vec<Labelled>,
}

/// Where there is a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labelled {
    /// The disk's path, or a partition's.
    pub path: String,
    /// The pool's name as the label has it.
    pub pool: String,
    /// Whether that pool is open here.
    pub open: bool,
}
