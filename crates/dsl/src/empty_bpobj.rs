//! The shared empty bpobj (`bpobj_alloc_empty`, `module/zfs/bpobj.c`), which stands for every deadlist entry without
//! blocks.
//!
//! Invariants: the count of feature `empty_bpobj` is the number of deadlist entries that name it. So the pool has the
//! list as long as the feature is active.

use platter_dmu::bpobj::Bpobj;
use platter_dmu::{Result, Tx};
use platter_ondisk::ObjectId;
use platter_ondisk::features::Feature;

use crate::mos_access::MosAccess;
use crate::{deadlist, mos};

const EMPTY_BPOBJ_FEATURE: Feature = Feature::EmptyBpobj;

/// A bpobj for a new deadlist entry: the shared empty one where the pool has that feature.
///
/// # Errors
/// Out of space, device errors.
pub async fn empty_bpobj(mos: &MosAccess<'_>, tx: &Tx) -> Result<ObjectId> {
    if !mos.features.is_enabled(EMPTY_BPOBJ_FEATURE) {
        return Bpobj::create(mos.os, tx, deadlist::BPOBJ_BLOCK).await;
    }
    let mut object = mos.objects.lock().empty_bpobj;
    if !object.is_some() {
        object = Bpobj::create(mos.os, tx, deadlist::BPOBJ_BLOCK).await?;
        mos.directory.put_u64(tx, mos::EMPTY_BPOBJ.as_bytes(), object.0).await?;
        mos.objects.lock().empty_bpobj = object;
    }
    mos.features.adjust(tx, EMPTY_BPOBJ_FEATURE, 1).await?;
    assert!(mos.features.is_active(EMPTY_BPOBJ_FEATURE), "a list that an entry names is counted");
    Ok(object)
}

/// Frees a deadlist whose contents need no freeing (no snapshot is left that they belong to).
///
/// # Errors
/// Device errors, damage.
pub async fn free_deadlist(mos: &MosAccess<'_>, tx: &Tx, object: ObjectId) -> Result<()> {
    if deadlist::is_plain(mos.os, object).await? {
        return Bpobj::free(mos.os, tx, object).await;
    }
    let empty = mos.objects.lock().empty_bpobj;
    for (_, bpobj) in deadlist::keys(mos.os, object).await? {
        if bpobj != empty {
            Bpobj::free(mos.os, tx, bpobj).await?;
            continue;
        }
        mos.features.adjust(tx, EMPTY_BPOBJ_FEATURE, -1).await?;
        if !mos.features.is_active(EMPTY_BPOBJ_FEATURE) {
            mos.directory.remove(tx, mos::EMPTY_BPOBJ.as_bytes()).await?;
            mos.os.free_object(tx, empty).await?;
            mos.objects.lock().empty_bpobj = ObjectId::NONE;
        }
    }
    mos.os.free_object(tx, object).await
}
