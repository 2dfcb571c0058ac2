#![no_main]
//! The intent log's header, blocks and records.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::zil::block::{self, Layout};
use platter_ondisk::zil::record::{self, records};
use platter_ondisk::zil::{ZIL_HEADER_SIZE, ZilChain, ZilHeader};

fuzz_target!(|bytes: &[u8]| {
    let _ = ZilChain::decode(bytes);
    for layout in [Layout::Slim, Layout::Trailing] {
        let _ = block::open(layout, bytes, [0; 4], |_| [0; 4]);
    }
    for (header, record) in records(bytes).flatten() {
        let mut out = Vec::new();
        record.encode(header, &mut out);
        let (again, same, length) = record::decode(&out).expect("what was encoded decodes");
        assert_eq!((again, same, length), (header, record, out.len()));
    }
    let Ok(header) = ZilHeader::decode(bytes) else { return };
    let mut out = [0; ZIL_HEADER_SIZE];
    header.encode(&mut out);
    assert_eq!(ZilHeader::decode(&out).expect("what was encoded decodes"), header);
});
