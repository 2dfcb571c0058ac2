//! Snapshots from which data sets descend: the one of a clone, and `$ORIGIN@$ORIGIN`, of which every other file system
//! is formally a clone (`dsl_pool_create_origin`, `module/zfs/dsl_pool.c`).
//!
//! The snapshot's `num_children` is one more than its clones; each clone is listed both in the snapshot's next-clones
//! ZAP (there as what comes after the snapshot: the clone's oldest snapshot, or its head) and, as its head, in the
//! origin directory's clones ZAP. In a pool that was damaged that may be otherwise, so nothing relies on it.

use std::sync::Arc;

use platter_api::report::DatasetKind;
use platter_dmu::zap::{Zap, ZapValue};
use platter_dmu::{NewDnode, Objset, Result, Tx, ZioError};
use platter_ondisk::dsl::{DSL_DATASET_SIZE, DslDatasetPhys, DslDirPhys, dataset_flags};
use platter_ondisk::{Guid, ObjectId, ObjectType, Txg};
use platter_zio::Store;

use crate::dataset::Dataset;
use crate::deadlist;
use crate::dir::{Dir, ORIGIN_DIR};
use crate::empty_bpobj::empty_bpobj;
use crate::mos;
use crate::mos_access::MosAccess;
use crate::snapshot::{Origin, Snapshot, SnapshotBonus};

/// Makes `$ORIGIN` and its snapshot in a new pool.
///
/// # Errors
/// Out of space, device errors.
pub async fn create(
    mos: &MosAccess<'_>,
    store: &Store,
    tx: &Tx,
    root: &Arc<Dir>,
    now: u64,
    mut random: impl FnMut() -> u64,
) -> Result<Origin> {
    let dir = Dir::create(mos.os, mos.directory, tx, Some(root.clone()), ORIGIN_DIR, now, &mut random).await?;
    let head = Dataset::create(mos, store, tx, (&dir, DatasetKind::Filesystem), None, now, &mut random).await?;
    let new = NewDnode::bonus_only(ObjectType::DSL_DATASET, DSL_DATASET_SIZE as u16);
    let snapshot = mos.os.allocate(tx, new).await?;
    // The origin must be older than anything in the pool.
    let creation_txg = Txg(1);
    let (head_deadlist, snapnames) = {
        let phys = head.phys.lock();
        (phys.deadlist_obj, phys.snapnames_zapobj)
    };
    let snapshot_phys = DslDatasetPhys {
        dir_obj: dir.object,
        next_snap_obj: head.object,
        num_children: 1,
        creation_time: now,
        creation_txg,
        deadlist_obj: head_deadlist,
        fsid_guid: random() >> 8,
        guid: Guid(random()),
        flags: dataset_flags::UNIQUE_ACCURATE,
        ..DslDatasetPhys::default()
    };
    snapshot.set_bonus(tx, ObjectType::DSL_DATASET, &snapshot_phys.encode())?;
    // The head goes on with a deadlist of its own.
    let fresh = deadlist::create(mos.os, tx, mos.version, random()).await?;
    let mut deadlist_keys = Vec::new();
    if mos.version.has_deadlists() {
        deadlist::add_key(mos.os, tx, fresh, Txg(0), empty_bpobj(mos, tx).await?).await?;
        deadlist_keys.push(Txg(0));
    }
    {
        let mut phys = head.phys.lock();
        phys.deadlist_obj = fresh;
        phys.prev_snap_obj = snapshot.object();
        phys.prev_snap_txg = creation_txg;
    }
    head.store(mos.os, tx).await?;
    let value = ZapValue { integer_size: 8, integers: vec![snapshot.object().0] };
    Zap::open(mos.os, snapnames).await?.add(tx, ORIGIN_DIR.as_bytes(), &value).await?;
    let snapshot = Snapshot { object: snapshot.object(), guid: snapshot_phys.guid, creation_txg };
    Ok(Origin { snapshot, deadlist_keys })
}

