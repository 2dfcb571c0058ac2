//! What an object set is told about how to write, and what it needs from its surroundings.

use std::sync::Arc;

use platter_ondisk::dnode::MAX_INDIRECT_SHIFT;
use platter_ondisk::{Checksum, Compression, ObjectId};
use platter_zio::{BlockStore, SpaceAccounting, TxgGate};

use crate::totals::UserAccounting;

/// How blocks of this object set are written; from the dataset's properties, already resolved (no "inherit"/"on").
#[derive(Clone, Debug)]
pub struct WriteProperties {
    /// For data.
    pub checksum: Checksum,
    /// For data.
    pub compression: Compression,
    /// Level for gzip/zstd.
    pub compression_level: i32,
    /// Data copies, 1..=3.
    pub copies: u8,
    /// Data block size in bytes for new files.
    pub record_size: u32,
    /// Copies of metadata blocks to add to `copies` (1: two copies for datasets; the MOS uses 3 in all).
    pub is_mos: bool,
    /// Whether embedded block pointers may be written (feature `embedded_data`).
    pub embedded_data: bool,
    /// Dnode size of new files and directories, in bytes (512 = legacy). An object takes it only when asked to: the
    /// master node and all else that a file system keeps for itself have the smallest.
    pub dnode_size: u32,
    /// Which metadata gets a copy more than data.
    pub redundant_metadata: RedundantMetadata,
    /// Which totals are kept.
    pub accounting: UserAccounting,
    /// What the pool's version and features let the structures themselves be.
    pub format: Format,
}

/// What the pool's version and features let an object set's own structures be; the default is the present format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// For metadata, and what "on" means for data: lz4, or lzjb where the pool lacks the feature `lz4_compress`.
    pub compression: Compression,
    /// log2 of the largest indirect block of a new object: 17, or 14 for software from before feature flags.
    pub indirect_shift_max: u8,
    /// Size of a new object set's head, in bytes.
    pub head_size: usize,
}

impl Default for Format {
    fn default() -> Self {
        Self {
            compression: Compression::LZ4,
            indirect_shift_max: MAX_INDIRECT_SHIFT,
            head_size: platter_ondisk::objset::OBJSET_PHYS_SIZE_V3,
        }
    }
}

/// Property `redundant_metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RedundantMetadata {
    /// All metadata.
    #[default]
    All,
    /// All but the lowest indirect blocks of files.
    Most,
    /// Only what many files depend on.
    Some,
    /// None.
    None,
}

/// What an object set needs from its surroundings.
#[derive(Clone)]
pub struct ObjsetParams {
    /// The pool's blocks.
    pub store: Arc<dyn BlockStore>,
    /// Where births and deaths are booked.
    pub accounting: Arc<dyn SpaceAccounting>,
    /// Transaction groups.
    pub gate: Arc<TxgGate>,
    /// Dataset object number in the MOS (0 for the MOS itself); the objset part of bookmarks.
    pub id: ObjectId,
    /// Initial write properties.
    pub properties: WriteProperties,
    /// Whether changes are refused.
    pub read_only: bool,
}
