//! Names in the pool directory (object 1 of the MOS; the `DMU_POOL_*` constants of `include/sys/dmu.h`), and small
//! helpers to reach what they name.

use std::sync::Arc;

use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::ObjectId;

pub use platter_ondisk::names::pool_directory::*;

/// The pool directory's object number (`DMU_POOL_DIRECTORY_OBJECT`).
pub const DIRECTORY_OBJECT: ObjectId = ObjectId(1);
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
        let key = u64::from_str_radix(&name, 16).map_err(|_| {
            ZioError::corrupt("ZAP", format!("object {}: key {name:?} is no number", zap.dnode().object()))
        })?;
        pairs.push((key, entry.value.integers.first().copied().unwrap_or(0)));
    }
    pairs.sort_unstable();
    Ok(pairs)
}
