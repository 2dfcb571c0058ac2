#![no_main]
//! The configuration of a pool, as labels and the MOS have it.

use libfuzzer_sys::fuzz_target;
use platter_dsl::config::PoolConfig;
use platter_nvlist::NvList;

fuzz_target!(|bytes: &[u8]| {
    let Ok(list) = NvList::decode(bytes) else { return };
    let Ok(config) = PoolConfig::parse(&list) else { return };
    config.vdev_tree.walk(&mut |vdev| assert!(vdev.ashift <= 16 && vdev.metaslab_shift <= 50));
});
