//! Flags in the configuration about spares that stand in for others.

use platter_ondisk::Guid;
use platter_ondisk::names::config::{IS_SPARE, UNSPARE};

use crate::config::VdevConfig;
use crate::core::Core;

/// Whether a leaf of the tree is a spare that stands in for another one.
pub fn is_spare(vdev: &VdevConfig) -> bool {
    vdev.other.get_u64(IS_SPARE).is_some_and(|flag| flag != 0)
}

/// Whether the spare beside this device is to go as soon as the device has everything.
pub fn is_wanted_back(vdev: &VdevConfig) -> bool {
    vdev.other.get_u64(UNSPARE).is_some_and(|flag| flag != 0)
}

/// Sets or removes a flag of a vdev.
pub fn set_flag(vdev: &mut VdevConfig, name: &str, set: bool) {
    vdev.other.remove(name);
    if set {
        vdev.other.add_u64(name, 1);
    }
}

/// A device that a spare stands in for is used again: the spare goes when the device has everything (`vdev_online` and
/// `vdev_clear` in `module/zfs/vdev.c`).
pub fn note_wanted_back(core: &Core, guid: Guid) {
    let mut noted = false;
    core.config.write().vdev_tree.walk_mut(&mut |vdev| {
        if vdev.kind == "spare"
            && let Some(first) = vdev.children.first_mut().filter(|first| first.guid == guid && !is_wanted_back(first))
        {
            set_flag(first, UNSPARE, true);
            noted = true;
        }
    });
    if noted {
        core.dsl.dirty_config();
    }
}
