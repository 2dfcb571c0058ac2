//! ZAPs of numbers, each under its lower-case hexadecimal name (`module/zfs/zap_micro.c`, `zap_add_int` and its like).
//!
//! A deadlist has a key for each snapshot, is looked through by each group that frees what a snapshot has, and is
//! copied for the next snapshot. So the numbers of such a copy stay in memory, and move on to the copy of that: one
//! list for each data set that gets snapshots.

use platter_zio::{Result, Tx, ZioError};

use crate::zap::fat::IfPresent;
use crate::zap::live::Zap;
use crate::zap_entries::value::{ZapEntry, ZapValue};

/// Of more numbers no list stays in memory (1 MiB).
const KEPT_MAX: usize = 1 << 16;

/// What a number is called.
pub(super) fn name(number: u64) -> String {
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
        let _guard = self.shared().lock.write().await;
        // Not known meanwhile: if the change fails, it is read from what is there.
        let known = self.shared().numbers.lock().take();
        self.set_locked(tx, name(key).as_bytes(), &ZapValue::from_u64(value), IfPresent::Replace).await?;
        self.keep(known, |known| match known.binary_search_by_key(&key, |&(other, _)| other) {
            Ok(at) => known[at].1 = value,
            Err(at) => known.insert(at, (key, value)),
        });
        Ok(())
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
        let _guard = self.shared().lock.write().await;
        let known = self.shared().numbers.lock().take();
        let was_there = self.remove_locked(tx, name(key).as_bytes()).await?;
        let at = known.as_ref().and_then(|known| known.binary_search_by_key(&key, |&(other, _)| other).ok());
        // A damaged one has entries where nobody looks for them: what is known of that is of no use.
        let known = known.filter(|_| at.is_some() == was_there);
        self.keep(known, |known| {
            if let Some(at) = at {
                known.remove(at);
            }
        });
        Ok(was_there)
    }

    /// Keeps what is known of the numbers, after a change. Call with the lock held for writing.
    pub(super) fn keep(&self, known: Option<Vec<(u64, u64)>>, change: impl FnOnce(&mut Vec<(u64, u64)>)) {
        if let Some(mut known) = known {
            change(&mut known);
            debug_assert!(known.is_sorted_by(|a, b| a.0 < b.0), "each number is there once");
            *self.shared().numbers.lock() = Some(known).filter(|known| known.len() <= KEPT_MAX);
        }
    }

    /// Takes what memory knows of the numbers, or reads them; `None` when they are not plainly numbers, each under its
    /// own name. Call with the lock held.
    ///
    /// # Errors
    /// Damage, device errors.
    pub(super) async fn take_numbers(&self) -> Result<Option<Vec<(u64, u64)>>> {
        if let Some(known) = self.shared().numbers.lock().take() {
            return Ok(Some(known));
        }
        let plain = |entry: ZapEntry| {
            let key = u64::from_str_radix(std::str::from_utf8(&entry.name).ok()?, 16).ok()?;
            let is_own = name(key).as_bytes() == entry.name;
            Some((key, entry.value.as_u64()?)).filter(|_| is_own)
        };
        let pairs: Option<Vec<(u64, u64)>> = self.entries_locked(0, usize::MAX).await?.into_iter().map(plain).collect();
        let sorted = pairs.map(|mut pairs| {
            pairs.sort_unstable();
            pairs
        });
        Ok(sorted.filter(|pairs| pairs.is_sorted_by(|a, b| a.0 < b.0)))
    }

    /// All numbers with their values, by number.
    ///
    /// # Errors
    /// Damage: a name that is no number; device errors.
    pub async fn ints(&self) -> Result<Vec<(u64, u64)>> {
        {
            let _guard = self.shared().lock.read().await;
            if let Some(known) = &*self.shared().numbers.lock() {
                return Ok(known.clone());
            }
        }
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
