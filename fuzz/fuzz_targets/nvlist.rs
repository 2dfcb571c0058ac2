#![no_main]
//! Lists in all encodings.

use libfuzzer_sys::fuzz_target;
use platter_nvlist::{Endian, NvList, Value};

/// A NaN differs from itself, so such lists cannot be compared.
fn has_nan(list: &NvList) -> bool {
    list.iter().any(|(_, value)| match value {
        Value::Double(v) => v.is_nan(),
        Value::List(list) => has_nan(list),
        Value::ListArray(lists) => lists.iter().any(has_nan),
        _ => false,
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = NvList::decode(bytes) else { return };
    let _ = list.to_string();
    let encodings = [list.encode_xdr(), list.encode_native_as(Endian::Little), list.encode_native_as(Endian::Big)];
    for encoded in encodings {
        let again = NvList::decode(&encoded).expect("what was encoded decodes");
        assert!(has_nan(&list) || again == list);
    }
});
