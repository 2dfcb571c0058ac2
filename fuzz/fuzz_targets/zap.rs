#![no_main]
//! ZAP blocks of every kind; the first byte chooses the block's size.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::zap::{BlockKind, FatHeader, Leaf, MicroHeader, micro};

fuzz_target!(|bytes: &[u8]| {
    let Some((&choice, bytes)) = bytes.split_first() else { return };
    let mut block = bytes.to_vec();
    block.resize(512 << (choice % 6), 0);
    let _ = BlockKind::of(&block);
    if MicroHeader::decode(&block).is_ok() {
        let _ = micro::entries(&block).count();
    }
    if let Ok(header) = FatHeader::decode(&block) {
        let _ = header.pointer_index(u64::MAX);
    }
    if let Ok(leaf) = Leaf::open(&block) {
        let _ = leaf.lookup(leaf.prefix() << (64 - leaf.prefix_length()).min(63), b"name", 1);
        if let Ok(all) = leaf.entries_from(0, 0) {
            for entry in &all {
                let _ = (leaf.name(entry, 1), leaf.value(entry));
            }
        }
    }
});
