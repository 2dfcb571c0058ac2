//! A property as a directory stores it (`dsl_prop_get_dd`, `module/zfs/dsl_prop.c`).

pub use platter_api::stored_property::StoredProperty;
use platter_dmu::zap::ZapValue;

/// Ends of the names under which a received value is stored, and of the mark that it is not in force
/// (`ZPROP_RECVD_SUFFIX`, `ZPROP_INHERIT_SUFFIX`).
pub const RECEIVED: &str = "$recvd";
/// See [`RECEIVED`].
pub const INHERIT: &str = "$inherit";

/// End of the name under which a value stands that OpenZFS before 2.2 does not know, where the plain name has the
/// default (`ZPROP_IUV_SUFFIX`, `dsl_prop_set_iuv`).
pub const NEWER: &str = "$iuv";

/// Whether older software does not know this value of `name`.
pub fn is_newer(name: &str, value: &StoredProperty) -> bool {
    match (name, value) {
        // "some" and "none"; "disabled".
        ("redundant_metadata", StoredProperty::Number(2 | 3)) | ("snapdir", StoredProperty::Number(2)) => true,
        _ => false,
    }
}

/// As it stands in the ZAP.
pub fn to_zap(value: &StoredProperty) -> ZapValue {
    match value {
        StoredProperty::Number(n) => ZapValue { integer_size: 8, integers: vec![*n] },
        StoredProperty::Text(text) => {
            ZapValue { integer_size: 1, integers: text.bytes().chain([0]).map(u64::from).collect() }
        }
    }
}

/// From what stands in the ZAP.
pub fn from_zap(value: &ZapValue) -> StoredProperty {
    if value.integer_size == 1 {
        let bytes: Vec<u8> = value.integers.iter().map(|&n| n as u8).take_while(|&b| b != 0).collect();
        StoredProperty::Text(String::from_utf8_lossy(&bytes).into_owned())
    } else {
        StoredProperty::Number(value.integers.first().copied().unwrap_or(0))
    }
}
