#![no_main]
//! Headers of cache devices, and blocks of their logs.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::l2arc::{DeviceHeader, LogBlock, Ring};

fuzz_target!(|bytes: &[u8]| {
    for ashift in [9, 12, 16] {
        let _ = DeviceHeader::decode(bytes, ashift, |_| [0; 4]);
    }
    let count = bytes.first().map_or(0, |first| u64::from(*first) * 5);
    if let Ok(block) = LogBlock::decode(bytes, count) {
        assert_eq!(block.entries.len() as u64, count);
        for is_first in [false, true] {
            let ring = Ring { start: 1 << 12, end: 1 << 30, hand: 1 << 20, evict: 1 << 21, is_first };
            let _ = block.previous.is_valid(&ring);
        }
    }
});
