//! `zpool set` of a vdev's property (`vdev_prop_set` and `vdev_props_set_sync`, `module/zfs/vdev.c`).
//!
//! Invariant: what is in memory of a property changes in the group that has it on disk, and in no other.

use std::sync::Arc;

use platter_api::vdev_properties::{ALLOCATING, AUTOSIT, SIT_OUT, parse};
use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::stored_property::StoredProperty;
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::{TopVdev, VdevKind};

use crate::config::VdevConfig;
use crate::core::Core;
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

/// A vdev whose properties are to change.
pub struct Setting {
    /// The vdev.
    pub vdev: VdevConfig,
    /// Where it is.
    pub place: Place,
    /// What has its properties.
    object: ObjectId,
}

/// Whether a property of a vdev can be set: it is there, and has properties, and this one.
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn setting(core: &Core, guid: Guid, name: &str) -> Result<Setting> {
    let found = vdev_zaps::find(&core.config.read().vdev_tree, guid);
    let (vdev, place) = found.ok_or_else(|| PoolError::NotFound("no such device in pool".into()))?;
    let object = vdev_zaps::object(&vdev, place).ok_or_else(|| {
        PoolError::invalid("invalid argument for this pool operation: the pool keeps no properties of this vdev")
    })?;
    if name == AUTOSIT && !(place == Place::Top && vdev.kind == "raidz") {
        return Err(not_of_this());
    }
    Ok(Setting { vdev, place, object })
}

fn not_of_this() -> PoolError {
    PoolError::Unsupported("property not supported for this vdev".into())
}

/// The open top-level vdev of this configuration.
pub fn top_of(core: &Core, vdev: &VdevConfig) -> Option<Arc<TopVdev>> {
    core.dsl.store.state().vdevs.get(vdev.id as usize).and_then(Option::as_ref).cloned()
}

/// Writes a property down, in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn store(core: &Core, tx: &Tx, setting: &Setting, name: &str, value: &StoredProperty) -> Result<()> {
    let Setting { vdev, place, object } = setting;
    let zap = Zap::open(&core.dsl.mos, *object).await?;
    let shown = match value {
        StoredProperty::Number(number) => {
            zap.put_u64(tx, name.as_bytes(), *number).await?;
            (*number as i64).to_string()
        }
        StoredProperty::Text(text) if text.is_empty() && platter_api::properties::is_user(name) => {
            zap.remove(tx, name.as_bytes()).await?;
            String::new()
        }
        StoredProperty::Text(text) => {
            zap.put(tx, name.as_bytes(), &ZapValue::from_string(text)).await?;
            text.clone()
        }
    };
    if *place == Place::Top && vdev.leaf_zap.is_some() {
        // Earlier versions had it there: it must not come back.
        Zap::open(&core.dsl.mos, vdev.leaf_zap).await?.remove(tx, name.as_bytes()).await?;
    }
    {
        let mut stored = core.vdev_properties.lock();
        if *place == Place::Top
            && let Some(as_leaf) = stored.get_mut(&vdev.leaf_zap)
        {
            as_leaf.numbers.remove(name);
        }
        stored.entry(*object).or_default().note(name, value);
    }
    let event = format!("vdev_guid={}: {name}={shown}", vdev.guid);
    Ok(history::append_event(&core.dsl, tx, "vdev set", &event).await?)
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
