//! Properties of vdevs are written down, in memory and in the object that has them (`vdev_props_set_sync`,
//! `module/zfs/vdev.c`).
//!
//! Invariant: what is in memory of a property changes in the group that has it on disk, and in no other.

use std::sync::Arc;

use platter_api::vdev_properties::AUTOSIT;
use platter_dmu::Tx;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dsl::error::{PoolError, Result};
use platter_dsl::history;
use platter_dsl::stored_property::StoredProperty;
use platter_ondisk::{Guid, ObjectId};
use platter_vdev::TopVdev;

use crate::config::VdevConfig;
use crate::core::Core;
use crate::vdev_zaps::{self, Place};

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

/// The refusal of a property that a vdev of this kind does not have.
pub fn not_of_this() -> PoolError {
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
    let is_stored = zap.get(name.as_bytes()).await?.is_some();
    let known = vdev_zaps::of(&core.vdev_properties, vdev, *place);
    let is_known = known.numbers.contains_key(name) || known.texts.contains_key(name);
    assert_eq!(is_stored, is_known, "memory and object say the same of {name}");
    let event = format!("vdev_guid={}: {name}={shown}", vdev.guid);
    Ok(history::append_event(&core.dsl, tx, "vdev set", &event).await?)
}
