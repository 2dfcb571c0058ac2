//! `zfs allow` and `zfs unallow`: which permissions there are, and how what is allowed to whom travels.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::properties;

/// Who makes a data set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Creator {
    /// User number.
    pub uid: u32,
    /// Group number.
    pub gid: u32,
}

/// Permissions that are no properties' names (`zfs_deleg_perm_tab`, `module/zcommon/zfs_deleg.c`).
pub const PERMISSIONS: [&str; 34] = [
    "allow",
    "bookmark",
    "clone",
    "create",
    "destroy",
    "diff",
    "mount",
    "promote",
    "receive",
    "receive:append",
    "rename",
    "rollback",
    "snapshot",
    "share",
    "send",
    "send:raw",
    "send:encrypted",
    "userprop",
    "userquota",
    "groupquota",
    "userused",
    "groupused",
    "userobjquota",
    "groupobjquota",
    "userobjused",
    "groupobjused",
    "hold",
    "release",
    "load-key",
    "change-key",
    "projectused",
    "projectquota",
    "projectobjused",
    "projectobjquota",
];

/// Properties that are chosen when a data set is made, or that only volumes have.
const OTHER_PROPERTIES: [&str; 7] =
    ["casesensitivity", "normalization", "utf8only", "version", "volblocksize", "volsize", "volthreading"];

/// Names of properties, which are permissions to set them.
pub fn property_permissions() -> BTreeSet<&'static str> {
    let natives = properties::NATIVES.iter().map(|native| native.name);
    natives.chain(OTHER_PROPERTIES).filter(|name| *name != "mlslabel").collect()
}

/// The permission as it is stored (`zfs_deleg_canonicalize_perm`); none when there is none of that name.
pub fn canonical(name: &str) -> Option<&'static str> {
    if let Some(known) = PERMISSIONS.iter().find(|known| **known == name) {
        return Some(known);
    }
    let long = match name {
        "volblock" => "volblocksize",
        "case" => "casesensitivity",
        other => properties::find(other).map_or(other, |native| native.name),
    };
    property_permissions().get(long).copied()
}

/// Permissions and permission sets by key (`ul$1000`; see `platter_ondisk::dsl::PermissionKey`).
pub type ByKey = BTreeMap<String, BTreeSet<String>>;

/// Asks what is allowed at a data set and above it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetPermissions {
    /// Full name of a file system or volume.
    pub name: String,
}

/// Answer to [`GetPermissions`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Permissions {
    /// The data set and each above it, in this order, that allows anything.
    pub datasets: Vec<(String, ByKey)>,
}

/// `zfs allow`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// Full name of a file system or volume.
    pub name: String,
    /// What is allowed.
    pub granted: ByKey,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

/// `zfs unallow`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unallow {
    /// Full name of a file system or volume.
    pub name: String,
    /// What is allowed no longer; `null` stands for everything.
    pub revoked: BTreeMap<String, Option<BTreeSet<String>>>,
    /// At all data sets below too.
    #[serde(default)]
    pub recursive: bool,
    /// The command line, for the pool's history.
    #[serde(default)]
    pub command: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_operations_and_properties() {
        for name in ["snapshot", "send:raw", "compression", "volsize", "utf8only", "keylocation", "projectobjquota"] {
            assert_eq!(canonical(name), Some(name));
        }
        for (short, long) in [("compress", "compression"), ("recsize", "recordsize"), ("volblock", "volblocksize")] {
            assert_eq!(canonical(short), Some(long));
        }
        for name in ["", "snap", "used", "mlslabel", "@set", "a:b", "Snapshot", "type"] {
            assert_eq!(canonical(name), None, "{name}");
        }
    }
}
