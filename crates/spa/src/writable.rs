//! Whether a pool that was found can be read, and written: by its features, its vdevs, and what its directory names.

use platter_dmu::zap::Zap;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::features::{self, Features};
use platter_dsl::mos;

use crate::config::{PoolConfig, VdevConfig};

/// Whether a pool with these features and vdevs can be opened.
///
/// # Errors
/// In OpenZFS's words, what it has that this version cannot read, or cannot write.
pub fn check_features(features: &Features, config: &PoolConfig, read_only: bool) -> Result<()> {
    let active = features.active();
    let unreadable: Vec<&str> =
        active.iter().filter(|(g, read)| *read && !features::is_readable(g)).map(|(g, _)| &**g).collect();
    if !unreadable.is_empty() {
        return Err(PoolError::Unsupported(format!(
            "unsupported feature(s)\nThis pool uses the following feature(s) not supported by this system:\n\t{}",
            unreadable.join("\n\t")
        )));
    }
    if read_only {
        return Ok(());
    }
    let unwritable = unwritable_features(features);
    let hint = "The pool cannot be imported in read-write mode. Import the pool with\n\t\"-o readonly=on\", \
                access the pool \
                on a system that supports the\n\trequired feature(s), or recreate the pool from backup.";
    if !unwritable.is_empty() {
        return Err(PoolError::Unsupported(format!(
            "unsupported feature(s)\nThis pool uses the following feature(s) that this version can read but not \
             write:\n\t{}\n{hint}",
            unwritable.join("\n\t")
        )));
    }
    if let Some(top) = special(config) {
        return Err(PoolError::Unsupported(format!(
            "vdev {} has an allocation class, which this version can read but not write\n{hint}",
            top.id
        )));
    }
    Ok(())
}

/// Active features that keep a pool from being written.
pub fn unwritable_features(features: &Features) -> Vec<String> {
    features.active().into_iter().map(|(guid, _)| guid).filter(|guid| !features::is_writable(guid)).collect()
}

/// A vdev of an allocation class that is none for logs.
pub fn special(config: &PoolConfig) -> Option<&VdevConfig> {
    config.vdev_tree.children.iter().find(|top| top.other.contains("alloc_bias") && !top.is_log)
}

/// Names in the pool directory that stand for work or tables that this version cannot write.
const UNWRITABLE_ENTRIES: [(&str, &str); 5] = [
    ("scrub_bookmark", "a scrub that older software has not finished"),
    ("DDT-log-", "logs of deduplication tables"),
    ("com.delphix:removing", "a device removal"),
    ("com.delphix:zpool_checkpoint", "a checkpoint"),
    ("com.fudosecurity:brt", "cloned blocks"),
];

/// What the pool directory has of [`UNWRITABLE_ENTRIES`], in words.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn unwritable_entry(directory: &Zap) -> Result<Option<&'static str>> {
    for entry in directory.all().await? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let found = UNWRITABLE_ENTRIES.iter().find(|(prefix, _)| name.starts_with(prefix) && name != mos::DDT_STATS);
        if let Some((_, what)) = found {
            return Ok(Some(what));
        }
    }
    Ok(None)
}

/// Whether a pool with this directory can be written.
///
/// # Errors
/// It has something that this version cannot write; damage, unreadable blocks.
pub async fn check_directory(directory: &Zap) -> Result<()> {
    match unwritable_entry(directory).await? {
        Some(what) => Err(PoolError::Unsupported(format!(
            "the pool has {what}, which this version can read but not write\nImport the pool with \
             \"-o readonly=on\"."
        ))),
        None => Ok(()),
    }
}
