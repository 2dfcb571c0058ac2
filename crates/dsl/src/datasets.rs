//! What front ends do with a pool's data sets.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_dmu::{Objset, Tx};
use platter_zil::Zil;

use crate::at_creation::AtCreation;
use crate::dataset::Dataset;
use crate::error::{PoolError, Result};
use crate::filesystem_space::FilesystemSpace;
use crate::new_dataset::{Made, New};
use crate::pool::DslPool;
use crate::snapshot::SnapshotBonus;
use crate::stored_property::StoredProperty;
use crate::{
    change_properties, counting, dataset_report, destroy, intent, new_dataset, rename, version_limits, volume,
};
use platter_api::delegation::Creator;
use platter_api::report::{DatasetKind, DatasetReport};
use platter_api::request::{NewVolume, Setting};
use platter_api::{names, properties};
use platter_ondisk::dsl::dataset_flags;

impl DslPool {
    /// Counts what users, groups and projects have in an open file system, in the background, if that was never done:
    /// mounting it does so (`zfsvfs_setup`, `module/os/linux/zfs/zfs_vfsops.c`).
    ///
    /// # Errors
    /// It does not exist.
    pub fn count_in_background(self: &Arc<Self>, name: &str) -> Result<()> {
        let dataset = self.find(name)?;
        if let Some(os) = dataset.open_objset() {
            counting::begin(self, &dataset, &os);
        }
        Ok(())
    }

    async fn dataset_report(&self, name: &str, dataset: &Dataset) -> Result<DatasetReport> {
        Ok(DatasetReport {
            name: name.to_owned(),
            kind: dataset.kind,
            properties: dataset_report::all(self, name, dataset).await?,
            received: dataset_report::received(&dataset.dir.properties.read()),
            read_only_reason: self.read_only.then(|| "the pool is imported read-only".to_owned()),
        })
    }

    /// What is filled by a receive beside its target: hidden, but found by its name.
    ///
    /// # Errors
    /// It does not exist; damage in the MOS, unreadable blocks.
    pub async fn hidden_report(&self, name: &str) -> Result<DatasetReport> {
        self.unless_suspended(async { self.dataset_report(name, &*self.find(name)?).await }).await
    }

