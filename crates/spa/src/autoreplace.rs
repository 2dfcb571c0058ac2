//! A new disk in the place of one that failed is used by itself where property `autoreplace` says so
//! (`cmd/zed/agents/zfs_mod.c`, `zfs_process_add`).
//!
//! Its place is its path: that of a link under `/dev/disk/by-path` means a slot, that of a file a file. As with `zpool
//! replace` without `-f`, only what holds nothing that anybody could miss is taken: no file system, no partitions, no
//! label of a pool but a destroyed one, not even the old disk's own. So a disk that was pulled out and put back is
//! never wiped.

use std::path::PathBuf;
use std::sync::Arc;

use platter_device::{Stamp, disk};
use platter_dsl::stored_property::StoredProperty;
use platter_vdev::VdevState;

use crate::core::Core;
use crate::exchange::{self, Joining};
use crate::path_look;
use crate::place::PlacedLeaf;
use crate::rebuild::Giving;

/// Whether a device may be replaced by what is in its place.
pub fn may_replace(core: &Core, place: &PlacedLeaf) -> bool {
    let is_wanted =
        matches!(core.pool_properties.read().get("autoreplace"), Some(StoredProperty::Text(word)) if word == "on");
    let (config, state) = (&place.config, place.leaf.condition().state);
    is_wanted
        && !core.dsl.read_only
        && !(config.offline || config.offline_for_now)
        && matches!(state, VdevState::CantOpen | VdevState::Removed | VdevState::Faulted)
        && !core.environment.held.lock().contains(&config.guid.0)
}

/// Where a new device would be: a disk that had a partition for the pool has none yet.
fn path(place: &PlacedLeaf) -> Option<PathBuf> {
    let path = PathBuf::from(place.config.path.as_deref()?);
    match place.config.whole_disk {
        Some(1) => disk::disk_of(&path).or(Some(path)),
        _ => Some(path),
    }
}

/// What is where a new device would be, if that may be used.
pub async fn look(core: &Core, place: &PlacedLeaf) -> Option<Stamp> {
    let path = path(place).filter(|_| may_replace(core, place))?;
    path_look::stamp(&*core.environment.devices, &path).await
}

/// Replaces a device by what is in its place, if that may be and is something new; whether that began. Somebody else
/// holds the lock of changes.
pub async fn replace(core: &Arc<Core>, place: &PlacedLeaf) -> bool {
    if look(core, place).await.is_none() {
        return false;
    }
    let Some(new) = path(place) else { return false };
    // A spare and all other changes wait meanwhile: that is not for a disk to have that answers slowly or not at all.
    if !path_look::answers(&*core.environment.devices, &new).await {
        return false;
    }
    let (guid, name) = (place.config.guid, core.name());
    let (device, how) = (guid.to_string(), Giving::Later);
    let joining = Joining { device, new: new.clone(), replaces: true, force: false, ashift: 0, how };
    match exchange::attach(core, joining).await {
        Ok(()) => {
            tracing::warn!(pool = name, "device {guid} is replaced by the new {} in its place", new.display());
            true
        }
        Err(error) => {
            tracing::debug!(pool = name, %error, "{} does not replace device {guid} by itself", new.display());
            false
        }
    }
}
