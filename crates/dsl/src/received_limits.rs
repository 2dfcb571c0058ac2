//! Quotas, reservations and limits on counts that came with a stream. They are more than properties: each takes effect
//! in the directory, and may not fit.
//!
//! A new data set has them from the beginning, but for `refquota`, which counts what is compressed otherwise here
//! (`extract_delay_props`, `module/zfs/zfs_ioctl.c`): a receive that is broken off and goes on brings none. In one that
//! is there what is received must fit into what it is sent with, so limits are set when it is there; only one that
//! leaves more room than the one before it has to be set first.
//!
//! Invariant: a limit that came with a stream is in force exactly while none was set here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use platter_dmu::Tx;
use platter_nvlist::{NvList, Value};

use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::stored_property::{INHERIT, RECEIVED, StoredProperty};
use crate::{effects, limits, space, version_limits};

/// All of them.
const LIMITS: [&str; 6] = ["quota", "refquota", "reservation", "refreservation", "filesystem_limit", "snapshot_limit"];

/// Which limits of a stream are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that a new data set has from the beginning.
    Beginning,
    /// Those that leave more room than before.
    Loosened,
    /// All.
    All,
}

/// A limit that did not fit, and why.
pub type Refused = (String, String);

/// Whether `name` is a property that is set here.
pub fn is_limit(name: &str) -> bool {
    LIMITS.contains(&name)
}

/// Gives `dataset`, called `name`, the limit that came with a stream, or none. Within a task.
///
/// # Errors
/// It does not fit; device errors.
pub async fn set(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    (name, dataset): (&str, &Arc<Dataset>),
    limit: &str,
    value: Option<u64>,
) -> Result<()> {
    let stored = value.map(StoredProperty::Number);
    effects::check_applies(dsl, dataset.kind, limit, stored.as_ref())?;
    if let Some(stored) = &stored {
        version_limits::check(limit, stored, dsl.version(), &dsl.features)?;
    }
    let has_received = dsl.version().has_received_properties();
    let is_hidden = {
        let properties = dataset.dir.properties.read();
        has_received && [limit.to_owned(), format!("{limit}{INHERIT}")].iter().any(|key| properties.contains_key(key))
    };
    if space::is_limit(limit) && !is_hidden {
        space::set(dsl, tx, dataset, limit, value.unwrap_or(0)).await?;
        if has_received {
            // It is in force, but not as one that was set here.
            dataset.dir.revert_property(&dsl.mos, tx, limit).await?;
        }
    }
    if limits::is_count(limit) && value.is_some() {
        limits::initialize(dsl, tx, name, dataset).await?;
    }
    let key = if has_received { format!("{limit}{RECEIVED}") } else { limit.to_owned() };
    Ok(dataset.dir.set_property(&dsl.mos, tx, &key, stored).await?)
}

/// Gives `dataset` back the limit that it had before a stream broke off; a quota also where what the stream brought so
/// far is more: nothing can be written then until that is gone. Within a task.
///
/// # Errors
/// Device errors.
pub async fn give_back(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    (name, dataset): (&str, &Arc<Dataset>),
    limit: &str,
    value: Option<u64>,
) -> Result<()> {
    let why = match set(dsl, tx, (name, dataset), limit, value).await {
        Err(PoolError::Invalid(why)) => why,
        done => return done,
    };
    if !matches!(limit, "quota" | "refquota") {
        tracing::warn!(
            pool = dsl.name(),
            dataset = name,
            limit,
            why,
            "what it was before a stream cannot be had again"
        );
        return Ok(());
    }
    if limit == "quota" {
        dataset.dir.phys.lock().quota = value.unwrap_or(0);
        dataset.dir.store(&dsl.mos, tx).await?;
    }
    let key = format!("{limit}{RECEIVED}");
    Ok(dataset.dir.set_property(&dsl.mos, tx, &key, value.map(StoredProperty::Number)).await?)
}

/// The limits in a stream's list, but for those in `without`.
fn listed(list: &NvList, without: &BTreeSet<String>) -> BTreeMap<String, u64> {
    let number = |(name, value): (&str, &Value)| match value {
        Value::Uint64(number) if is_limit(name) && !without.contains(name) => Some((name.to_owned(), *number)),
        _ => None,
    };
    list.iter().filter_map(number).collect()
}

/// Whether a quota of `wanted` bytes leaves more room than one of `now`; 0 is none.
fn is_looser(wanted: u64, now: u64) -> bool {
    now != 0 && (wanted == 0 || wanted > now)
}

impl DslPool {
    /// Gives data set `name` the limits that came with a stream, in place of those that came before; those in `without`
    /// are left as they are. What did not fit is returned.
    ///
    /// # Errors
    /// It does not exist; the pool is read-only or stopped; device errors.
    pub async fn set_received_limits(
        self: &Arc<Self>,
        name: &str,
        list: &NvList,
        without: &BTreeSet<String>,
        which: Which,
    ) -> Result<Vec<Refused>> {
        let (wanted, without, full_name) = (listed(list, without), without.clone(), name.to_owned());
        let sought = full_name.clone();
        let check = async move |dsl: Arc<Self>| dsl.find(&sought);
        let change = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            let is_due = |limit: &&str| {
                let (value, before) = (wanted.get(*limit).copied(), dataset.dir.received(limit));
                let differs = value.map(StoredProperty::Number) != before;
                match which {
                    Which::Beginning => differs && *limit != "refquota",
                    Which::All => differs,
                    Which::Loosened => {
                        let is_quota = matches!(*limit, "quota" | "refquota");
                        is_quota && is_looser(value.unwrap_or(0), dataset.dir.local_number(limit))
                    }
                }
            };
            let is_meant = |limit: &&str| !without.contains(*limit);
            let mut waiting: Vec<&str> = LIMITS.into_iter().filter(is_meant).filter(is_due).collect();
            // What does not fit may, once others are what they are to be: a quota behind a reservation that shrinks.
            loop {
                let (all, mut refused) = (waiting.len(), Vec::new());
                for limit in std::mem::take(&mut waiting) {
                    match set(&dsl, &tx, (&full_name, &dataset), limit, wanted.get(limit).copied()).await {
                        Err(PoolError::Invalid(why)) => {
                            refused.push((limit.to_owned(), why));
                            waiting.push(limit);
                        }
                        done => done?,
                    }
                }
                if waiting.is_empty() || waiting.len() == all {
                    effects::follow(&dsl);
                    return Ok(refused);
                }
            }
        };
        self.checked_task(check, change).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbers_that_limit_something_are_taken() {
        let mut list = NvList::new();
        list.add_u64("quota", 7).add_u64("compression", 15).add_str("refquota", "9").add_u64("snapshot_limit", 3);
        let all = listed(&list, &BTreeSet::new());
        assert_eq!(all.keys().collect::<Vec<_>>(), ["quota", "snapshot_limit"]);
        assert!(listed(&list, &all.keys().cloned().collect()).is_empty());
    }

    #[test]
    fn no_quota_leaves_the_most_room() {
        assert!(is_looser(0, 5) && is_looser(6, 5));
        assert!(!is_looser(5, 5) && !is_looser(4, 5) && !is_looser(9, 0) && !is_looser(0, 0));
    }
}
