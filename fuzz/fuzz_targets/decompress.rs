//! Compressed blocks of every kind: the first bytes choose kind and logical size, the rest is the block as stored. What
//! does decompress must come back when it is compressed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use platter_ondisk::Compression;

fuzz_target!(|data: &[u8]| {
    let [kind, size, stored @ ..] = data else { return };
    let kind = Compression::from_number(kind % Compression::END.number());
    let lsize = 512 << (size % 9) as usize;
    let mut block = vec![0xa5; lsize];
    if platter_compress::decompress(kind, stored, &mut block).is_err() {
        return;
    }
    let mut packed = vec![0; lsize];
    let Some(length) = platter_compress::compress(kind, 0, &block, &mut packed) else { return };
    let mut again = vec![0x5a; lsize];
    platter_compress::decompress(kind, &packed[..length], &mut again).expect("what was compressed here decompresses");
    assert_eq!(again, block);
});
