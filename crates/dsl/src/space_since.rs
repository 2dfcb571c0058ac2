//! Space that a data set or snapshot has, and what was there at an earlier moment of its line has not
//! (`dsl_dataset_space_written_impl`, `module/zfs/dsl_dataset.c`): what is referenced more than then, and what was
//! freed since of what was referenced then, which deadlists tell.

use platter_dmu::ZioError;
use platter_ondisk::Txg;
use platter_ondisk::dsl::DslDatasetPhys;

use crate::bookmark_phys::{BookmarkPhys, BookmarkSpace};
use crate::deadlist_merge;
use crate::error::Result;
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::used_space::SpaceChange;

/// An earlier moment: a snapshot was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    pub(crate) txg: Txg,
    /// What it referenced.
    pub(crate) referenced: SpaceChange,
    /// What of that was freed before the next snapshot, of a bookmark that follows it. Otherwise the snapshot is still
    /// there, and the next one's deadlist tells.
    freed: Option<SpaceChange>,
}

impl Earlier {
    /// Of a snapshot.
    pub(crate) fn snapshot(phys: &DslDatasetPhys) -> Self {
        Self { txg: phys.creation_txg, referenced: BookmarkSpace::referenced(phys).gain(), freed: None }
    }

    /// Of a snapshot that is gone, and of which nothing but its group is known.
    pub(crate) fn unknown(txg: Txg) -> Self {
        Self { txg, referenced: SpaceChange::default(), freed: None }
    }

    /// Of a bookmark; nothing of one that does not follow what is freed.
    pub(crate) fn bookmark(phys: &BookmarkPhys) -> Option<Self> {
        let (referenced, freed) = (phys.referenced.gain(), Some(phys.freed.gain()));
        phys.has_freed().then_some(Self { txg: phys.creation_txg, referenced, freed })
    }
}

/// Space that `phys` has and `earlier`, before it in its line, had not; all that it has without one.
///
/// # Errors
/// Damage, unreadable blocks.
pub(crate) async fn space_since(
    dsl: &DslPool,
    phys: &DslDatasetPhys,
    earlier: Option<&Earlier>,
) -> Result<SpaceChange> {
    let mut sum = BookmarkSpace::referenced(phys).gain();
    let Some(earlier) = earlier else { return Ok(sum) };
    sum -= earlier.referenced;
    let mut at = phys.clone();
    loop {
        let is_last = at.prev_snap_txg <= earlier.txg || !at.prev_snap_obj.is_some();
        if let (true, Some(freed)) = (is_last, earlier.freed) {
            sum += freed;
            return Ok(sum);
        }
        sum += deadlist_merge::space_between(&dsl.mos, &dsl.store, at.deadlist_obj, Txg(0), earlier.txg).await?;
        if is_last {
            return Ok(sum);
        }
        let before = SnapshotBonus::load(&dsl.mos, at.prev_snap_obj).await?.phys;
        if before.creation_txg >= at.creation_txg && at != *phys {
            return Err(ZioError::corrupt("snapshot", "the chain of snapshots turns back").into());
        }
        at = before;
    }
}
