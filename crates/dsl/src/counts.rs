//! How many file systems and snapshots a directory has below it, once somebody set a limit.

use std::sync::Arc;

use platter_dmu::zap::Zap;
use platter_dmu::{Dnode, Result};
use platter_ondisk::ObjectType;

/// Where file systems are counted in a directory's ZAP (`DD_FIELD_FILESYSTEM_COUNT`).
pub const FILESYSTEMS: &str = "com.joyent:filesystem_count";
/// Where snapshots are (`DD_FIELD_SNAPSHOT_COUNT`).
pub const SNAPSHOTS: &str = "com.joyent:snapshot_count";

/// What is below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// File systems and volumes below, without itself.
    pub filesystems: u64,
    /// Snapshots of it and all below.
    pub snapshots: u64,
}

/// The counts stored with a directory, if it has any.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(dnode: &Arc<Dnode>) -> Result<Option<Counts>> {
    if dnode.info().object_type != ObjectType::OTN_ZAP_METADATA {
        return Ok(None);
    }
    let zap = Zap::from_dnode(dnode.clone());
    let Some(filesystems) = zap.get_u64(FILESYSTEMS.as_bytes()).await? else { return Ok(None) };
    let snapshots = zap.get_u64(SNAPSHOTS.as_bytes()).await?.unwrap_or(0);
    Ok(Some(Counts { filesystems, snapshots }))
}
