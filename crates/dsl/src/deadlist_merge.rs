//! What happens to deadlists when snapshots come and go: entries are copied, joined and moved
//! (`dsl_deadlist_clone`, `dsl_deadlist_remove_key`, `dsl_deadlist_move_bpobj`, `dsl_deadlist_merge`,
//! `module/zfs/dsl_deadlist.c`).
//!
//! Invariants:
//! - the entries' keys are the births at which older snapshots part: one of them that goes takes its key with it, and
//!   what was in that entry is in the one before;
//! - a pointer is in one list, and its space in that list's totals, in those of its entry's deadlist, and nowhere else.

use std::sync::Arc;

use platter_dmu::bpobj::{Bpobj, BpobjSpace};
use platter_dmu::zap::Zap;
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::DeadlistPhys;
use platter_ondisk::features::Feature;
use platter_ondisk::{ObjectId, ObjectType, Txg};
use platter_zio::BlockStore;

use crate::accounting;
use crate::deadlist;
use crate::empty_bpobj;
use crate::mos_access::MosAccess;
use crate::snapshot::SnapshotBonus;
use crate::used_space::{SpaceChange, difference};

/// As a gain.
fn gain(space: &BpobjSpace) -> SpaceChange {
    SpaceChange {
        used: difference(space.used, 0),
        compressed: difference(space.compressed, 0),
        uncompressed: difference(space.uncompressed, 0),
    }
}

/// Adds `change` to the totals in the header of the deadlist `zap`.
fn add_to_header(zap: &Zap, tx: &Tx, change: SpaceChange) -> Result<()> {
    let object = zap.dnode().object();
    let mut phys = DeadlistPhys::decode(&zap.dnode().bonus())
        .map_err(|e| ZioError::corrupt("deadlist", format!("object {object}: {e}")))?;
    phys.used = phys.used.saturating_add_signed(change.used);
    phys.comp = phys.comp.saturating_add_signed(change.compressed);
    phys.uncomp = phys.uncomp.saturating_add_signed(change.uncompressed);
    zap.dnode().set_bonus(tx, ObjectType::DEADLIST_HDR, &phys.encode())
}

/// Makes an empty deadlist with the keys of `from`, the deadlist of a head whose latest snapshot is `previous`.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn copy_keys(
    mos: &MosAccess<'_>,
    tx: &Tx,
    from: ObjectId,
    previous: ObjectId,
    salt: u64,
) -> Result<ObjectId> {
    with_keys(mos, tx, (from, previous), &[], salt).await
}

/// As [`copy_keys`], for a head of which a snapshot is being taken: blocks born after each of `more`, the group of the
/// snapshot before that and those of bookmarks since, have an entry of their own.
///
/// # Errors
/// Out of space, device errors, damage.
pub async fn for_head(
    mos: &MosAccess<'_>,
    tx: &Tx,
    from: (ObjectId, ObjectId),
    more: &[Txg],
    salt: u64,
) -> Result<ObjectId> {
    with_keys(mos, tx, from, more, salt).await
}

async fn with_keys(
    mos: &MosAccess<'_>,
    tx: &Tx,
    (from, previous): (ObjectId, ObjectId),
    more: &[Txg],
    salt: u64,
) -> Result<ObjectId> {
    if mos.features.is_enabled(Feature::EmptyBpobj) && !deadlist::is_plain(mos.os, from).await? {
        return with_copied_keys(mos, tx, from, more, salt).await;
    }
    let new = deadlist::create(mos.os, tx, mos.version, salt).await?;
    if deadlist::is_plain(mos.os, new).await? {
        return Ok(new);
    }
    let mut births = births(mos.os, from, previous).await?;
    births.extend(more);
    births.sort_unstable();
    births.dedup();
    let zap = Zap::open(mos.os, new).await?;
    let lists = empty_bpobj::empty_bpobjs(mos, tx, births.len()).await?;
    for (birth, list) in births.into_iter().zip(lists) {
        zap.put_int(tx, birth.0, list.0).await?;
    }
    Ok(new)
}

