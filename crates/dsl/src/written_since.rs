//! Bytes that a data set or snapshot has written since an earlier snapshot of its line: properties `written@…`
//! (`dsl_dataset_space_written`, `module/zfs/dsl_dataset.c`).
//!
//! What is referenced now and was not then, and what came between and is gone: each deadlist after the earlier snapshot
//! has what was freed of what had been there before.

use platter_dmu::Result as DmuResult;
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{ObjectId, Txg};

use crate::error::Result;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::{deadlist, named_snapshot};

impl DslPool {
    /// Bytes that `name` has written since `earlier`, a snapshot by full name; none where that is not before it in its
    /// line.
    ///
    /// # Errors
    /// One of them does not exist; damage, unreadable blocks.
    pub async fn written_since(&self, name: &str, earlier: &str) -> Result<Option<u64>> {
        self.unless_suspended(async {
            let Some(earlier) = named_snapshot::find(self, earlier).await? else { return Ok(None) };
            let newer = match named_snapshot::find(self, name).await {
                Ok(Some(snapshot)) => SnapshotBonus::load(&self.mos, snapshot.object).await?.phys,
                _ => self.find(name)?.phys.lock().clone(),
            };
            Ok(self.between(newer, earlier.object).await?)
        })
        .await
    }

    async fn between(&self, newer: DslDatasetPhys, earlier: ObjectId) -> DmuResult<Option<u64>> {
        let (referenced, mut at) = (newer.referenced_bytes, newer);
        let (mut gone, mut last) = (0u64, Txg(u64::MAX));
        loop {
            gone = gone.saturating_add(deadlist::space_used(&self.mos, at.deadlist_obj).await?);
            let previous = at.prev_snap_obj;
            if !previous.is_some() {
                return Ok(None);
            }
            let before = SnapshotBonus::load(&self.mos, previous).await?.phys;
            if previous == earlier {
                return Ok(Some(referenced.saturating_add(gone).saturating_sub(before.referenced_bytes)));
            }
            // A line goes backwards in time; damage could make it a circle.
            if before.creation_txg >= last {
                return Ok(None);
            }
            (last, at) = (before.creation_txg, before);
        }
    }
}