    /// All data sets, parents before children, sorted by name.
    ///
    /// # Errors
    /// Damage in the MOS, unreadable blocks.
    pub async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        self.unless_suspended(self.all_datasets()).await
    }

    async fn all_datasets(&self) -> Result<Vec<DatasetReport>> {
        let mut datasets = self.tree.read().datasets.clone();
        // What a receive fills until it takes the place of its target.
        datasets.retain(|name, _| !name.contains('%'));
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
        self.unless_suspended(reports).await
    }

    /// `zfs create` (one data set; the parent must exist).
    ///
    /// # Errors
    /// Bad name or property, it exists, no parent, no space, a limit is reached.
    pub async fn create_dataset(self: &Arc<Self>, name: &str, given: &BTreeMap<String, String>) -> Result<()> {
        self.create_dataset_of(name, given, None).await
    }

    /// As [`create_dataset`](Self::create_dataset), for somebody.
    ///
    /// # Errors
    /// As [`create_dataset`](Self::create_dataset).
    pub async fn create_dataset_of(
        self: &Arc<Self>,
        name: &str,
        given: &BTreeMap<String, String>,
        creator: Option<Creator>,
    ) -> Result<()> {
        names::check_dataset(name)?;
        let (asked, properties) = self.parse_new(given)?;
        self.make_dataset(name, New { properties, made: Made::Filesystem(asked), creator }).await
    }

    /// `zfs create -V` (one volume; the parent must exist).
    ///
    /// # Errors
    /// Bad name, size or property, it exists, no parent, no space, a limit is reached.
    pub async fn create_volume(
        self: &Arc<Self>,
        name: &str,
        asked: &NewVolume,
        given: &BTreeMap<String, String>,
    ) -> Result<()> {
        self.create_volume_of(name, asked, given, None).await
    }

    /// As [`create_volume`](Self::create_volume), for somebody.
    ///
    /// # Errors
    /// As [`create_volume`](Self::create_volume).
    pub async fn create_volume_of(
        self: &Arc<Self>,
        name: &str,
        asked: &NewVolume,
        given: &BTreeMap<String, String>,
        creator: Option<Creator>,
    ) -> Result<()> {
        names::check_dataset(name)?;
        let (shape, properties) = self.parse_new_volume(asked, given)?;
        self.make_dataset(name, New { properties, made: Made::Volume(shape), creator }).await
    }

    async fn make_dataset(self: &Arc<Self>, name: &str, new: New) -> Result<()> {
        if !name.contains('/') {
            return Err(PoolError::invalid("missing dataset name"));
        }
        let name = name.to_owned();
        let (wanted, given, kind) = (name.clone(), new.properties.clone(), new.made.kind());
        let check = async move |dsl: Arc<Self>| new_dataset::check(&dsl, &wanted, kind, &given).await;
        let make =
            async move |dsl: Arc<Self>, tx: Tx, site| new_dataset::new_dataset(&dsl, &tx, &name, site, new).await;
        self.checked_task(check, make).await?
    }

    /// `zfs rename` of a file system with all below it; those that are open stay so.
    ///
    /// # Errors
    /// Bad name, it exists, no parent, no room there.
    pub async fn rename_dataset(self: &Arc<Self>, old: &str, new: &str) -> Result<()> {
        let (old, new) = (old.to_owned(), new.to_owned());
        let (from, to) = (old.clone(), new.clone());
        let check = async move |dsl: Arc<Self>| rename::check(&dsl, &from, &to).await;
        self.checked_task(check, async move |dsl, tx, plan| rename::rename(&dsl, &tx, &old, &new, plan).await).await
    }

    /// Whether a data set could be destroyed, but for being in use.
    ///
    /// # Errors
    /// It does not exist, has children or snapshots, or is the pool's root.
    pub async fn check_destroy(&self, name: &str) -> Result<()> {
        self.destructible(name).await.map(drop)
    }

    async fn destructible(&self, name: &str) -> Result<Arc<Dataset>> {
        let dataset = self.find(name)?;
        if dataset.dir.parent().is_none() {
            return Err(PoolError::invalid("operation does not apply to pools\nuse 'zpool destroy' instead"));
        }
        let below = format!("{name}/");
        if self.tree.read().datasets.keys().any(|other| other.starts_with(&below)) {
            return Err(PoolError::Busy(format!("{} has children", dataset.kind.name())));
        }
        let previous = dataset.phys.lock().prev_snap_obj;
        if previous.is_some() && SnapshotBonus::load(&self.mos, previous).await?.phys.next_snap_obj == dataset.object {
            return Err(PoolError::Busy(format!("{} has children", dataset.kind.name())));
        }
        Ok(dataset)
    }

    /// Whether a file system could be renamed.
    ///
    /// # Errors
    /// As [`rename_dataset`](Self::rename_dataset).
    pub async fn check_rename(&self, old: &str, new: &str) -> Result<()> {
        rename::check(self, old, new).await.map(drop)
    }

    /// Whether these properties could be set, but for limits that depend on each other.
    ///
    /// # Errors
    /// As [`set_dataset_properties`](Self::set_dataset_properties).
    pub async fn check_dataset_properties(&self, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        let dataset = self.find(name)?;
        change_properties::check(self, &dataset, settings).await
    }

    /// `zfs destroy` (one data set without children, closed).
    ///
    /// # Errors
    /// It does not exist, has children or snapshots, or is the pool's root.
    pub async fn destroy_dataset(self: &Arc<Self>, name: &str) -> Result<()> {
        let doomed = self.destructible(name).await?;
        let _closed = self.try_keep_closed(&doomed)?;
        self.close_head(&doomed).await?;
        let (name, wanted) = (name.to_owned(), name.to_owned());
        let check = async move |dsl: Arc<Self>| {
            // It may have been given children, or been opened, since it was looked at.
            let dataset = dsl.destructible(&wanted).await?;
            match dataset.open_objset() {
                Some(_) => return Err(PoolError::Busy("dataset is busy".into())),
                None => destroy::check(&dsl, &dataset).await?,
            }
            Ok(dataset)
        };
        let destroy = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            Ok(destroy::destroy(&dsl, &tx, &name, &dataset).await?)
        };
        self.checked_task(check, destroy).await
    }

    /// `zfs set` / `zfs inherit` of one or more properties: all of them or none. Open object sets follow at once.
    ///
    /// # Errors
    /// No such data set or property, bad value, value without effect in this version.
    pub async fn set_dataset_properties(self: &Arc<Self>, name: &str, settings: &[(String, Setting)]) -> Result<()> {
        let dataset = self.find(name)?;
        let volume::Changes { settings, size } = volume::part(self, &dataset, settings).await?;
        let settings = &settings[..];
        let changes = change_properties::parse_all(self, &dataset, settings).await?;
        if settings.iter().any(|(property, _)| property == "version") {
            counting::finish(&dataset).await?;
        }
        if !changes.is_empty() {
            self.change_properties(name, changes).await?;
        }
        match size {
            Some(size) => self.resize_volume(name, size).await,
            None => Ok(()),
        }
    }

    async fn change_properties(self: &Arc<Self>, name: &str, changes: Vec<change_properties::Change>) -> Result<()> {
        let name = name.to_owned();
        let (wanted, asked) = (name.clone(), changes.clone());
        let check = async move |dsl: Arc<Self>| change_properties::check_all(&dsl, &wanted, &asked);
        let apply = async move |dsl: Arc<Self>, tx: Tx, dataset: Arc<Dataset>| {
            change_properties::apply(&dsl, &tx, &name, &dataset, changes).await
        };
        self.checked_task(check, apply).await
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
        let asked = crate::at_creation::take_at_creation(&mut given, self.version())?;
        Ok((asked, self.parse_properties(&given)?))
    }

    pub(crate) fn parse_properties(
        &self,
        given: &BTreeMap<String, String>,
    ) -> Result<BTreeMap<String, StoredProperty>> {
        let properties = properties::parse_all(given)?;
        version_limits::check_all(&properties, self.version(), &self.features)?;
        Ok(properties)
    }

    /// Opens a file system's object set for mounting. The pool keeps one handle for each data set while it is open.
    ///
    /// # Errors
    /// It does not exist, is encrypted or damaged.
    pub async fn open_filesystem(&self, name: &str) -> Result<Arc<Objset>> {
        let dataset = self.find(name)?;
        if dataset.kind != DatasetKind::Filesystem {
            return Err(PoolError::invalid("it is a volume"));
        }
        self.open_head(&dataset).await
    }

    pub(crate) async fn open_head(&self, dataset: &Dataset) -> Result<Arc<Objset>> {
        if dataset.phys.lock().flags & dataset_flags::INCONSISTENT != 0 {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        if let Some(os) = dataset.open_objset() {
            return Ok(os);
        }
        let os = intent::open(self, dataset).await?;
        let mut open = dataset.objset.lock();
        // While it is sent it stays as it is.
        if self.in_use.has(dataset.object) && !self.read_only {
            return Err(PoolError::Busy("dataset is busy".into()));
        }
        Ok(open.get_or_insert(os).clone())
    }

    /// The intent log of an open file system; none when the pool is read-only.
    ///
    /// # Errors
    /// It does not exist.
    pub fn intent_log(self: &Arc<Self>, name: &str) -> Result<Option<Arc<Zil>>> {
        let dataset = self.find(name)?;
        Ok(dataset.open_objset().and_then(|os| self.log_of(&dataset, &os)))
    }

    pub(crate) fn log_of(self: &Arc<Self>, dataset: &Dataset, os: &Arc<Objset>) -> Option<Arc<Zil>> {
        if os.params().read_only {
            return None;
        }
        let mut slot = dataset.zil.lock();
        Some(slot.get_or_insert_with(|| intent::open_log(self, dataset, os)).clone())
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
        if dataset.kind != DatasetKind::Volume {
            return self.close_head(&dataset).await;
        }
        // A volume is closed by the last one who has it open.
        match self.try_keep_closed(&dataset) {
            Ok(_closed) => self.close_head(&dataset).await,
            Err(_) => Ok(()),
        }
    }

    pub(crate) async fn close_head(&self, dataset: &Dataset) -> Result<()> {
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
        if self.gate.suspended().is_none() {
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
    pub fn filesystem_space(self: &Arc<Self>, name: &str) -> Result<FilesystemSpace> {
        Ok(FilesystemSpace::new(self.clone(), self.find(name)?))
    }
}
