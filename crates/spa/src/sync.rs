//! The sync loop: one transaction group after the other from memory to stable storage (`spa_sync`,
//! `module/zfs/spa.c`).
//!
//! Invariants:
//! - the order within a group is: data sets, their totals, tasks, the MOS, space maps; again until nothing is dirty;
//!   flush; even labels; uberblock; odd labels;
//! - a task finds in the MOS what this group made of the data sets, as a snapshot would have to;
//! - the uberblock is never written before everything it leads to was flushed;
//! - what devices cannot do suspends the pool, and is tried again when it is resumed (property `failmode`); a group
//!   during which that happened is read back before it is committed;
//! - after any other error the pool is stopped: no later group can be written over an incomplete one;
//! - a group without changes writes nothing.

use platter_ondisk::features::Feature;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_dmu::bpobj::Bpobj;
use platter_dmu::{Result, Tx, ZioError};
use platter_hooks::Canary;
use platter_ondisk::uberblock::Uberblock;
use platter_ondisk::{BlkPtr, Txg};
use platter_zio::free_gang;
use tracing::Instrument;

use crate::config::PoolConfig;
use crate::core::Core;
use crate::course::{Course, Opening};
use crate::labels::{self, Half};
use crate::locked;
use crate::{ddt, dtl, exchange, log_spacemaps, multihost, salt, space_check, space_maps};
use platter_dsl::sync::{any_dataset_is_dirty, assert_stored, book_mos, sync_datasets};
use platter_dsl::tasks::{GroupTasks, Moment};
use platter_dsl::{deleted_clones, freeing, intent, watched};

/// More passes than this mean that sync does not converge.
const PASSES_MAX: u32 = 64;
/// While a scan pins freed space no group makes room; who waits for room is to look again no more often than this.
const PINNED_WAIT: Duration = Duration::from_millis(10);
/// Software version in the uberblock and of new pools (`SPA_VERSION_FEATURES`).
pub const VERSION: u64 = 5000;

/// Runs until the pool is stopped.
pub async fn run(core: Arc<Core>) {
    let timeout = Duration::from_secs(core.environment.txg_timeout_seconds.max(1));
    let mut trimmed = tokio::time::Instant::now();
    let mut opened = Opening::now(&core);
    loop {
        let stopping = core.stopping.load(Ordering::Acquire);
        if !stopping && freeing::has_work(&core.dsl) {
            core.dsl.gate.ask_for(core.dsl.gate.open_txg());
        }
        let wanted = tokio::time::timeout(timeout, core.dsl.gate.wanted()).await.is_ok();
        if trimmed.elapsed() >= timeout {
            platter_buffer::trim();
            trimmed = tokio::time::Instant::now();
        }
        let stopping = core.stopping.load(Ordering::Acquire);
        let open = core.dsl.gate.open_txg();
        if !wanted && !stopping && !is_dirty(&core, open) {
            continue;
        }
        let span = tracing::debug_span!("txg", pool = core.name(), txg = open.0);
        match finish_group(&core, &mut opened).instrument(span).await {
            Ok(()) => {}
            Err(error) => {
                tracing::error!(pool = core.name(), txg = %open, %error, "sync failed; the pool is stopped");
                core.dsl.halt_for_good(&error.to_string());
                return;
            }
        }
        if stopping && core.dsl.tasks.is_empty() {
            return;
        }
    }
}

/// Closes the open group and brings it to stable storage. `opened` says since when it was open, then since when the
/// next one is.
async fn finish_group(core: &Arc<Core>, opened: &mut Opening) -> Result<()> {
    tracing::debug!("quiescing");
    let closed = Opening::now(core);
    let txg = core.dsl.gate.quiesce().await;
    let mut course = Course::begin(core, txg, std::mem::replace(opened, closed), closed);
    platter_zio::must_succeed(sync(core, txg, &mut course)).await?;
    // Before anybody hears that the group is finished: who waited for it finds it there.
    core.txgs.add(course.end(core));
    core.dsl.gate.finish(txg);
    core.environment.memory.look(core.environment.memory_limits());
    if exchange::look(core) {
        drop(watched::spawn(&core.dsl, "a replacement", exchange::settle(core.clone())));
    }
    Ok(())
}

/// Whether group `txg` has anything to write.
fn is_dirty(core: &Core, txg: Txg) -> bool {
    !core.dsl.tasks.is_empty()
        || core.dsl.config_dirty.load(Ordering::Relaxed)
        || core.dsl.mos.is_dirty(txg)
        || any_dataset_is_dirty(&core.dsl, txg)
        || core.dsl.store.state().allocator.lock().deferred() > 0
}

/// Whether something was changed that no group on the devices has.
pub fn has_changes(core: &Core) -> bool {
    let (synced, open) = (core.dsl.gate.synced_txg(), core.dsl.gate.open_txg());
    (synced.0 + 1..=open.0).any(|txg| is_dirty(core, Txg(txg)))
}

