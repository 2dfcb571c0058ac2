#![no_main]
//! Gang headers of any size.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::gang;

fuzz_target!(|bytes: &[u8]| {
    let _ = gang::verify(bytes, [0; 4], |_| [0; 4]);
    assert_eq!(gang::pointers(bytes).len(), gang::pointer_count(bytes.len()));
});
