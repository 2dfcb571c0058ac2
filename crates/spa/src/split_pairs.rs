//! What configurations say of a split (`ZPOOL_CONFIG_SPLIT` in `include/sys/fs/zfs.h`, `spa_config_generate` in
//! `module/zfs/spa_config.c`).
//!
//! While devices leave a pool to become another one, its configuration in the MOS, and no label, lists them. The pool
//! that they become says in its labels and in its MOS whose they were, until it is opened once more.

use platter_nvlist::NvList;
use platter_ondisk::Guid;
use platter_ondisk::names::config::{SPLIT, SPLIT_GUID, SPLIT_LIST};

use crate::config::PoolConfig;

/// The leaves that are leaving the pool; none as a rule.
pub fn leaving(config: &PoolConfig) -> Vec<Guid> {
    let list = config.other.get_list(SPLIT).and_then(|split| split.get_u64_array(SPLIT_LIST)).unwrap_or(&[]);
    // In the place of a top-level vdev of which none leaves stands a zero.
    list.iter().filter(|guid| **guid != 0).map(|guid| Guid(*guid)).collect()
}

/// Notes which leaves leave: one for each top-level vdev, 0 where none does.
pub fn set_leaving(config: &mut PoolConfig, list: Vec<u64>) {
    assert!(list.iter().any(|guid| *guid != 0), "a split takes devices along");
    let mut split = NvList::new();
    split.add_u64_array(SPLIT_LIST, list);
    config.other.add_list(SPLIT, split);
}

/// Notes of a new pool whose devices it is made of.
pub fn set_origin(config: &mut PoolConfig, origin: Guid) {
    let mut split = NvList::new();
    split.add_u64(SPLIT_GUID, origin.0);
    config.other.add_list(SPLIT, split);
    config.other.add_u64(SPLIT_GUID, origin.0);
}

/// Whose devices a pool is made of, as long as it says so.
pub fn origin(config: &PoolConfig) -> Option<Guid> {
    config.other.get_u64(SPLIT_GUID).map(Guid)
}

/// Nothing is leaving any more.
pub fn forget_leaving(config: &mut PoolConfig) {
    config.other.remove(SPLIT);
}

/// Whose the devices of an opened pool were matters no more; which ones are leaving it does.
pub fn forget_origin(config: &mut PoolConfig) {
    config.other.remove(SPLIT_GUID);
    if leaving(config).is_empty() {
        config.other.remove(SPLIT);
    }
}
