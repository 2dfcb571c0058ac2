//! Properties of pools, in the order of `zpool get all`.

use std::sync::LazyLock;

use platter_api::messages::PoolView;
use platter_api::pool_properties::{self, Access, PoolProperty, Values};
use platter_api::report::PropertySource;

use super::select::Wanted;
use super::{Info, Kind, Shown};

/// How a property is shown.
fn info(property: &PoolProperty) -> Info {
    let kind = match property.values {
        Values::Words { all, .. } => Kind::Word(all.iter().map(|word| word.len()).max().unwrap_or(0)),
        Values::Text => Kind::Text,
        Values::Number => Kind::Number,
        Values::Identifier => Kind::Identifier,
        Values::BytesOrNone => Kind::BytesOrDash,
        Values::Percent => Kind::Percent,
        Values::Ratio => Kind::Ratio,
        Values::PoolVersion => Kind::PoolVersion,
        Values::DedupQuota => Kind::DedupQuota,
    };
    Info { name: property.name, column: property.column, kind, visible: property.access != Access::Hidden }
}

/// All native properties.
static TABLE: LazyLock<Vec<Info>> = LazyLock::new(|| pool_properties::TABLE.iter().map(info).collect());

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