/// As [`with_keys`], where one list stands for all that are empty: `from` is copied as a whole, since each snapshot has
/// a key for each one before it, and thousands of them would be added one by one.
async fn with_copied_keys(mos: &MosAccess<'_>, tx: &Tx, from: ObjectId, more: &[Txg], salt: u64) -> Result<ObjectId> {
    let from = Zap::open(mos.os, from).await?;
    let mut keys = from.count().await?;
    let mut added = Vec::new();
    for &birth in more {
        if from.get_int(birth.0).await?.is_none() && !added.contains(&birth) {
            added.push(birth);
        }
    }
    keys += added.len() as u64;
    let Some(empty) = empty_bpobj::empty_bpobjs(mos, tx, keys as usize).await?.pop() else {
        return deadlist::create(mos.os, tx, mos.version, salt).await;
    };
    let zap = Zap::create_with_keys_of(mos.os, tx, &from, deadlist::new(salt), empty.0).await?;
    for birth in added {
        zap.put_int(tx, birth.0, empty.0).await?;
    }
    Ok(zap.dnode().object())
}

/// The births at which the entries of a head's deadlist `from` part, or where that has none, the snapshot `previous`
/// and those before it.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn births(os: &Arc<Objset>, from: ObjectId, previous: ObjectId) -> Result<Vec<Txg>> {
    match deadlist::is_plain(os, from).await? {
        // The pool was upgraded since: its snapshots tell.
        true => births_of_chain(os, previous).await,
        false => Ok(deadlist::keys(os, from).await?.into_iter().map(|(key, _)| key).collect()),
    }
}

/// Where the snapshot `newest` and all before it begin.
async fn births_of_chain(os: &Arc<Objset>, newest: ObjectId) -> Result<Vec<Txg>> {
    let (mut births, mut at, mut before) = (Vec::new(), newest, Txg(u64::MAX));
    while at.is_some() {
        let phys = SnapshotBonus::load(os, at).await?.phys;
        if phys.creation_txg >= before {
            return Err(ZioError::corrupt("snapshot", format!("object {at}: the chain of snapshots turns back")));
        }
        before = phys.creation_txg;
        births.push(phys.prev_snap_txg);
        at = phys.prev_snap_obj;
    }
    Ok(births)
}

/// The space of pointers on `list` that were born after `after`, up to `until`. In a deadlist with entries both must be
/// such where entries begin, or `until` beyond all.
///
/// # Errors
/// Damage, unreadable blocks.
pub async fn space_between(
    os: &Arc<Objset>,
    store: &dyn BlockStore,
    list: ObjectId,
    after: Txg,
    until: Txg,
) -> Result<SpaceChange> {
    let mut sum = SpaceChange::default();
    if deadlist::is_plain(os, list).await? {
        for bp in Bpobj::open(os, list).await?.pointers().await? {
            if bp.birth() > after && bp.birth() <= until {
                sum += accounting::space(store.dsize(&bp), &bp);
            }
        }
        return Ok(sum);
    }
    // Many entries name the same list, the empty one.
    let mut known: Option<(ObjectId, SpaceChange)> = None;
    for (key, object) in deadlist::keys(os, list).await? {
        if key < after || key >= until {
            continue;
        }
        let space = match known.filter(|(other, _)| *other == object) {
            Some((_, space)) => space,
            None => gain(&Bpobj::open(os, object).await?.totals().await?),
        };
        known = Some((object, space));
        sum += space;
    }
    Ok(sum)
}

/// Makes list `object` part of entry `(key, list)` of the deadlist `zap`; the list that the entry has now.
async fn join(
    mos: &MosAccess<'_>,
    tx: &Tx,
    zap: &Zap,
    (key, list): (Txg, ObjectId),
    object: ObjectId,
) -> Result<ObjectId> {
    let empty = empty_bpobj::known(mos);
    if Some(object) == empty {
        empty_bpobj::give_back(mos, tx, 1).await?;
        return Ok(list);
    }
    if Some(list) == empty {
        zap.put_int(tx, key.0, object.0).await?;
        empty_bpobj::give_back(mos, tx, 1).await?;
        return Ok(object);
    }
    if list == object {
        return Err(ZioError::corrupt("deadlist", format!("list {object} is in it twice")));
    }
    Bpobj::open(mos.os, list).await?.append_list(tx, object).await?;
    Ok(list)
}

