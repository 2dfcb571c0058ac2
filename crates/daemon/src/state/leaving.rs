//! How pools leave: `zpool export`, `zpool destroy`, and the daemon's end.
//!
//! Invariants:
//! - an ordinary export never gives up data: a pool whose devices fail meanwhile stays, suspended;
//! - an export by force, and the daemon's end, are over within seconds whatever devices do. They first try it in order,
//!   for as long as the devices do anything; a pool that must be given up is parted from its devices, and what is not
//!   on them is said.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::locks::PoolLock;
use super::{Answer, Daemon, Entry, failed, mounts};
use crate::engine::{Leave, PoolHandle};
use platter_api::messages::{ClosePool, ErrorBody};
use platter_dsl::PoolError;

/// How long a pool that was given up may take to go.
const GIVEN_UP_WAIT: Duration = Duration::from_secs(10);
/// How long a pool is waited for that is still being opened.
const OPENING_WAIT: Duration = Duration::from_secs(5);

/// How long a pool is asked whether it could be opened again.
const REPORT_WAIT: Duration = Duration::from_secs(5);

/// Why nobody could open a pool any more once it is closed: files of its vdevs were deleted, and are there for as long
/// as they are open.
async fn lost_when_closed(pool: &Arc<dyn PoolHandle>, name: &str) -> Option<String> {
    let lost = tokio::time::timeout(REPORT_WAIT, pool.lost_when_closed()).await.ok()??;
    Some(format!(
        "files of '{lost}' were deleted, and are gone once '{name}' is closed: it cannot be imported again. 'zpool \
         replace' puts other devices in their place, which must be resilvered first"
    ))
}

/// What becomes of a pool that leaves by force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Its labels say that it is free, and it is forgotten.
    Export,
    /// The next daemon opens it again.
    Close,
}

impl Daemon {
    /// `zpool export`; tells what was given up.
    pub async fn export_pool(&self, call: &ClosePool) -> Answer<Vec<String>> {
        let name = &*call.pool;
        if call.force {
            return self.leave_by_force(name, Ending::Export, &call.command).await;
        }
        let what = format!("cannot export '{name}'");
        let _lock = self.turn(name, &what).await?;
        if self.forget_unavailable(name)? {
            return Ok(Vec::new());
        }
        let pool = self.pool(name)?;
        self.check_running(name, &what)?;
        if self.streams.any(name) {
            return Err(ErrorBody::new(format!("cannot export '{name}': pool is busy")));
        }
        self.check_spares_stay(name, &what)?;
        if let Some(why) = lost_when_closed(&pool, name).await {
            return Err(ErrorBody::new(format!("{what}: use '-f' to override the following errors:\n{why}")));
        }
        let places = self.unmount_pool(name, false).await?;
        self.log(&pool, &call.command);
        if let Err(error) = pool.leave(Leave::Export).await {
            // Its devices failed meanwhile: it waits for them, with what is not written yet.
            self.check_running(name, &what)?;
            let error = failed(&what, error);
            for problem in self.mount_automatic(name).await {
                tracing::warn!("{problem}");
            }
            self.show_volumes(name, false).await;
            return Err(error);
        }
        self.forget(name, &places).await?;
        Ok(Vec::new())
    }

    /// `zpool destroy`.
    pub async fn destroy_pool(&self, call: &ClosePool) -> Answer<()> {
        let name = &*call.pool;
        let what = format!("cannot destroy '{name}'");
        self.check_running(name, &what)?;
        self.streams.end(name).await;
        let _lock = self.turn(name, &what).await?;
        let pool = self.pool(name)?;
        self.check_running(name, &what)?;
        let places = match self.unmount_pool(name, call.force).await {
            Ok(places) => places,
            Err(mut error) => {
                error.message.push_str(&format!("\ncould not destroy '{name}': could not unmount datasets"));
                return Err(error);
            }
        };
        self.log(&pool, &call.command);
        if let Err(error) = pool.leave(Leave::Destroy).await {
            self.check_running(name, &what)?;
            return Err(failed(&what, error));
        }
        self.forget(name, &places).await
    }

    /// Waits until nobody else changes this pool; refuses when it is suspended meanwhile, as whoever changes it may
    /// wait for its devices.
    pub(super) async fn turn(&self, name: &str, what: &str) -> Answer<PoolLock> {
        let mut lock = std::pin::pin!(self.locks.of(name));
        loop {
            // One that goes on at once may stop again.
            let Ok(pool) = self.pool(name) else { return Ok(lock.await) };
            tokio::select! {
                biased;
                lock = &mut lock => return Ok(lock),
                () = pool.suspended() => self.check_running(name, what)?,
            }
        }
    }

