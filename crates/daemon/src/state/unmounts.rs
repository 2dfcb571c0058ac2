//! Unmounting. Every function of the crate's own here is called with the pool's lock held.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use platter_api::report::DatasetReport;
use platter_fuse::Elsewhere;
use tokio::time::{Instant, sleep};

use super::locks::PASS_OVER;
use super::mount_table::ActiveMount;
use super::mounts::{no_such_dataset, pool_of};
use super::{Answer, Daemon, failed};
use crate::mount_plan::{self, CanMount, Mountpoint};
use crate::mounter::{HowToMount, UnmountError};
use platter_api::messages::{ErrorBody, Outcome, UnmountRequest};
use platter_api::names;

/// How long something is looked at that others have mounted, before it is said.
const KEPT_AT_LEAST: Duration = Duration::from_millis(300);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Unmounts in a task of its own: whoever stops waiting does not stop it halfway.
async fn unmounting(active: &ActiveMount, force: bool) -> Result<(), UnmountError> {
    let mounted = active.mounted.clone();
    let task = tokio::spawn(async move {
        let mut mounted = mounted.lock_owned().await;
        match mounted.unmount(force).await {
            Err(_) if mounted.is_gone(None) => Ok(()),
            outcome => outcome,
        }
    });
    task.await.unwrap_or_else(|error| Err(UnmountError::Other(error.to_string())))
}

async fn look_elsewhere() -> Answer<Elsewhere> {
    tokio::task::spawn_blocking(Elsewhere::look).await.map_err(|error| ErrorBody::new(error.to_string()))
}

impl Daemon {
    /// Forgets mounts of a pool that somebody took away with `umount(8)`.
    pub(super) async fn notice_gone(&self, pool: &str) {
        let names: Vec<String> = self.mounts.read().names().filter(|name| pool_of(name) == pool).cloned().collect();
        if names.is_empty() {
            return;
        }
        // Asked now, when none of them can be on its way in.
        let present = self.mounter.present();
        for name in names {
            self.notice_gone_of(&name, present.as_ref()).await;
        }
    }

    /// As [`Self::notice_gone`], of one data set's mount.
    pub(super) async fn notice_gone_of(&self, name: &str, present: Option<&BTreeSet<String>>) {
        let Some(active) = self.mounted(name) else { return };
        // One that is being unmounted is not looked at.
        if !active.mounted.try_lock().is_ok_and(|mounted| mounted.is_gone(present)) {
            return;
        }
        // Frees the object set; there is nothing left to unmount.
        let _ = unmounting(&active, true).await;
        self.mounts.write().remove(name);
        self.forget_record(&active.at);
    }

    /// Unmounts one data set, which is known to be mounted.
    pub(super) async fn unmount_one(&self, name: &str, force: bool) -> Answer<()> {
        let Some(active) = self.mounted(name) else { return Ok(()) };
        let cover = self.mounts.read().covering(&active).map(str::to_owned);
        if let Some(cover) = cover {
            return Err(ErrorBody::new(format!(
                "cannot unmount '{}': it is hidden by '{cover}', which was mounted over it",
                active.at.display()
            ))
            .hint(format!("unmount '{cover}' first")));
        }
        self.check_running(pool_of(name), &format!("cannot unmount '{}'", active.at.display()))?;
        let pool = self.pool(pool_of(name)).ok();
        let suspended = async {
            match &pool {
                Some(pool) => pool.suspended().await,
                None => std::future::pending().await,
            }
        };
        let unmounted = tokio::select! {
            biased;
            unmounted = unmounting(&active, force) => unmounted,
            // What is not written yet waits for the devices; it ends by itself when they are back.
            () = suspended => {
                self.check_running(pool_of(name), &format!("cannot unmount '{}'", active.at.display()))?;
                unmounting(&active, force).await
            }
        };
        match unmounted {
            Ok(()) => {}
            Err(UnmountError::Busy) => {
                return Err(ErrorBody::new(format!(
                    "cannot unmount '{}': pool or dataset is busy",
                    active.at.display()
                )));
            }
            Err(UnmountError::Other(reason)) => {
                return Err(ErrorBody::new(format!("cannot unmount '{}': {reason}", active.at.display())));
            }
        }
        self.mounts.write().remove(name);
        self.forget_record(&active.at);
        tracing::info!("unmounted '{name}'");
        Ok(())
    }

    /// Data sets in the order in which to unmount them.
    fn last_first(&self, names: &mut [String]) {
        let mounts = self.mounts.read();
        names.sort_by_cached_key(|name| std::cmp::Reverse(mounts.get(name).map(|active| active.sequence)));
    }