/// The blocks born before and after group `birth` need not be told apart any more: the entry that begins there becomes
/// part of the one before.
///
/// # Errors
/// Device errors, damage.
pub async fn remove_key(mos: &MosAccess<'_>, tx: &Tx, list: ObjectId, birth: Txg) -> Result<()> {
    if deadlist::is_plain(mos.os, list).await? {
        return Ok(());
    }
    let keys = deadlist::keys(mos.os, list).await?;
    assert!(keys.is_sorted_by_key(|&(key, _)| key), "the entry before another one is the one of the next lower birth");
    // An entry more than there should be does no harm; the first has nothing before it.
    let Ok(at @ 1..) = keys.binary_search_by_key(&birth, |&(key, _)| key) else { return Ok(()) };
    let zap = Zap::open(mos.os, list).await?;
    join(mos, tx, &zap, keys[at - 1], keys[at].1).await?;
    zap.remove_int(tx, birth.0).await?;
    Ok(())
}

/// Takes all that was born after group `after`, where an entry begins, off the deadlist and puts it on the list
/// `target`; how much that is.
///
/// # Errors
/// Device errors, damage.
pub async fn move_newer(
    mos: &MosAccess<'_>,
    tx: &Tx,
    list: ObjectId,
    after: Txg,
    target: ObjectId,
) -> Result<SpaceChange> {
    let zap = Zap::open(mos.os, list).await?;
    let target = Bpobj::open(mos.os, target).await?;
    let (empty, mut empties, mut moved) = (empty_bpobj::known(mos), 0, SpaceChange::default());
    for (key, object) in deadlist::keys(mos.os, list).await? {
        if key < after {
            continue;
        }
        if Some(object) == empty {
            empties += 1;
        } else {
            moved += gain(&Bpobj::open(mos.os, object).await?.totals().await?);
            target.append_list(tx, object).await?;
        }
        zap.remove_int(tx, key.0).await?;
    }
    empty_bpobj::give_back(mos, tx, empties).await?;
    add_to_header(&zap, tx, -moved)?;
    Ok(moved)
}

/// Puts all that is on the deadlist `from` on `into`, and frees `from`.
///
/// # Errors
/// Device errors, damage.
pub async fn merge(mos: &MosAccess<'_>, tx: &Tx, store: &dyn BlockStore, into: ObjectId, from: ObjectId) -> Result<()> {
    if deadlist::is_plain(mos.os, from).await? {
        let pointers = Bpobj::open(mos.os, from).await?.pointers().await?;
        let own = deadlist::insert(mos.os, tx, store, into, &pointers, empty_bpobj::known(mos)).await?;
        empty_bpobj::give_back(mos, tx, own).await?;
        return Bpobj::free(mos.os, tx, from).await;
    }
    let zap = Zap::open(mos.os, into).await?;
    let mut entries = deadlist::keys(mos.os, into).await?;
    let (empty, mut empties) = (empty_bpobj::known(mos), 0);
    for (key, object) in deadlist::keys(mos.os, from).await? {
        // Most are empty, and there may be thousands.
        if Some(object) == empty {
            empties += 1;
            continue;
        }
        let at = entries.partition_point(|&(other, _)| other <= key).saturating_sub(1);
        let Some(entry) = entries.get_mut(at) else {
            return Err(ZioError::corrupt("deadlist", format!("object {into} has no entries")));
        };
        let space = gain(&Bpobj::open(mos.os, object).await?.totals().await?);
        entry.1 = join(mos, tx, &zap, *entry, object).await?;
        add_to_header(&zap, tx, space)?;
    }
    empty_bpobj::give_back(mos, tx, empties).await?;
    mos.os.free_object(tx, from).await
}