/// Lists `dataset` among the clones of snapshot `origin`, whose directory is `dir`; `$ORIGIN`'s is not in memory.
///
/// # Errors
/// Out of space, device errors.
pub async fn attach(
    mos: &MosAccess<'_>,
    tx: &Tx,
    origin: ObjectId,
    dir: Option<&Arc<Dir>>,
    dataset: ObjectId,
    mut random: impl FnMut() -> u64,
) -> Result<()> {
    let os = mos.os;
    let mut snapshot = SnapshotBonus::load(os, origin).await?;
    let phys = &mut snapshot.phys;
    phys.num_children = phys.num_children.saturating_add(1);
    if !phys.next_clones_obj.is_some() {
        phys.next_clones_obj = mos::create_zap(os, tx, ObjectType::NEXT_CLONES, random()).await?;
    }
    Zap::open(os, phys.next_clones_obj).await?.add_int(tx, dataset.0).await?;
    let place = phys.dir_obj;
    snapshot.store(tx)?;
    if !mos.version.has_deadlists() {
        return Ok(());
    }
    add_clone(os, tx, (place, dir), dataset, random()).await
}

/// Lists `dataset` among the clones of a directory's snapshots (`dd_clones`): of its object, and itself when it is in
/// memory.
///
/// # Errors
/// Out of space, device errors.
pub async fn add_clone(
    os: &Arc<Objset>,
    tx: &Tx,
    (place, dir): (ObjectId, Option<&Arc<Dir>>),
    dataset: ObjectId,
    salt: u64,
) -> Result<()> {
    let mut clones = clones_of(os, place, dir).await?;
    if !clones.is_some() {
        clones = mos::create_zap(os, tx, ObjectType::DSL_CLONES, salt).await?;
        match dir {
            Some(dir) => {
                dir.phys.lock().clones = clones;
                dir.store(os, tx).await?;
            }
            None => {
                let dnode = os.dnode(place).await?;
                let phys = DslDirPhys { clones, ..dir_phys(&dnode)? };
                dnode.set_bonus(tx, ObjectType::DSL_DIR, &phys.encode())?;
            }
        }
    }
    Zap::open(os, clones).await?.add_int(tx, dataset.0).await
}

/// Takes `dataset` off the clones of a directory's snapshots.
///
/// # Errors
/// Device errors, damage.
pub async fn remove_clone(
    os: &Arc<Objset>,
    tx: &Tx,
    (place, dir): (ObjectId, Option<&Arc<Dir>>),
    dataset: ObjectId,
) -> Result<()> {
    let clones = clones_of(os, place, dir).await?;
    if clones.is_some() {
        Zap::open(os, clones).await?.remove_int(tx, dataset.0).await?;
    }
    Ok(())
}

async fn clones_of(os: &Arc<Objset>, place: ObjectId, dir: Option<&Arc<Dir>>) -> Result<ObjectId> {
    match dir {
        Some(dir) => Ok(dir.phys.lock().clones),
        None => {
            let dnode = os.dnode(place).await?;
            Ok(dir_phys(&dnode)?.clones)
        }
    }
}

/// Takes `dataset` off the clones of snapshot `origin`, whose directory is `dir`; `$ORIGIN`'s is not in memory.
///
/// # Errors
/// Device errors, damage.
pub async fn detach(
    os: &Arc<Objset>,
    tx: &Tx,
    origin: ObjectId,
    dir: Option<&Arc<Dir>>,
    dataset: ObjectId,
) -> Result<()> {
    let mut snapshot = SnapshotBonus::load(os, origin).await?;
    let phys = &mut snapshot.phys;
    phys.num_children = phys.num_children.saturating_sub(1);
    if phys.next_clones_obj.is_some() {
        Zap::open(os, phys.next_clones_obj).await?.remove_int(tx, dataset.0).await?;
    }
    let place = phys.dir_obj;
    snapshot.store(tx)?;
    remove_clone(os, tx, (place, dir), dataset).await
}

fn dir_phys(dnode: &platter_dmu::Dnode) -> Result<DslDirPhys> {
    DslDirPhys::decode(&dnode.bonus())
        .map_err(|e| ZioError::corrupt("DSL directory", format!("object {}: {e}", dnode.object())))
}
