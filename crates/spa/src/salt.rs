//! The salt of the pool's keyed checksums: 32 random bytes in the pool directory (`spa_cksum_salt`,
//! `module/zfs/spa.c`).
//!
//! Invariants: the salt is on disk with, or before, the first block that depends on it; it never changes.

use platter_checksum::SALT_SIZE;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{Result, Tx, ZioError};
use platter_zio::Store;

use crate::environment::Environment;
use platter_dsl::mos;

/// Hands the pool's salt to `store`, if the pool has one.
///
/// # Errors
/// Unreadable blocks; a salt of another size.
pub async fn load(directory: &Zap, store: &Store) -> Result<()> {
    assert!(!store.has_salt(), "a pool's salt never changes");
    let Some(value) = directory.get(mos::CHECKSUM_SALT.as_bytes()).await? else { return Ok(()) };
    let bytes: Vec<u8> = value.integers.iter().filter_map(|&byte| u8::try_from(byte).ok()).collect();
    let wrong = || ZioError::corrupt("pool directory", "the checksum salt is not 32 bytes long");
    store.set_salt(<[u8; SALT_SIZE]>::try_from(bytes.as_slice()).map_err(|_| wrong())?);
    Ok(())
}

/// Makes a salt for a pool that has none yet, and writes it to the directory.
///
/// # Errors
/// Out of space, device errors.
pub async fn create_if_missing(directory: &Zap, store: &Store, tx: &Tx, environment: &Environment) -> Result<()> {
    if store.has_salt() {
        return Ok(());
    }
    let mut salt = [0; SALT_SIZE];
    for chunk in salt.as_chunks_mut::<8>().0 {
        *chunk = environment.random_u64().to_le_bytes();
    }
    let integers = salt.iter().map(|&byte| u64::from(byte)).collect();
    directory.put(tx, mos::CHECKSUM_SALT.as_bytes(), &ZapValue { integer_size: 1, integers }).await?;
    store.set_salt(salt);
    Ok(())
}
