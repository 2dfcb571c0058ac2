//! Separate logs that are not there, or not wholly, when a pool is opened.
//!
//! What was made stable in the last seconds may be in a log only. A side of a mirrored log that was away then has none
//! of it, and where its records should be it has nothing that looks like one: that would be taken for the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dmu::Objset;
use platter_dsl::error::Result;
use platter_dsl::watched;
use platter_ondisk::Txg;
use platter_vdev::{AllocationClass, Leaf, TopVdev, VdevState};

use crate::config::VdevConfig;
use crate::core::Core;
use crate::dtl;
use crate::removal;

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

/// Devices of logs that were away when it was looked last, while the pool is open.
#[derive(Default)]
pub struct Away(BTreeSet<u64>);

impl Away {
    /// Has a group written at once if another device of a log has gone: until it is on disk that the device lacks
    /// records, an import that finds only that device would take it for whole.
    pub fn look(&mut self, core: &Arc<Core>) {
        let config = core.config.read();
        let logs = config.vdev_tree.children.iter().filter(|top| top.is_log);
        let logs = logs.filter_map(|top| core.dsl.store.top(top.id as u32));
        let leaves = logs.flat_map(|log| log.leaves());
        // A file that was deleted is used on by who has it open, and will not be there for the next import.
        let is_away = |leaf: &Arc<Leaf>| leaf.condition().state != VdevState::Healthy;
        let away: BTreeSet<u64> = leaves.filter(is_away).map(|leaf| leaf.guid().0).collect();
        drop(config);
        let is_more = !away.is_subset(&self.0);
        self.0 = away;
        if !is_more || core.dsl.read_only {
            return;
        }
        let noting = core.clone();
        watched::spawn(&core.dsl, "noting what a log's device lacks", async move {
            // A chain goes on in the block that was last allocated for it, which may be there.
            let noted = async {
                removal::begin_logs_anew(&noting).await?;
                noting.force_group().await
            };
            if let Err(error) = noted.await {
                tracing::warn!(pool = noting.name(), %error, "it is not noted yet what a log's device lacks");
            }
        });
    }
}
