#![no_main]
//! Space map entries and headers.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::spacemap::{Entry, SpaceMapPhys, SpaceMapWriter, TWO_WORD_OFFSET_END, entries};

fuzz_target!(|bytes: &[u8]| {
    let mut writer = SpaceMapWriter::new(0, 4096, true);
    let mut units = 0u128;
    for entry in entries(bytes).map_while(Result::ok) {
        let Entry::Segment(s) = entry else { continue };
        if s.offset + s.run <= TWO_WORD_OFFSET_END {
            writer.segment(s.kind, s.vdev, s.offset, s.run);
            units += u128::from(s.run);
        }
    }
    let written = writer.finish();
    let again: u128 = entries(&written)
        .map(|entry| match entry.expect("what was written reads") {
            Entry::Segment(s) => u128::from(s.run),
            Entry::Debug { .. } => 0,
        })
        .sum();
    assert_eq!(again, units);
    if let Ok(phys) = SpaceMapPhys::decode(bytes) {
        assert_eq!(SpaceMapPhys::decode(&phys.encode()).expect("what was encoded decodes"), phys);
    }
});
