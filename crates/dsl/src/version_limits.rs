//! What a pool's version and features let a file system be (`zfs_fill_zplprops_impl`, `zfs_check_settable` in
//! `module/zfs/zfs_ioctl.c`).

use platter_ondisk::features::Feature;
use std::collections::BTreeMap;

use crate::error::{PoolError, Result};
use crate::features::Features;
use crate::stored_property::StoredProperty;
use crate::version::PoolVersion;

/// Oldest version of file systems that is made.
const ZPL_VERSION_MIN: u64 = 3;
/// Newest version of file systems (`ZPL_VERSION`).
const ZPL_VERSION_MAX: u64 = 5;
/// Largest record without the feature `large_blocks` (`SPA_OLD_MAXBLOCKSIZE`).
const RECORD_MAX: u64 = 128 << 10;

/// The version of a new file system in a pool of this version: the one asked for, or with 0 the newest that fits.
///
/// # Errors
/// A version that does not exist or that the pool is too old for.
pub fn zpl_version(pool: PoolVersion, wanted: u64) -> Result<u64> {
    if wanted == 0 {
        return Ok(pool.zpl_version_max());
    }
    if !(ZPL_VERSION_MIN..=ZPL_VERSION_MAX).contains(&wanted) {
        return Err(PoolError::invalid(format!(
            "file system version {wanted} cannot be made, only {ZPL_VERSION_MIN} to {ZPL_VERSION_MAX}"
        )));
    }
    if wanted > pool.zpl_version_max() {
        let needed = PoolVersion::needed_by_zpl(wanted);
        return Err(PoolError::invalid(format!(
            "pool version {pool} is too old for file system version {wanted}, which needs {needed}\nuse 'zpool \
             upgrade' to upgrade the pool first"
        )));
    }
    Ok(wanted)
}

/// Fails when a pool of this version with these features cannot act on a property's value.
///
/// # Errors
/// The property, and what the pool lacks.
pub fn check(name: &str, value: &StoredProperty, pool: PoolVersion, features: &Features) -> Result<()> {
    let StoredProperty::Number(number) = value else { return Ok(()) };
    let lacks = |what: &str| {
        Err(PoolError::Unsupported(format!(
            "property '{name}' cannot be set to this value: pool must be upgraded to set it, it lacks {what}"
        )))
    };
    let feature = |feature: Feature, what: &str| if features.is_enabled(feature) { Ok(()) } else { lacks(what) };
    match (name, number & 0x7f) {
        ("compression", 14) if !pool.has_zle() => lacks("pool version 20"),
        ("compression", 15) => feature(Feature::Lz4Compress, "the feature 'lz4_compress'"),
        ("recordsize", _) if *number > RECORD_MAX => feature(Feature::LargeBlocks, "the feature 'large_blocks'"),
        _ => Ok(()),
    }
}

/// Checks a set of properties.
///
/// # Errors
/// As [`check`].
pub fn check_all(values: &BTreeMap<String, StoredProperty>, pool: PoolVersion, features: &Features) -> Result<()> {
    values.iter().try_for_each(|(name, value)| check(name, value, pool, features))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_is_no_newer_than_its_pool() {
        assert_eq!(zpl_version(PoolVersion(23), 0).unwrap(), 4);
        assert_eq!(zpl_version(PoolVersion(28), 0).unwrap(), 5);
        assert_eq!(zpl_version(PoolVersion(5000), 3).unwrap(), 3);
        for (version, pool) in [(5, 23), (2, 28), (6, 5000)] {
            assert!(zpl_version(PoolVersion(pool), version).is_err(), "{version} in {pool}");
        }
    }
}