    /// Unmounts these data sets, the last mounted first; stops at the first that stays.
    pub(super) async fn unmount_all(&self, mut names: Vec<String>, force: bool) -> Answer<Vec<PathBuf>> {
        self.last_first(&mut names);
        let mut places = Vec::new();
        for name in names {
            let at = self.mounted(&name).filter(|active| !active.is_chosen).map(|active| active.at);
            self.unmount_one(&name, force).await?;
            places.extend(at);
        }
        Ok(places)
    }

    /// Refuses to take away what others have mounted elsewhere too (a container): OpenZFS keeps such a data set busy,
    /// and we could not serve them further.
    async fn check_kept(&self, names: &[String]) -> Answer<()> {
        if !names.iter().any(|name| self.mounted(name).is_some()) {
            return Ok(());
        }
        let began = Instant::now();
        loop {
            let kept = self.check_kept_in(&look_elsewhere().await?, names).await;
            // A container that just begins has all mounts for a moment.
            if kept.is_ok() || began.elapsed() >= KEPT_AT_LEAST {
                return kept;
            }
            sleep(LOOK_AGAIN).await;
        }
    }

    /// As [`Self::check_kept`], of what was there at one moment: a look takes in all processes of the machine.
    async fn check_kept_in(&self, elsewhere: &Elsewhere, names: &[String]) -> Answer<()> {
        for active in names.iter().filter_map(|name| self.mounted(name)) {
            if let Some(keeper) = active.mounted.lock().await.keeper(elsewhere) {
                return Err(ErrorBody::new(format!(
                    "cannot unmount '{}': pool or dataset is busy\n{keeper}",
                    active.at.display()
                )));
            }
        }
        Ok(())
    }

    /// As [`Self::unmount_all`], of what nobody uses or has elsewhere.
    pub(super) async fn unmount_unused(&self, names: Vec<String>) -> Answer<Vec<PathBuf>> {
        self.check_kept(&names).await?;
        self.unmount_all(names, false).await
    }

    /// As [`Self::unmount_all`]. When one of them cannot be unmounted, those that were are mounted again, where and as
    /// they had been.
    pub(super) async fn unmount_all_or_none(
        &self,
        names: Vec<String>,
        force: bool,
        reports: &BTreeMap<String, DatasetReport>,
    ) -> Answer<Vec<PathBuf>> {
        if !force {
            self.check_kept(&names).await?;
        }
        let before = self.as_mounted(&names);
        let result = self.unmount_all(names, force).await;
        if result.is_err() {
            let problems = self.mount_again(before, reports).await;
            problems.iter().for_each(|problem| tracing::warn!("{problem}"));
        }
        result
    }

    /// The mounts of these data sets, oldest first.
    pub(super) fn as_mounted(&self, names: &[String]) -> Vec<(String, ActiveMount)> {
        let found = names.iter().filter_map(|name| self.mounted(name).map(|active| (name.clone(), active)));
        let mut found: Vec<(String, ActiveMount)> = found.collect();
        found.sort_by_key(|(_, active)| active.sequence);
        found
    }

