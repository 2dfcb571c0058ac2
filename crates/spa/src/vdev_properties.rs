//! `zpool set` of a vdev's property (`vdev_prop_set`, `module/zfs/vdev.c`).

use std::sync::Arc;

use platter_api::vdev_properties::{ALLOCATING, AUTOSIT, SIT_OUT, parse};
use platter_dmu::Tx;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::stored_property::StoredProperty;
use platter_ondisk::Guid;
use platter_vdev::VdevKind;

use crate::core::Core;
use crate::vdev_setting::{Setting, not_of_this, setting, store, top_of};
use crate::vdev_zaps::{self, Place};
use crate::{allocating, place};

/// What the root vdev is called.
const ROOT: &str = "root-0";

/// Sets a property of the vdev that a command means.
///
/// # Errors
/// In OpenZFS's words, why not.
pub async fn set(core: &Arc<Core>, device: &str, name: &str, value: &str) -> Result<()> {
    if core.dsl.read_only {
        return Err(PoolError::Unavailable("pool is read-only".into()));
    }
    let value = parse(name, value)?;
    let guid = find(core, device).await?;
    match (name, &value) {
        (ALLOCATING, StoredProperty::Number(number)) => allocating::set(core, guid, *number == 1).await,
        (SIT_OUT, StoredProperty::Number(number)) => set_sit_out(core, guid, *number == 1).await,
        _ => {
            let name = name.to_owned();
            let check = async move |core: Arc<Core>| setting(&core, guid, &name).map(|setting| (setting, name));
            let change = async move |core: Arc<Core>, tx: Tx, (setting, name): (Setting, String)| {
                store(&core, &tx, &setting, &name, &value).await?;
                if let (AUTOSIT, StoredProperty::Number(number)) = (&*name, &value) {
                    top_of(&core, &setting.vdev).into_iter().for_each(|top| top.set_autosit(*number == 1));
                }
                Ok(())
            };
            core.checked_task(check, change).await
        }
    }
}

/// The vdev that a command means.
async fn find(core: &Arc<Core>, name: &str) -> Result<Guid> {
    if name == ROOT || name == "root" {
        return Ok(core.config.read().vdev_tree.guid);
    }
    match place::interior(core, name) {
        Some(vdev) => Ok(vdev.guid),
        None => Ok(place::find(core, name).await?.config.guid),
    }
}

/// Has a device sit out of reads until somebody says that it is over, or has it read again. Nothing is stored.
async fn set_sit_out(core: &Arc<Core>, guid: Guid, sits: bool) -> Result<()> {
    let check = async move |core: Arc<Core>| {
        let place = place::with_guid(&core, guid).map_err(|_| not_of_this())?;
        if !matches!(place.top.kind(), VdevKind::Raidz { .. }) {
            return Err(not_of_this());
        }
        match sits && place.top.has_sitting_out_without(&place.leaf) {
            true => Err(PoolError::Busy("too many disks already sitting out".into())),
            false => Ok(place),
        }
    };
    core.checked_task(check, async move |core, tx, place| {
        if sits {
            place.leaf.sit_out()
        } else {
            place.leaf.end_sit_out()
        }
        let event = format!("vdev_guid={guid}: {SIT_OUT}={}", u8::from(sits));
        Ok(history::append_event(&core.dsl, &tx, "vdev set", &event).await?)
    })
    .await
}

/// Has the top-level vdevs of a pool that was just opened find slow devices, where that is wanted.
pub fn apply(core: &Core) {
    let tops = core.config.read().vdev_tree.children.clone();
    for top in tops.iter().filter(|top| top.kind == "raidz") {
        let is_on = vdev_zaps::of(&core.vdev_properties, top, Place::Top).was_turned_on(AUTOSIT);
        top_of(core, top).into_iter().for_each(|vdev| vdev.set_autosit(is_on));
    }
}
