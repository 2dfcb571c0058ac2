//! What is on disk of a scan: its state, and how far it got with what it may prove.

use std::sync::Arc;

use parking_lot::Mutex;
use platter_dmu::zap::ZapValue;
use platter_dmu::{Result, Tx};
use platter_dsl::error::PoolError;
use platter_dsl::mos;
use platter_ondisk::dsl::{ScanPhys, scan_func, scan_state};
use platter_ondisk::{ObjectId, ObjectType, Txg, names};

use crate::core::Core;
use crate::lost::Lost;
use crate::scan_place::PLACE;
use crate::scan_state::ScanState;
use crate::{dtl, error_log, rebuild_store, scan_proof};

/// Writes the scan's state and place.
///
/// # Errors
/// The pool is suspended; device errors.
pub async fn persist(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.task(async |core, tx| Ok(write(&core, &tx).await?)).await
}

/// As [`persist`], in the syncing group.
///
/// # Errors
/// Out of space, device errors.
pub async fn write(core: &Core, tx: &Tx) -> Result<()> {
    if !core.dsl.version().has_scan() {
        // Older pools have another record of it, which only their own software goes on from.
        return Ok(());
    }
    // OpenZFS takes a scan under way to have a queue of data sets, and frees it at the end.
    let (scanning, foreign, queue, resilvers) = {
        let scan = core.scan.lock();
        let phys = &scan.phys;
        (phys.state == scan_state::SCANNING, scan.foreign_queue, phys.queue_obj, phys.func == scan_func::RESILVER)
    };
    if resilvers {
        rebuild_store::forget_ended(core, tx).await?;
    }
    if queue.is_some() && (foreign || !scanning) {
        core.dsl.mos.free_object(tx, queue).await?;
        core.scan.lock().phys.queue_obj = ObjectId::NONE;
    }
    if scanning && !core.scan.lock().phys.queue_obj.is_some() {
        let queue = mos::create_zap(&core.dsl.mos, tx, ObjectType::SCAN_QUEUE, core.random()).await?;
        core.scan.lock().phys.queue_obj = queue;
    }
    let (phys, place) = {
        let mut scan = core.scan.lock();
        scan.foreign_queue = false;
        let phys = scan.phys_at_place();
        let mut place = scan.place.encode(&phys);
        let provable =
            scan.roster.as_ref().map_or_else(|| scan.stored.clone(), |roster| roster.provable(&dtl::leaves(core)));
        place.extend(scan_proof::encode(&provable));
        (phys.encode().to_vec(), place)
    };
    core.dsl.directory.put(tx, mos::SCAN.as_bytes(), &ZapValue { integer_size: 8, integers: phys }).await?;
    if scanning {
        core.dsl.directory.put(tx, PLACE.as_bytes(), &ZapValue { integer_size: 8, integers: place }).await?;
    } else if core.dsl.directory.get(PLACE.as_bytes()).await?.is_some() {
        core.dsl.directory.remove(tx, PLACE.as_bytes()).await?;
    }
    Ok(())
}

/// Writes how far the scan got, after what it found lost so far: whoever goes on from there must know both.
///
/// # Errors
/// The pool is suspended; device errors.
pub async fn checkpoint(core: &Arc<Core>, lost: &Mutex<Lost>) -> std::result::Result<(), PoolError> {
    error_log::spread(core, lost).await;
    let is_more = {
        let (lost, mut damaged) = (lost.lock(), core.damaged.lock());
        let before = damaged.len();
        damaged.extend(lost.objects.iter().copied());
        damaged.len() > before
    };
    if is_more {
        core.task(async |core, tx| Ok(error_log::write(&core, &tx).await?)).await?;
    } else if core.dsl.version().has_scan() {
        // In a group of its own: what the place says was repaired is flushed before the place is written.
        make_stable(core).await?;
    }
    persist(core).await
}

/// Flushes every device: what is in their caches only would still be missing after a power cut.
///
/// # Errors
/// The pool is suspended.
pub async fn make_stable(core: &Arc<Core>) -> std::result::Result<(), PoolError> {
    core.pass_group().await
}

/// Loads the scan's state from the pool directory.
///
/// # Errors
/// Unreadable blocks; a state that makes no sense counts as none.
pub async fn load(directory: &platter_dmu::zap::Zap) -> Result<ScanState> {
    let last_scrubbed = Txg(directory.get_u64(names::pool_directory::LAST_SCRUBBED_TXG.as_bytes()).await?.unwrap_or(0));
    let state = match directory.get(mos::SCAN.as_bytes()).await? {
        Some(value) => {
            let place = directory.get(PLACE.as_bytes()).await?.map(|value| value.integers).unwrap_or_default();
            ScanPhys::decode(&value.integers).map(|phys| ScanState::loaded(phys, &place)).unwrap_or_default()
        }
        None => ScanState::default(),
    };
    Ok(ScanState { last_scrubbed, ..state })
}
