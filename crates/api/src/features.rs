//! Which features this version creates pools with, writes and reads.

use std::collections::BTreeSet;

use platter_ondisk::features::{FEATURES, FeatureInfo};

/// Features that a pool gets when Platter creates it, in the order they are enabled (dependencies first).
pub const CREATED: [&str; 21] = [
    "com.delphix:async_destroy",
    "com.delphix:empty_bpobj",
    "org.illumos:lz4_compress",
    "com.delphix:spacemap_histogram",
    "com.delphix:enabled_txg",
    "com.delphix:hole_birth",
    "com.delphix:extensible_dataset",
    "com.delphix:embedded_data",
    "org.open-zfs:large_blocks",
    "org.freebsd:zstd_compress",
    "com.joyent:filesystem_limits",
    "org.zfsonlinux:large_dnode",
    "org.zfsonlinux:userobj_accounting",
    "org.zfsonlinux:project_quota",
    "org.illumos:sha512",
    "org.illumos:skein",
    "org.illumos:edonr",
    "org.openzfs:blake3",
    "com.delphix:spacemap_v2",
    "com.delphix:log_spacemap",
    "org.openzfs:zilsaxattr",
];

/// Further features that may be active in a pool that is opened for writing: what they changed on disk is kept as it
/// is.
const WRITABLE_TOO: [&str; 7] = [
    "org.openzfs:device_rebuild",
    "com.datto:resilver_defer",
    "com.klarasystems:vdev_zaps_v2",
    "com.joyent:multi_vdev_crash_dump",
    "com.delphix:head_errlog",
    "org.zfsonlinux:allocation_classes",
    "org.zfsonlinux:longname",
];

/// Further features that may be active in a pool that is opened read-only.
const READABLE_TOO: [&str; 6] = [
    "com.delphix:bookmarks",
    "com.datto:bookmark_v2",
    "com.datto:encryption",
    "com.delphix:livelist",
    "com.fudosecurity:block_cloning",
    "com.delphix:bookmark_written",
];

/// Whether a pool in which `guid` is active can be written.
pub fn is_writable(guid: &str) -> bool {
    CREATED.contains(&guid) || WRITABLE_TOO.contains(&guid)
}

/// Whether a pool in which `guid` is active can be read.
pub fn is_readable(guid: &str) -> bool {
    is_writable(guid) || READABLE_TOO.contains(&guid)
}

/// The features of a new pool when `disabled` ones are left out, with what depends on them, and `enabled` ones are
/// asked for by name, with what they depend on; in the order of [`CREATED`].
pub fn chosen(disabled: &BTreeSet<&'static str>, enabled: &BTreeSet<&'static str>) -> Vec<&'static str> {
    let needs = |guid: &str| -> Vec<&'static str> {
        let depends = lookup(guid).map_or(&[][..], |info| info.depends);
        depends
            .iter()
            .filter_map(|needed| FEATURES.iter().find(|info| info.feature == *needed))
            .map(|i| i.guid)
            .collect()
    };
    let mut chosen: BTreeSet<&'static str> = CREATED.iter().copied().filter(|guid| !disabled.contains(guid)).collect();
    // Dependencies are one or two steps deep; both loops end when nothing changes.
    loop {
        let before = chosen.len();
        chosen =
            chosen.iter().copied().filter(|guid| needs(guid).iter().all(|needed| chosen.contains(needed))).collect();
        if chosen.len() == before {
            break;
        }
    }
    chosen.extend(enabled);
    loop {
        let needed: Vec<&'static str> = chosen.iter().flat_map(|guid| needs(guid)).collect();
        let before = chosen.len();
        chosen.extend(needed);
        if chosen.len() == before {
            return CREATED.iter().copied().filter(|guid| chosen.contains(guid)).collect();
        }
    }
}

/// A feature's description in the format's table.
pub fn lookup(guid: &str) -> Option<&'static FeatureInfo> {
    FEATURES.iter().find(|feature| feature.guid == guid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_come_and_go_with_what_they_need() {
        let none = BTreeSet::new();
        assert_eq!(chosen(&none, &none), CREATED);
        let without = chosen(&BTreeSet::from(["com.delphix:spacemap_v2"]), &none);
        assert!(!without.contains(&"com.delphix:log_spacemap") && without.contains(&"com.delphix:hole_birth"));
        let all = CREATED.iter().copied().collect();
        let only = chosen(&all, &BTreeSet::from(["org.open-zfs:large_blocks"]));
        assert_eq!(only, ["com.delphix:extensible_dataset", "org.open-zfs:large_blocks"]);
    }
}
