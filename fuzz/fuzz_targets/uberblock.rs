#![no_main]
//! Uberblocks in both byte orders.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::Uberblock;
use platter_ondisk::uberblock::UBERBLOCK_SIZE;

fuzz_target!(|bytes: &[u8]| {
    let _ = Uberblock::read_slot(bytes, 0, |_| [0; 4]);
    let Ok(ub) = Uberblock::decode(bytes) else { return };
    let mut out = [0; UBERBLOCK_SIZE];
    ub.encode(&mut out);
    assert_eq!(Uberblock::decode(&out).expect("what was encoded decodes"), ub);
    assert!(ub.compare(&ub).is_eq());
    let _ = (ub.mmp(), ub.is_multihost(), ub.reflow());
});
