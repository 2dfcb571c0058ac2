#![no_main]
//! The configuration area and the boot environment behind a right checksum, and both with any trailer.

use libfuzzer_sys::fuzz_target;
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
        let built = label::build_phys(&config, 0, hash).expect("it fitted before");
        label::read_phys(&built, 0, hash).expect("what was built reads");
    }
    area.truncate(VDEV_PAD_SIZE as usize);
    let _ = label::read_boot_env(&area, 0, hash);
    let _ = label::decode_boot_env(&area);
});
