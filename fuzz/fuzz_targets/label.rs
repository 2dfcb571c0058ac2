#![no_main]
//! The configuration area and the boot environment behind a right checksum, and both with any trailer.

use libfuzzer_sys::fuzz_target;
use platter_ondisk::embedded::ECK_SIZE;
use platter_ondisk::label::{self, VDEV_PAD_SIZE, VDEV_PHYS_SIZE};

fn hash(bytes: &[u8]) -> [u64; 4] {
    [bytes.len() as u64, 1, 2, 3]
}

fuzz_target!(|bytes: &[u8]| {
    let _ = label::decode_phys(bytes);
    let mut area = bytes.to_vec();
    area.resize(VDEV_PHYS_SIZE as usize, 0);
    let _ = label::read_phys(&area, 0, hash);
    if let Ok(config) = label::decode_phys(&area) {
        // The bytes may be in the native encoding, which is shorter: what fitted then need not fit as XDR.
        let fits = config.encode_xdr().len() <= area.len() - ECK_SIZE;
        match label::build_phys(&config, 0, hash) {
            Ok(built) => drop(label::read_phys(&built, 0, hash).expect("what was built reads")),
            Err(error) => assert!(!fits, "{error}"),
        }
    }
    area.truncate(VDEV_PAD_SIZE as usize);
    let _ = label::read_boot_env(&area, 0, hash);
    let _ = label::decode_boot_env(&area);
});
