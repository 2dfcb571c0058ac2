//! A name as a ZAP stores and hashes it, and a value as bytes.

use platter_ondisk::zap::{FLAG_UINT64_KEY, NAME_LEN_MAX, VALUE_LEN_MAX, ZapDamage, hash_name, hash_words, name};
use platter_zio::{Result, ZioError};

use crate::zap_entries::value::ZapValue;

/// What names of one ZAP depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Naming {
    /// Start value of the hash.
    pub salt: u64,
    /// `u8_textprep` flags.
    pub normalization: u64,
    /// `zap_flags_t`.
    pub flags: u64,
}

/// A name ready for use with a ZAP.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// As stored in a leaf: with its terminating zero, or big-endian words.
    pub stored: Vec<u8>,
    /// Bytes of one integer of the name.
    pub integer_size: usize,
    /// `None` when the normal form is not known.
    pub hash: Option<u64>,
}

impl Naming {
    /// Whether names are arrays of words.
    pub fn is_words(&self) -> bool {
        self.flags & FLAG_UINT64_KEY != 0
    }

    /// Bytes of one integer of a stored name.
    pub fn integer_size(&self) -> usize {
        if self.is_words() { 8 } else { 1 }
    }

    /// The hash of `name`, or `None` when its normal form is not known.
    pub fn hash(&self, name: &[u8]) -> Option<u64> {
        if self.is_words() {
            let words: Vec<u64> =
                name.chunks_exact(8).map(|word| u64::from_be_bytes(word.try_into().expect("eight bytes"))).collect();
            return Some(hash_words(self.salt, &words, self.flags));
        }
        Some(hash_name(self.salt, &name::normalize(name, self.normalization)?, self.flags))
    }

    /// A hash good enough for an order of our own, when nothing on disk depends on it.
    pub fn hash_or_any(&self, name: &[u8]) -> u64 {
        self.hash(name).unwrap_or_else(|| hash_name(self.salt, name, self.flags))
    }

    /// Tells names that are the same as `name` under these flags, with `match_case` less the folding of case.
    pub fn same<'a>(&self, name: &'a [u8], match_case: bool) -> impl Fn(&[u8]) -> bool + use<'a> {
        let flags = if match_case { self.normalization & !name::TO_UPPER } else { self.normalization };
        let wanted = name::normalize(name, flags);
        move |other| match &wanted {
            Some(wanted) => name::normalize(other, flags).is_some_and(|other| other == *wanted),
            None => other == name,
        }
    }

    /// The key for `name`; `None` when no entry can have that name.
    pub fn key(&self, name: &[u8]) -> Option<Key> {
        let mut stored = Vec::with_capacity(name.len() + 1);
        stored.extend_from_slice(name);
        if self.is_words() {
            if name.is_empty() || !name.len().is_multiple_of(8) {
                return None;
            }
        } else {
            if name.is_empty() || name.contains(&0) {
                return None;
            }
            stored.push(0);
        }
        Some(Key { stored, integer_size: self.integer_size(), hash: self.hash(name) })
    }

    /// Checks that an entry of this name may be made, and returns its key and hash.
    ///
    /// # Errors
    /// [`ZioError::Invalid`] with the reason.
    pub fn key_for_writing(&self, name: &[u8]) -> Result<(Key, u64)> {
        let shown = || String::from_utf8_lossy(name);
        let key = self.key(name).ok_or_else(|| ZioError::Invalid(format!("\"{}\" cannot be a name here", shown())))?;
        if name.len() > NAME_LEN_MAX {
            return Err(ZioError::Invalid(format!(
                "the name is too long: {} bytes, at most {NAME_LEN_MAX} are possible",
                name.len()
            )));
        }
        match key.hash {
            Some(hash) => Ok((key, hash)),
            None => {
                Err(ZioError::Invalid(format!("cannot make \"{}\": its Unicode normal form is not known", shown())))
            }
        }
    }

    /// The name as callers know it, from its stored form.
    pub fn shown(&self, mut stored: Vec<u8>) -> Vec<u8> {
        if !self.is_words() {
            let end = stored.iter().position(|&byte| byte == 0).unwrap_or(stored.len());
            stored.truncate(end);
        }
        stored
    }
}

/// The value's integers as big-endian bytes.
///
/// # Errors
/// [`ZioError::Invalid`] for shapes no ZAP has, or an integer that does not fit its size.
pub(crate) fn value_bytes(value: &ZapValue) -> Result<Vec<u8>> {
    let size = usize::from(value.integer_size);
    if !matches!(size, 1 | 2 | 4 | 8) || size * value.integers.len() > VALUE_LEN_MAX {
        return Err(ZioError::Invalid(format!("a ZAP value of {} integers of {size} bytes", value.integers.len())));
    }
    let mut bytes = Vec::with_capacity(size * value.integers.len());
    for integer in &value.integers {
        if size < 8 && integer >> (8 * size) != 0 {
            return Err(ZioError::Invalid(format!("{integer:#x} in a ZAP value of {size}-byte integers")));
        }
        bytes.extend_from_slice(&integer.to_be_bytes()[8 - size..]);
    }
    Ok(bytes)
}

/// The value that these big-endian bytes stand for.
pub(crate) fn value_from_bytes(integer_size: u8, bytes: &[u8]) -> ZapValue {
    let integers = bytes
        .chunks_exact(usize::from(integer_size))
        .map(|chunk| chunk.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte)))
        .collect();
    ZapValue { integer_size, integers }
}

/// A damaged block as the pipeline's error.
pub(crate) fn damaged(object: platter_ondisk::ObjectId) -> impl Fn(ZapDamage) -> ZioError {
    move |damage| ZioError::corrupt(damage.what, format!("object {object}: {}", damage.detail))
}
