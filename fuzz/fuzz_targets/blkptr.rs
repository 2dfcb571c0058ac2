#![no_main]
//! Every accessor of a block pointer of any bits.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::BlkPtr;

fuzz_target!(|bytes: &[u8]| {
    let Some(bytes) = bytes.first_chunk::<128>() else { return };
    let bp = BlkPtr::decode(bytes);
    let mut out = [0; 128];
    bp.encode(&mut out);
    assert_eq!(&out, bytes);
    let _ = (bp.lsize(), bp.psize(), bp.asize(), bp.compression(), bp.checksum_kind(), bp.embedded_kind());
    let _ = (bp.object_type(), bp.level(), bp.is_protected(), bp.is_dedup(), bp.birth(), bp.physical_birth());
    let _ = (bp.fill(), bp.checksum(), bp.is_gang(), bp.copies(), bp.is_little_endian());
    assert!(bp.embedded_payload().len() <= 112);
    let _ = format!("{bp:?}");
});
