//! Bytes that a data set or snapshot has written since an earlier snapshot or bookmark of its line: properties
//! `written@…` and `written#…` (`dsl_dataset_space_written`, `module/zfs/dsl_dataset.c`).

use platter_ondisk::dsl::DslDatasetPhys;
use platter_ondisk::{ObjectId, Txg};

use crate::error::Result;
use crate::pool::DslPool;
use crate::send_since::is_before;
use crate::snapshot::SnapshotBonus;
use crate::space_since::{Earlier, space_since};
use crate::{bookmarks, named_snapshot};

impl DslPool {
    /// Bytes that `name` has and each of `earlier`, snapshots and bookmarks by full name, had not; none where one is
    /// not there, or not before it in its line, or is a bookmark that does not follow what is freed.
    ///
    /// # Errors
    /// `name` does not exist; damage, unreadable blocks.
    pub async fn written_since(&self, name: &str, earlier: &[String]) -> Result<Vec<Option<u64>>> {
        self.unless_suspended(async {
            let newer = match named_snapshot::find(self, name).await {
                Ok(Some(snapshot)) => SnapshotBonus::load(&self.mos, snapshot.object).await?.phys,
                // A head is later than all that is in its line.
                _ => DslDatasetPhys { creation_txg: Txg(u64::MAX), ..self.find(name)?.phys.lock().clone() },
            };
            let mut written = Vec::with_capacity(earlier.len());
            for earlier in earlier {
                written.push(self.written_since_one(&newer, earlier).await?);
            }
            Ok(written)
        })
        .await
    }

    async fn written_since_one(&self, newer: &DslDatasetPhys, full_name: &str) -> Result<Option<u64>> {
        let Some((directory, earlier)) = self.earlier(full_name).await? else { return Ok(None) };
        if is_before(self, (directory, earlier.txg), newer).await?.is_none() {
            return Ok(None);
        }
        Ok(u64::try_from(space_since(self, newer, Some(&earlier)).await?.used).ok())
    }

    /// The moment that a snapshot or bookmark stands for, and the directory it is in.
    async fn earlier(&self, full_name: &str) -> Result<Option<(ObjectId, Earlier)>> {
        if let Some((dataset, name)) = full_name.split_once('#') {
            let Ok(head) = self.find(dataset) else { return Ok(None) };
            let found = bookmarks::lookup(&self.mos, &head, name).await?;
            return Ok(found.and_then(|found| Some((head.dir.object, Earlier::bookmark(&found.phys)?))));
        }
        let Ok(Some(found)) = named_snapshot::find(self, full_name).await else { return Ok(None) };
        let phys = SnapshotBonus::load(&self.mos, found.object).await?.phys;
        Ok(Some((phys.dir_obj, Earlier::snapshot(&phys))))
    }
}
