//! What a label or a `zpool` command says about a vdev tree, before anything is opened.

use std::fmt;
use std::path::PathBuf;

use platter_ondisk::{Guid, Txg};

use crate::allocation_class::AllocationClass;

/// A vdev's type (`VDEV_TYPE_*` in `include/sys/fs/zfs.h`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VdevKind {
    /// A block device or partition.
    Disk,
    /// A regular file.
    File,
    /// N identical copies.
    Mirror,
    /// Stripes with `parity` (1 to 3) columns of parity.
    Raidz {
        /// Parity columns.
        parity: u8,
    },
    /// A device and the one that takes its place; both hold the same.
    Replacing,
    /// A device and the spare that stands in for it; both hold the same.
    Spare,
    /// The pool's root: children are the top-level vdevs.
    Root,
    /// Stands for a device that the configuration does not describe.
    Missing,
    /// The place of a removed log device.
    Hole,
    /// A removed device whose blocks live elsewhere.
    Indirect,
    /// Any other type, by its name in the label (`draid`, `dspare`).
    Other(String),
}

impl VdevKind {
    /// The type's name in labels.
    pub fn label_name(&self) -> &str {
        match self {
            Self::Disk => "disk",
            Self::File => "file",
            Self::Mirror => "mirror",
            Self::Raidz { .. } => "raidz",
            Self::Replacing => "replacing",
            Self::Spare => "spare",
            Self::Root => "root",
            Self::Missing => "missing",
            Self::Hole => "hole",
            Self::Indirect => "indirect",
            Self::Other(name) => name,
        }
    }

    /// The type for a label's `type` and `nparity`.
    pub fn from_label(name: &str, parity: u64) -> Self {
        match name {
            "disk" => Self::Disk,
            "file" => Self::File,
            "mirror" => Self::Mirror,
            "raidz" => Self::Raidz { parity: u8::try_from(parity).unwrap_or(u8::MAX) },
            "replacing" => Self::Replacing,
            "spare" => Self::Spare,
            "root" => Self::Root,
            "missing" => Self::Missing,
            "hole" => Self::Hole,
            "indirect" => Self::Indirect,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Whether devices stand behind this vdev directly.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Self::Disk | Self::File | Self::Missing)
    }
}

impl fmt::Display for VdevKind {
    /// As `zpool status` names the type: `raidz2`, `mirror`, `disk`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raidz { parity } => write!(f, "raidz{parity}"),
            other => f.write_str(other.label_name()),
        }
    }
}

/// A vdev and what is below it, as configured.
#[derive(Clone, Debug)]
pub struct VdevSpec {
    /// Index among its siblings.
    pub id: u64,
    /// Identity; zero when not known.
    pub guid: Guid,
    /// Type.
    pub kind: VdevKind,
    /// What is below, in order; empty for leaves.
    pub children: Vec<VdevSpec>,
    /// Where a leaf was last seen.
    pub path: Option<PathBuf>,
    /// log2 of the allocation unit in bytes; set on top-level vdevs, 0 while not known.
    pub ashift: u8,
    /// Allocatable bytes; set on top-level vdevs, 0 while not known.
    pub asize: u64,
    /// log2 of a metaslab's bytes; set on top-level vdevs, 0 while not known. A device may lose its last partial
    /// metaslab.
    pub metaslab_shift: u8,
    /// Whether the pool owns the leaf's whole disk, partition table included.
    pub whole_disk: bool,
    /// Taken offline by the administrator.
    pub offline: bool,
    /// Failed persistently (too many errors).
    pub faulted: bool,
    /// Of a faulted or degraded one: not for its errors, but because somebody said so.
    pub external: bool,
    /// Has failed in part but is still used.
    pub degraded: bool,
    /// Was removed while in use.
    pub removed: bool,
    /// Was not there when the configuration was written.
    pub not_present: bool,
    /// What kind of blocks it is for.
    pub class: AllocationClass,
    /// The group in which the vdev joined the pool.
    pub create_txg: Txg,
}

impl VdevSpec {
    /// A vdev of a kind with nothing else known.
    pub fn new(kind: VdevKind) -> Self {
        Self {
            id: 0,
            guid: Guid(0),
            kind,
            children: Vec::new(),
            path: None,
            ashift: 0,
            asize: 0,
            metaslab_shift: 0,
            whole_disk: false,
            offline: false,
            faulted: false,
            external: false,
            degraded: false,
            removed: false,
            not_present: false,
            class: AllocationClass::Normal,
            create_txg: Txg(0),
        }
    }

    /// A leaf at a path.
    pub fn leaf(kind: VdevKind, path: impl Into<PathBuf>) -> Self {
        Self { path: Some(path.into()), ..Self::new(kind) }
    }

    /// An interior vdev over `children`, whose ids become their positions.
    pub fn parent(kind: VdevKind, mut children: Vec<VdevSpec>) -> Self {
        for (id, child) in children.iter_mut().enumerate() {
            child.id = id as u64;
        }
        Self { children, ..Self::new(kind) }
    }

    /// The leaves below (or this one itself), in order.
    pub fn leaves(&self) -> Vec<&VdevSpec> {
        if self.children.is_empty() { vec![self] } else { self.children.iter().flat_map(Self::leaves).collect() }
    }
}
