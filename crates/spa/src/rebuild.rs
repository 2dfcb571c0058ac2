//! Sequential reconstruction of devices that join a mirror (`zpool attach -s`, `zpool replace -s`;
//! `module/zfs/vdev_rebuild.c`): what begins it, lets it go on, and ends it.
//!
//! No checksum is verified by it, so that a scrub of the whole pool follows. Invariants:
//! - while one is under way no scan of the pool is, and one that was is over;
//! - what it could not do is left to a resilver, which begins when the last one is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use platter_dmu::Tx;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::watched;
use platter_ondisk::Txg;
use platter_ondisk::features::Feature;
use platter_ondisk::rebuild::RebuildState;
use platter_vdev::{Layout, TopVdev};

use crate::core::Core;
use crate::rebuild_walk::{End, Walk};
use crate::{rebuild_store, rebuild_walk, scan, scan_store};

/// How a new device gets what the others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Giving {
    /// By a resilver, which begins at once.
    ByBlock,
    /// By a resilver that waits, if it has to, for reconstructions: the device joins by itself, and nobody would try
    /// again.
    Later,
    /// By a sequential reconstruction.
    Sequentially,
}

impl Giving {
    /// Whether it can be done so in a top-level vdev, where a device takes another one's place if it `replaces` it.
    ///
    /// # Errors
    /// In OpenZFS's words, why not.
    pub fn check(self, core: &Core, top: &TopVdev, replaces: bool) -> Result<()> {
        match self {
            Self::ByBlock => check_none(core),
            Self::Later => Ok(()),
            Self::Sequentially => check(core, top, replaces),
        }
    }
}

/// Whether devices of a top-level vdev can be reconstructed now.
///
/// # Errors
/// In OpenZFS's words (`zpool_vdev_attach`).
fn check(core: &Core, top: &TopVdev, replaces: bool) -> Result<()> {
    let only_mirrors = || PoolError::invalid("only mirror and dRAID vdevs support sequential reconstruction");
    let is_enabled = core.dsl.features.is_enabled(Feature::DeviceRebuild);
    match top.layout() {
        _ if !is_enabled && replaces => Err(only_mirrors()),
        _ if !is_enabled => {
            Err(PoolError::invalid("device_rebuild feature must be enabled in order to use sequential reconstruction"))
        }
        _ if scan::is_resilvering(core) => Err(PoolError::Busy("currently resilvering".into())),
        Layout::Raidz { .. } if replaces => Err(only_mirrors()),
        Layout::Raidz { .. } => Err(PoolError::invalid("can only attach to mirrors and top-level disks")),
        Layout::Single | Layout::Mirror => Ok(()),
    }
}

/// A device may not join to be resilvered as long as others are reconstructed.
///
/// # Errors
/// In OpenZFS's words.
fn check_none(core: &Core) -> Result<()> {
    match core.rebuilds.is_active() {
        true => Err(PoolError::Busy("currently sequentially resilvering".into())),
        false => Ok(()),
    }
}

/// Begins in the syncing group, in which a device that lacks all groups up to `last` joins a top-level vdev.
///
/// # Errors
/// Out of space, device errors.
pub async fn begin(core: &Arc<Core>, tx: &Tx, top: u64, last: Txg) -> Result<()> {
    Ok(rebuild_store::begin(core, tx, top, last).await?)
}

/// Ends it in the syncing group, in which a device leaves a top-level vdev, when none is there any more that joined for
/// it.
///
/// # Errors
/// Out of space, device errors.
pub async fn end_unneeded(core: &Core, tx: &Tx, top: &TopVdev) -> platter_dmu::Result<()> {
    match rebuild_walk::joined(core, top).is_empty() {
        true => rebuild_store::end(core, tx, top.id(), RebuildState::Canceled).await,
        false => Ok(()),
    }
}

/// Goes on with all that is to make devices whole: reconstructions first, then scans.
pub fn resume(core: &Arc<Core>) {
    if core.dsl.read_only || core.rebuilds.leaving.load(Ordering::Acquire) {
        return;
    }
    for top in core.rebuilds.active() {
        let Some(vdev) = core.dsl.store.state().vdevs.get(top as usize).and_then(Option::as_ref) else { continue };
        let Some(number) = core.rebuilds.begin(top) else { continue };
        drop(watched::spawn(&core.dsl, "a sequential reconstruction", run(core.clone(), vdev.clone(), number)));
    }
    scan::resume(core);
}

async fn run(core: Arc<Core>, top: Arc<TopVdev>, number: u64) {
    scan::cancel(&core).await;
    let ended = match Walk::new(core.clone(), top.clone(), number).run().await {
        Ok(End::All) => finish(&core, top.clone(), number, RebuildState::Complete).await,
        Ok(End::Unneeded) => finish(&core, top.clone(), number, RebuildState::Canceled).await,
        Ok(End::Stopped) => Ok(()),
        Err(error) => Err(error),
    };
    core.rebuilds.end(top.id(), number);
    if let Err(error) = ended {
        // Until somebody clears the pool, or imports it.
        return tracing::info!(pool = core.name(), %error, "a sequential reconstruction waits");
    }
    // What began anew meanwhile has nobody yet; and what is left to a resilver waits for this.
    resume(&core);
}

/// Ends it. With the last one a scrub begins, in the same group.
async fn finish(core: &Arc<Core>, top: Arc<TopVdev>, number: u64, to: RebuildState) -> Result<()> {
    core.task(async move |core, tx| {
        rebuild_walk::note_lost(&core, &top, number);
        let Some(rebuild) = core.rebuilds.with(top.id(), number, |rebuild| rebuild.clone()) else { return Ok(()) };
        let to = if rebuild.members.is_empty() { RebuildState::Canceled } else { to };
        if to == RebuildState::Complete && rebuild.phys.errors == 0 {
            let last = Txg(rebuild.phys.max_txg.0.saturating_sub(1));
            for leaf in top.leaves().iter().filter(|leaf| rebuild.members.contains_key(&leaf.guid().0)) {
                leaf.forget(&leaf.missing().through(last));
            }
        }
        rebuild_store::end(&core, &tx, top.id(), to).await?;
        core.dsl.dirty_config();
        if to == RebuildState::Complete {
            core.rebuilds.unverified.store(true, Ordering::Release);
        }
        if scan::begin_verifying(&core) {
            scan_store::write(&core, &tx).await?;
        }
        Ok(())
    })
    .await
}

/// Ends all walks of this process, without changing what the pool remembers but for their places. Nothing is begun any
/// more.
pub async fn halt(core: &Core) {
    core.rebuilds.leaving.store(true, Ordering::Release);
    wait(core).await;
}

/// Waits until no walk of this process is under way.
pub async fn wait(core: &Core) {
    loop {
        let changed = core.rebuilds.changed.clone();
        let mut woken = std::pin::pin!(changed.notified());
        woken.as_mut().enable();
        if !core.rebuilds.known.lock().values().any(|rebuild| rebuild.runner.is_some()) {
            return;
        }
        woken.await;
    }
}

/// The pool was not left: what was halted may go on.
pub fn stay(core: &Core) {
    core.rebuilds.leaving.store(false, Ordering::Release);
}
