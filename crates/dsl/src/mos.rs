//! Names in the pool directory (object 1 of the MOS; the `DMU_POOL_*` constants of `include/sys/dmu.h`), and small helpers
//! to reach what they name.

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::ObjectId;

/// The pool directory's object number (`DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY_OBJECT: ObjectId = ObjectId(1);
/// The configuration nvlist's object.
pub const CONFIG: &str = "config";
/// The root `dsl_dir`.
pub const ROOT_DATASET: &str = "root_dataset";
/// The list of blocks freed in late sync passes.
pub const SYNC_BPOBJ: &str = "sync_bplist";
/// The list of blocks of destroyed data sets.
pub const FREE_BPOBJ: &str = "free_bpobj";
/// The shared empty bpobj.
pub const EMPTY_BPOBJ: &str = "empty_bpobj";
/// Feature reference counts needed to read.
pub const FEATURES_FOR_READ: &str = "features_for_read";
/// Feature reference counts needed to write.
pub const FEATURES_FOR_WRITE: &str = "features_for_write";
/// Feature descriptions.
pub const FEATURE_DESCRIPTIONS: &str = "feature_descriptions";
/// The groups in which features were enabled.
pub const FEATURE_ENABLED_TXG: &str = "feature_enabled_txg";
/// Version at creation.
pub const CREATION_VERSION: &str = "creation_version";
/// Whether space is accounted deflated.
pub const DEFLATE: &str = "deflate";
/// The history object.
pub const HISTORY: &str = "history";
/// Pool properties.
pub const PROPERTIES: &str = "pool_props";
/// The last scrub's errors.
pub const ERRLOG_SCRUB: &str = "errlog_scrub";
/// Errors since.
pub const ERRLOG_LAST: &str = "errlog_last";
/// The scan's state.
pub const SCAN: &str = "scan";
/// All per-vdev ZAPs.
pub const VDEV_ZAP_MAP: &str = "com.delphix:vdev_zap_map";
/// Log space maps by txg.
pub const LOG_SPACEMAP_ZAP: &str = "com.delphix:log_spacemap_zap";
/// Salt of keyed checksums.
pub const CHECKSUM_SALT: &str = "org.illumos:checksum_salt";

/// A plain ZAP's making, with the salt the caller drew.
pub fn new_zap(object_type: u8, salt: u64) -> NewZap {
    NewZap { object_type, normalization: 0, flags: 0, bonus_type: 0, bonus_length: 0, dnode_size: 0, salt }
}

/// Makes a plain ZAP and returns its number.
///
/// # Errors
/// Out of space, device errors.
pub async fn create_zap(mos: &Arc<Objset>, tx: &Tx, object_type: u8, salt: u64) -> Result<ObjectId> {
    Ok(Zap::create(mos, tx, None, new_zap(object_type, salt)).await?.dnode().object())
}

/// Adds number `value` to a ZAP under its lower-case hexadecimal name (`zap_add_int`).
///
/// # Errors
/// Device errors, damage.
pub async fn add_int(zap: &Zap, tx: &Tx, value: u64) -> Result<()> {
    zap.put_u64(tx, format!("{value:x}").as_bytes(), value).await
}

/// Adds `value` under number `key` (`zap_add_int_key`).
///
/// # Errors
/// Device errors, damage.
pub async fn put_int_key(zap: &Zap, tx: &Tx, key: u64, value: u64) -> Result<()> {
    zap.put_u64(tx, format!("{key:x}").as_bytes(), value).await
}

/// All `(key, value)` pairs of a ZAP keyed by hexadecimal numbers.
///
/// # Errors
/// Damage: a name that is no number.
pub async fn int_entries(zap: &Zap) -> Result<Vec<(u64, u64)>> {
    let mut pairs = Vec::new();
    for entry in zap.all().await? {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        let key = u64::from_str_radix(&name, 16)
            .map_err(|_| ZioError::corrupt("ZAP", format!("object {}: key {name:?} is no number", zap.dnode().object())))?;
        pairs.push((key, entry.value.integers.first().copied().unwrap_or(0)));
    }
    pairs.sort_unstable();
    Ok(pairs)
}
