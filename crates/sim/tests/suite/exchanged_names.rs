//! Devices whose names are exchanged while a pool is made of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};
use platter_device::{BlockDevice, DeviceError, DeviceSource, OpenOptions, PathKind};
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::{Environment, Pool};

/// Once armed, disks 0 and 1 exchange their names after one of them was opened for writing.
#[derive(Debug)]
struct Exchanging {
    armed: AtomicBool,
    exchanged: AtomicBool,
    inner: Arc<SimDevices>,
}

impl Exchanging {
    fn real(&self, path: &Path) -> PathBuf {
        let number = [0, 1].into_iter().find(|number| SimDevices::path(*number) == path);
        match number.filter(|_| self.exchanged.load(Ordering::Relaxed)) {
            Some(number) => SimDevices::path(1 - number),
            None => path.to_owned(),
        }
    }
}

#[async_trait]
impl DeviceSource for Exchanging {
    fn kind(&self, path: &Path) -> PathKind {
        self.inner.kind(path)
    }

    fn list(&self, folder: &Path, limit: usize) -> Vec<PathBuf> {
        self.inner.list(folder, limit)
    }

    fn canonical(&self, path: &Path) -> Option<PathBuf> {
        self.inner.canonical(path)
    }

    fn is_whole_disk(&self, path: &Path) -> bool {
        self.inner.is_whole_disk(path)
    }

    async fn file_systems_below(&self, path: &Path) -> std::collections::BTreeSet<String> {
        self.inner.file_systems_below(path).await
    }

    async fn open_path(&self, path: &Path, options: OpenOptions) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        self.inner.open_path(&self.real(path), options).await
    }

    async fn open_vdev(
        &self,
        path: &Path,
        whole_disk: bool,
        options: OpenOptions,
    ) -> Result<Arc<dyn BlockDevice>, DeviceError> {
        // Whoever opens by name what was looked at before.
        if self.armed.load(Ordering::Relaxed) {
            self.exchanged.store(true, Ordering::Relaxed);
        }
        self.inner.open_vdev(&self.real(path), whole_disk, options).await
    }
}

fn request(name: &str, disk: usize) -> CreateRequest {
    CreateRequest {
        name: name.into(),
        vdevs: vec![VdevRequest::Leaf(SimDevices::path(disk))],
        ..CreateRequest::default()
    }
}

/// What was looked at was not what was taken: the name was opened once more after the look.
#[test]
fn a_pool_is_made_on_the_disk_that_was_looked_at() {
    clock::run(|clock| async move {
        let devices = Arc::new(SimDevices::default());
        for number in 0..3 {
            let disk = SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(64 << 20));
            devices.insert(number as usize, Arc::new(disk));
        }
        let source = Arc::new(Exchanging {
            armed: AtomicBool::new(false),
            exchanged: AtomicBool::new(false),
            inner: devices.clone(),
        });
        let environment =
            Environment { devices: source.clone(), ..world::environment(1, devices, Arc::new(StandingClock)) };
        let old = Pool::create(environment.clone(), request("old", 0)).await.expect("created");
        old.export().await.expect("exported");
        let other = Pool::create(environment.clone(), request("other", 2)).await.expect("created");
        source.armed.store(true, Ordering::Relaxed);
        let new = Pool::create(environment.clone(), request("new", 1)).await.expect("disk 1 is blank");
        new.destroy().await.expect("destroyed");
        source.exchanged.store(false, Ordering::Relaxed);
        let vdevs = vec![VdevRequest::Leaf(SimDevices::path(1))];
        let add = PoolChange::Add { vdevs, force: false, ashift: 0, any_ashift: false, dry_run: false };
        other.change(add).await.expect("disk 1 is nobody's");
        other.export().await.expect("exported");
        source.armed.store(false, Ordering::Relaxed);
        source.exchanged.store(false, Ordering::Relaxed);
        for pool in ["old", "other"] {
            let search = vec![PathBuf::from(world::FOLDER)];
            let import = ImportRequest { pool: pool.into(), search, ..ImportRequest::default() };
            let pool = Pool::import(environment.clone(), import).await.expect("it is as it was");
            pool.export().await.expect("exported");
        }
    });
}
