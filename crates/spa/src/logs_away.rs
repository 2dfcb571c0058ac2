//! Devices of separate logs that go while the pool is open.

use std::collections::BTreeSet;
use std::sync::Arc;

use platter_dsl::watched;
use platter_vdev::{Leaf, VdevState};

use crate::core::Core;
use crate::removal;

/// Devices of logs that were away when it was looked last, while the pool is open.
#[derive(Default)]
pub struct Away(BTreeSet<u64>);

impl Away {
    /// Has a group written at once if another device of a log has gone: until it is on disk that the device lacks
    /// records, an import that finds only that device would take it for whole.
    pub fn look(&mut self, core: &Arc<Core>) {
        // Its devices are being closed.
        if core.is_over() {
            return;
        }
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
