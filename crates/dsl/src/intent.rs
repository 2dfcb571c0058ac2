//! Intent logs from the pool's side: claimed when the pool is opened, synced with their data set, freed with it
//! (`spa_ld_claim_log_blocks`, `module/zfs/spa.c`).
//!
//! Invariants:
//! - before anything is allocated in an opened pool, all blocks of all logs are marked as allocated; the heads that say
//!   so are written in the same group, the first one;
//! - what is claimed is on every device that can take it;
//! - a log that cannot be read to its end for want of a device keeps the pool from being opened for writing.

use platter_ondisk::features::Feature;
use std::sync::Arc;

use platter_dmu::{Objset, ObjsetParams, Result, Tx, ZioError};
use platter_hooks::Canary;
use platter_ondisk::zil::ZilHeader;
use platter_ondisk::{BlkPtr, ObjectId, ObjsetPhys, Txg};
use platter_zil::{Claim, Dialect, Zil, blocks_to_free, complete_waiting, survey};
use platter_zio::Store;
use platter_zio::{BlockReader, BlockStore, Bookmark, Priority};

use crate::claimed_log::ClaimedLog;
use crate::dataset::Dataset;
use crate::error::PoolError;
use crate::pool::DslPool;
use crate::tree::Tree;
use crate::{effects, zapify};

/// The feature of data sets whose log may hold records of extended attributes.
const XATTR_RECORDS: Feature = Feature::Zilsaxattr;

/// Finds the logs a crash left, and marks their blocks as allocated in group `first`, the first to be synced. When log
/// devices are gone for good (`is_log_lost`), logs that cannot be read are given up.
///
/// # Errors
/// Devices that fail, damage in a log, a log that this version cannot read.
pub async fn claim(
    store: &Store,
    tree: &Tree,
    params: &ObjsetParams,
    first: Txg,
    is_log_lost: bool,
) -> std::result::Result<Vec<ClaimedLog>, PoolError> {
    let unreadable = |name: &str, error: ZioError| {
        PoolError::Unavailable(format!(
            "the intent log of {name} cannot be read: {error}\nImport the pool with \"-o readonly=on\" to read the \
             state before it, or, if a log device is offline, with '-m' to give up what is only there."
        ))
    };
    let mut claims = Vec::new();
    for (name, dataset) in &tree.datasets {
        let bp = dataset.phys.lock().bp;
        if bp.is_hole() {
            continue;
        }
        let header = if bp.is_protected() {
            // Its log must not be overwritten either: the head can be read without the key.
            let bookmark = Bookmark { objset: dataset.object, object: ObjectId(0), level: -1, blkid: 0 };
            let Ok(block) = store.read(&bp, bookmark, Priority::SyncRead).await else { continue };
            let Ok(phys) = ObjsetPhys::decode(&block) else { continue };
            phys.zil()
        } else {
            let params = ObjsetParams { id: dataset.object, read_only: true, ..params.clone() };
            match Objset::open(params, bp).await {
                Ok(os) => os.zil_header(),
                // What is damaged cannot be mounted either; opening it says what is wrong.
                Err(ZioError::Checksum { .. } | ZioError::Corrupt { .. }) => continue,
                Err(error) => return Err(unreadable(name, error)),
            }
        };
        let found = match survey(store, &header, first).await {
            // One that was claimed before is read when it is replayed; who gives up looks now.
            Ok(None) if is_log_lost && blocks_to_free(store, &header).await.is_err() => {
                Some(give_up(store, name, &header, first).await)
            }
            Ok(found) => found,
            Err(_) if is_log_lost => Some(give_up(store, name, &header, first).await),
            Err(error) => return Err(unreadable(name, error)),
        };
        if let Some(claim) = found {
            claims.push(ClaimedLog { dataset: dataset.clone(), claim });
        }
    }
    for bp in claims.iter().flat_map(|claimed| &claimed.claim.blocks).filter(|_| !Canary::LogUnclaimed.sings()) {
        store.claim(bp).await?;
    }
    for ClaimedLog { claim, .. } in &claims {
        claim.complete(store).await;
    }
    Ok(claims)
}

async fn give_up(store: &Store, name: &str, header: &ZilHeader, first: Txg) -> Claim {
    tracing::error!("the intent log of {name} is lost with a log device: what was stable there only is gone");
    Claim::give_up(store, header, first).await
}

/// Writes the heads of claimed logs into `tx`'s group, the first one.
///
/// # Errors
/// Device errors, damage.
pub async fn store_claims(dsl: &DslPool, tx: &Tx) -> Result<()> {
    let claims = std::mem::take(&mut *dsl.claims.lock());
    for ClaimedLog { dataset, claim } in claims {
        let is_given_up = claim.header.log.is_hole();
        let group = claim.header.claim_txg;
        assert!(is_given_up || group == tx.txg(), "a log is claimed in the group that marks its blocks, not {group}");
        let os = match dataset.open_objset() {
            Some(os) => os,
            None => open(dsl, &dataset).await?,
        };
        os.set_zil_header(tx, &claim.header)?;
        for bp in &claim.unneeded {
            dsl.store.free(tx.txg(), bp);
        }
        dataset.objset.lock().get_or_insert(os);
    }
    Ok(())
}

/// Opens the object set of a data set.
///
/// # Errors
/// Device errors, damage.
pub async fn open(dsl: &DslPool, dataset: &Dataset) -> Result<Arc<Objset>> {
    let root = dataset.phys.lock().bp;
    let properties = effects::write_properties(dsl, &dataset.dir);
    // Property `readonly` is the mount's business: a log is replayed all the same.
    let params = dsl.objset_params(dataset.object, dataset.accounting.clone(), properties, false);
    let os = Objset::open(params, root).await?;
    effects::follow_caching(dsl, dataset);
    os.set_hole_birth(dsl.features.is_active(Feature::HoleBirth));
    Ok(os)
}

