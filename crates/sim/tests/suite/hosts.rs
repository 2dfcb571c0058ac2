//! Hosts of the tests: what they have of the disks, the pool of that name imported, and what is in its files.

use std::path::PathBuf;
use std::sync::Arc;

use platter_api::request::ImportRequest;
use platter_model::disk::SimDisk;
use platter_ondisk::ObjectId;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::{Environment, Pool};

/// These of the disks, as a new host finds them.
pub fn connect(disks: &[SimDisk], there: &[usize]) -> Arc<SimDevices> {
    let devices = Arc::new(SimDevices::default());
    there.iter().for_each(|&number| devices.insert(number, Arc::new(disks[number].connect())));
    devices
}

/// Imports the pool `tank`.
pub async fn import(environment: Environment) -> Arc<Pool> {
    let request = ImportRequest {
        pool: "tank".into(),
        search: vec![PathBuf::from(world::FOLDER)],
        force: true,
        ..ImportRequest::default()
    };
    Pool::import(environment, request).await.expect("imported")
}

/// The first `length` bytes of a file of `tank/fs`, which is not mounted.
pub async fn contents(pool: &Arc<Pool>, file: ObjectId, length: usize) -> Vec<u8> {
    let zpl = world::mount(pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
    let pieces = zpl.read(file, 0, length as u64).await.expect("read");
    let found: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
    zpl.unmount().await.expect("unmounted");
    drop(zpl);
    pool.dsl().close_filesystem("tank/fs").await.expect("closed");
    assert_eq!(found.len(), length);
    found
}
