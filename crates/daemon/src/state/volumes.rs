//! Where volumes are reached: a mount for each pool that has some, in the daemon's own folder.
//!
//! Invariants:
//! - functions here that take a pool's name are called with its lock held;
//! - the mount goes before its pool does.

use std::path::PathBuf;
use std::sync::Arc;

use super::daemon::SharedVolumes;
use super::{Answer, Daemon};
use crate::mounter::UnmountError;
use platter_api::messages::ErrorBody;

impl Daemon {
    fn volumes_place(&self, pool: &str) -> PathBuf {
        self.home.volumes().join(pool)
    }

    fn shown_volumes(&self, pool: &str) -> Option<SharedVolumes> {
        self.volumes.read().get(pool).cloned()
    }

    /// Shows the volumes of a pool, if it has any and does not yet; `is_new`: it has just been opened, and a crash may
    /// have left something to be done again. What fails is said in the log: they are there all the same.
    pub(super) async fn show_volumes(&self, pool: &str, is_new: bool) {
        let Ok(handle) = self.pool(pool) else { return };
        if is_new {
            self.mounter.replay_volumes(&handle).await;
        }
        if let Some(mounted) = self.shown_volumes(pool) {
            let mut mounted = mounted.lock().await;
            if !mounted.is_gone() {
                return;
            }
            let _ = mounted.unmount(true).await;
            self.volumes.write().remove(pool);
        }
        let (at, source) = (self.volumes_place(pool), source(pool));
        self.recorded.add(&at, &source);
        match self.mounter.mount_volumes(&handle, &source, &at).await {
            Ok(Some(mounted)) => {
                self.volumes.write().insert(pool.to_owned(), Arc::new(tokio::sync::Mutex::new(mounted)));
                tracing::info!("the volumes of '{pool}' are in {}", at.display());
            }
            Ok(None) => self.recorded.remove(&at),
            Err(reason) => {
                self.recorded.remove(&at);
                tracing::warn!("cannot show the volumes of '{pool}' in {}: {reason}", at.display());
            }
        }
    }

    /// Takes the mount away; with `force` also when volumes are open.
    pub(super) async fn hide_volumes(&self, pool: &str, force: bool) -> Answer<()> {
        let Some(mounted) = self.shown_volumes(pool) else { return Ok(()) };
        let at = self.volumes_place(pool);
        let unmounted = mounted.lock().await.unmount(force).await;
        match unmounted {
            Ok(()) => {}
            Err(UnmountError::Busy) => {
                let text = format!("cannot unmount '{}': pool or dataset is busy", at.display());
                return Err(ErrorBody::new(text).hint("a volume of the pool is in use"));
            }
            Err(UnmountError::Other(reason)) => {
                return Err(ErrorBody::new(format!("cannot unmount '{}': {reason}", at.display())));
            }
        }
        assert!(mounted.lock().await.is_gone(), "nothing is served any more");
        self.volumes.write().remove(pool);
        self.recorded.remove(&at);
        let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir(at)).await;
        Ok(())
    }

    /// Takes the mount away at the daemon's end: what cannot be unmounted is cut off. Tells what was.
    pub(super) async fn end_volumes(&self, pool: &str) -> Option<String> {
        let error = self.hide_volumes(pool, true).await.err()?;
        let mounted = self.shown_volumes(pool)?;
        let cut = mounted.lock().await.cut_off().await;
        self.volumes.write().remove(pool);
        let end = if cut.is_ok() { "it is cut off" } else { "it cannot be cut off either" };
        Some(format!("{}\n{end}", error.message))
    }
}

/// What the kernel shows as the device of such a mount: no data set is called so.
fn source(pool: &str) -> String {
    format!("{pool}:volumes")
}
