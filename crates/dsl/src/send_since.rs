//! What an incremental stream builds on: a snapshot or a bookmark, before what is sent (`dsl_dataset_is_before`,
//! `module/zfs/dsl_dataset.c`).

use platter_ondisk::dsl::{DslDatasetPhys, DslDirPhys};
use platter_ondisk::{Guid, ObjectId, Txg};
use platter_zio::ZioError;

use crate::error::{PoolError, Result};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::space_since::Earlier;

/// What the other side has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Since {
    pub(crate) guid: Guid,
    pub(crate) txg: Txg,
    /// Whether it belongs to the data set from which the one that is sent was cloned.
    pub(crate) of_origin: bool,
    /// Of a redaction bookmark: what was left out of the stream that the other side has.
    pub(crate) redaction: Option<ObjectId>,
    /// Of a snapshot from which blocks were left out: for the sake of which.
    pub(crate) redacted: Option<Vec<Guid>>,
    /// What is known of its space.
    pub(crate) earlier: Option<Earlier>,
}

/// The refusal of what is no earlier snapshot.
pub(crate) fn not_earlier() -> PoolError {
    PoolError::invalid("not an earlier snapshot from the same fs")
}

async fn directory_of(dsl: &DslPool, object: ObjectId) -> Result<DslDirPhys> {
    let dnode = dsl.mos.dnode(object).await?;
    let phys = DslDirPhys::decode(&dnode.bonus());
    Ok(phys.map_err(|error| ZioError::corrupt("DSL directory", format!("object {object}: {error}")))?)
}

/// Whether what was in directory `dir` in group `txg` is before `later`, through origins too
/// (`dsl_dataset_is_before`). Says whether it is of another directory.
pub(crate) async fn is_before(
    dsl: &DslPool,
    (dir, txg): (ObjectId, Txg),
    later: &DslDatasetPhys,
) -> Result<Option<bool>> {
    let (mut at, mut below) = (later.dir_obj, later.creation_txg);
    // Origins get older: what does not is damage.
    loop {
        if at == dir {
            return Ok((txg < below || at != later.dir_obj && txg == below).then_some(at != later.dir_obj));
        }
        let origin = directory_of(dsl, at).await?.origin_obj;
        if !origin.is_some() {
            return Ok(None);
        }
        let origin = SnapshotBonus::load(&dsl.mos, origin).await?.phys;
        if origin.creation_txg >= below || origin.dir_obj == at {
            return Ok(None);
        }
        (at, below) = (origin.dir_obj, origin.creation_txg);
    }
}

/// The refusal of a source that is not there.
pub(crate) fn missing(name: &str) -> PoolError {
    PoolError::NotFound(format!("incremental source ({name}) does not exist"))
}
