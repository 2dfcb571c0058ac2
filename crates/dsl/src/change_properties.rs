//! `zfs set` and `zfs inherit`: several properties of one data set, all of them or none (`zfs_set_prop_nvlist`,
//! `module/zfs/zfs_ioctl.c`; there each is on its own once the list as such is valid).
//!
//! Invariant: everything is checked before anything changes. Only limits are checked while they are set, since they
//! depend on each other; so they go first, and those already set are put back when a later one does not fit.

use std::sync::Arc;

use platter_dmu::Tx;

use crate::contents::Contents;
use crate::dataset::Dataset;
use crate::dataset_report;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;
use crate::{effects, history, limits, space, version_limits, volume};
use platter_api::properties;
use platter_api::request::Setting;

/// A change, checked as far as it can be without the data set.
#[derive(Clone)]
pub struct Change {
    /// The property's full name.
    property: String,
    /// The new value; `None` inherits.
    value: Option<StoredProperty>,
    /// Whether a value that came with a stream comes back.
    revert: bool,
}

/// Checks one setting.
///
/// # Errors
/// No such property, bad value, value without effect in this version.
pub fn parse(dsl: &DslPool, property: &str, setting: &Setting) -> Result<Change> {
    let (property, value) = match setting {
        Setting::Value(value) => {
            let (property, stored) = properties::parse(property, value)?;
            version_limits::check(&property, &stored, dsl.version(), &dsl.features)?;
            (property, Some(stored))
        }
        Setting::Inherit | Setting::Received if properties::is_user(property) => (property.to_owned(), None),
        Setting::Inherit | Setting::Received => match properties::find(property) {
            Some(native) if native.inherits || native.name == "canmount" || *setting == Setting::Received => {
                (native.name.to_owned(), None)
            }
            Some(native) => {
                return Err(PoolError::invalid(format!("'{}' property cannot be inherited", native.name)));
            }
            None => return Err(PoolError::invalid(format!("invalid property '{property}'"))),
        },
    };
    Ok(Change { property, value, revert: *setting == Setting::Received })
}

/// Checks settings, without those that are as they are to be: a file system may be given the version that it has
/// (`zfs_set_version`, `module/zfs/zfs_vfsops.c`).
///
/// # Errors
/// As [`parse`]; another version.
pub async fn parse_all(dsl: &DslPool, dataset: &Dataset, settings: &[(String, Setting)]) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for (property, setting) in settings {
        if let ("version", Setting::Value(wanted)) = (property.as_str(), setting)
            && let Contents::Filesystem([current, ..]) = dataset_report::contents_of(dsl, dataset).await
        {
            let wanted = crate::at_creation::parse_version(wanted, dsl.version())?;
            if wanted < current {
                let reason = format!("Can not downgrade; already at version {current}");
                return Err(PoolError::invalid(reason));
            }
            if wanted == current {
                continue;
            }
        }
        changes.push(parse(dsl, property, setting)?);
    }
    Ok(changes)
}

/// Checks settings as far as that can be done before they are made: whoever has to unmount for them asks first.
///
/// # Errors
/// As [`parse_all`]; a value that does not apply to this data set or pool.
pub async fn check(dsl: &DslPool, dataset: &Dataset, settings: &[(String, Setting)]) -> Result<()> {
    let settings = volume::part(dsl, dataset, settings).await?.settings;
    for change in parse_all(dsl, dataset, &settings).await? {
        effects::check_applies(dsl, dataset.kind, &change.property, change.value.as_ref())?;
    }
    Ok(())
}

/// The data set called `name`, when all of these changes apply to it.
///
/// # Errors
/// It does not exist; a value that does not apply to this data set or pool.
pub fn check_all(dsl: &DslPool, name: &str, changes: &[Change]) -> Result<Arc<Dataset>> {
    let dataset = dsl.find(name)?;
    for change in changes {
        effects::check_applies(dsl, dataset.kind, &change.property, change.value.as_ref())?;
    }
    Ok(dataset)
}

/// Makes the changes of `dataset`, called `name`, within a task. Quotas and reservations come first: one of them that
/// does not fit takes back those before it.
///
/// # Errors
/// A limit that does not fit; device errors.
pub async fn apply(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    name: &str,
    dataset: &Arc<Dataset>,
    changes: Vec<Change>,
) -> Result<()> {
    let (mut numbers, others): (Vec<Change>, Vec<Change>) =
        changes.into_iter().partition(|change| space::is_limit(&change.property));
    for change in &mut numbers {
        // A limit is more than a property: the one that comes back is set like any other.
        change.value.get_or_insert(dataset.dir.received(&change.property).unwrap_or(StoredProperty::Number(0)));
    }
    set_limits(dsl, tx, dataset, &numbers).await?;
    for change in numbers.iter().filter(|change| change.revert) {
        dataset.dir.revert_property(&dsl.mos, tx, &change.property).await?;
    }
    let mut names: Vec<String> = numbers.into_iter().map(|change| change.property).collect();
    for Change { property, value, revert } in others {
        if value.is_none() && revert {
            dataset.dir.revert_property(&dsl.mos, tx, &property).await?;
        } else {
            if limits::is_count(&property) {
                limits::initialize(dsl, tx, name, dataset).await?;
            }
            effects::activate_feature(dsl, tx, dataset, &property, value.as_ref()).await?;
            dataset.dir.set_property(&dsl.mos, tx, &property, value).await?;
        }
        names.push(property);
    }
    effects::follow(dsl);
    for property in names {
        history::append_event(dsl, tx, "set", &format!("{name} {property}")).await?;
    }
    Ok(())
}

/// Sets quotas and reservations, all or none. What one of them frees may be what another needs, so those that do not
/// fit are tried again after the others.
async fn set_limits(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, changes: &[Change]) -> Result<()> {
    let mut waiting: Vec<(&str, u64)> = changes
        .iter()
        .filter_map(|change| match change.value {
            Some(StoredProperty::Number(number)) => Some((change.property.as_str(), number)),
            _ => None,
        })
        .collect();
    // What each was, and whether that was its own value.
    let mut before: Vec<(&str, u64, bool)> = Vec::new();
    while !waiting.is_empty() {
        let (mut later, mut refusal) = (Vec::new(), None);
        let all = waiting.len();
        for (property, number) in waiting {
            let old = dataset.dir.local_number(property);
            let own = dataset.dir.properties.read().contains_key(property);
            match space::set(dsl, tx, dataset, property, number).await {
                Ok(()) => before.push((property, old, own)),
                Err(error @ PoolError::Invalid(_)) => {
                    later.push((property, number));
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = refusal.filter(|_| later.len() == all) {
            while let Some((property, old, own)) = before.pop() {
                space::set(dsl, tx, dataset, property, old).await?;
                if !own {
                    dataset.dir.revert_property(&dsl.mos, tx, property).await?;
                }
            }
            return Err(error);
        }
        waiting = later;
    }
    Ok(())
}
