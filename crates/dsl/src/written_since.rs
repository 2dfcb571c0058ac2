//! Bytes that a data set or snapshot has written since an earlier snapshot of its line: properties `written@…`
//! (`dsl_dataset_space_written`, `module/zfs/dsl_dataset.c`).
//!
//! What is referenced now and was not then, and what came between and is gone: each deadlist after the earlier snapshot
//! has what was freed of what had been there before.

use std::collections::BTreeMap;

use platter_dmu::Result as DmuResult;
use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{ObjectId, Txg};

use crate::error::Result;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::{deadlist, named_snapshot};

impl DslPool {
    /// Bytes that `name` has written since each of `earlier`, snapshots by full name; none where one is not there, or
    /// not before it in its line. The line is walked once for all of them.
    ///
    /// # Errors
    /// `name` does not exist; damage, unreadable blocks.
    pub async fn written_since(&self, name: &str, earlier: &[String]) -> Result<Vec<Option<u64>>> {
        self.unless_suspended(async {
            let mut wanted: BTreeMap<ObjectId, Vec<usize>> = BTreeMap::new();
            for (index, earlier) in earlier.iter().enumerate() {
                if let Ok(Some(snapshot)) = named_snapshot::find(self, earlier).await {
                    wanted.entry(snapshot.object).or_default().push(index);
                }
            }
            let newer = match named_snapshot::find(self, name).await {
                Ok(Some(snapshot)) => SnapshotBonus::load(&self.mos, snapshot.object).await?.phys,
                _ => self.find(name)?.phys.lock().clone(),
            };
            let mut written = vec![None; earlier.len()];
            self.walk_back(newer, wanted, &mut written).await?;
            Ok(written)
        })
        .await
    }

    /// Goes back from `newer` until all that is `wanted` was met, or there is nothing before.
    async fn walk_back(
        &self,
        newer: DslDatasetPhys,
        mut wanted: BTreeMap<ObjectId, Vec<usize>>,
        written: &mut [Option<u64>],
    ) -> DmuResult<()> {
        let (referenced, mut at) = (newer.referenced_bytes, newer);
        let (mut gone, mut last) = (0u64, Txg(u64::MAX));
        while !wanted.is_empty() && at.prev_snap_obj.is_some() {
            gone = gone.saturating_add(deadlist::space_used(&self.mos, at.deadlist_obj).await?);
            let previous = at.prev_snap_obj;
            let before = SnapshotBonus::load(&self.mos, previous).await?.phys;
            for index in wanted.remove(&previous).into_iter().flatten() {
                written[index] = Some(referenced.saturating_add(gone).saturating_sub(before.referenced_bytes));
            }
            // A line goes backwards in time; damage could make it a circle.
            if before.creation_txg >= last {
                break;
            }
            (last, at) = (before.creation_txg, before);
        }
        Ok(())
    }
}
