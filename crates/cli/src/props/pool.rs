//! Properties of pools, in the order of `zpool get all`.

use platter_api::messages::PoolView;
use platter_api::report::PropertySource;

use super::select::Wanted;
use super::{Info, Kind, Shown};

const fn info(name: &'static str, column: &'static str, kind: Kind) -> Info {
    Info { name, column, kind, visible: true }
}

/// All native properties.
pub const TABLE: &[Info] = &[
    Info { name: "name", column: "NAME", kind: Kind::Text, visible: false },
    info("size", "SIZE", Kind::Number),
    info("capacity", "CAP", Kind::Percent),
    info("altroot", "ALTROOT", Kind::Text),
    // A number inside OpenZFS, and so to the right: `select::HEALTH_WIDTH`.
    info("health", "HEALTH", Kind::Number),
    info("guid", "GUID", Kind::Identifier),
    info("version", "VERSION", Kind::PoolVersion),
    info("bootfs", "BOOTFS", Kind::Text),
    info("delegation", "DELEGATION", Kind::Word(3)),
    info("autoreplace", "REPLACE", Kind::Word(3)),
    info("cachefile", "CACHEFILE", Kind::Text),
    info("failmode", "FAILMODE", Kind::Word(8)),
    info("listsnapshots", "LISTSNAPS", Kind::Word(3)),
    info("autoexpand", "EXPAND", Kind::Word(3)),
    info("dedupratio", "DEDUP", Kind::Ratio),
    info("free", "FREE", Kind::Number),
    info("allocated", "ALLOC", Kind::Number),
    info("readonly", "RDONLY", Kind::Word(3)),
    info("ashift", "ASHIFT", Kind::Number),
    info("comment", "COMMENT", Kind::Text),
    info("expandsize", "EXPANDSZ", Kind::BytesOrDash),
    info("freeing", "FREEING", Kind::Number),
    info("fragmentation", "FRAG", Kind::Percent),
    info("leaked", "LEAKED", Kind::Number),
    info("multihost", "MULTIHOST", Kind::Word(3)),
    info("checkpoint", "CKPOINT", Kind::BytesOrDash),
    info("load_guid", "LOAD_GUID", Kind::Identifier),
    info("autotrim", "AUTOTRIM", Kind::Word(3)),
    info("compatibility", "COMPATIBILITY", Kind::Text),
    info("bcloneused", "BCLONE_USED", Kind::Number),
    info("bclonesaved", "BCLONE_SAVED", Kind::Number),
    info("bcloneratio", "BCLONE_RATIO", Kind::Ratio),
    info("dedup_table_size", "DDTSIZE", Kind::Number),
    info("dedup_table_quota", "DDTQUOTA", Kind::DedupQuota),
    info("last_scrubbed_txg", "LAST_SCRUBBED_TXG", Kind::Identifier),
];

/// Features in the order of OpenZFS's table.
pub const FEATURES: &[&str] = &[
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "multi_vdev_crash_dump",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "bookmarks",
    "filesystem_limits",
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "device_removal",
    "obsolete_counts",
    "zpool_checkpoint",
    "spacemap_v2",
    "allocation_classes",
    "resilver_defer",
    "bookmark_v2",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "log_spacemap",
    "livelist",
    "device_rebuild",
    "zstd_compress",
    "draid",
    "zilsaxattr",
    "head_errlog",
    "blake3",
    "block_cloning",
    "vdev_zaps_v2",
    "redaction_list_spill",
    "raidz_expansion",
    "fast_dedup",
    "longname",
    "large_microzap",
];

/// Finds a property by its name or its column's.
pub fn find(name: &str) -> Option<&'static Info> {
    TABLE.iter().find(|info| info.name == name || info.column.eq_ignore_ascii_case(name))
}

/// Properties of `zpool get all` for these pools: the native ones, user properties, features in their order, unknown
/// features.
pub fn all(pools: &[PoolView]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = TABLE.iter().filter(|info| info.visible).map(Wanted::Native).collect();
    let mut names: Vec<&String> = pools.iter().flat_map(|pool| pool.properties.keys()).collect();
    names.sort();
    names.dedup();
    let user = names.iter().filter(|name| name.contains(':'));
    wanted.extend(user.map(|name| Wanted::Other((*name).clone())));
    wanted.extend(FEATURES.iter().map(|feature| Wanted::Other(format!("feature@{feature}"))));
    let unknown = names.iter().filter(|name| {
        name.starts_with("unsupported@")
            || name.strip_prefix("feature@").is_some_and(|feature| !FEATURES.contains(&feature))
    });
    wanted.extend(unknown.map(|name| Wanted::Other((*name).clone())));
    wanted
}

/// The value of a property for a pool; `None` when it has none at all.
pub fn value(pool: &PoolView, wanted: &Wanted, literal: bool) -> Option<Shown> {
    let name = wanted.name();
    match name {
        "name" => return Some(Shown { value: pool.report.name.clone(), source: PropertySource::None }),
        "health" => return Some(Shown { value: health(pool).to_owned(), source: PropertySource::None }),
        "guid" if !pool.properties.contains_key("guid") => {
            return Some(Shown { value: pool.report.guid.to_string(), source: PropertySource::None });
        }
        _ => {}
    }
    let property = pool.properties.get(name);
    match wanted {
        Wanted::Native(info) => match property {
            Some(property) => Shown::of(info, property, literal),
            // A pool that could not be opened has no numbers.
            None => Some(Shown::nothing()),
        },
        // A user property that nobody set.
        Wanted::Other(name) if property.is_none() && name.contains(':') => {
            Some(Shown { value: "-".to_owned(), source: PropertySource::Default })
        }
        Wanted::Other(_) => property.map(|property| Shown {
            value: match &property.value {
                platter_api::report::PropertyValue::Text(text) => text.clone(),
                platter_api::report::PropertyValue::Number(number) => number.to_string(),
            },
            source: property.source.clone(),
        }),
    }
}

/// The health of a pool, "SUSPENDED" included.
pub fn health(pool: &PoolView) -> &str {
    if pool.report.suspended { "SUSPENDED" } else { &pool.report.state }
}
