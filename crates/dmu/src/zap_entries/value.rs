//! What a ZAP has under a name.

/// A value: integers of 1, 2, 4 or 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapValue {
    /// Size of one integer in bytes.
    pub integer_size: u8,
    /// The integers, widened.
    pub integers: Vec<u64>,
}

impl ZapValue {
    /// One 8-byte integer.
    pub fn from_u64(value: u64) -> Self {
        Self { integer_size: 8, integers: vec![value] }
    }

    /// An array of bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { integer_size: 1, integers: bytes.iter().map(|&byte| u64::from(byte)).collect() }
    }

    /// A string property's value: its bytes and a terminating zero.
    pub fn from_string(text: &str) -> Self {
        let mut value = Self::from_bytes(text.as_bytes());
        value.integers.push(0);
        value
    }

    /// The bytes of an array of bytes; `None` for wider integers.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        (self.integer_size == 1).then(|| self.integers.iter().map(|&byte| byte as u8).collect())
    }

    /// The text of an array of bytes up to its terminating zero; `None` for other shapes or invalid UTF-8.
    pub fn to_text(&self) -> Option<String> {
        let mut bytes = self.to_bytes()?;
        bytes.truncate(bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()));
        String::from_utf8(bytes).ok()
    }

    pub(crate) fn as_u64(&self) -> Option<u64> {
        (self.integer_size == 8 && self.integers.len() == 1).then(|| self.integers[0])
    }
}

/// One entry met while iterating.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZapEntry {
    /// Name bytes without the terminating zero (for uint64-key ZAPs: the key's big-endian bytes).
    pub name: Vec<u8>,
    /// Its value.
    pub value: ZapValue,
    /// Serialised cursor that resumes *after* this entry (hash and collision differentiator as in
    /// `zap_cursor_serialize`), stable across other entries' insertion and removal. `u64::MAX` means the end.
    pub cursor: u64,
}
