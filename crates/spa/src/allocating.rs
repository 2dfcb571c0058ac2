//! Top-level vdevs on which no new blocks are put (property `allocating`; `vdev_passivate` and `vdev_activate`,
//! `module/zfs/vdev_removal.c`).
//!
//! Invariants:
//! - one vdev for what data sets hold allocates, and those that do have the room that a pool keeps back for itself;
//! - the configuration, the property and the allocator say the same, and change in one group: but for a moment before,
//!   in which the allocator already passes the vdev over.

use std::sync::Arc;

use platter_api::vdev_properties::ALLOCATING;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::pool::slop;
use platter_dsl::stored_property::StoredProperty;
use platter_dsl::sync::update_available;
use platter_ondisk::Guid;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::removal;
use crate::vdev_setting::{Setting, setting, store, top_of};
use crate::vdev_zaps::Place;

/// Has new blocks put on a top-level vdev, or not.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn set(core: &Arc<Core>, guid: Guid, on: bool) -> Result<()> {
    let _one = core.changing.lock().await;
    let Setting { vdev, place, .. } = setting(core, guid, ALLOCATING)?;
    let is_change = vdev.non_allocating == on;
    // As in OpenZFS it is of top-level vdevs, and where nothing changes anywhere.
    if is_change || !on {
        check_kind(&vdev, place)?;
    }
    let number = vdev.id as u32;
    if !on && is_change {
        check_others(core, number)?;
        removal::set_passive(core, number, true);
        if let Err(error) = removal::begin_logs_anew(core).await {
            removal::set_passive(core, number, false);
            return Err(error);
        }
    }
    let check = async move |core: Arc<Core>| {
        let setting = setting(&core, guid, ALLOCATING)?;
        if !on && is_change {
            check_others(&core, number)?;
        }
        Ok(setting)
    };
    let done = core.checked_task(check, async move |core, tx, setting| {
        store(&core, &tx, &setting, ALLOCATING, &StoredProperty::Number(on.into())).await?;
        if is_change {
            removal::set_passive(&core, number, !on);
            core.config.write().vdev_tree.walk_mut(&mut |vdev| {
                if vdev.guid == guid {
                    vdev.non_allocating = !on;
                }
            });
            core.dsl.dirty_config();
            update_available(&core.dsl);
        }
        Ok(())
    });
    let done = done.await;
    if done.is_err() && is_change {
        removal::set_passive(core, number, vdev.non_allocating);
    }
    done
}

fn check_kind(vdev: &VdevConfig, place: Place) -> Result<()> {
    if place == Place::Top && !vdev.is_log && !matches!(&*vdev.kind, "hole" | "missing") {
        return Ok(());
    }
    Err(PoolError::Unsupported("operation not supported on this type of vdev".into()))
}

/// Whether a pool can do without allocating on a vdev.
fn check_others(core: &Core, number: u32) -> Result<()> {
    let room = core.dsl.store.state().allocator.lock().room_without(number);
    let Some((free, size)) = room else {
        return Err(PoolError::invalid("invalid argument for this pool operation: no other vdev would allocate"));
    };
    // What is kept back lets deletion work in a full pool (OpenZFS finds out by the first write).
    if free < slop(size) {
        return Err(PoolError::invalid("out of space: the vdevs that would allocate have too little that is free"));
    }
    Ok(())
}

/// Has the allocator of a pool that was just opened pass over the vdevs that are not to be used.
pub fn apply(core: &Core) {
    let tops = core.config.read().vdev_tree.children.clone();
    for top in tops.iter().filter(|top| top.non_allocating && !top.is_log) {
        if top_of(core, top).is_some() {
            removal::set_passive(core, top.id as u32, true);
        }
    }
}