async fn sync(core: &Arc<Core>, txg: Txg, course: &mut Course) -> Result<()> {
    let tasks = core.dsl.tasks.take(txg);
    core.dsl.store.state().allocator.lock().absorb_log(txg);
    let work = !tasks.is_empty()
        || !core.dsl.claims.lock().is_empty()
        || core.dsl.store.state().allocator.lock().is_dirty()
        || core.dsl.config_dirty.load(Ordering::Relaxed)
        || core.dsl.mos.is_dirty(txg)
        || freeing::has_work(&core.dsl)
        || any_dataset_is_dirty(&core.dsl, txg);
    if !work {
        // Nothing to write: but groups pass, so freed space becomes usable.
        let pinned = {
            let mut allocator = core.dsl.store.state().allocator.lock();
            allocator.finish(txg);
            allocator.is_pinned() && allocator.deferred() > 0
        };
        platter_dsl::sync::update_available(&core.dsl);
        if pinned {
            tokio::time::sleep(PINNED_WAIT).await;
        }
        return Ok(());
    }
    if core.dsl.read_only {
        return Err(ZioError::ReadOnly);
    }
    check_devices(core);
    dtl::note_absent(core, txg);
    let tx = Tx::syncing(txg);
    let resumptions = core.dsl.store.suspension().resumptions();
    core.dsl.store.set_pass(1);
    let outcome = async {
        free_deferred(core, &tx).await?;
        intent::store_claims(&core.dsl, &tx).await?;
        if core.dsl.version().has_features() {
            salt::create_if_missing(&core.dsl.directory, &core.dsl.store, &tx, &core.environment).await?;
        }
        let settled = converge(core, &tx, tasks).await?;
        course.flush(settled.passes);
        if cfg!(debug_assertions) {
            space_check::check(core).await?;
        }
        make_durable(core, txg, resumptions).await?;
        commit(core, txg, settled.root, settled.config_changed).await
    }
    .await;
    core.dsl.store.set_pass(0);
    core.dsl.store.forget_born();
    outcome?;
    platter_dsl::effects::follow_writing(&core.dsl);
    intent::clean(&core.dsl, txg);
    core.dsl.store.state().allocator.lock().finish(txg);
    platter_dsl::sync::update_available(&core.dsl);
    Ok(())
}

/// Notices devices that disappeared; they are written no more and the pool becomes degraded.
fn check_devices(core: &Core) {
    for vdev in core.dsl.store.state().vdevs.iter().flatten() {
        vdev.check_present();
    }
}

/// Frees what late passes of the group before put on the deferred list (`spa_sync_deferred_frees`).
async fn free_deferred(core: &Arc<Core>, tx: &Tx) -> Result<()> {
    let object = core.dsl.objects.lock().deferred;
    let list = Bpobj::open(&core.dsl.mos, object).await?;
    let pointers = list.pointers().await?;
    if pointers.is_empty() {
        return Ok(());
    }
    let mut kept = Vec::new();
    for bp in &pointers {
        if bp.is_dedup() {
            ddt::release(core, tx, bp).await?;
        } else if !bp.is_gang() {
            core.dsl.store.load_below(bp).await;
            core.dsl.store.state().allocator.lock().free(bp)?;
        } else if let Err(error) = free_gang(&core.dsl.store, bp).await {
            if !matches!(error, ZioError::Io(_)) {
                return Err(error);
            }
            // Its members are known only to the header that cannot be read. It stays on the list, so that nothing is
            // lost track of, and the pool goes on.
            tracing::warn!(pool = core.name(), %error, "space stays allocated");
            kept.push(*bp);
        }
    }
    if kept.len() == pointers.len() {
        return Ok(());
    }
    list.clear(tx).await?;
    if kept.is_empty() { Ok(()) } else { list.append(tx, &kept).await }
}

/// A group of which every block is written.
struct Settled {
    /// The MOS's root pointer.
    root: BlkPtr,
    /// Whether the configuration was written, so that the labels must follow.
    config_changed: bool,
    passes: u32,
}

