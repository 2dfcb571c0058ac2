#![no_main]
//! The intent log's header and chain link.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::zil::{ZIL_HEADER_SIZE, ZilChain, ZilHeader};

fuzz_target!(|bytes: &[u8]| {
    let _ = ZilChain::decode(bytes);
    let Ok(header) = ZilHeader::decode(bytes) else { return };
    let mut out = [0; ZIL_HEADER_SIZE];
    header.encode(&mut out);
    assert_eq!(ZilHeader::decode(&out).expect("what was encoded decodes"), header);
});
