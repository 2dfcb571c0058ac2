//! ZAPs of numbers, each under its lower-case hexadecimal name (`module/zfs/zap_micro.c`, `zap_add_int` and its like).

use platter_zio::{Result, Tx, ZioError};

use crate::zap::live::Zap;

fn name(number: u64) -> String {
    format!("{number:x}")
}

impl Zap {
    /// Puts `number` into a set of numbers (`zap_add_int`).
    ///
    /// # Errors
    /// Out of space, device errors, damage.
    pub async fn add_int(&self, tx: &Tx, number: u64) -> Result<()> {
        self.put_int(tx, number, number).await
    }

    /// Puts `value` under number `key` (`zap_add_int_key`).
    ///
    /// # Errors
    /// Out of space, device errors, damage.
    pub async fn put_int(&self, tx: &Tx, key: u64, value: u64) -> Result<()> {
        self.put_u64(tx, name(key).as_bytes(), value).await
    }

    /// The value under number `key` (`zap_lookup_int_key`).
    ///
    /// # Errors
    /// As [`Zap::get_u64`].
    pub async fn get_int(&self, key: u64) -> Result<Option<u64>> {
        self.get_u64(name(key).as_bytes()).await
    }

    /// Takes out number `key`; whether it was there (`zap_remove_int`).
    ///
    /// # Errors
    /// Device errors, damage.
    pub async fn remove_int(&self, tx: &Tx, key: u64) -> Result<bool> {
        self.remove(tx, name(key).as_bytes()).await
    }

    /// All numbers with their values, by number.
    ///
    /// # Errors
    /// Damage: a name that is no number; device errors.
    pub async fn ints(&self) -> Result<Vec<(u64, u64)>> {
        let mut pairs = Vec::new();
        for entry in self.all().await? {
            let name = String::from_utf8_lossy(&entry.name);
            let key = u64::from_str_radix(&name, 16).map_err(|_| {
                ZioError::corrupt("ZAP", format!("object {}: key {name:?} is no number", self.dnode().object()))
            })?;
            pairs.push((key, entry.value.integers.first().copied().unwrap_or(0)));
        }
        pairs.sort_unstable();
        Ok(pairs)
    }
}