    /// Mounts again what is not mounted any more, where and as it was, also by hand; tells what could not be.
    pub(super) async fn mount_again(
        &self,
        before: Vec<(String, ActiveMount)>,
        reports: &BTreeMap<String, DatasetReport>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, active) in before {
            let how = HowToMount {
                options: active.options,
                overlay: true,
                is_at_given_place: active.is_chosen,
                ..HowToMount::default()
            };
            if self.mounted(&name).is_none()
                && let Some(report) = reports.get(&name)
            {
                problems.extend(self.mount_one(report, &active.at, &how).await.err());
            }
        }
        problems
    }

    /// The mounted data sets of a pool, in the order in which to unmount them.
    pub(super) fn mounted_last_first(&self, pool: &str) -> Vec<String> {
        let mut names: Vec<String> = self.mounts.read().names().filter(|name| pool_of(name) == pool).cloned().collect();
        self.last_first(&mut names);
        names
    }

    /// Unmounts a whole pool; tells where it was mounted.
    pub(super) async fn unmount_pool(&self, pool: &str, force: bool) -> Answer<Vec<PathBuf>> {
        // First, as a file system may lie on one of them.
        self.hide_volumes(pool, force).await?;
        let names = self.mounted_last_first(pool);
        let unmounted = match force {
            true => self.unmount_all(names, true).await,
            false => self.unmount_unused(names).await,
        };
        if unmounted.is_err() {
            self.show_volumes(pool, false).await;
        }
        unmounted
    }

    /// Ends a mount that cannot be unmounted; it stays on record, for the next daemon to take away what is left.
    pub(super) async fn cut_off(&self, name: &str, active: &ActiveMount) -> Result<(), String> {
        let cut = active.mounted.lock().await.cut_off().await;
        cut.map_err(|error| match error {
            UnmountError::Busy => "it is busy".to_owned(),
            UnmountError::Other(reason) => reason,
        })?;
        self.mounts.write().remove(name);
        tracing::warn!("cut off '{name}', which is still mounted at {}", active.at.display());
        Ok(())
    }

    /// Mounted data sets at or below `name`.
    pub(super) fn mounted_under(&self, name: &str) -> Vec<String> {
        self.mounts.read().names().filter(|other| names::is_at_or_below(other, name)).cloned().collect()
    }

    /// `zfs unmount`.
    pub async fn unmount(&self, call: &UnmountRequest) -> Answer<Outcome> {
        let Some(target) = &call.target else {
            let by_hand = self.mounted_by_hand().await;
            let mut names: Vec<String> =
                self.mounts.read().names().filter(|name| !by_hand.contains(*name)).cloned().collect();
            self.last_first(&mut names);
            let mut problems = Vec::new();
            let elsewhere = if call.force { None } else { Some(look_elsewhere().await?) };
            for name in names {
                let Some(_lock) = self.locks.soon(pool_of(&name), PASS_OVER).await else {
                    problems.push(format!("cannot unmount '{name}': another operation on its pool is under way"));
                    continue;
                };
                self.notice_gone(pool_of(&name)).await;
                let kept = match &elsewhere {
                    Some(elsewhere) => self.check_kept_in(elsewhere, std::slice::from_ref(&name)).await,
                    None => Ok(()),
                };
                let unmounted = match kept {
                    Ok(()) => self.unmount_one(&name, false).await,
                    kept => kept,
                };
                problems.extend(unmounted.err().map(|error| error.message));
            }
            return Ok(Outcome { name: None, problems });
        };
        let name = if target.starts_with('/') {
            let path = Path::new(target);
            let mounts = self.mounts.read();
            let found = mounts.iter().find(|(_, active)| active.at == path).map(|(name, _)| name.clone());
            let inside = mounts.mounts().any(|active| path.starts_with(&active.at));
            let why = if inside { "not a mountpoint" } else { "not a ZFS filesystem" };
            found.ok_or_else(|| ErrorBody::new(format!("cannot unmount '{target}': {why}")))?
        } else {
            let pool = self.pool(pool_of(target)).map_err(|_| no_such_dataset(target))?;
            let reports = pool.datasets().await.map_err(|error| failed(&format!("cannot open '{target}'"), error))?;
            if !reports.iter().any(|report| report.name == *target) {
                return Err(no_such_dataset(target));
            }
            let map = mount_plan::by_name(&reports);
            if mount_plan::resolve(target, &map, &self.roots(pool_of(target))) == Mountpoint::Legacy {
                return Err(ErrorBody::new(format!("cannot unmount '{target}': legacy mountpoint"))
                    .hint("use umount(8) to unmount this filesystem"));
            }
            target.clone()
        };
        let _lock = self.turn(pool_of(&name), &format!("cannot unmount '{name}'")).await?;
        self.notice_gone(pool_of(&name)).await;
        if self.mounted(&name).is_none() {
            return Err(ErrorBody::new(format!("cannot unmount '{name}': not currently mounted")));
        }
        // Mounts of its descendants lie inside it and go first. What is busy here stays, also with `-f`.
        let names = self.mounted_under(&name);
        match call.force {
            true => self.unmount_all(names, false).await?,
            false => self.unmount_unused(names).await?,
        };
        Ok(Outcome::default())
    }

    /// Data sets that `zfs unmount -a` leaves alone, as they are mounted by hand only.
    async fn mounted_by_hand(&self) -> Vec<String> {
        let mut names = Vec::new();
        let pools: Vec<String> = self.pools.read().keys().cloned().collect();
        for pool in pools {
            let Ok(handle) = self.pool(&pool) else { continue };
            let reports = handle.datasets().await.unwrap_or_default();
            let by_hand = reports.into_iter().filter(|report| mount_plan::canmount(report) == CanMount::NoAuto);
            names.extend(by_hand.map(|report| report.name));
        }
        names
    }
}