    /// Refuses to export a pool in which a spare stands in that is another pool's, too: once nobody holds it, that pool
    /// might take it (`spa_has_active_shared_spare`, `module/zfs/spa.c`).
    fn check_spares_stay(&self, name: &str, what: &str) -> Answer<()> {
        let pools = self.pools.read();
        let at_work = pools.get(name).map(Entry::real_spares_at_work).unwrap_or_default();
        let is_shared = |(other, entry): (&String, &Entry)| {
            other != name && entry.real_spares().iter().any(|spare| at_work.contains(spare))
        };
        if at_work.is_empty() || !pools.iter().any(is_shared) {
            return Ok(());
        }
        Err(ErrorBody::new(format!(
            "{what}: use '-f' to override the following errors:\n'{name}' has an active shared spare which could be \
             used by other pools once '{name}' is exported."
        )))
    }

    /// Refuses what would wait for the devices of a suspended pool.
    pub(super) fn check_running(&self, pool: &str, what: &str) -> Answer<()> {
        if !self.pool(pool).is_ok_and(|pool| pool.is_suspended()) {
            return Ok(());
        }
        Err(failed(what, PoolError::Suspended { pool: pool.to_owned(), is_begun: false }))
    }

    fn forget_unavailable(&self, name: &str) -> Answer<bool> {
        let known = self.unavailable.write().remove(name).is_some();
        if known {
            self.remember().map_err(ErrorBody::new)?;
        }
        Ok(known)
    }

    /// Takes leave of a pool at the daemon's end: it stays in the list. At each moment it is in one of the two.
    fn put_by(&self, name: &str) {
        let closed = self.pools.read().get(name).filter(|entry| !entry.forgettable).map(Entry::to_remember);
        self.closed.write().extend(closed.map(|closed| (name.to_owned(), closed)));
        self.pools.write().remove(name);
    }

    async fn forget(&self, name: &str, places: &[PathBuf]) -> Answer<()> {
        self.pools.write().remove(name);
        let written = self.remember();
        mounts::remove_folders(places.to_vec()).await;
        written.map_err(|reason| ErrorBody::new(format!("'{name}' is closed, but {reason}")))
    }

    /// Whether the daemon may end when somebody asks for it: not when a pool would be lost by that.
    pub async fn check_may_end(&self) -> Answer<()> {
        let pools: Vec<(String, Arc<dyn PoolHandle>)> = self
            .pool_names()
            .pools
            .into_iter()
            .filter_map(|name| Some((name.clone(), self.pool(&name).ok()?)))
            .collect();
        for (name, pool) in pools {
            if let Some(why) = lost_when_closed(&pool, &name).await {
                let hint = format!("'zpool export -f {name}' gives it up");
                return Err(ErrorBody::new(format!("cannot stop the daemon: {why}")).hint(hint));
            }
        }
        Ok(())
    }

    /// Unmounts everything, syncs and closes all pools, each for itself, but one that lies in another before that; they
    /// stay in `pools.json`. Tells what could not be done.
    pub async fn shut_down(&self) -> Vec<String> {
        self.ending.store(true, Ordering::Release);
        let mut nesting = self.nesting().await;
        let mut problems = Vec::new();
        loop {
            let names = nesting.take_innermost();
            if names.is_empty() {
                // One may have been opened meanwhile.
                let names = self.pools.read().keys().cloned().collect();
                problems.extend(self.close_all(names).await);
                return problems;
            }
            problems.extend(self.close_all(names).await);
        }
    }

