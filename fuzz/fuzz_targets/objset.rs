#![no_main]
//! Object set heads of all three sizes.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::ObjsetPhys;

fuzz_target!(|bytes: &[u8]| {
    for size in [1024, 2048, 4096] {
        let mut block = bytes.to_vec();
        block.resize(size, 0);
        let Ok(objset) = ObjsetPhys::decode(&block) else { continue };
        let _ = objset.zil();
        assert_eq!(ObjsetPhys::decode(&objset.encode()).expect("what was encoded decodes"), objset);
    }
});