/// Writes data sets, MOS and space maps until nothing is dirty, and does `tasks` once what was written to files in this
/// group has its blocks.
async fn converge(core: &Arc<Core>, tx: &Tx, mut tasks: GroupTasks) -> Result<Settled> {
    let txg = tx.txg();
    let maps = space_maps::vdev_maps(core);
    let logging = log_spacemaps::is_enabled(core);
    let mut config_changed = false;
    for pass in 1..=PASSES_MAX {
        core.dsl.store.set_pass(pass);
        tasks.run(Moment::Early, txg).await?;
        sync_datasets(&core.dsl, tx, pass).await?;
        tasks.run(Moment::Ordinary, txg).await?;
        if pass == 1 {
            // Of what a task has just destroyed, too.
            deleted_clones::step(&core.dsl, tx).await?;
            freeing::step(&core.dsl, tx).await?;
            book_mos(&core.dsl, tx).await?;
            if logging {
                // Before the pool ends everything is flushed, so that the next import has little to read.
                log_spacemaps::flush(core, tx, core.flush_logs.load(Ordering::Acquire)).await?;
            }
        }
        // A device may fail in any pass.
        dtl::sync(core, tx).await?;
        if core.dsl.config_dirty.swap(false, Ordering::Relaxed) {
            crate::config_object::write(core, tx).await?;
            config_changed = true;
        }
        let late = core.dsl.store.take_late_frees();
        if !late.is_empty() {
            let object = core.dsl.objects.lock().deferred;
            Bpobj::open(&core.dsl.mos, object).await?.append(tx, &late).await?;
        }
        let root = core.dsl.mos.sync(txg, pass).await?;
        if logging {
            log_spacemaps::append(core, tx, pass).await?;
        } else {
            let created = space_maps::sync(&core.dsl.mos, &core.dsl.store, tx, pass, &maps).await?;
            if created > 0 {
                core.dsl.features.adjust(tx, Feature::SpacemapHistogram, created as i64).await?;
            }
        }
        if let Some(error) = core.dsl.store.take_free_error() {
            return Err(error);
        }
        let settled = !core.dsl.mos.is_dirty(txg)
            && !any_dataset_is_dirty(&core.dsl, txg)
            && !core.dsl.store.state().allocator.lock().is_dirty()
            && core.dsl.store.state().late_frees.lock().is_empty();
        if settled {
            if cfg!(debug_assertions) {
                assert_stored(&core.dsl);
            }
            return Ok(Settled { root, config_changed, passes: pass });
        }
    }
    Err(ZioError::corrupt("sync", format!("txg {txg} did not converge in {PASSES_MAX} passes")))
}

/// Tries until devices have done it; in between the pool is suspended.
async fn insist<'a>(core: &'a Core, attempt: impl Fn() -> BoxFuture<'a, Result<()>> + Send) -> Result<()> {
    let suspension = core.dsl.store.suspension();
    loop {
        let resumptions = suspension.resumptions();
        match attempt().await {
            Err(ZioError::Io(reason)) => {
                if !suspension.hold(resumptions, &reason).await {
                    return Err(ZioError::Io(reason));
                }
            }
            outcome => return outcome,
        }
    }
}

/// Flushes every device. When the pool was suspended since it had been resumed `resumptions` times, the group is read
/// back too: what a device had not flushed when it failed may be gone, although it had accepted it.
async fn make_durable(core: &Core, txg: Txg, mut resumptions: u64) -> Result<()> {
    if Canary::UberblockBeforeFlush.sings() {
        return Ok(());
    }
    loop {
        insist(core, || core.dsl.store.flush(txg).boxed()).await?;
        let now = core.dsl.store.suspension().resumptions();
        if now == resumptions {
            return Ok(());
        }
        insist(core, || core.dsl.store.verify_born().boxed()).await?;
        resumptions = now;
    }
}

async fn write_labels(core: &Core, config: Arc<PoolConfig>, txg: Txg) -> Result<()> {
    match labels::write_config(&core.label_targets(), &config, txg, Half::Even).await {
        0 => Err(ZioError::Io("no device accepted its label".into())),
        _ => Ok(()),
    }
}

async fn write_uberblock(core: &Core, uberblock: Uberblock) -> Result<()> {
    match labels::write_uberblock(&core.label_targets(), &uberblock, multihost::is_on(core)).await {
        0 => Err(ZioError::Io("no device accepted the uberblock".into())),
        _ => Ok(()),
    }
}

/// Makes the group, whose blocks are durable, the pool's newest state.
async fn commit(core: &Core, txg: Txg, root: BlkPtr, config_changed: bool) -> Result<()> {
    let config = {
        let mut config = core.config.write();
        config.features_for_read = core.dsl.features.for_labels();
        config.clone()
    };
    if dtl::is_unsaved(core) {
        // A device failed after the lists were written for this group: they go with the next one, which must come.
        core.dsl.dirty_config();
    }
    // Labels are written when the configuration changed, and refused by a majority means that no device can be trusted.
    if config_changed {
        locked::note_leaves(&core.environment, &config, &core.beside());
        let list = Arc::new(config.clone());
        insist(core, || write_labels(core, list.clone(), txg).boxed()).await?;
    }
    let mut uberblock = {
        let before = core.uberblock.lock();
        assert!(before.txg < txg, "the newest uberblock is that of the last group, and {txg} follows {}", before.txg);
        Uberblock {
            version: config.version,
            txg,
            guid_sum: config.vdev_tree.guid_sum(),
            timestamp: core.now().max(before.timestamp),
            rootbp: root,
            software_version: VERSION,
            ..Uberblock::default()
        }
    };
    multihost::complete(core, &mut uberblock);
    let written = uberblock.clone();
    insist(core, move || write_uberblock(core, written.clone()).boxed()).await?;
    *core.uberblock.lock() = uberblock;
    if config_changed {
        labels::write_config(&core.label_targets(), &config, txg, Half::Odd).await;
        core.event("sysevent.fs.zfs.config_sync", Vec::new());
    }
    Ok(())
}
