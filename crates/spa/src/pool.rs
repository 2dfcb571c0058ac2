//! An imported pool: the facade that front ends use.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use platter_zio::{FailMode, Phase};
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::discover::Scan;
use crate::environment::Environment;
use crate::late_writes::LateWrites;
use crate::logs_away::Away;
use crate::look_inside::{self, Metadata};
use crate::place;
use crate::plan;
use crate::rebuild;
use crate::scan;
use crate::{
    autotrim, cache_devices, change, create, deleted_files, discover, dtl, expansion, free_commands, import,
    label_check, label_search, member_check, multihost, pool_events, pool_properties, spare_looks, split_off, status,
    sync, takeover, vdev_properties, verdicts,
};
use crate::{error_log, error_scrub};
use platter_api::faults::DeviceSigns;
use platter_api::report::HistoryEntry;
use platter_api::report::Properties;
use platter_api::report::{Detail, FoundPools, PoolReport, VdevReport};
use platter_api::request::{Changed, CreateRequest, ImportRequest, PoolChange};
use platter_api::txgs::TxgsReport;
use platter_dsl::error::{PoolError, Result};
use platter_dsl::pool::DslPool;
use platter_dsl::{history, watched};
use platter_ondisk::features::Feature;

/// For so long `clear` waits on a suspended pool for another change, which may only have a device to open.
const CHANGES_TAKE: std::time::Duration = std::time::Duration::from_secs(5);

/// An imported pool with its sync loop. How it is left is in `leave`.
pub struct Pool {
    pub(crate) core: Arc<Core>,
    pub(crate) sync_loop: Mutex<Option<JoinHandle<()>>>,
}

impl Pool {
    pub(crate) fn start(core: Arc<Core>) -> Arc<Self> {
        let weak = Arc::downgrade(&core);
        core.dsl.store.set_damage_listener(Box::new(move |bookmark, bp| {
            // What somebody else has changed since the import is no damage of the pool's.
            if let Some(core) = weak.upgrade().filter(|core| !core.is_borrowed.load(Ordering::Acquire)) {
                error_log::note(&core, bookmark, bp);
            }
        }));
        if let Some(mode) = FailMode::parse(&pool_properties::fail_mode(&core)) {
            core.dsl.store.suspension().set_mode(mode);
        }
        core.cutoff.wait_for(Arc::new(LateWrites(core.dsl.store.suspension().clone())));
        core.dsl.gate.obey(core.dsl.store.suspension().clone());
        core.environment.memory.join(&core.dsl, core.environment.memory_limits());
        let mut away = Away::default();
        pool_events::watch(&core, move |core| away.look(core));
        for leaf in core.dsl.store.state().vdevs.iter().flatten().flat_map(|vdev| vdev.leaves()) {
            pool_events::listen(&core, &leaf);
        }
        if !core.dsl.read_only {
            watched::spawn(&core.dsl, "the multihost heartbeat", multihost::beat(Arc::downgrade(&core)));
            watched::spawn(&core.dsl, "the watch over devices", takeover::watch(Arc::downgrade(&core)));
        }
        watched::spawn(&core.dsl, "the list of errors", error_log::watch(Arc::downgrade(&core)));
        let sync_loop =
            (!core.dsl.read_only).then(|| watched::spawn(&core.dsl, "the sync loop", sync::run(core.clone())));
        Arc::new(Self { core, sync_loop: Mutex::new(sync_loop) })
    }

    /// Creates a pool. Nothing on any device changes unless every check passed.
    ///
    /// # Errors
    /// What was refused, or the device that failed.
    pub async fn create(environment: Environment, request: CreateRequest) -> Result<Arc<Self>> {
        let core = create::create(environment, &request).await?;
        let pool = Self::start(core);
        if let Err(error) = pool.sync().await {
            pool.end_after_failure().await;
            return Err(error);
        }
        autotrim::follow(&pool.core);
        cache_devices::open_all(&pool.core).await;
        spare_looks::look(&pool.core).await;
        pool.core.event("sysevent.fs.zfs.pool_create", Vec::new());
        Ok(pool)
    }

