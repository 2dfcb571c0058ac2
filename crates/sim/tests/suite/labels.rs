//! Labels on disks that cannot read all of them.

use std::path::PathBuf;
use std::sync::Arc;

use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
use platter_device::BlockDevice;
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_ondisk::label::label_offset;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::Pool;

const SIZE: u64 = 64 << 20;

/// Whether a pool of one disk can be imported after a sector at each of `places` became unreadable in every label.
fn is_importable(places: &[u64]) -> Result<(), String> {
    clock::run(|clock| async move {
        let disk = SimDisk::new(&clock, 1, DiskId(0), Parameters::instant(SIZE));
        let devices = Arc::new(SimDevices::default());
        devices.insert(0, Arc::new(disk.clone()) as Arc<dyn BlockDevice>);
        let environment = |seed| world::environment(seed, devices.clone(), Arc::new(StandingClock));
        let request = CreateRequest {
            name: "tank".into(),
            vdevs: vec![VdevRequest::Leaf(SimDevices::path(0))],
            ..CreateRequest::default()
        };
        let pool = Pool::create(environment(1), request).await.expect("created");
        pool.export().await.expect("exported");
        drop(pool);
        for (label, place) in (0..4).flat_map(|label| places.iter().map(move |place| (label, *place))) {
            let at = label_offset(SIZE, label) + place;
            disk.make_unreadable(at..at + 1);
        }
        let request = ImportRequest {
            pool: "tank".into(),
            search: vec![PathBuf::from(world::FOLDER)],
            ..ImportRequest::default()
        };
        let pool = Pool::import(environment(2), request).await.map_err(|error| error.to_string())?;
        pool.export().await.map_err(|error| error.to_string())
    })
}

const CONFIGURATION: u64 = 16 << 10;
const RING: u64 = 128 << 10;

#[test]
fn a_bad_sector_in_every_label_costs_no_disk() {
    // The boot header, and a slot of the ring that may or may not hold the newest uberblock.
    assert_eq!(is_importable(&[8 << 10]), Ok(()));
    assert_eq!(is_importable(&[RING + 9 * 1024]), Ok(()));
    assert_eq!(is_importable(&[0, RING + 20 * 1024, RING + 90 * 1024]), Ok(()));
}

#[test]
fn a_disk_whose_configuration_cannot_be_read_anywhere_has_no_pool() {
    assert_eq!(is_importable(&[CONFIGURATION]), Err("no such pool available".into()));
}
