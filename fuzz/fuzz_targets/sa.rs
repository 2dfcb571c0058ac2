#![no_main]
//! System attribute buffers with any layout, and znodes of the days before.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::sa::{AttrByteswap, AttrShape, SaBuffer};
use platter_ondisk::znode::ZnodePhys;

fuzz_target!(|bytes: &[u8]| {
    let layouts: [&[u16]; 4] = [&[], &[1, 2, 3], &[4, 5, 6, 7, 8], &[9, 1, 9]];
    let layout = |number: u16| layouts.get(usize::from(number)).copied();
    let shape = |attribute: u16| {
        Some(AttrShape {
            number: attribute,
            length: if attribute.is_multiple_of(3) { 0 } else { 8 * attribute },
            byteswap: AttrByteswap::Uint64,
        })
    };
    if let Ok(buffer) = SaBuffer::decode(bytes, layout, shape) {
        for (_, range) in &buffer.attributes {
            let _ = &buffer.bytes[range.clone()];
        }
    }
    let _ = ZnodePhys::decode(bytes);
});
