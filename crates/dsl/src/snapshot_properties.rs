//! Properties that are set on a snapshot itself (`dsl_prop_set_sync_impl`, `module/zfs/dsl_prop.c`): a ZAP of its own,
//! with the same names and values as a directory's.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::properties;
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result, Tx};
use platter_nvlist::{NvList, Value};
use platter_ondisk::{ObjectId, ObjectType};

use crate::error::PoolError;
use crate::mos;
use crate::named_snapshot::{NamedSnapshot, find};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::stored_property::{INHERIT, RECEIVED, StoredProperty, from_zap, to_zap};
use crate::{history, space};

/// What is stored in the ZAP `object`, which may be none.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn load(os: &Arc<Objset>, object: ObjectId) -> Result<BTreeMap<String, StoredProperty>> {
    let mut properties = BTreeMap::new();
    if object.is_some() {
        for entry in Zap::open(os, object).await?.all().await? {
            properties.insert(String::from_utf8_lossy(&entry.name).into_owned(), from_zap(&entry.value));
        }
    }
    Ok(properties)
}

/// Sets properties of a snapshot, or with `None` takes them away, so that what its data set has holds again. Within a
/// task; the bonus is stored by the caller.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn set(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    bonus: &mut SnapshotBonus,
    changes: &BTreeMap<String, Option<StoredProperty>>,
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    if !bonus.phys.props_obj.is_some() {
        if changes.values().all(Option::is_none) {
            return Ok(());
        }
        bonus.phys.props_obj = mos::create_zap(&dsl.mos, tx, ObjectType::DSL_PROPS, dsl.random()).await?;
    }
    let zap = Zap::open(&dsl.mos, bonus.phys.props_obj).await?;
    for (name, value) in changes {
        let inherit = format!("{name}{INHERIT}");
        match value {
            Some(value) => {
                zap.remove(tx, inherit.as_bytes()).await?;
                zap.put(tx, name.as_bytes(), &to_zap(value)).await?;
            }
            None => {
                zap.remove(tx, name.as_bytes()).await?;
                // A value that came with a stream must not show through.
                if zap.get(format!("{name}{RECEIVED}").as_bytes()).await?.is_some() {
                    zap.put(tx, inherit.as_bytes(), &to_zap(&StoredProperty::Number(0))).await?;
                }
            }
        }
    }
    Ok(())
}

/// Checks properties that are to be set on a snapshot: those of users alone can be (`zfs_valid_proplist`,
/// `lib/libzfs/libzfs_dataset.c`).
///
/// # Errors
/// In OpenZFS's words, why not.
pub fn parse(given: &BTreeMap<String, String>) -> crate::error::Result<BTreeMap<String, StoredProperty>> {
    let mut parsed = BTreeMap::new();
    for (name, value) in given {
        if !properties::is_user(name) {
            let known = properties::is_read_only(name) || properties::find(name).is_some();
            return Err(match known {
                true => PoolError::invalid("this property can not be modified for snapshots"),
                false => PoolError::invalid(format!("invalid property '{name}'")),
            });
        }
        let (name, value) = properties::parse(name, value)?;
        parsed.insert(name, value);
    }
    Ok(parsed)
}

/// What is in force of the snapshot's own: each name with its value, and whether that came with a stream.
pub fn own(stored: &BTreeMap<String, StoredProperty>) -> BTreeMap<&str, (&StoredProperty, bool)> {
    let mut own = BTreeMap::new();
    for (name, value) in stored {
        if let Some(name) = name.strip_suffix(RECEIVED) {
            if !stored.contains_key(&format!("{name}{INHERIT}")) {
                own.entry(name).or_insert((value, true));
            }
        } else if !name.ends_with(INHERIT) {
            own.insert(name.as_str(), (value, false));
        }
    }
    own
}

impl DslPool {
    /// `zfs set` and `zfs inherit` of a snapshot: `None` takes a property away.
    ///
    /// # Errors
    /// It does not exist; a property that no snapshot can have; the pool is read-only or stopped; damage.
    pub async fn set_snapshot_properties(
        self: &Arc<Self>,
        full_name: &str,
        changes: &BTreeMap<String, Option<String>>,
    ) -> crate::error::Result<()> {
        let given = changes.iter().filter_map(|(name, value)| Some((name.clone(), value.clone()?))).collect();
        let mut parsed: BTreeMap<String, Option<StoredProperty>> =
            parse(&given)?.into_iter().map(|(name, value)| (name, Some(value))).collect();
        for (name, _) in changes.iter().filter(|(_, value)| value.is_none()) {
            if !properties::is_user(name) {
                return Err(PoolError::invalid("this property can not be modified for snapshots"));
            }
            parsed.insert(name.clone(), None);
        }
        let name = full_name.to_owned();
        let check = async move |dsl: Arc<Self>| {
            space::check_task(&dsl)?;
            let found = find(&dsl, &name).await?;
            let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
            let props = SnapshotBonus::load(&dsl.mos, found.object).await?.phys.props_obj;
            load(&dsl.mos, props).await?;
            Ok(found)
        };
        let change = async move |dsl: Arc<Self>, tx: Tx, found: NamedSnapshot| {
            let mut bonus = SnapshotBonus::load(&dsl.mos, found.object).await?;
            set(&dsl, &tx, &mut bonus, &parsed).await?;
            bonus.store(&tx)?;
            for property in parsed.keys() {
                history::append_event(&dsl, &tx, "set", &format!("{} {property}", found.full_name)).await?;
            }
            Ok(())
        };
        self.checked_task(check, change).await
    }

    /// Gives a snapshot the properties that came with a stream.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; damage.
    pub async fn set_received_of_snapshot(
        self: &Arc<Self>,
        full_name: &str,
        list: &NvList,
    ) -> crate::error::Result<()> {
        let suffix = if self.version().has_received_properties() { RECEIVED } else { "" };
        let given: BTreeMap<String, Option<StoredProperty>> = list
            .iter()
            .filter_map(|(name, value)| match value {
                Value::String(text) if properties::is_user(name) => {
                    Some((format!("{name}{suffix}"), Some(StoredProperty::Text(text.clone()))))
                }
                _ => None,
            })
            .collect();
        let open = async |dsl: &Arc<Self>, name: &str| {
            let found = find(dsl, name).await?;
            let found = found.ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))?;
            let props = SnapshotBonus::load(&dsl.mos, found.object).await?.phys.props_obj;
            Ok::<_, PoolError>((found, load(&dsl.mos, props).await?))
        };
        let (_, stored) = open(self, full_name).await?;
        if given.iter().all(|(name, value)| stored.get(name) == value.as_ref()) {
            return Ok(());
        }
        let name = full_name.to_owned();
        let check = async move |dsl: Arc<Self>| {
            space::check_task(&dsl)?;
            Ok(open(&dsl, &name).await?.0)
        };
        let change = async move |dsl: Arc<Self>, tx: Tx, found: NamedSnapshot| {
            let mut bonus = SnapshotBonus::load(&dsl.mos, found.object).await?;
            set(&dsl, &tx, &mut bonus, &given).await?;
            Ok(bonus.store(&tx)?)
        };
        self.checked_task(check, change).await
    }
}
