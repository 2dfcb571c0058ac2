//! The devices of an open pool are known to whoever keeps other users away from them: from its opening on, and an added
//! one before its labels say that it is a device of the pool.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};
use platter_device::Holder;
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_ondisk::Guid;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::pool_locks::{PoolLock, PoolLocks, Refusal};
use platter_spa::{Environment, Pool, labels};

/// What was told last.
#[derive(Debug, Default)]
struct Told(Mutex<BTreeSet<u64>>);

impl PoolLocks for Told {
    fn lock(&self, _pool: Guid) -> Result<PoolLock, Refusal> {
        self.0.lock().clear();
        Ok(PoolLock::new(()))
    }

    fn holder(&self, _pool: Guid) -> Option<Holder> {
        None
    }

    fn is_listed_elsewhere(&self, _leaf: Guid, _pool: Guid) -> bool {
        false
    }

    fn note_leaves(&self, _pool: Guid, _name: &str, leaves: BTreeSet<u64>) {
        *self.0.lock() = leaves;
    }

    fn pool_with(&self, _leaf: Guid) -> Option<String> {
        None
    }

    fn holder_of_leaf(&self, _pool: Guid, _leaf: Option<Guid>) -> Option<Holder> {
        None
    }
}

async fn guids(disks: &[SimDisk]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for disk in disks {
        found.insert(labels::read(disk).await.expect("labels").config().device_guid.expect("a leaf").0);
    }
    found
}

#[test]
fn leaves_are_told_when_a_pool_is_opened_and_when_one_is_added() {
    clock::run(|clock| async move {
        let disk = |number| SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(64 << 20));
        let disks: Vec<SimDisk> = (0..3).map(disk).collect();
        let host = |seed: u64| {
            let devices = Arc::new(SimDevices::default());
            for (number, disk) in disks.iter().enumerate() {
                devices.insert(number, Arc::new(disk.connect()));
            }
            let told = Arc::new(Told::default());
            let environment = world::environment(seed, devices, Arc::new(StandingClock));
            (Environment { pool_locks: told.clone(), ..environment }, told)
        };
        let told_now = |told: &Told| told.0.lock().clone();
        let (environment, told) = host(1);
        let vdevs = (0..2).map(|number| VdevRequest::Leaf(SimDevices::path(number))).collect();
        let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
        let pool = Pool::create(environment, request).await.expect("created");
        assert_eq!(told_now(&told), guids(&disks[..2]).await);
        // Nothing changes between this opening and the look.
        pool.stop("the power failed");
        drop(pool);
        let (environment, told) = host(2);
        let search = vec![PathBuf::from(world::FOLDER)];
        let request = ImportRequest { pool: "tank".into(), search, force: true, ..ImportRequest::default() };
        let pool = Pool::import(environment, request).await.expect("imported");
        assert_eq!(told_now(&told), guids(&disks[..2]).await);
        let vdevs = vec![VdevRequest::Leaf(SimDevices::path(2))];
        let change = PoolChange::Add { vdevs, force: true, ashift: 0, any_ashift: true, dry_run: false };
        pool.change(change).await.expect("added");
        pool.sync().await.expect("synced");
        assert_eq!(told_now(&told), guids(&disks).await);
        pool.export().await.expect("exported");
    });
}
