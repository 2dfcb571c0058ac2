//! Leaving a pool: in order (export, close, destroy), or by giving it up.
//!
//! Invariants:
//! - in order, the last group is on disk before the devices are closed. A pool whose devices fail meanwhile stays open
//!   and is as it was: its labels do not say that it was left;
//! - a pool that was given up writes nothing any more, also when a device that hung comes back: its devices are behind
//!   a cutoff, and whoever waits for them is told. Its labels say that it is in use, as after a crash.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use platter_device::Idleness;
use platter_ondisk::Txg;
use platter_vdev::{Condition, VdevAux, VdevState};
use platter_zio::Phase;

use crate::config::PoolState;
use crate::core::Core;
use crate::pool::Pool;
use crate::{cache_devices, error_log, error_scrub, free_commands, rebuild, scan, spares};
use platter_dsl::error::Result;

/// A device that ends no transfer for so long hangs. A slow one ends some.
const HANG: Duration = Duration::from_secs(8);
/// How long a pool that was given up may take to notice it everywhere.
const SETTLE: Duration = Duration::from_secs(5);
/// How long it may take to find out what else lost what readers came across.
const LOOKS: Duration = Duration::from_secs(5);

/// What is not on the devices of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwritten {
    /// The last group that is.
    pub synced: Txg,
    /// Bytes of files that were written since.
    pub bytes: u64,
    /// Whether anything was changed since: names and attributes count as no bytes.
    pub changed: bool,
}

impl Pool {
    /// The mounted file systems that hold its devices, as far as that can be told: device numbers, `major:minor`. Waits
    /// for devices that do not answer.
    pub async fn file_systems_below(&self) -> BTreeSet<String> {
        let devices = &self.core.environment.devices;
        let mut found = BTreeSet::new();
        for path in self.device_paths() {
            found.extend(devices.file_systems_below(&path).await);
        }
        found
    }

    /// Ends the sync loop after one last group.
    async fn end(&self) {
        if self.is_suspended() {
            self.stop("the pool was closed");
        }
        self.core.stopping.store(true, Ordering::Release);
        let gate = self.core.dsl.gate.clone();
        let open = gate.open_txg();
        let kick = tokio::spawn(async move { gate.wait_synced(open).await });
        let sync_loop = self.sync_loop.lock().take();
        if let Some(mut sync_loop) = sync_loop {
            // All that matters is on disk: the last group must not wait for devices that fail now.
            let failing = async {
                self.core.dsl.store.suspension().halted().await;
                self.stop("the pool was closed");
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                _ = &mut sync_loop => {}
                () = failing => {}
                () = self.settled_after_giving_up() => sync_loop.abort(),
            }
        }
        kick.abort();
        self.core.dsl.gate.suspend("the pool was closed".into());
        cache_devices::close_all(&self.core).await;
        self.core.leaf_devices.lock().clear();
        for vdev in self.core.dsl.store.state().vdevs.iter().flatten() {
            for leaf in vdev.leaves() {
                leaf.close(Condition::new(VdevState::Closed, VdevAux::None));
            }
        }
        self.core.locked.lock().clear();
        self.core.dsl.store.state().cache.clear();
        // No group of this pool comes after which what waits for the next buffers would be looked at: the first look
        // notes what is there, the second gives back what nobody took meanwhile.
        platter_buffer::trim();
        platter_buffer::trim();
    }

    /// Over some time after the pool was given up.
    async fn settled_after_giving_up(&self) {
        self.core.cutoff.fallen().await;
        tokio::time::sleep(SETTLE).await;
    }

    /// Brings everything to the devices, with `state` in their labels.
    async fn write_out(&self, state: Option<PoolState>) -> Result<()> {
        self.sync().await?;
        self.core.flush_logs.store(true, Ordering::Release);
        let Some(state) = state else { return Ok(()) };
        let called_off = Arc::new(AtomicBool::new(false));
        let watched = called_off.clone();
        let marked = self
            .core
            .task(async move |core, _tx| {
                if !watched.load(Ordering::Acquire) {
                    core.config.write().state = state;
                    core.dsl.dirty_config();
                }
                Ok(())
            })
            .await;
        if marked.is_err() {
            // A suspended pool may be resumed, and must not tell then that nobody uses it.
            called_off.store(true, Ordering::Release);
            self.core.config.write().state = PoolState::Active;
            self.core.dsl.dirty_config();
        }
        marked
    }

