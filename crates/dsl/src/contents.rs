//! The facts that a data set's contents were made with.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result};
use platter_ondisk::ObjectId;
use platter_ondisk::znode::{MASTER_NODE_OBJECT, master};
use platter_ondisk::zvol::{DATA_OBJECT, PROPERTIES_OBJECT, SIZE};

use platter_api::report::DatasetKind;

/// What the contents were made with.
#[derive(Clone, Debug, Default)]
pub enum Contents {
    /// Not looked at yet, or not readable (encrypted, damaged).
    #[default]
    Unknown,
    /// A file system: version, `utf8only`, `normalization` and `casesensitivity` as stored.
    Filesystem([u64; 4]),
    /// A volume: its size and block size in bytes.
    Volume(u64, u64),
}

/// Reads them.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn read(os: &Arc<Objset>, kind: DatasetKind) -> Result<Contents> {
    if kind == DatasetKind::Volume {
        let size = Zap::open(os, ObjectId(PROPERTIES_OBJECT)).await?.get_u64(SIZE.as_bytes()).await?.unwrap_or(0);
        return Ok(Contents::Volume(size, u64::from(os.dnode(ObjectId(DATA_OBJECT)).await?.block_size())));
    }
    let zap = Zap::open(os, ObjectId(MASTER_NODE_OBJECT)).await?;
    let mut values = [0; 4];
    let names = [master::VERSION, master::UTF8ONLY, master::NORMALIZATION, master::CASE_SENSITIVITY];
    for (value, name) in values.iter_mut().zip(names) {
        *value = zap.get_u64(name.as_bytes()).await?.unwrap_or(0);
    }
    Ok(Contents::Filesystem(values))
}
