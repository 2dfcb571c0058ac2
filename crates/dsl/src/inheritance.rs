//! The values in force: a property's own, or what a directory above has (`dsl_prop_get_dd`, `module/zfs/dsl_prop.c`).

use std::sync::Arc;

use crate::dir::Dir;
use crate::stored_property::StoredProperty;
use platter_api::properties::{Native, find};

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