    /// What `create -n` prints: the vdev tree that would be made, after all checks.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn dry_run(environment: Environment, request: CreateRequest) -> Result<VdevReport> {
        let plan = plan::plan(&environment, &request).await?;
        Ok(VdevReport { name: request.name, ..change::show(&plan.root.children, &plan.caches, &plan.spares) })
    }

    /// The name of the pool that a device is labelled for, if it answers.
    pub async fn name_at(environment: &Environment, path: &Path) -> Option<String> {
        label_search::name_at(&*environment.devices, path).await
    }

    /// Pools found below `search` (folders are scanned, files and devices looked at), but for devices that are known to
    /// be `silent`.
    ///
    /// # Errors
    /// None at present: what cannot be read is no pool.
    pub async fn discover(environment: &Environment, search: &[PathBuf], silent: &[PathBuf]) -> Result<FoundPools> {
        let Scan { pools: found, silent } = discover::scan(&*environment.devices, search, silent).await;
        let mut pools = Vec::new();
        for mut candidate in found {
            candidate.find_writer(environment).await;
            let metadata = match candidate.seems_importable(environment) {
                true => look_inside::look_inside(environment, &mut candidate).await,
                false if candidate.may_be_in_use(environment) => {
                    match multihost::check(environment, &candidate, true).await {
                        Err(_) => Metadata::InUse,
                        Ok(_) => Metadata::Unseen,
                    }
                }
                false => Metadata::Unseen,
            };
            pools.push(candidate.report(environment, &metadata));
        }
        Ok(FoundPools { pools, silent })
    }

    /// Imports a pool.
    ///
    /// # Errors
    /// No such pool; devices missing; features not supported; damage.
    pub async fn import(environment: Environment, request: ImportRequest) -> Result<Arc<Self>> {
        let core = import::import(environment, &request).await?;
        let pool = Self::start(core);
        if !pool.core.dsl.read_only {
            if let Err(error) = pool.first_group(&request).await {
                pool.end_after_failure().await;
                return Err(error);
            }
            pool.core.cutoff.let_through();
            let one = pool.core.changing.lock().await;
            let settled = split_off::settle(&pool.core).await;
            drop(one);
            if let Err(error) = settled {
                tracing::error!(pool = pool.core.name(), %error, "a split waits for the next import to be finished");
            }
            if let Err(error) = pool.core.dsl.drop_temporary_holds().await {
                tracing::warn!(pool = pool.core.name(), %error, "what the last host held for a moment stays");
            }
            rebuild::resume(&pool.core);
            free_commands::resume(&pool.core);
            autotrim::follow(&pool.core);
            expansion::expand_all(&pool.core).await;
        }
        cache_devices::open_all(&pool.core).await;
        spare_looks::look(&pool.core).await;
        pool.core.event("sysevent.fs.zfs.pool_import", Vec::new());
        Ok(pool)
    }

    /// Brings the first group after an import to the devices. Its blocks are held back until all of them are there: an
    /// import that fails in it has written nothing.
    async fn first_group(&self, request: &ImportRequest) -> Result<()> {
        let command = request.history.clone();
        let mut given = request.properties.clone();
        given.remove("readonly");
        let taken = self.core.task(async move |core, tx| {
            // The labels get this host and the paths found.
            let taken = async {
                for (name, value) in &given {
                    let value = pool_properties::parse(name, value)?;
                    pool_properties::store(&core, &tx, name, value).await?;
                }
                if !command.is_empty() {
                    let command = history::Command::now(&core.dsl, &command, 0);
                    history::append_command(&core.dsl, &tx, &command).await?;
                }
                Ok(())
            };
            let taken: Result<()> = taken.await;
            if let Err(error) = &taken {
                // The group has changed already, and must not be finished.
                core.dsl.halt_for_good(&error.to_string());
                core.cutoff.fall("the import was refused");
            }
            taken
        });
        let taken = taken.await;
        match self.core.dsl.store.suspension().phase() {
            Phase::Stopped(reason) if taken.is_err() => Err(PoolError::Unavailable(format!(
                "{reason}\nImport the pool with \"-o readonly=on\" to read what can be read."
            ))),
            _ => taken,
        }
    }

    /// Name.
    pub fn name(&self) -> String {
        self.core.name().to_owned()
    }

    /// Guid.
    pub fn guid(&self) -> u64 {
        self.core.config.read().guid.0
    }

    /// Paths of all leaves, to find the pool again, and of what is beside them: a spare may be a leaf by then.
    pub fn device_paths(&self) -> Vec<PathBuf> {
        let config = self.core.config.read();
        let leaves = config.vdev_tree.leaves().into_iter();
        let mut paths: Vec<PathBuf> = leaves.filter_map(|leaf| leaf.path.as_ref().map(PathBuf::from)).collect();
        let beside = self.core.beside().into_iter().filter_map(|device| device.path.map(PathBuf::from));
        paths.extend(beside.filter(|path| !paths.contains(path)).collect::<Vec<_>>());
        paths
    }

    /// Devices that did not answer when it was imported, and were passed over.
    pub fn silent_paths(&self) -> Vec<PathBuf> {
        self.core.silent.lock().clone()
    }

    /// The path of the device that has this guid or is called so by its path.
    pub fn path_of(&self, device: &str) -> Option<PathBuf> {
        let config = self.core.config.read();
        let leaves = config.vdev_tree.leaves();
        let is_it = |leaf: &&&crate::config::VdevConfig| {
            leaf.guid.to_string() == device || leaf.path.as_deref() == Some(device)
        };
        leaves.iter().find(is_it).and_then(|leaf| leaf.path.as_ref().map(PathBuf::from))
    }

    /// Paths of its hot spares, also of those in use.
    pub fn spare_paths(&self) -> Vec<PathBuf> {
        self.core.spares.configs().into_iter().filter_map(|spare| spare.path.map(PathBuf::from)).collect()
    }

    /// Paths of those of its hot spares that stand in for another device of this pool.
    pub fn spares_at_work(&self) -> Vec<PathBuf> {
        let mut spares = self.core.spares.configs();
        spares.retain(|spare| spare_looks::is_in_use(&self.core, spare.guid));
        spares.into_iter().filter_map(|spare| spare.path.map(PathBuf::from)).collect()
    }

    /// Everything about it.
    ///
    /// # Errors
    /// None at present.
    pub async fn report(&self, detail: Detail) -> Result<PoolReport> {
        for vdev in self.core.dsl.store.state().vdevs.iter().flatten() {
            vdev.check_present();
        }
        spare_looks::look_at_shared(&self.core).await;
        Ok(status::pool(&self.core, detail))
    }

    /// The name of a vdev without which nobody could open the pool any more, once it was closed: files were deleted.
    pub async fn lost_when_closed(&self) -> Option<String> {
        let report = self.report(Detail::default()).await.ok()?;
        let lacking = dtl::leaves(&self.core).into_iter().filter(|leaf| leaf.is_usable() && !leaf.is_complete());
        let lacking: BTreeSet<u64> = lacking.map(|leaf| leaf.guid().0).collect();
        deleted_files::lost_when_closed(&report.vdevs, &lacking).map(|top| top.name.clone())
    }

    /// Pool properties, `feature@…` included.
    ///
    /// # Errors
    /// None at present.
    pub async fn properties(&self) -> Result<Properties> {
        let health = status::pool(&self.core, Detail::default()).state;
        Ok(pool_properties::report(&self.core, &health))
    }

    /// `zpool set`.
    ///
    /// # Errors
    /// Unknown property, bad value, value without effect in this version.
    pub async fn set_property(&self, name: &str, value: &str) -> Result<()> {
        if let Some(feature) = name.strip_prefix("feature@") {
            return self.enable_feature(feature, value).await;
        }
        multihost::check_property(&self.core.environment, name, value)?;
        let parsed = pool_properties::parse(name, value)?;
        let name = name.to_owned();
        let (expands, trims) = (name == "autoexpand", name == "autotrim");
        self.core.task(async move |core, tx| Ok(pool_properties::store(&core, &tx, &name, parsed).await?)).await?;
        if expands {
            expansion::expand_all(&self.core).await;
        }
        if trims {
            autotrim::follow(&self.core);
        }
        Ok(())
    }

    async fn enable_feature(&self, name: &str, value: &str) -> Result<()> {
        let version = self.core.dsl.version();
        if !version.has_features() {
            return Err(PoolError::Unsupported(format!(
                "pool version {version} has no features\nuse 'zpool upgrade' to bring the pool to feature flags"
            )));
        }
        let feature = Feature::by_name(name).ok_or_else(|| PoolError::invalid(format!("invalid feature '{name}'")))?;
        if value != "enabled" {
            return Err(PoolError::invalid(format!("property 'feature@{name}' can only be set to 'enabled'")));
        }
        if !platter_dsl::features::CREATED.contains(&feature) {
            return Err(PoolError::Unsupported(format!("feature '{name}' cannot be written by this version")));
        }
        self.core
            .task(async move |core, tx| {
                let random = || core.random();
                core.dsl.features.enable(&core.dsl.mos, &core.dsl.directory, &tx, feature, random).await?;
                Ok(crate::upgrade::follow_features(&core, &tx).await?)
            })
            .await
    }

    /// `zpool history`, oldest first. Commands are written down behind the back of who gave them, so those that wait
    /// come first; a stopped pool tells what is on disk.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn history(&self) -> Result<Vec<HistoryEntry>> {
        // It may stop meanwhile, too.
        let _ = self.core.dsl.sync().await;
        self.core.dsl.unless_suspended(async { Ok(history::read(&self.core.dsl).await?) }).await
    }

    /// Adds a command of user `who` to the history with one of the next groups, and doesn't wait for it
    /// (`spa_history_log_nvl`, `module/zfs/spa_history.c`). A read-only pool has none to add to.
    ///
    /// # Errors
    /// The pool is stopped.
    pub fn log_command(&self, text: &str, who: u32) -> Result<()> {
        if self.core.dsl.read_only {
            return Ok(());
        }
        let dsl = self.core.dsl.clone();
        let command = history::Command::now(&dsl, text, who);
        let name = self.core.name().to_owned();
        let failed = move |error| tracing::warn!("cannot write the history of '{name}': {error}");
        let append = async move |tx| Ok(history::append_command(&dsl, &tx, &command).await?);
        self.core.dsl.task_without_waiting(append, failed)
    }

    /// The finished groups after group `after` that are still remembered.
    pub fn txgs(&self, after: u64) -> TxgsReport {
        self.core.txgs.after(after, self.core.dsl.gate.synced_txg())
    }

    /// Writes blocks of more than `bytes` as gang blocks from now on, as a fragmented pool would
    /// (`metaslab_force_ganging`).
    pub fn force_ganging(&self, bytes: u64) {
        self.core.dsl.store.state().force_ganging.store(bytes, Ordering::Relaxed);
    }

    /// `zpool sync`: everything so far is on stable storage, and space that was freed until now can be used again. As
    /// in OpenZFS (`txg_wait_synced_flags`, `module/zfs/txg.c`) that takes the groups for which freed space rests,
    /// since until then it counts as allocated.
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn sync_and_release(&self) -> Result<()> {
        self.sync().await?;
        for _ in 0..platter_zio::metaslab::DEFER {
            if self.core.dsl.store.state().allocator.lock().deferred() == 0 {
                break;
            }
            self.sync().await?;
        }
        Ok(())
    }

    /// Waits until everything so far is on stable storage.
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn sync(&self) -> Result<()> {
        if self.core.dsl.read_only {
            return Ok(());
        }
        self.core.dsl.check_running()?;
        self.core.dsl.wait_synced(self.core.dsl.gate.open_txg()).await
    }

    /// Has the next group written also when nothing else is dirty (`zpool sync -f`).
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn force_group(&self) -> Result<()> {
        if self.core.dsl.read_only {
            return Ok(());
        }
        self.core.force_group().await
    }

    /// `zpool scrub`: starts or resumes.
    ///
    /// # Errors
    /// One is running already; the pool is read-only.
    pub async fn scrub_start(&self) -> Result<()> {
        scan::start(&self.core, false).await?;
        self.look_at_labels();
        Ok(())
    }

    fn look_at_labels(&self) {
        let core = self.core.clone();
        watched::spawn(&self.core.dsl, "the look at the labels", async move {
            if let Err(error) = label_check::mend(&core).await {
                tracing::debug!(pool = core.name(), %error, "the labels are not looked at");
            }
        });
    }

    /// `zpool scrub -C`: starts with what is newer than what the last whole scrub saw, or resumes.
    ///
    /// # Errors
    /// As [`scrub_start`](Self::scrub_start).
    pub async fn scrub_continue(&self) -> Result<()> {
        scan::start(&self.core, true).await?;
        self.look_at_labels();
        Ok(())
    }

    /// `zpool scrub -e`: looks at what is known to be damaged, or resumes.
    ///
    /// # Errors
    /// A scrub, resilver or error scrub is under way; the pool is read-only.
    pub async fn error_scrub(&self) -> Result<()> {
        error_scrub::start(&self.core).await
    }

    /// `zpool scrub -p`.
    ///
    /// # Errors
    /// None is running.
    pub async fn scrub_pause(&self) -> Result<()> {
        scan::pause(&self.core).await
    }

    /// `zpool scrub -s`.
    ///
    /// # Errors
    /// There is none.
    pub async fn scrub_stop(&self) -> Result<()> {
        scan::stop(&self.core).await
    }

    /// Waits until no scrub or resilver runs, nor anything that one follows.
    ///
    /// # Errors
    /// None at present.
    pub async fn scrub_wait(&self) -> Result<()> {
        rebuild::wait(&self.core).await;
        scan::wait(&self.core).await;
        Ok(())
    }

    /// `zpool resilver`: begins a resilver anew, if a device needs one.
    ///
    /// # Errors
    /// The pool is read-only.
    pub async fn resilver(&self) -> Result<()> {
        scan::restart_resilver(&self.core)
    }

    /// `zpool clear [device]`: forgets errors, opens again what could not be used, and lets I/O go on that waits for
    /// that.
    ///
    /// # Errors
    /// A read-only pool; no such device; devices without which the pool cannot go on are still not there.
    pub async fn clear(&self, device: Option<&str>) -> Result<()> {
        if self.core.dsl.read_only {
            return Err(PoolError::Unavailable("pool is read-only".into()));
        }
        // What waits for devices afterwards must not keep a change of them from being made.
        let one = self.turn_to_change().await;
        let places = match device {
            Some(name) => place::find_below(&self.core, name).await,
            None => place::leaves(&self.core),
        };
        let caches = match device {
            Some(name) => self.core.caches.find(&*self.core.environment.devices, name).await.into_iter().collect(),
            None => self.core.caches.configs().iter().map(|config| config.guid).collect::<Vec<_>>(),
        };
        if places.is_empty() && caches.is_empty() {
            let (name, devices) = (device.unwrap_or(""), &*self.core.environment.devices);
            return Err(match self.core.spares.find(devices, name).await {
                Some(_) => PoolError::Invalid("device is reserved as a hot spare".into()),
                None => PoolError::NotFound(format!("no such device in pool: {name}")),
            });
        }
        for cache in caches {
            cache_devices::reopen(&self.core, cache).await;
        }
        for mut place in places {
            verdicts::acquit(&self.core, &mut place);
            let leaf = &place.leaf;
            leaf.clear_errors();
            if !leaf.is_usable() && !place.config.offline && !place.config.offline_for_now {
                place.open(&self.core).await;
            }
            if device.is_none() {
                place.top.clear_errors();
            }
        }
        drop(one);
        self.core.event("sysevent.fs.zfs.vdev_clear", vec![("vdev", device.unwrap_or("").into())]);
        self.resume().await?;
        rebuild::resume(&self.core);
        free_commands::resume(&self.core);
        autotrim::follow(&self.core);
        if device.is_none() {
            self.core.damaged.lock().clear();
            self.core.new_damage.becomes_less();
            if !self.core.dsl.read_only {
                self.core.task(async |core, tx| Ok(error_log::write(&core, &tx).await?)).await?;
            }
        }
        Ok(())
    }

    /// The turn to change the pool's devices. `None` on a suspended pool if another change has it and waits for its
    /// group: that waits for the pool to go on, and must not be waited for by the command that lets it.
    async fn turn_to_change(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let stuck = async {
            loop {
                let suspension = self.core.dsl.store.suspension();
                suspension.suspended().await;
                // Long enough for a change that only has a device to open.
                tokio::time::sleep(CHANGES_TAKE).await;
                if suspension.is_suspended() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            one = self.core.changing.lock() => Some(one),
            () = stuck => None,
        }
    }

    /// Lets I/O that waits for devices be tried again, and waits until the group it belongs to is on disk.
    async fn resume(&self) -> Result<()> {
        let suspension = self.core.dsl.store.suspension();
        if let Phase::Stopped(reason) = suspension.phase() {
            return Err(PoolError::Unavailable(format!(
                "the pool has stopped for good: {reason}\nExport it with 'zpool export' and import it again."
            )));
        }
        if !suspension.is_suspended() {
            return Ok(());
        }
        let unusable = self.core.dsl.store.state().vdevs.ordinary().find(|vdev| !vdev.condition().is_usable());
        if let Some(vdev) = unusable {
            let mut text = String::from("one or more devices is currently unavailable");
            for leaf in vdev.leaves().iter().filter(|leaf| !leaf.is_usable()) {
                let condition = leaf.condition();
                let reason = condition.detail.as_deref().unwrap_or(condition.name());
                text.push_str(&format!("\n\t{}: {reason}", leaf.name()));
            }
            return Err(PoolError::Unavailable(text));
        }
        multihost::check_own(&self.core).await?;
        suspension.resume();
        if self.core.dsl.read_only { Ok(()) } else { self.sync().await }
    }

    /// Changes the pool's devices or identity. One change at a time.
    ///
    /// # Errors
    /// Why it was refused, or what failed.
    pub async fn change(&self, change: PoolChange) -> Result<Changed> {
        change::run(&self.core, change).await
    }

    /// `zpool labelclear`: zeroes the labels of a device that is in no imported pool.
    ///
    /// # Errors
    /// In OpenZFS's words, why not.
    pub async fn clear_label(environment: &Environment, path: &std::path::Path, force: bool) -> Result<()> {
        member_check::clear_label(environment, path, force).await
    }

    /// `zpool set` of a device's property.
    ///
    /// # Errors
    /// In OpenZFS's words, why not.
    pub async fn set_vdev_property(&self, device: &str, name: &str, value: &str) -> Result<()> {
        vdev_properties::set(&self.core, device, name, value).await
    }

    /// Parts from a device that does not answer, or not soon, as `reason` says, if the others can do without it;
    /// whether that was done.
    pub fn part_from(&self, device: u64, reason: &str) -> bool {
        verdicts::part_from(&self.core, platter_ondisk::Guid(device), reason)
    }

    /// What is seen of its devices that may fail.
    pub fn signs(&self) -> Vec<DeviceSigns> {
        verdicts::signs(&self.core)
    }

    /// Its data sets.
    pub fn dsl(&self) -> &Arc<DslPool> {
        &self.core.dsl
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use platter_api::request::{CreateRequest, VdevRequest};

    use super::*;
    use crate::test_environment::environment;

    /// A change that has begun and needs the pool to go on would wait for `clear`, and `clear` for that.
    #[tokio::test]
    async fn clear_does_not_wait_for_a_change_that_waits_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d");
        std::fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("a file");
        let request =
            CreateRequest { name: "tank".into(), vdevs: vec![VdevRequest::Leaf(path)], ..CreateRequest::default() };
        let pool = Pool::create(environment(1), request).await.expect("created");
        let change = pool.core.changing.lock().await;
        let suspension = pool.core.dsl.store.suspension().clone();
        let held = tokio::spawn({
            let suspension = suspension.clone();
            async move { suspension.hold(suspension.resumptions(), "a test").await }
        });
        suspension.suspended().await;
        let cleared = tokio::time::timeout(CHANGES_TAKE + Duration::from_secs(60), pool.clear(None)).await;
        cleared.expect("it waits").expect("all devices are there");
        assert!(held.await.expect("it ends"), "what was held is tried again");
        drop(change);
        pool.export().await.expect("exported");
    }
}
