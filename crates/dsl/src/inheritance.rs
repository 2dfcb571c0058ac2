//! The values in force: a property's own, or what a directory above has (`dsl_prop_get_dd`, `module/zfs/dsl_prop.c`).

use std::sync::Arc;

use platter_api::properties::{Native, find, is_user};
use platter_ondisk::dsl::dataset_flags;

use crate::dataset::Dataset;
use crate::dir::Dir;
use crate::pool::DslPool;
use crate::stored_property::StoredProperty;

/// The value in force for `dir`, with the directory it was set on (`None`: default).
pub fn lookup(dir: &Arc<Dir>, native: &Native) -> (Option<StoredProperty>, Option<Arc<Dir>>) {
    let mut at = Some(dir.clone());
    while let Some(here) = at {
        if let Some((value, _)) = here.own_property(native.name) {
            return (Some(value), Some(here));
        }
        at = if native.inherits { here.parent() } else { None };
    }
    (None, None)
}

/// The number in force for `dir`.
pub fn number(dir: &Arc<Dir>, name: &str) -> u64 {
    let native = find(name).expect("a property of the table");
    match lookup(dir, native).0 {
        Some(StoredProperty::Number(n)) => n,
        _ => native.default,
    }
}

/// A user property in force for one data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    /// The data set's full name.
    pub dataset: String,
    /// The value.
    pub value: String,
    /// Whether it came with a stream, here or where it is inherited from.
    pub received: bool,
}

impl DslPool {
    /// What user property `name` is for each data set that has one, by the data sets' names. Those that a receive has
    /// not finished are left out.
    pub fn in_force(&self, name: &str) -> Vec<InForce> {
        assert!(is_user(name), "others are in the table");
        let is_finished = |dataset: &Dataset| dataset.phys.lock().flags & dataset_flags::INCONSISTENT == 0;
        let datasets: Vec<(String, Arc<Dataset>)> = {
            let tree = self.tree.read();
            let finished = tree.datasets.iter().filter(|(_, dataset)| is_finished(dataset));
            finished.map(|(name, dataset)| (name.clone(), dataset.clone())).collect()
        };
        let value = |dataset: &Arc<Dataset>| {
            let mut at = Some(dataset.dir.clone());
            while let Some(here) = at {
                if let Some((StoredProperty::Text(value), received)) = here.own_property(name) {
                    return Some((value, received));
                }
                at = here.parent();
            }
            None
        };
        datasets
            .into_iter()
            .filter_map(|(dataset, of)| value(&of).map(|(value, received)| InForce { dataset, value, received }))
            .collect()
    }
}
