//! Properties that came with a stream: stored beside those that were set here, which count more (`$recvd`,
//! `dsl_prop_set_sync_impl` of `ZPROP_SRC_RECEIVED`, `module/zfs/dsl_prop.c`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_api::properties::{find, is_inherited, is_read_only, is_user};
use platter_dmu::Tx;
use platter_nvlist::{NvList, Value};

use crate::dataset::Dataset;
use crate::effects;
use crate::error::Result;
use crate::pool::DslPool;
use crate::stored_property::{INHERIT, RECEIVED, StoredProperty};
use crate::{history, received_limits, version_limits};

/// What of the list is stored: properties that this version knows and that can be set.
pub fn usable(list: &NvList, without: &BTreeSet<String>) -> Vec<(String, StoredProperty)> {
    let mut usable = Vec::new();
    for (name, value) in list.iter() {
        let known = is_user(name) || find(name).is_some_and(|native| native.settable) && !is_read_only(name);
        let stored = match value {
            Value::Uint64(number) => StoredProperty::Number(*number),
            Value::String(text) => StoredProperty::Text(text.clone()),
            _ => continue,
        };
        if known && (can_be_masked(name) || !without.contains(name)) && !received_limits::is_limit(name) {
            usable.push((name.to_owned(), stored));
        }
    }
    usable
}

/// Whether a property can be kept from having an effect where it came with a stream: it is inherited instead.
fn can_be_masked(name: &str) -> bool {
    is_user(name) || is_inherited(name)
}

/// Whether this is how a received value is stored, or that it is masked.
fn is_received_key(key: &str) -> bool {
    key.ends_with(RECEIVED) || key.ends_with(INHERIT)
}

/// Stores them in place of those that came before; what of them is not to have an effect here is masked, unless there
/// is a value of its own, which counts more. Within a task.
async fn store(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    dataset: &Arc<Dataset>,
    list: &[(String, StoredProperty)],
    masked: &BTreeSet<String>,
) -> Result<()> {
    let before: Vec<String> = dataset.dir.properties.read().keys().cloned().collect();
    for key in &before {
        let is_gone = |name: &str| !list.iter().any(|(other, _)| other == name);
        let is_gone = |name: &str| !received_limits::is_limit(name) && is_gone(name);
        if key.strip_suffix(RECEIVED).is_some_and(is_gone) {
            dataset.dir.set_property(&dsl.mos, tx, key, None).await?;
        }
    }
    for (name, value) in list {
        // What this pool cannot act on has no value here.
        let fits = effects::check_applies(dsl, dataset.kind, name, Some(value))
            .and_then(|()| version_limits::check(name, value, dsl.version(), &dsl.features));
        if fits.is_err() {
            continue;
        }
        let key = match dsl.version().has_received_properties() {
            true => format!("{name}{RECEIVED}"),
            false => name.clone(),
        };
        effects::activate_feature(dsl, tx, dataset, name, Some(value)).await?;
        dataset.dir.set_property(&dsl.mos, tx, &key, Some(value.clone())).await?;
    }
    for name in masked.iter().filter(|name| can_be_masked(name)) {
        if !dataset.dir.properties.read().contains_key(name) {
            dataset.dir.set_property(&dsl.mos, tx, name, None).await?;
        }
    }
    effects::follow(dsl);
    Ok(())
}

impl DslPool {
    /// The properties of `name` that came with streams, as they are stored, for [`Self::restore_received`].
    ///
    /// # Errors
    /// It does not exist.
    pub fn received_properties(&self, name: &str) -> Result<BTreeMap<String, StoredProperty>> {
        let stored = self.find(name)?.dir.properties.read().clone();
        Ok(stored.into_iter().filter(|(key, _)| is_received_key(key)).collect())
    }

    /// Makes those properties what they were: the stream broke off.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; device errors.
    pub async fn restore_received(
        self: &Arc<Self>,
        name: &str,
        before: BTreeMap<String, StoredProperty>,
    ) -> Result<()> {
        let (wanted, named) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| dsl.find(&wanted);
        let set = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            let now = dataset.dir.properties.read().clone();
            let limit = |key: &str| {
                key.strip_suffix(RECEIVED).filter(|name| received_limits::is_limit(name)).map(str::to_owned)
            };
            let is_other = |key: &str| is_received_key(key) && limit(key).is_none();
            for key in now.keys().filter(|key| is_other(key) && !before.contains_key(*key)) {
                dataset.dir.set_property(&dsl.mos, &tx, key, None).await?;
            }
            for (key, value) in before.iter().filter(|(key, value)| is_other(key) && now.get(*key) != Some(*value)) {
                dataset.dir.set_property(&dsl.mos, &tx, key, Some(value.clone())).await?;
            }
            for (key, was) in now.keys().chain(before.keys()).filter_map(|key| Some((limit(key)?, before.get(key)))) {
                let was = match was {
                    Some(StoredProperty::Number(number)) => Some(*number),
                    _ => None,
                };
                if dataset.dir.received(&key) != was.map(StoredProperty::Number) {
                    received_limits::give_back(&dsl, &tx, (&named, &dataset), &key, was).await?;
                }
            }
            effects::follow(&dsl);
            Ok(())
        };
        self.checked_task(check, set).await
    }

    /// Gives data set `name` the properties that came with a stream, in place of those that came before; those in
    /// `without` have no effect here.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; device errors.
    pub async fn set_received(self: &Arc<Self>, name: &str, list: &NvList, without: &BTreeSet<String>) -> Result<()> {
        let (list, masked) = (usable(list, without), without.clone());
        let (wanted, named) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| dsl.find(&wanted);
        let set = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            store(&dsl, &tx, &dataset, &list, &masked).await?;
            history::append_event(&dsl, &tx, "set", &format!("{named} (received)")).await?;
            Ok(())
        };
        self.checked_task(check, set).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_can_set_is_left_out() {
        let mut list = NvList::new();
        list.add_u64("compression", 15).add_u64("used", 7).add_str("my:own", "x").add_u64("quota", 1);
        list.add_u64("no-such-property", 1).add_u64("atime", 0).add_u64("canmount", 0);
        // What can be inherited is stored and masked; what cannot is left out.
        let without = BTreeSet::from(["atime".to_owned(), "canmount".to_owned()]);
        let names: Vec<String> = usable(&list, &without).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["compression", "my:own", "atime"]);
    }
}