    async fn leave(&self, state: Option<PoolState>) -> Result<()> {
        let stopped = matches!(self.core.dsl.store.suspension().phase(), Phase::Stopped(_));
        if self.is_suspended() {
            return self.core.dsl.check_running();
        }
        let halted = async {
            rebuild::halt(&self.core).await;
            scan::halt(&self.core).await;
            error_scrub::halt(&self.core).await;
            free_commands::halt(&self.core).await;
            if !self.core.dsl.read_only {
                // Of what is not found out in this time, whoever comes across it again tells.
                let _ = tokio::time::timeout(LOOKS, error_log::spread_new(&self.core)).await;
                error_log::write_new(&self.core).await;
            }
            Ok(())
        };
        let halted = self.core.dsl.unless_suspended(halted).await;
        if self.is_suspended() {
            stay(&self.core);
            return halted;
        }
        let mut outcome = Ok(());
        if !self.core.dsl.read_only && !stopped {
            outcome = self.write_out(state).await;
            if outcome.is_err() && self.is_suspended() {
                self.core.flush_logs.store(false, Ordering::Release);
                stay(&self.core);
                return outcome;
            }
        }
        self.end().await;
        outcome
    }

    /// Whether the pool's I/O waits for devices to come back (`zpool clear`).
    pub fn is_suspended(&self) -> bool {
        self.core.dsl.store.suspension().is_suspended()
    }

    /// Waits until it is.
    pub async fn suspended(&self) {
        self.core.dsl.store.suspension().suspended().await;
    }

    /// Gives up what waits for devices: it fails, and nothing more is written. What was acknowledged as stable is on
    /// disk or in the intent logs there.
    pub fn stop(&self, reason: &str) {
        self.core.dsl.store.suspension().stop(reason);
        self.core.dsl.gate.suspend(reason.to_owned());
    }

    /// As [`stop`](Self::stop), and parts from the devices at once, whatever they do: transfers that hang fail, and
    /// none is begun any more. The pool has still to be closed, which now ends soon.
    pub fn abandon(&self, reason: &str) {
        self.stop(reason);
        self.core.cutoff.fall(reason);
    }

    /// Waits until some device has ended no transfer for some seconds although it had any, and tells its name.
    pub async fn hangs(&self) -> String {
        self.core.cutoff.hangs(HANG).await
    }

    /// As [`hangs`](Self::hangs), of who looks himself, each `time`; see [`platter_device::Cutoff::silent`].
    pub fn silent_device(&self, seen: &mut Idleness, time: Duration) -> Option<String> {
        self.core.cutoff.silent(seen, time, HANG)
    }

    /// The last group that is on the devices.
    pub fn committed(&self) -> Txg {
        self.core.uberblock.lock().txg
    }

    /// What would be lost now if the pool were given up; fsync(2) has brought parts of it to the intent logs.
    pub fn unwritten(&self) -> Unwritten {
        let bytes = self.core.dsl.gate.dirty();
        Unwritten { synced: self.committed(), bytes, changed: bytes > 0 || crate::sync::has_changes(&self.core) }
    }

    /// Syncs everything, marks the labels exported and closes the devices. All data sets must be closed (unmounted). A
    /// pool that was stopped is only closed.
    ///
    /// # Errors
    /// The pool is suspended, or was meanwhile: it stays open. When the last group could not be written for another
    /// reason; the devices are closed all the same.
    pub async fn export(&self) -> Result<()> {
        self.leave(Some(PoolState::Exported)).await?;
        self.core.event("sysevent.fs.zfs.pool_export", Vec::new());
        Ok(())
    }

    /// Syncs everything and closes the devices but leaves the pool marked active (daemon shutdown): the next daemon
    /// start imports it again.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub async fn close(&self) -> Result<()> {
        self.leave(None).await
    }

    /// Marks the labels destroyed and closes the devices; spares that no other pool lists are free for others. Cache
    /// devices are without that.
    ///
    /// # Errors
    /// As [`export`](Self::export).
    pub async fn destroy(&self) -> Result<()> {
        self.leave(Some(PoolState::Destroyed)).await?;
        spares::release_all(&self.core).await;
        self.core.event("sysevent.fs.zfs.pool_destroy", Vec::new());
        Ok(())
    }

    /// After an import or a creation that failed halfway.
    pub(crate) async fn end_after_failure(&self) {
        self.end().await;
    }
}

/// The pool was not left: what was halted may go on.
fn stay(core: &Core) {
    free_commands::stay(core);
    rebuild::stay(core);
}
