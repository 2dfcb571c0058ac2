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
    shared(mos, tx, 1).await
}

/// Bpobjs for so many new deadlist entries.
///
/// # Errors
/// Out of space, device errors.
pub async fn empty_bpobjs(mos: &MosAccess<'_>, tx: &Tx, count: usize) -> Result<Vec<ObjectId>> {
    if count > 0 && mos.features.is_enabled(EMPTY_BPOBJ_FEATURE) {
        return Ok(vec![shared(mos, tx, count as i64).await?; count]);
    }
    let mut objects = Vec::with_capacity(count);
    for _ in 0..count {
        objects.push(Bpobj::create(mos.os, tx, deadlist::BPOBJ_BLOCK).await?);
    }
    Ok(objects)
}

/// The shared one, for `count` more entries.
async fn shared(mos: &MosAccess<'_>, tx: &Tx, count: i64) -> Result<ObjectId> {
    let mut object = mos.objects.lock().empty_bpobj;
    if !object.is_some() {
        object = Bpobj::create(mos.os, tx, deadlist::BPOBJ_BLOCK).await?;
        mos.directory.put_u64(tx, mos::EMPTY_BPOBJ.as_bytes(), object.0).await?;
        mos.objects.lock().empty_bpobj = object;
    }
    mos.features.adjust(tx, EMPTY_BPOBJ_FEATURE, count).await?;
    assert!(mos.features.is_active(EMPTY_BPOBJ_FEATURE), "a list that an entry names is counted");
    Ok(object)
}

/// The shared one, while there is one.
pub fn known(mos: &MosAccess<'_>) -> Option<ObjectId> {
    Some(mos.objects.lock().empty_bpobj).filter(|object| object.is_some())
}

/// So many entries name the shared one no more; with the last of all, it goes (`bpobj_decr_empty`).
///
/// # Errors
/// Device errors, damage.
pub async fn give_back(mos: &MosAccess<'_>, tx: &Tx, count: u64) -> Result<()> {
    let Some(object) = known(mos).filter(|_| count > 0) else { return Ok(()) };
    mos.features.adjust(tx, EMPTY_BPOBJ_FEATURE, i64::try_from(count).unwrap_or(i64::MAX).saturating_neg()).await?;
    if !mos.features.is_active(EMPTY_BPOBJ_FEATURE) {
        mos.directory.remove(tx, mos::EMPTY_BPOBJ.as_bytes()).await?;
        mos.os.free_object(tx, object).await?;
        mos.objects.lock().empty_bpobj = ObjectId::NONE;
    }
    Ok(())
}

/// Frees the bpobj of one deadlist entry that is no more.
///
/// # Errors
/// Device errors, damage.
pub async fn free_list(mos: &MosAccess<'_>, tx: &Tx, list: ObjectId) -> Result<()> {
    match known(mos) == Some(list) {
        true => give_back(mos, tx, 1).await,
        false => Bpobj::free(mos.os, tx, list).await,
    }
}

/// Frees a deadlist whose contents need no freeing (no snapshot is left that they belong to).
///
/// # Errors
/// Device errors, damage.
pub async fn free_deadlist(mos: &MosAccess<'_>, tx: &Tx, object: ObjectId) -> Result<()> {
    if deadlist::is_plain(mos.os, object).await? {
        return Bpobj::free(mos.os, tx, object).await;
    }
    let (empty, mut empties) = (known(mos), 0);
    for (_, bpobj) in deadlist::keys(mos.os, object).await? {
        match Some(bpobj) == empty {
            true => empties += 1,
            false => Bpobj::free(mos.os, tx, bpobj).await?,
        }
    }
    give_back(mos, tx, empties).await?;
    mos.os.free_object(tx, object).await
}
