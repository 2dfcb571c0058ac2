//! A property as a directory stores it (`dsl_prop_get_dd`, `module/zfs/dsl_prop.c`).

use platter_dmu::zap::ZapValue;

/// Ends of the names under which a received value is stored, and of the mark that it is not in force
/// (`ZPROP_RECVD_SUFFIX`, `ZPROP_INHERIT_SUFFIX`).
pub const RECEIVED: &str = "$recvd";
/// See [`RECEIVED`].
pub const INHERIT: &str = "$inherit";

/// A locally set property as stored: a number for native numeric and index properties, text for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredProperty {
    /// One 8-byte integer.
    Number(u64),
    /// A string.
    Text(String),
}

impl StoredProperty {
    /// As it stands in the ZAP.
    pub fn to_zap(&self) -> ZapValue {
        match self {
            Self::Number(n) => ZapValue { integer_size: 8, integers: vec![*n] },
            Self::Text(text) => {
                ZapValue { integer_size: 1, integers: text.bytes().chain([0]).map(u64::from).collect() }
            }
        }
    }

    /// From what stands in the ZAP.
    pub fn from_zap(value: &ZapValue) -> Self {
        if value.integer_size == 1 {
            let bytes: Vec<u8> = value.integers.iter().map(|&n| n as u8).take_while(|&b| b != 0).collect();
            Self::Text(String::from_utf8_lossy(&bytes).into_owned())
        } else {
            Self::Number(value.integers.first().copied().unwrap_or(0))
        }
    }
}
