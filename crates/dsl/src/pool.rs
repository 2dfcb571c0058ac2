//! An imported pool: the facade that front ends use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use platter_dmu::Objset;
use platter_zil::Zil;
use platter_zio::{FailMode, Phase};
use tokio::task::JoinHandle;

use crate::core::Core;
use crate::dataset::Dataset;
use crate::dir::StoredProperty;
use crate::environment::Environment;
use crate::error::{PoolError, Result};
use crate::filesystem_space::FilesystemSpace;
use crate::late_writes::LateWrites;
use crate::properties::AtCreation;
use crate::report::{
    DatasetKind, DatasetReport, Detail, HistoryEntry, ImportableReport, PoolReport, Properties, VdevReport,
};
use crate::request::{Changed, CreateRequest, ImportRequest, PoolChange, Setting};
use crate::txgs::TxgsReport;
use crate::{
    change, change_properties, counting, create, dataset_report, destroy, discover, events, history, import, intent,
    member_check, multihost, names, new_dataset, pool_properties, properties, rename, scrub, spares, status, sync,
    takeover, version_limits, watched,
};

/// An imported pool with its sync loop. How it is left is in [`leave`](crate::leave).
pub struct Pool {
    pub(crate) core: Arc<Core>,
    pub(crate) sync_loop: Mutex<Option<JoinHandle<()>>>,
}

/// Names of the pool properties, for usage texts and checks.
pub fn pool_property_names() -> Vec<&'static str> {
    pool_properties::all_names()
}

impl Pool {
    fn start(core: Arc<Core>) -> Arc<Self> {
        let weak = Arc::downgrade(&core);
        core.store.set_damage_listener(Box::new(move |bookmark, _bp| {
            // What somebody else has changed since the import is no damage of the pool's.
            if let Some(core) = weak.upgrade().filter(|core| !core.is_borrowed.load(Ordering::Acquire)) {
                core.damaged.lock().insert((bookmark.objset.0, bookmark.object.0));
            }
        }));
        if let Some(mode) = FailMode::parse(&pool_properties::fail_mode(&core)) {
            core.store.suspension().set_mode(mode);
        }
        core.cutoff.wait_for(Arc::new(LateWrites(core.store.suspension().clone())));
        core.gate.obey(core.store.suspension().clone());
        core.environment.memory.join(&core);
        events::watch(&core);
        for leaf in core.store.state().vdevs.iter().flatten().flat_map(|vdev| vdev.leaves()) {
            events::listen(&core, &leaf);
        }
        if !core.read_only {
            watched::spawn(&core, "the multihost heartbeat", multihost::beat(Arc::downgrade(&core)));
            watched::spawn(&core, "the watch over devices", takeover::watch(Arc::downgrade(&core)));
        }
        let sync_loop = (!core.read_only).then(|| watched::spawn(&core, "the sync loop", sync::run(core.clone())));
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
        spares::look(&pool.core).await;
        pool.core.event("sysevent.fs.zfs.pool_create", Vec::new());
        Ok(pool)
    }

