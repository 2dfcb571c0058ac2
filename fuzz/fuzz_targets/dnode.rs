#![no_main]
//! Single dnodes and whole blocks of them.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::dnode::{DNODE_SIZE, DnodePhys, dnodes_in_block};

fuzz_target!(|bytes: &[u8]| {
    for (slot, dnode) in dnodes_in_block(bytes) {
        let Ok(dnode) = dnode else { continue };
        assert!((slot + dnode.slots()) * DNODE_SIZE <= bytes.len());
        let _ = (dnode.used_bytes(), dnode.data_block_size(), dnode.pointers_per_indirect_shift());
        assert!(dnode.bonus.len() <= dnode.bonus_capacity());
        let mut out = vec![0xff; dnode.slots() * DNODE_SIZE];
        dnode.encode(&mut out);
        assert_eq!(DnodePhys::decode(&out).expect("what was encoded decodes"), Some(dnode));
    }
});
