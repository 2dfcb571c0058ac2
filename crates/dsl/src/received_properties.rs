//! Properties that came with a stream: stored beside those that were set here, which count more (`$recvd`,
//! `dsl_prop_set_sync_impl` of `ZPROP_SRC_RECEIVED`, `module/zfs/dsl_prop.c`).

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_api::properties::{find, is_read_only, is_user};
use platter_dmu::Tx;
use platter_nvlist::{NvList, Value};

use crate::dataset::Dataset;
use crate::effects;
use crate::error::Result;
use crate::pool::DslPool;
use crate::stored_property::{RECEIVED, StoredProperty};
use crate::{history, limits, space};

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
        if known && !without.contains(name) && !space::is_limit(name) && !limits::is_count(name) {
            usable.push((name.to_owned(), stored));
        }
    }
    usable
}

/// Stores them. Within a task.
async fn store(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, list: &[(String, StoredProperty)]) -> Result<()> {
    for (name, value) in list {
        if effects::check_applies(dsl, dataset.kind, name, Some(value)).is_err() {
            continue;
        }
        let key = match dsl.version().has_received_properties() {
            true => format!("{name}{RECEIVED}"),
            false => name.clone(),
        };
        effects::activate_feature(dsl, tx, dataset, name, Some(value)).await?;
        dataset.dir.set_property(&dsl.mos, tx, &key, Some(value.clone())).await?;
    }
    effects::follow(dsl);
    Ok(())
}

impl DslPool {
    /// Gives data set `name` the properties that came with a stream, but for those in `without`.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; device errors.
    pub async fn set_received(self: &Arc<Self>, name: &str, list: &NvList, without: &BTreeSet<String>) -> Result<()> {
        let list = usable(list, without);
        if list.is_empty() {
            return Ok(());
        }
        let (wanted, named) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| dsl.find(&wanted);
        let set = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            store(&dsl, &tx, &dataset, &list).await?;
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
        list.add_u64("no-such-property", 1).add_u64("atime", 0);
        let without = BTreeSet::from(["atime".to_owned()]);
        let names: Vec<String> = usable(&list, &without).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["compression", "my:own"]);
    }
}