    /// What `create -n` prints: the vdev tree that would be made, after all checks.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn dry_run(environment: Environment, request: CreateRequest) -> Result<VdevReport> {
        let plan = create::plan(&environment, &request).await?;
        Ok(VdevReport { name: request.name, ..change::show(&plan.root.children, &plan.spares) })
    }

    /// Pools found below `search` (folders are scanned, files and devices looked at).
    ///
    /// # Errors
    /// None at present: what cannot be read is no pool.
    pub async fn discover(environment: &Environment, search: &[PathBuf]) -> Result<Vec<ImportableReport>> {
        let mut reports = Vec::new();
        for mut candidate in discover::scan(&*environment.devices, search).await {
            candidate.find_writer(environment).await;
            let metadata = match candidate.seems_importable(environment) {
                true => import::look_inside(environment, &candidate).await,
                false if candidate.may_be_in_use(environment) => {
                    match multihost::check(environment, &candidate, true).await {
                        Err(_) => discover::Metadata::InUse,
                        Ok(_) => discover::Metadata::Unseen,
                    }
                }
                false => discover::Metadata::Unseen,
            };
            reports.push(candidate.report(environment, &metadata));
        }
        Ok(reports)
    }

    /// Imports a pool.
    ///
    /// # Errors
    /// No such pool; devices missing; features not supported; damage.
    pub async fn import(environment: Environment, request: ImportRequest) -> Result<Arc<Self>> {
        let core = import::import(environment, &request).await?;
        let pool = Self::start(core);
        if !pool.core.read_only {
            if let Err(error) = pool.first_group(&request).await {
                pool.end_after_failure().await;
                return Err(error);
            }
            pool.core.cutoff.let_through();
            scrub::resume(&pool.core);
        }
        spares::look(&pool.core).await;
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
                    history::append_command(&core, &tx, &command).await?;
                }
                Ok(())
            };
            let taken: Result<()> = taken.await;
            if let Err(error) = &taken {
                // The group has changed already, and must not be finished.
                core.halt_for_good(&error.to_string());
                core.cutoff.fall("the import was refused");
            }
            taken
        });
        let taken = taken.await;
        match self.core.store.suspension().phase() {
            Phase::Stopped(reason) if taken.is_err() => Err(PoolError::Unavailable(format!(
                "{reason}\nImport the pool with \"-o readonly=on\" to read what can be read."
            ))),
            _ => taken,
        }
    }

    /// Name.
    pub fn name(&self) -> String {
        self.core.name()
    }

    /// Guid.
    pub fn guid(&self) -> u64 {
        self.core.config.read().guid.0
    }

    /// Paths of all leaves, to find the pool again, and of its spares: each may be a leaf by then.
    pub fn device_paths(&self) -> Vec<PathBuf> {
        let config = self.core.config.read();
        let leaves = config.vdev_tree.leaves().into_iter();
        let mut paths: Vec<PathBuf> = leaves.filter_map(|leaf| leaf.path.as_ref().map(PathBuf::from)).collect();
        paths.extend(self.spare_paths().into_iter().filter(|path| !paths.contains(path)).collect::<Vec<_>>());
        paths
    }

    /// Paths of its hot spares, also of those in use.
    pub fn spare_paths(&self) -> Vec<PathBuf> {
        self.core.spares.configs().into_iter().filter_map(|spare| spare.path.map(PathBuf::from)).collect()
    }

    /// Everything about it.
    ///
    /// # Errors
    /// None at present.
    pub async fn report(&self, detail: Detail) -> Result<PoolReport> {
        for vdev in self.core.store.state().vdevs.iter().flatten() {
            vdev.check_present();
        }
        spares::look_at_shared(&self.core).await;
        Ok(status::pool(&self.core, detail))
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
        self.core.task(async move |core, tx| Ok(pool_properties::store(&core, &tx, &name, parsed).await?)).await
    }

    async fn enable_feature(&self, name: &str, value: &str) -> Result<()> {
        let version = self.core.version();
        if !version.has_features() {
            return Err(PoolError::Unsupported(format!(
                "pool version {version} has no features\nuse 'zpool upgrade' to bring the pool to feature flags"
            )));
        }
        let info = platter_ondisk::features::FEATURES
            .iter()
            .find(|info| info.name == name)
            .ok_or_else(|| PoolError::invalid(format!("invalid feature '{name}'")))?;
        if value != "enabled" {
            return Err(PoolError::invalid(format!("property 'feature@{name}' can only be set to 'enabled'")));
        }
        if !crate::features::CREATED.contains(&info.guid) {
            return Err(PoolError::Unsupported(format!("feature '{name}' cannot be written by this version")));
        }
        self.core
            .task(async move |core, tx| {
                let random = || core.random();
                core.features.enable(&core.mos, &core.directory, &tx, info.guid, random).await?;
                Ok(crate::upgrade::follow_features(&core, &tx).await?)
            })
            .await
    }

    /// `zpool history`, oldest first.
    ///
    /// # Errors
    /// Damage, unreadable blocks.
    pub async fn history(&self) -> Result<Vec<HistoryEntry>> {
        self.core.unless_suspended(async { Ok(history::read(&self.core).await?) }).await
    }

    /// Adds a command to the history. A read-only pool has none to add to.
    ///
    /// # Errors
    /// Out of space, device errors.
    pub async fn log_command(&self, text: &str) -> Result<()> {
        if self.core.read_only {
            return Ok(());
        }
        let text = text.to_owned();
        self.core.task(async move |core, tx| Ok(history::append_command(&core, &tx, &text).await?)).await
    }

    /// The finished groups after group `after` that are still remembered.
    pub fn txgs(&self, after: u64) -> TxgsReport {
        self.core.txgs.after(after, self.core.gate.synced_txg())
    }

    /// Writes blocks of more than `bytes` as gang blocks from now on, as a fragmented pool would
    /// (`metaslab_force_ganging`).
    pub fn force_ganging(&self, bytes: u64) {
        self.core.store.state().force_ganging.store(bytes, Ordering::Relaxed);
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
            if self.core.store.state().allocator.lock().deferred() == 0 {
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
        if self.core.read_only {
            return Ok(());
        }
        self.core.check_running()?;
        self.core.wait_synced(self.core.gate.open_txg()).await
    }

    /// Has the next group written also when nothing else is dirty (`zpool sync -f`).
    ///
    /// # Errors
    /// When the pool stopped.
    pub async fn force_group(&self) -> Result<()> {
        if self.core.read_only {
            return Ok(());
        }
        self.core.force_group().await
    }

    /// `zpool scrub`: starts or resumes.
    ///
    /// # Errors
    /// One is running already; the pool is read-only.
    pub async fn scrub_start(&self) -> Result<()> {
        scrub::start(&self.core).await
    }

    /// `zpool scrub -p`.
    ///
    /// # Errors
    /// None is running.
    pub async fn scrub_pause(&self) -> Result<()> {
        scrub::pause(&self.core).await
    }

    /// `zpool scrub -s`.
    ///
    /// # Errors
    /// There is none.
    pub async fn scrub_stop(&self) -> Result<()> {
        scrub::stop(&self.core).await
    }

    /// Waits until no scrub runs.
    ///
    /// # Errors
    /// None at present.
    pub async fn scrub_wait(&self) -> Result<()> {
        scrub::wait(&self.core).await;
        Ok(())
    }

    /// `zpool clear [device]`: forgets errors, opens again what could not be used, and lets I/O go on that waits for
    /// that.
    ///
    /// # Errors
    /// A read-only pool; no such device; devices without which the pool cannot go on are still not there.
    pub async fn clear(&self, device: Option<&str>) -> Result<()> {
        if self.core.read_only {
            return Err(PoolError::Unavailable("pool is read-only".into()));
        }
        let places = match device {
            Some(name) => change::find_below(&self.core, name),
            None => change::leaves(&self.core),
        };
        if places.is_empty() {
            return Err(PoolError::NotFound(format!("no such device in pool: {}", device.unwrap_or(""))));
        }
        // What waits for devices afterwards must not keep a change of them from being made.
        let one = self.core.changing.lock().await;
        for place in places {
            let leaf = &place.leaf;
            leaf.clear_errors();
            if !leaf.is_usable() && !place.config.offline && !place.config.offline_for_now {
                place.open(&self.core).await;
            }
            if leaf.is_usable() && device.is_some() {
                spares::note_wanted_back(&self.core, place.config.guid);
            }
            if device.is_none() {
                place.top.clear_errors();
            }
        }
        drop(one);
        self.core.event("sysevent.fs.zfs.vdev_clear", vec![("vdev", device.unwrap_or("").into())]);
        self.resume().await?;
        scrub::resume(&self.core);
        if device.is_none() {
            self.core.damaged.lock().clear();
            if !self.core.read_only {
                self.core.task(async |core, tx| Ok(crate::error_log::write(&core, &tx).await?)).await?;
            }
        }
        Ok(())
    }

    /// Lets I/O that waits for devices be tried again, and waits until the group it belongs to is on disk.
    async fn resume(&self) -> Result<()> {
        let suspension = self.core.store.suspension();
        if let Phase::Stopped(reason) = suspension.phase() {
            return Err(PoolError::Unavailable(format!(
                "the pool has stopped for good: {reason}\nExport it with 'zpool export' and import it again."
            )));
        }
        if !suspension.is_suspended() {
            return Ok(());
        }
        let unusable = self.core.store.state().vdevs.iter().flatten().find(|vdev| !vdev.condition().is_usable());
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
        if self.core.read_only { Ok(()) } else { self.sync().await }
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

    pub(crate) fn find(&self, name: &str) -> Result<Arc<Dataset>> {
        let tree = self.core.tree.read();
        tree.datasets.get(name).cloned().ok_or_else(|| PoolError::NotFound("dataset does not exist".into()))
    }

    async fn dataset_report(&self, name: &str, dataset: &Dataset) -> Result<DatasetReport> {
        Ok(DatasetReport {
            name: name.to_owned(),
            kind: dataset.kind,
            properties: dataset_report::all(&self.core, name, dataset).await?,
            read_only_reason: self.core.read_only.then(|| "the pool is imported read-only".to_owned()),
        })
    }

    /// All data sets, parents before children, sorted by name.
    ///
    /// # Errors
    /// Damage in the MOS, unreadable blocks.
    pub async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        self.core.unless_suspended(self.all_datasets()).await
    }

    async fn all_datasets(&self) -> Result<Vec<DatasetReport>> {
        let datasets = self.core.tree.read().datasets.clone();
        let mut reports = Vec::with_capacity(datasets.len());
        for (name, dataset) in &datasets {
            reports.push(self.dataset_report(name, dataset).await?);
        }
        reports.sort_by(|a, b| a.name.split('/').cmp(b.name.split('/')));
        Ok(reports)
    }

    /// One data set.
    ///
    /// # Errors
    /// It does not exist.
    pub async fn dataset(&self, name: &str) -> Result<DatasetReport> {
        let dataset = self.find(name)?;
        self.dataset_report(name, &dataset).await
    }

    /// What there is of a data set and its ancestors, topmost first: what decides where it is mounted, and how.
    ///
    /// # Errors
    /// Damage in the MOS, unreadable blocks.
    pub async fn lineage(&self, name: &str) -> Result<Vec<DatasetReport>> {
        let ends = name.match_indices('/').map(|(at, _)| at).chain([name.len()]);
        let find = |end: usize| self.find(&name[..end]).ok().map(|dataset| (&name[..end], dataset));
        let there: Vec<_> = ends.filter_map(find).collect();
        let reports = async {
            let mut reports = Vec::with_capacity(there.len());
            for (name, dataset) in &there {
                reports.push(self.dataset_report(name, dataset).await?);
            }
            Ok(reports)
        };
        self.core.unless_suspended(reports).await
    }

    /// `zfs create` (one data set; the parent must exist).
    ///
    /// # Errors
    /// Bad name or property, it exists, no parent, no space, a limit is reached.
    pub async fn create_dataset(&self, name: &str, given: &BTreeMap<String, String>) -> Result<()> {
        names::check_dataset(name)?;
        let (asked, properties) = self.parse_new(given)?;
        if !name.contains('/') {
            return Err(PoolError::invalid("missing dataset name"));
        }
        let name = name.to_owned();
        self.core.task(async move |core, tx| new_dataset::new_dataset(&core, &tx, &name, properties, asked).await).await
    }

    /// `zfs rename` of a file system with all below it; those that are open stay so.
    ///
    /// # Errors
    /// Bad name, it exists, no parent, no room there.
    pub async fn rename_dataset(&self, old: &str, new: &str) -> Result<()> {
        let (old, new) = (old.to_owned(), new.to_owned());
        self.core.task(async move |core, tx| rename::rename(&core, &tx, &old, &new).await).await
    }

    /// Whether a data set could be destroyed, but for being in use.
    ///
    /// # Errors
    /// It does not exist, has children or snapshots, or is the pool's root.
    pub fn check_destroy(&self, name: &str) -> Result<()> {
        self.destructible(name).map(drop)
    }

    fn destructible(&self, name: &str) -> Result<Arc<Dataset>> {
        let dataset = self.find(name)?;
        if dataset.dir.parent().is_none() {
            return Err(PoolError::invalid("operation does not apply to pools\nuse 'zpool destroy' instead"));
        }
        let below = format!("{name}/");
        if self.core.tree.read().datasets.keys().any(|other| other.starts_with(&below)) {
            return Err(PoolError::Busy("filesystem has children".into()));
        }
        let origin = self.core.tree.read().origin.as_ref().map(|o| o.snapshot);
        let previous = dataset.phys.lock().prev_snap_obj;
        if previous.is_some() && Some(previous) != origin {
            return Err(PoolError::Unsupported(
                "it has snapshots or is a clone, which this version cannot destroy yet".into(),
            ));
        }
        Ok(dataset)
    }

    /// Whether a file system could be renamed.
    ///
    /// # Errors
    /// As [`rename_dataset`](Self::rename_dataset).
    pub fn check_rename(&self, old: &str, new: &str) -> Result<()> {
        rename::check(&self.core, old, new)
    }

    /// Whether these properties could be set, but for limits that depend on each other.
    ///
    /// # Errors
    /// As [`set_dataset_properties`](Self::set_dataset_properties).
    pub async fn check_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        let dataset = self.find(name)?;
        change_properties::check(&self.core, &dataset, settings).await
    }

    /// `zfs destroy` (one data set without children, closed).
    ///
    /// # Errors
    /// It does not exist, has children or snapshots, or is the pool's root.
    pub async fn destroy_dataset(&self, name: &str) -> Result<()> {
        let dataset = self.destructible(name)?;
        self.close_filesystem(name).await?;
        let name = name.to_owned();
        self.core
            .task(async move |core, tx| {
                if dataset.open_objset().is_some() {
                    return Err(PoolError::Busy("dataset is busy".into()));
                }
                Ok(destroy::destroy(&core, &tx, &name, &dataset).await?)
            })
            .await
    }

    /// `zfs set` / `zfs inherit` of one or more properties: all of them or none. Open object sets follow at once.
    ///
    /// # Errors
    /// No such data set or property, bad value, value without effect in this version.
    pub async fn set_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        let dataset = self.find(name)?;
        let changes = change_properties::parse_all(&self.core, &dataset, settings).await?;
        if settings.iter().any(|(property, _)| property == "version") {
            counting::finish(&dataset).await?;
        }
        if changes.is_empty() {
            return Ok(());
        }
        let name = name.to_owned();
        self.core.task(async move |core, tx| change_properties::apply(&core, &tx, &name, changes).await).await
    }

    /// Checks the properties of a file system to be made, without making it.
    ///
    /// # Errors
    /// As [`create_dataset`](Self::create_dataset).
    pub fn check_new_properties(&self, given: &BTreeMap<String, String>) -> Result<()> {
        self.parse_new(given).map(drop)
    }

    /// What can only be chosen at creation, and the other properties, of a file system to be made.
    fn parse_new(&self, given: &BTreeMap<String, String>) -> Result<(AtCreation, BTreeMap<String, StoredProperty>)> {
        let mut given = given.clone();
        let asked = properties::take_at_creation(&mut given, self.core.version())?;
        let properties = properties::parse_all(&given)?;
        version_limits::check_all(&properties, self.core.version(), &self.core.features)?;
        Ok((asked, properties))
    }

    /// Opens a file system's object set for mounting. The pool keeps one handle for each data set while it is open.
    ///
    /// # Errors
    /// It does not exist, is encrypted or damaged.
    pub async fn open_filesystem(&self, name: &str) -> Result<Arc<Objset>> {
        let dataset = self.find(name)?;
        if dataset.kind != DatasetKind::Filesystem {
            return Err(PoolError::Unsupported("it is a volume, which this version cannot serve yet".into()));
        }
        if let Some(os) = dataset.open_objset() {
            return Ok(os);
        }
        let os = intent::open(&self.core, &dataset).await?;
        Ok(dataset.objset.lock().get_or_insert(os).clone())
    }

    /// The intent log of an open file system; none when the pool is read-only.
    ///
    /// # Errors
    /// It does not exist.
    pub fn intent_log(&self, name: &str) -> Result<Option<Arc<Zil>>> {
        let dataset = self.find(name)?;
        let Some(os) = dataset.open_objset().filter(|os| !os.params().read_only) else { return Ok(None) };
        let mut slot = dataset.zil.lock();
        Ok(Some(slot.get_or_insert_with(|| intent::open_log(&self.core, &dataset, &os)).clone()))
    }

    /// Whether somebody has the data set open.
    pub fn is_open(&self, name: &str) -> bool {
        self.find(name).is_ok_and(|dataset| dataset.open_objset().is_some())
    }

    /// Forgets the handle after unmounting (everything is synced first).
    ///
    /// # Errors
    /// It does not exist; the pool stopped.
    pub async fn close_filesystem(&self, name: &str) -> Result<()> {
        let dataset = self.find(name)?;
        let zil = dataset.zil.lock().clone();
        if let Some(os) = dataset.open_objset() {
            os.give_up_count().await;
        }
        let closed = async {
            if let Some(zil) = zil {
                zil.retire().await?;
            }
            self.sync().await
        };
        // A pool that has stopped has nothing left to wait for.
        if self.core.gate.suspended().is_none() {
            closed.await?;
        }
        *dataset.zil.lock() = None;
        *dataset.objset.lock() = None;
        Ok(())
    }

    /// A file system's space, for whoever mounted it.
    ///
    /// # Errors
    /// It does not exist.
    pub fn filesystem_space(&self, name: &str) -> Result<FilesystemSpace> {
        Ok(FilesystemSpace::new(self.core.clone(), self.find(name)?))
    }
}
