//! An imported pool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use platter_dmu::Objset;

use crate::environment::Environment;
use crate::error::Result;
use crate::report::{DatasetReport, HistoryEntry, ImportableReport, PoolReport, Properties, VdevReport};
use crate::request::{CreateRequest, ImportRequest};

/// An imported pool with its sync loop.
pub struct Pool {
    _private: (),
}

/// Names of the properties that may be given, for usage texts and checks.
pub fn pool_property_names() -> Vec<&'static str> {
    todo!()
}

impl Pool {
    /// Creates a pool. Nothing on any device changes unless every check passed.
    pub async fn create(environment: Environment, request: CreateRequest) -> Result<Arc<Self>> {
        let _ = (environment, request);
        todo!()
    }

    /// What `create -n` prints: the vdev tree that would be made, after all checks.
    pub async fn dry_run(environment: Environment, request: CreateRequest) -> Result<VdevReport> {
        let _ = (environment, request);
        todo!()
    }

    /// Pools found below `search` (folders are scanned, files and devices looked at).
    pub async fn discover(environment: &Environment, search: &[PathBuf]) -> Result<Vec<ImportableReport>> {
        let _ = (environment, search);
        todo!()
    }

    /// Imports a pool.
    pub async fn import(environment: Environment, request: ImportRequest) -> Result<Arc<Self>> {
        let _ = (environment, request);
        todo!()
    }

    /// Syncs everything, marks the labels exported and closes the devices. All data sets must be closed (unmounted).
    pub async fn export(&self) -> Result<()> {
        todo!()
    }

    /// Syncs everything and closes the devices but leaves the pool marked active (daemon shutdown): the next daemon
    /// start imports it again.
    pub async fn close(&self) -> Result<()> {
        todo!()
    }

    /// Marks the labels destroyed and closes the devices.
    pub async fn destroy(&self) -> Result<()> {
        todo!()
    }

    /// Name.
    pub fn name(&self) -> String {
        todo!()
    }

    /// Guid.
    pub fn guid(&self) -> u64 {
        todo!()
    }

    /// Paths of all leaves, to find the pool again.
    pub fn device_paths(&self) -> Vec<PathBuf> {
        todo!()
    }

    /// Everything about it; `with_errors` resolves damaged blocks to file names.
    pub async fn report(&self, with_errors: bool) -> Result<PoolReport> {
        let _ = with_errors;
        todo!()
    }

    /// Pool properties, `feature@…` included.
    pub async fn properties(&self) -> Result<Properties> {
        todo!()
    }

    /// `zpool set`.
    pub async fn set_property(&self, name: &str, value: &str) -> Result<()> {
        let _ = (name, value);
        todo!()
    }

    /// `zpool history`, oldest first.
    pub async fn history(&self) -> Result<Vec<HistoryEntry>> {
        todo!()
    }

    /// Adds a command to the history.
    pub async fn log_command(&self, text: &str) -> Result<()> {
        let _ = text;
        todo!()
    }

    /// `zpool sync`.
    pub async fn sync(&self) -> Result<()> {
        todo!()
    }

    /// `zpool scrub`: starts or resumes.
    pub async fn scrub_start(&self) -> Result<()> {
        todo!()
    }

    /// `zpool scrub -p`.
    pub async fn scrub_pause(&self) -> Result<()> {
        todo!()
    }

    /// `zpool scrub -s`.
    pub async fn scrub_stop(&self) -> Result<()> {
        todo!()
    }

    /// Waits until no scrub runs.
    pub async fn scrub_wait(&self) -> Result<()> {
        todo!()
    }

    /// `zpool clear [device]`.
    pub async fn clear(&self, device: Option<&str>) -> Result<()> {
        let _ = device;
        todo!()
    }

    /// All data sets, parents before children, sorted by name.
    pub async fn datasets(&self) -> Result<Vec<DatasetReport>> {
        todo!()
    }

    /// One data set.
    pub async fn dataset(&self, name: &str) -> Result<DatasetReport> {
        let _ = name;
        todo!()
    }

    /// `zfs create` (one data set; the parent must exist).
    pub async fn create_dataset(&self, name: &str, properties: &BTreeMap<String, String>) -> Result<()> {
        let _ = (name, properties);
        todo!()
    }

    /// `zfs destroy` (one data set without children, closed).
    pub async fn destroy_dataset(&self, name: &str) -> Result<()> {
        let _ = name;
        todo!()
    }

    /// `zfs set` / `zfs inherit` (`None`). Open object sets follow at once.
    pub async fn set_dataset_property(&self, name: &str, property: &str, value: Option<&str>) -> Result<()> {
        let _ = (name, property, value);
        todo!()
    }

    /// Opens a file system's object set for mounting. The pool keeps one handle for each data set while it is open.
    pub async fn open_filesystem(&self, name: &str) -> Result<Arc<Objset>> {
        let _ = name;
        todo!()
    }

    /// Forgets the handle after unmounting (everything is synced first).
    pub async fn close_filesystem(&self, name: &str) -> Result<()> {
        let _ = name;
        todo!()
    }

    /// Bytes available to and referenced by a data set, for `statfs`; cheap.
    pub fn filesystem_space(&self, name: &str) -> (u64, u64) {
        let _ = name;
        todo!()
    }
}
