//! Counting, in the background, what users, groups and projects have in a data set that was made before its pool
//! counted that (`dmu_objset_id_quota_upgrade`, `module/zfs/dmu_objset.c`).
//!
//! It begins with the first mount after the feature was enabled, or when an object is made or given to somebody else;
//! when it fails, not again before the data set is opened anew. Nobody else's data set is counted. Only `zfs set
//! version=` waits for it. What is not counted to the end is said to be not counted, and quotas of it are not enforced.

use std::sync::Arc;

use platter_dmu::Objset;

use crate::dataset::Dataset;
use crate::error::Result;
use crate::pool::DslPool;
use crate::watched;

/// Counts to the end what is not counted in an open data set: `zfs set version=` does so, also when the version stays
/// (`zfs_prop_set_special`, `module/zfs/zfs_ioctl.c`).
///
/// # Errors
/// No space, unreadable dnodes; the object set is being closed.
pub async fn finish(dataset: &Dataset) -> Result<()> {
    match dataset.open_objset().filter(|os| !os.params().read_only) {
        Some(os) => Ok(os.account_everything().await?),
        None => Ok(()),
    }
}

/// Begins to count, if there is something to count and nobody has begun.
pub fn begin(dsl: &Arc<DslPool>, dataset: &Dataset, os: &Arc<Objset>) {
    if !os.takes_a_count() {
        return;
    }
    let (name, os) = (dataset.dir.full_name(dsl.name()), os.clone());
    watched::spawn(dsl, "the count of users' objects", async move {
        if let Err(error) = os.account_everything().await {
            tracing::info!(dataset = name, "what users have in it is not counted yet: {error}");
        }
    });
}
