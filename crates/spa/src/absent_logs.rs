//! Separate logs that are not there, or not wholly, when a pool is opened.
//!
//! What was made stable in the last seconds may be in a log only. A side of a mirrored log that was away then has none
//! of it, and where its records should be it has nothing that looks like one: that would be taken for the end.

use std::sync::Arc;

use platter_dmu::Objset;
use platter_dsl::error::Result;
use platter_ondisk::Txg;
use platter_vdev::{AllocationClass, TopVdev, VdevState};

use crate::config::VdevConfig;
use crate::dtl;

fn logs(vdevs: &[Option<Arc<TopVdev>>]) -> impl Iterator<Item = &Arc<TopVdev>> {
    vdevs.iter().flatten().filter(|vdev| vdev.class() == AllocationClass::Log)
}

/// Whether a log cannot be used, for whatever reason.
pub fn lacks_one(vdevs: &[Option<Arc<TopVdev>>]) -> bool {
    logs(vdevs).any(|log| !log.condition().is_usable())
}

/// The devices that are not there of logs that cannot be used, or of which the others lack group `newest`, as the
/// pool's own lists say. A log whose devices are offline was emptied before.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn names(
    vdevs: &[Option<Arc<TopVdev>>],
    mos: &Arc<Objset>,
    root: &VdevConfig,
    newest: Txg,
) -> Result<Vec<String>> {
    let mut absent = Vec::new();
    for log in logs(vdevs) {
        let (there, mut away): (Vec<_>, Vec<_>) = log.leaves().into_iter().partition(|leaf| leaf.is_usable());
        let mut is_lost = !away.is_empty();
        if log.condition().is_usable() {
            for leaf in there {
                is_lost = is_lost && dtl::stored(mos, root, leaf.guid()).await?.contains(newest);
            }
        } else {
            away.retain(|leaf| leaf.condition().state != VdevState::Offline);
        }
        if is_lost {
            absent.extend(away.iter().map(|leaf| leaf.name()));
        }
    }
    Ok(absent)
}
