//! How the pools of `pools.json` come back at the daemon's start.
//!
//! Invariant: a pool is either open, or in `unavailable` with the reason, also while it is on its way in. A device that
//! hangs holds up its own pool, and the first answers of the daemon for a while, but nothing for ever.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use platter_api::request::ImportRequest;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Daemon;
use super::locks::PoolLock;
use crate::pools_file::{self, RememberedPool};

/// How long the mounting of those pools that are open waits for the others: one may be mounted inside another.
const OPENED_TOGETHER: Duration = Duration::from_secs(20);
/// How long the daemon answers nobody while its pools come in. Clients of a new daemon wait for it longer than that.
const START_WAIT: Duration = Duration::from_secs(25);

/// A pool of the list that was tried to be opened.
struct CameIn {
    name: String,
    pool: RememberedPool,
    /// Of one that is open: nobody else does anything with it until it is mounted.
    lock: Option<PoolLock>,
}

impl Daemon {
    /// Opens the pools of `pools.json` and mounts their file systems. A pool that cannot be opened is kept aside with
    /// its reason and does not stop the others. Returns before all is done when devices do not answer.
    pub async fn open_remembered(self: &Arc<Self>) {
        let remembered = match pools_file::read(&self.home.pools_file()) {
            Ok(remembered) => remembered,
            Err(reason) => {
                tracing::error!("{reason}");
                return;
            }
        };
        let (sender, mut opened) = mpsc::unbounded_channel();
        for (name, pool) in remembered {
            let reason = "it is still being opened; its devices have not answered yet".to_owned();
            self.unavailable.write().insert(name.clone(), (pool.clone(), reason));
            let Some(lock) = self.locks.now(&name) else { continue };
            let (daemon, sender) = (self.clone(), sender.clone());
            tokio::spawn(async move {
                let lock = daemon.open_one(&name, pool.clone()).await.then_some(lock);
                let _ = sender.send(CameIn { name, pool, lock });
            });
        }
        drop(sender);
        let (done, mounted) = oneshot::channel();
        let daemon = self.clone();
        tokio::spawn(async move {
            let mut together: Vec<CameIn> = Vec::new();
            let gathering = async {
                while let Some(one) = opened.recv().await {
                    together.push(one);
                }
            };
            let _ = timeout(OPENED_TOGETHER, gathering).await;
            together.sort_by(|a, b| a.name.cmp(&b.name));
            let mut failed = Vec::new();
            daemon.mount_and_open_inner(together, &mut failed).await;
            let _ = done.send(());
            while let Some(one) = opened.recv().await {
                daemon.mount_and_open_inner(vec![one], &mut failed).await;
            }
        });
        if timeout(START_WAIT, mounted).await.is_err() {
            tracing::warn!("some pools are still being opened");
        }
    }

    /// Mounts those that are open. Others may lie in them: those that could not be opened are tried once more when
    /// something was mounted.
    async fn mount_and_open_inner(&self, pools: Vec<CameIn>, failed: &mut Vec<CameIn>) {
        let mut opened = Vec::new();
        for one in pools {
            if one.lock.is_some() { &mut opened } else { &mut *failed }.push(one);
        }
        while !opened.is_empty() {
            let mut is_mounted = false;
            for one in &opened {
                self.show_volumes(&one.name, true).await;
            }
            for one in opened.drain(..).filter(|one| one.pool.mount) {
                is_mounted = true;
                for problem in self.mount_automatic(&one.name).await {
                    tracing::warn!("{problem}");
                }
            }
            if !is_mounted {
                return;
            }
            for one in std::mem::take(failed) {
                let Some(lock) = self.locks.now(&one.name) else { continue };
                if !self.unavailable.read().contains_key(&one.name) {
                    // Somebody gave it up, or opened it.
                    continue;
                }
                let lock = self.open_one(&one.name, one.pool.clone()).await.then_some(lock);
                if lock.is_some() { &mut opened } else { &mut *failed }.push(CameIn { lock, ..one });
            }
        }
    }

    /// Opens one pool; whether it is open then.
    async fn open_one(&self, name: &str, pool: RememberedPool) -> bool {
        let mut properties = BTreeMap::new();
        if pool.read_only {
            properties.insert("readonly".to_owned(), "on".to_owned());
        }
        let request = ImportRequest {
            pool: pool.guid.clone(),
            new_name: Some(name.to_owned()),
            search: pool.devices.clone(),
            silent: Vec::new(),
            force: false,
            destroyed: false,
            missing_logs: false,
            temporary_name: false,
            properties,
            altroot: pool.altroot.clone(),
            history: String::new(),
            was_open: true,
            least_txg: pool.txg,
        };
        match self.open_where_it_is(request).await {
            Ok(handle) => {
                tracing::info!("opened pool '{name}'");
                let moved = handle.device_paths() != pool.devices;
                self.insert(handle, pool).await;
                self.unavailable.write().remove(name);
                debug_assert!(!self.unavailable.read().contains_key(name), "it is open");
                if moved {
                    // Logged: the next daemon looks further again.
                    let _ = self.remember();
                }
                true
            }
            Err(error) => {
                tracing::error!("cannot open pool '{name}': {error}");
                self.unavailable.write().insert(name.to_owned(), (pool, error.to_string()));
                false
            }
        }
    }
}
