#![no_main]
//! Turning a block of any object type; the first byte is the type.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::ObjectType;
use platter_ondisk::byteswap::{byteswap, byteswap_indirect};

fuzz_target!(|bytes: &[u8]| {
    let Some((&number, bytes)) = bytes.split_first() else { return };
    let mut block = bytes.to_vec();
    byteswap(ObjectType::from_number(number), &mut block);
    assert_eq!(block.len(), bytes.len());
    byteswap_indirect(&mut block);
});
