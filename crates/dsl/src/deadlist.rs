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

use crate::mos_access::MosAccess;
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

/// What pointers on a list say of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nobody references them but snapshots: of a deadlist.
    Dead,
    /// They were born: of a livelist.
    Births,
    /// They died, and were put on the list as born before: of a livelist.
    Deaths,
}

/// Removes the entry of `key`, whose list has been dealt with, and takes its space off the header. The list itself
/// stays.
///
/// # Errors
/// No such entry, device errors, damage.
pub async fn remove_key(mos: &MosAccess<'_>, tx: &Tx, deadlist: ObjectId, key: Txg) -> Result<()> {
    let zap = Zap::open(mos.os, deadlist).await?;
    let list = keys(mos.os, deadlist).await?.into_iter().find(|&(at, _)| at == key);
    let (_, list) = list.ok_or_else(|| ZioError::corrupt("deadlist", format!("object {deadlist}: no entry {key}")))?;
    zap.remove_int(tx, key.0).await?;
    let gone = Bpobj::open(mos.os, list).await?.totals().await?;
    change_header(&zap, tx, deadlist, |phys| {
        phys.used = phys.used.wrapping_sub(gone.used);
        phys.comp = phys.comp.wrapping_sub(gone.compressed);
        phys.uncomp = phys.uncomp.wrapping_sub(gone.uncompressed);
    })
}

fn change_header(zap: &Zap, tx: &Tx, deadlist: ObjectId, change: impl FnOnce(&mut DeadlistPhys)) -> Result<()> {
    let mut phys = DeadlistPhys::decode(&zap.dnode().bonus())
        .map_err(|e| ZioError::corrupt("deadlist", format!("object {deadlist}: {e}")))?;
    change(&mut phys);
    zap.dnode().set_bonus(tx, ObjectType::DEADLIST_HDR, &phys.encode())
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
    insert_as(mos, tx, store, deadlist, pointers, empty, Kind::Dead).await
}

/// As [`insert`], on a deadlist or a livelist.
///
/// # Errors
/// Device errors, damage.
pub async fn insert_as(
    mos: &Arc<Objset>,
    tx: &Tx,
    store: &dyn BlockStore,
    deadlist: ObjectId,
    pointers: &[BlkPtr],
    empty: Option<ObjectId>,
    kind: Kind,
) -> Result<u64> {
    if pointers.is_empty() {
        return Ok(0);
    }
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
            object = match kind {
                Kind::Dead => Bpobj::create(mos, tx, BPOBJ_BLOCK).await?,
                Kind::Births | Kind::Deaths => Bpobj::create_live(mos, tx, BPOBJ_BLOCK).await?,
            };
            zap.put_int(tx, key.0, object.0).await?;
            keys[entry].1 = object;
            replaced += 1;
        }
        let list = Bpobj::open(mos, object).await?;
        match kind {
            Kind::Dead | Kind::Births => list.append(tx, &pointers).await?,
            Kind::Deaths => list.append_died(tx, &pointers).await?,
        }
    }
    change_header(&zap, tx, deadlist, |phys| {
        for bp in pointers {
            let (used, (compressed, uncompressed)) = (store.dsize(bp), sizes(bp));
            let of = |all: u64, one: u64| match kind {
                Kind::Dead | Kind::Births => all.wrapping_add(one),
                Kind::Deaths => all.wrapping_sub(one),
            };
            phys.used = of(phys.used, used);
            phys.comp = of(phys.comp, compressed);
            phys.uncomp = of(phys.uncomp, uncompressed);
        }
    })?;
    Ok(replaced)
}
