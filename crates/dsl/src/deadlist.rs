//! Deadlists: what a data set no longer references but its snapshots do (`module/zfs/dsl_deadlist.c`).
//!
//! Invariants: a deadlist is a ZAP from birth group to bpobj; a pointer goes to the entry with the greatest key below
//! its birth; the header counts the space of all entries; an entry may name the pool's shared empty bpobj until its
//! first pointer.

use std::sync::Arc;

use platter_dmu::bpobj::{Bpobj, BpobjSpace, sizes};
use platter_dmu::zap::{NewZap, Zap};
use platter_dmu::{Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::{DEADLIST_SIZE, DeadlistPhys};
use platter_ondisk::{BlkPtr, ObjectId, ObjectType, Txg};
use platter_zio::BlockStore;

use crate::version::PoolVersion;

/// Block size of a deadlist's bpobjs (`SPA_OLD_MAXBLOCKSIZE`).
pub const BPOBJ_BLOCK: u32 = 128 << 10;

/// Makes an empty deadlist (`dsl_deadlist_alloc`).
///
/// # Errors
/// Out of space, device errors.
pub async fn create(mos: &Arc<Objset>, tx: &Tx, version: PoolVersion, salt: u64) -> Result<ObjectId> {
    if !version.has_deadlists() {
        return Bpobj::create_plain(mos, tx, BPOBJ_BLOCK).await;
    }
    Ok(Zap::create(mos, tx, None, new(salt)).await?.dnode().object())
}

/// What a new one with entries is.
pub(crate) fn new(salt: u64) -> NewZap {
    NewZap {
        object_type: ObjectType::DEADLIST,
        normalization: 0,
        flags: 0,
        bonus_type: ObjectType::DEADLIST_HDR,
        bonus_length: DEADLIST_SIZE as u16,
        dnode_size: 0,
        salt,
    }
}

/// Adds the entry for blocks born after group `birth`, naming `bpobj`.
///
/// # Errors
/// Device errors, damage.
pub async fn add_key(mos: &Arc<Objset>, tx: &Tx, deadlist: ObjectId, birth: Txg, bpobj: ObjectId) -> Result<()> {
    Zap::open(mos, deadlist).await?.put_int(tx, birth.0, bpobj.0).await
}

/// Whether a deadlist is one plain bpobj, as before pool version 26; it stays so when the pool is upgraded.
///
/// # Errors
/// Device errors, damage.
pub async fn is_plain(mos: &Arc<Objset>, deadlist: ObjectId) -> Result<bool> {
    Ok(mos.dnode(deadlist).await?.info().object_type == ObjectType::BPOBJ)
}

/// The entries: `(birth, bpobj)` by birth. A plain one is its own only entry.
///
/// # Errors
/// Device errors, damage.
pub async fn keys(mos: &Arc<Objset>, deadlist: ObjectId) -> Result<Vec<(Txg, ObjectId)>> {
    let dnode = mos.dnode(deadlist).await?;
    if dnode.info().object_type == ObjectType::BPOBJ {
        return Ok(vec![(Txg(0), deadlist)]);
    }
    let entries = Zap::from_dnode(dnode).ints().await?;
    Ok(entries.into_iter().map(|(key, object)| (Txg(key), ObjectId(object))).collect())
}

/// Bytes of all pointers on the deadlist.
///
/// # Errors
/// Device errors, damage.
pub async fn space(mos: &Arc<Objset>, deadlist: ObjectId) -> Result<DeadlistPhys> {
    let dnode = mos.dnode(deadlist).await?;
    if dnode.info().object_type == ObjectType::BPOBJ {
        let BpobjSpace { used, compressed, uncompressed, .. } = Bpobj::open(mos, deadlist).await?.space().await?;
        return Ok(DeadlistPhys { used, comp: compressed, uncomp: uncompressed });
    }
    DeadlistPhys::decode(&dnode.bonus()).map_err(|e| ZioError::corrupt("deadlist", format!("object {deadlist}: {e}")))
}

/// Deflated bytes of all pointers on the deadlist.
///
/// # Errors
/// Device errors, damage.
pub async fn space_used(mos: &Arc<Objset>, deadlist: ObjectId) -> Result<u64> {
    Ok(space(mos, deadlist).await?.used)
}

/// Puts `pointers` on the deadlist. `empty` is the pool's shared empty bpobj, if it has one; entries that still named
/// it get a list of their own, and their number is returned, to be taken off that feature's count.
///
/// # Errors
/// Device errors, damage.
pub async fn insert(
    mos: &Arc<Objset>,
    tx: &Tx,
    store: &dyn BlockStore,
    deadlist: ObjectId,
    pointers: &[BlkPtr],
    empty: Option<ObjectId>,
) -> Result<u64> {
    if is_plain(mos, deadlist).await? {
        Bpobj::open(mos, deadlist).await?.append(tx, pointers).await?;
        return Ok(0);
    }
    let zap = Zap::open(mos, deadlist).await?;
    let mut keys = keys(mos, deadlist).await?;
    assert!(keys.is_sorted_by_key(|&(key, _)| key), "the entries of a deadlist are looked through by birth");
    let mut by_entry: std::collections::BTreeMap<usize, Vec<BlkPtr>> = std::collections::BTreeMap::new();
    for bp in pointers {
        let entry = keys.partition_point(|&(key, _)| key < bp.birth()).saturating_sub(1);
        if keys.is_empty() {
            return Err(ZioError::corrupt("deadlist", format!("object {deadlist} has no entries")));
        }
        debug_assert!(entry == 0 || keys[entry].0 < bp.birth(), "a pointer is in the entry below its birth");
        by_entry.entry(entry).or_default().push(*bp);
    }
    let mut replaced = 0;
    for (entry, pointers) in by_entry {
        let (key, mut object) = keys[entry];
        if Some(object) == empty {
            object = Bpobj::create(mos, tx, BPOBJ_BLOCK).await?;
            zap.put_int(tx, key.0, object.0).await?;
            keys[entry].1 = object;
            replaced += 1;
        }
        Bpobj::open(mos, object).await?.append(tx, &pointers).await?;
    }
    let mut phys = DeadlistPhys::decode(&zap.dnode().bonus())
        .map_err(|e| ZioError::corrupt("deadlist", format!("object {deadlist}: {e}")))?;
    for bp in pointers {
        let (compressed, uncompressed) = sizes(bp);
        phys.used = phys.used.wrapping_add(store.dsize(bp));
        phys.comp = phys.comp.wrapping_add(compressed);
        phys.uncomp = phys.uncomp.wrapping_add(uncompressed);
    }
    zap.dnode().set_bonus(tx, ObjectType::DEADLIST_HDR, &phys.encode())?;
    Ok(replaced)
}