    /// Whether its pools are being closed, or are closed.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    async fn close_all(&self, names: Vec<String>) -> Vec<String> {
        let all = names.iter().map(|name| async move {
            let problems = match self.leave_by_force(name, Ending::Close, "").await {
                Ok(given_up) => given_up,
                Err(error) => vec![format!("cannot close pool '{name}': {}", error.message)],
            };
            match problems.is_empty() {
                true => tracing::info!("closed pool '{name}'"),
                false => problems.iter().for_each(|problem| tracing::error!("{problem}")),
            }
            self.put_by(name);
            problems
        });
        futures::future::join_all(all).await.concat()
    }

    /// Unmounts a pool whose daemon ends in any case: what stays mounted is cut off. Tells what was.
    async fn unmount_at_the_end(&self, name: &str, pool: &Arc<dyn PoolHandle>) -> Answer<Vec<String>> {
        let mut problems: Vec<String> = self.end_volumes(name).await.into_iter().collect();
        for dataset in self.mounted_last_first(name) {
            let Err(error) = self.unmount_one(&dataset, true).await else { continue };
            if pool.is_suspended() {
                return Err(error);
            }
            let Some(active) = self.mounted(&dataset) else { continue };
            let end = match self.cut_off(&dataset, &active).await {
                Ok(()) => "the daemon ends all the same: who looks there gets errors until it is unmounted or the \
                           daemon starts again"
                    .to_owned(),
                Err(reason) => format!("it cannot be cut off either: {reason}"),
            };
            problems.push(format!("{}\n{end}", error.message));
        }
        Ok(problems)
    }

    /// One attempt to leave in order; tells what was not.
    async fn leave(
        &self,
        name: &str,
        pool: &Arc<dyn PoolHandle>,
        ending: Ending,
        command: &str,
    ) -> Answer<Vec<String>> {
        let _lock = self.locks.of(name).await;
        if !self.pools.read().get(name).is_some_and(|entry| Arc::ptr_eq(&entry.pool, pool)) {
            // Whoever held the lock was faster.
            return Ok(Vec::new());
        }
        let mut problems = Vec::new();
        match ending {
            Ending::Export => {
                let places = self.unmount_pool(name, true).await?;
                self.log(pool, command);
                pool.leave(Leave::Export).await.map_err(|error| failed(&format!("cannot export '{name}'"), error))?;
                self.forget(name, &places).await?;
            }
            Ending::Close => {
                problems.extend(self.unmount_at_the_end(name, pool).await?);
                self.log(pool, command);
                pool.leave(Leave::Close).await.map_err(|error| failed(&format!("cannot close '{name}'"), error))?;
                self.put_by(name);
                // With the last group that it reached. Logged: without it the next daemon believes what it finds.
                let _ = self.remember();
            }
        }
        Ok(problems)
    }

    async fn leave_by_force(&self, name: &str, ending: Ending, command: &str) -> Answer<Vec<String>> {
        let found = self.pools.read().get(name).map(|entry| entry.pool.clone());
        let Some(pool) = found else {
            // It may be on its way in, which its devices hold up.
            let Some(_lock) = self.locks.soon(name, OPENING_WAIT).await else {
                return Err(ErrorBody::new(format!("cannot export '{name}': another operation on it is under way")));
            };
            if self.forget_unavailable(name)? {
                return Ok(Vec::new());
            }
            return match self.pool(name) {
                Ok(_) => Err(ErrorBody::new(format!("cannot export '{name}': it was opened just now; try again"))),
                Err(error) => Err(error),
            };
        };
        let mut given_up = Vec::new();
        if !pool.is_suspended() {
            self.streams.end(name).await;
        }
        if pool.is_suspended() {
            given_up.push(give_up(name, &pool, "its I/O was suspended"));
        }
        let mut orderly = std::pin::pin!(self.leave(name, &pool, ending, command));
        let trouble = async {
            tokio::select! {
                device = pool.hangs() => format!("{device} does not answer"),
                () = pool.suspended() => "its I/O was suspended".to_owned(),
            }
        };
        let reason = tokio::select! {
            biased;
            done = &mut orderly => match done {
                Err(_) if pool.is_suspended() => None,
                done => return done.map(|problems| [given_up, problems].concat()),
            },
            reason = trouble => Some(reason),
        };
        given_up.push(give_up(name, &pool, reason.as_deref().unwrap_or("its I/O was suspended")));
        let rest = async {
            // What was under way fails now, mostly. Without a reason it has failed already.
            if reason.is_some()
                && let Ok(problems) = orderly.await
            {
                return Ok(problems);
            }
            self.leave(name, &pool, ending, command).await
        };
        let trouble = match tokio::time::timeout(GIVEN_UP_WAIT, rest).await {
            Ok(Ok(problems)) => return Ok([given_up, problems].concat()),
            Ok(Err(error)) => error.message,
            Err(_) => "something still waits".to_owned(),
        };
        tracing::error!("'{name}' was given up and does not end in order: {trouble}");
        // They stay on record: the next daemon takes away what is left.
        self.mounts.write().retain(|dataset| mounts::pool_of(dataset) != name);
        self.volumes.write().remove(name);
        match ending {
            Ending::Export => {
                self.pools.write().remove(name);
                given_up.extend(self.remember().err());
            }
            Ending::Close => self.put_by(name),
        }
        Ok(given_up)
    }
}

/// Parts a pool from its devices; what is to be said about it.
fn give_up(name: &str, pool: &Arc<dyn PoolHandle>, reason: &str) -> String {
    let unwritten = pool.unwritten();
    pool.abandon(&format!("the pool was given up: {reason}"));
    let lost = match (unwritten.changed, unwritten.bytes) {
        (false, _) => "nothing was changed since".to_owned(),
        (true, 0) => "what was changed since is given up, but for what fsync(2) made stable".to_owned(),
        (true, bytes) => format!(
            "what was changed since, {bytes} bytes of files among it, is given up, but for what fsync(2) made stable"
        ),
    };
    format!("pool '{name}' was given up: {reason}\ntransaction group {} is on its devices; {lost}", unwritten.synced)
}