/// The intent log of a data set that is being opened for writing.
pub fn open_log(dsl: &Arc<DslPool>, dataset: &Dataset, os: &Arc<Objset>) -> Arc<Zil> {
    let version = dsl.version();
    let dialect = Dialect { slim: version.has_slim_zil(), solaris: version.is_before_linux() };
    let weak = Arc::downgrade(dsl);
    let random = Box::new(move || weak.upgrade().map_or(0, |dsl| dsl.random()));
    let log = Zil::new(os.clone(), dsl.store.clone(), dialect, effects::sync_mode(dataset), random);
    log.set_bias(effects::log_bias(dataset));
    log
}

/// Gives every device what it should hold of logs that a crash left and that nobody has replayed yet, of data sets that
/// are not mounted: a scan does not see them, since no object leads to them. Returns the blocks that cannot be had.
///
/// # Errors
/// Device errors, damage.
pub async fn mend_waiting(dsl: &DslPool) -> Result<Vec<BlkPtr>> {
    let datasets: Vec<Arc<Dataset>> = dsl.tree.read().datasets.values().cloned().collect();
    let mut lost = Vec::new();
    for dataset in datasets {
        // Its data set may be mounted meanwhile, and what the log had be freed: it must not be others' yet.
        let _pinned = dsl.store.pin();
        // A head that is lost was seen by the scan, and counts as hiding what is below it.
        if let Ok(Some(header)) = waiting(dsl, &dataset).await
            && header.claim_txg.0 != 0
        {
            lost.extend(complete_waiting(&dsl.store, &header).await?);
        }
    }
    Ok(lost)
}

/// Whether some file system has, or may have, a log that waits to be replayed, or is being replayed: one whose head
/// cannot be read may.
pub async fn any_waits(dsl: &DslPool) -> bool {
    let datasets: Vec<Arc<Dataset>> = dsl.tree.read().datasets.values().cloned().collect();
    for dataset in datasets {
        let is_replayed = dataset.zil.lock().as_ref().is_some_and(|zil| zil.is_claimed());
        if is_replayed || !matches!(waiting(dsl, &dataset).await, Ok(None)) {
            return true;
        }
    }
    false
}

/// The head of a log of a data set that is not open; it waits to be replayed if it was claimed.
///
/// # Errors
/// The head cannot be read.
pub async fn waiting(dsl: &DslPool, dataset: &Dataset) -> Result<Option<ZilHeader>> {
    let bp = dataset.phys.lock().bp;
    if bp.is_hole() || dataset.zil.lock().is_some() {
        return Ok(None);
    }
    let bookmark = Bookmark { objset: dataset.object, object: ObjectId(0), level: -1, blkid: 0 };
    let header = match dataset.open_objset() {
        Some(os) => os.zil_header(),
        None => {
            let head = dsl.store.read(&bp, bookmark, Priority::Scrub).await?;
            ObjsetPhys::decode(&head).map_err(|error| ZioError::corrupt("object set", error.to_string()))?.zil()
        }
    };
    Ok((!header.log.is_hole()).then_some(header))
}

/// Whether the log of a data set can be freed with it: all of it must be known.
///
/// # Errors
/// Device errors, damage.
pub async fn check_free(dsl: &DslPool, dataset: &Dataset) -> Result<()> {
    if dataset.phys.lock().bp.is_hole() {
        return Ok(());
    }
    let header = open(dsl, dataset).await?.zil_header();
    blocks_to_free(&dsl.store, &header).await.map(drop)
}

/// Frees the log of a data set that is destroyed without having been mounted since a crash.
///
/// # Errors
/// Device errors, damage.
pub async fn free(dsl: &DslPool, tx: &Tx, dataset: &Dataset) -> Result<()> {
    let header = open(dsl, dataset).await?.zil_header();
    for bp in blocks_to_free(&dsl.store, &header).await? {
        dsl.store.free(tx.txg(), &bp);
    }
    Ok(())
}

/// A snapshot's object set may name the log that its head had then, which is long gone: a head that gets it has none
/// (`dsl_dataset_zero_zil`, `module/zfs/dsl_dataset.c`). A later pass of the group writes that.
///
/// # Errors
/// Device errors, damage.
pub async fn forget(dsl: &Arc<DslPool>, tx: &Tx, head: &Arc<Dataset>) -> Result<()> {
    if head.phys.lock().bp.is_hole() {
        return Ok(());
    }
    let os = open(dsl, head).await?;
    if os.zil_header() != ZilHeader::default() {
        os.set_zil_header(tx, &ZilHeader::default())?;
        head.set_open(&os);
    }
    Ok(())
}

/// While a data set has a log, it says that there may be records of extended attributes in it, so that software that
/// cannot replay them does not try (`zil_create`, `zil_sync`).
///
/// # Errors
/// Out of space, device errors.
pub async fn note_feature(dsl: &Arc<DslPool>, tx: &Tx, dataset: &Arc<Dataset>, zil: &Zil) -> Result<()> {
    if zil.has_chain() {
        return zapify::activate(dsl, tx, dataset, XATTR_RECORDS).await;
    }
    zil.set_takes_xattrs(false);
    zapify::deactivate(dsl, tx, dataset, XATTR_RECORDS).await
}

/// Group `txg` is on disk.
pub fn clean(dsl: &DslPool, txg: Txg) {
    for dataset in dsl.tree.read().datasets.values() {
        if let Some(zil) = &*dataset.zil.lock() {
            zil.clean(txg);
            zil.set_takes_xattrs(dataset.features.lock().contains(&XATTR_RECORDS));
        }
    }
}
