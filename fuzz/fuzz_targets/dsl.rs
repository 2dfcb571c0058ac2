#![no_main]
//! The DSL's bonus buffers and arrays, and keys of delegated permissions.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::dsl::{
    BpobjPhys, BptreeEntryPhys, BptreePhys, DeadlistPhys, DslDatasetPhys, DslDirPhys, ErrorScrubPhys, PermissionKey,
    ScanPhys,
};

macro_rules! both_ways {
    ($bytes:expr, $($type:ty),*) => {
        $(if let Ok(value) = <$type>::decode($bytes) {
            assert_eq!(<$type>::decode(&value.encode()).expect("what was encoded decodes"), value);
        })*
    };
}

fuzz_target!(|bytes: &[u8]| {
    both_ways!(bytes, DslDirPhys, DslDatasetPhys, BpobjPhys, DeadlistPhys, BptreePhys, BptreeEntryPhys);
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word)).collect();
    both_ways!(&words, ScanPhys, ErrorScrubPhys);
    if let Ok(key) = PermissionKey::decode(bytes) {
        assert_eq!(key.to_string().as_bytes(), bytes);
    }
});
