//! Livelists of destroyed clones, whose blocks are to be freed (`spa_livelist_delete_cb`, `module/zfs/spa.c`).
//!
//! The pool directory names a ZAP of them. Of one list after the other, what lives on it is put on the pool's list of
//! frees, and the list goes: all of that in one group, so that after a crash a block is on one of the two, never on
//! both. How fast blocks are freed from there [`freeing`] decides.
//!
//! Invariants:
//! - what is still to be freed here is booked on `$FREE`, as what is on the list of frees;
//! - one list at a time is gathered: memory is that of one list, whatever was destroyed.

use std::sync::Arc;

use platter_dmu::bpobj::Bpobj;
use platter_dmu::zap::Zap;
use platter_dmu::{Bookmark, Result, Tx, ZioError};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};
use platter_zio::may_fail;

use crate::pool::DslPool;
use crate::unreadable::Unreadable;
use crate::used_space::SpaceChange;
use crate::{deadlist, empty_bpobj, freeing, lives, mos};

/// The livelist `object` of a destroyed clone is the pool's, with blocks that take `space`. Within a task.
///
/// # Errors
/// Out of space, device errors.
pub async fn add(dsl: &Arc<DslPool>, tx: &Tx, object: ObjectId, space: SpaceChange) -> Result<()> {
    let mut all = dsl.objects.lock().deleted_clones;
    if !all.is_some() {
        all = mos::create_zap(&dsl.mos, tx, ObjectType::OTN_ZAP_METADATA, dsl.random()).await?;
        dsl.directory.put_u64(tx, mos::DELETED_CLONES.as_bytes(), all.0).await?;
        dsl.objects.lock().deleted_clones = all;
    }
    Zap::open(&dsl.mos, all).await?.add_int(tx, object.0).await?;
    freeing::book(dsl, tx, space).await
}

/// Puts what lives on one list on the list of frees, when that is empty. Within the first pass of a sync, before
/// [`freeing::step`].
///
/// # Errors
/// Device errors, damage of more than one list.
pub async fn step(dsl: &Arc<DslPool>, tx: &Tx) -> Result<()> {
    let (all, is_busy) = {
        let objects = dsl.objects.lock();
        (objects.deleted_clones, objects.frees.is_some())
    };
    if !all.is_some() || is_busy || !freeing::has_work(dsl) {
        return Ok(());
    }
    let clones = Zap::open(&dsl.mos, all).await?;
    if let Some((number, _)) = clones.ints().await?.into_iter().next() {
        let object = ObjectId(number);
        let Some((key, list)) = deadlist::keys(&dsl.mos, object).await?.into_iter().next() else {
            dsl.mos.free_object(tx, object).await?;
            clones.remove_int(tx, number).await?;
            return forget(dsl, tx, &clones, all).await;
        };
        let Some(live) = live(dsl, list).await else { return Ok(()) };
        take_list(dsl, tx, object, (key, list), &live).await?;
    } else {
        end(dsl, tx, all).await?;
    }
    Ok(())
}

/// What lives on `list`. `None` while it cannot be read; what can never be read is leaked.
async fn live(dsl: &DslPool, list: ObjectId) -> Option<Vec<BlkPtr>> {
    if Some(list) == empty_bpobj::known(&dsl.access()) {
        return Some(Vec::new());
    }
    // A sector that cannot be read is no reason to suspend the pool.
    let read = may_fail(async { Bpobj::open(&dsl.mos, list).await?.live().await }).await;
    let at = Bookmark { objset: mos::OBJSET, object: list, level: 0, blkid: 0 };
    match read {
        Ok(live) => Some(live),
        Err(error) => {
            let is_damage = matches!(error, ZioError::Corrupt { .. });
            let gives_up = Unreadable::note(&mut dsl.unreadable.lock(), at) || is_damage;
            tracing::warn!(pool = dsl.name(), %error, gives_up, "the livelist of a destroyed clone cannot be read");
            gives_up.then(Vec::new)
        }
    }
}

/// The blocks `live` of the list at `key` of livelist `object` are on the list of frees instead.
async fn take_list(
    dsl: &Arc<DslPool>,
    tx: &Tx,
    object: ObjectId,
    (key, list): (Txg, ObjectId),
    live: &[BlkPtr],
) -> Result<()> {
    assert!(!dsl.objects.lock().frees.is_some(), "one list at a time is gathered");
    let frees = freeing::list(dsl).await?;
    Bpobj::open(&dsl.mos, frees).await?.append(tx, live).await?;
    // The space is booked already.
    freeing::list_grew(dsl, tx, frees, SpaceChange::default()).await?;
    deadlist::remove_key(&dsl.access(), tx, object, key).await?;
    empty_bpobj::free_list(&dsl.access(), tx, list).await
}

/// One livelist less; without any, the ZAP goes, too.
async fn forget(dsl: &Arc<DslPool>, tx: &Tx, clones: &Zap, all: ObjectId) -> Result<()> {
    dsl.features.adjust(tx, lives::FEATURE, -1).await?;
    dsl.dirty_config();
    match clones.ints().await?.is_empty() {
        true => end(dsl, tx, all).await,
        false => Ok(()),
    }
}

async fn end(dsl: &Arc<DslPool>, tx: &Tx, all: ObjectId) -> Result<()> {
    dsl.directory.remove(tx, mos::DELETED_CLONES.as_bytes()).await?;
    dsl.mos.free_object(tx, all).await?;
    dsl.objects.lock().deleted_clones = ObjectId::NONE;
    Ok(())
}
