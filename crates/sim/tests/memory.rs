//! Whoever is done with a pool gets its memory back: simulations have thousands, and a daemon runs for months.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::request::{CreateRequest, VdevRequest};
use platter_device::BlockDevice;
use platter_model::disk::Image;
use platter_sim::crash::explore::alone;
use platter_sim::crash::fork::Fork;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::Pool;
use platter_zpl::NewFile;

const SIZE: u64 = 64 << 20;
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };

/// How many still hold the disk after a pool was used and `leave` was done.
fn holders(exported: bool) -> usize {
    let disk = Arc::new(Fork::new("d0", SIZE, Image::default()));
    let devices = Arc::new(SimDevices::default());
    devices.insert(0, disk.clone() as Arc<dyn BlockDevice>);
    alone(async {
        let environment = world::environment(1, devices.clone(), Arc::new(StandingClock));
        let request = CreateRequest {
            name: "tank".into(),
            vdevs: vec![VdevRequest::Leaf(SimDevices::path(0))],
            ..CreateRequest::default()
        };
        let pool = Pool::create(environment, request).await.map_err(|error| error.to_string())?;
        pool.dsl().create_dataset("tank/fs", &BTreeMap::new()).await.map_err(|error| error.to_string())?;
        let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await?;
        for name in ["a", "b"] {
            let file = zpl.create(zpl.root(), name.as_bytes(), NEW).await.map_err(|error| error.to_string())?;
            zpl.write(file.object, 0, &[7; 100_000], false).await.map_err(|error| error.to_string())?;
            zpl.fsync(file.object).await.map_err(|error| error.to_string())?;
        }
        if exported {
            zpl.unmount().await.map_err(|error| error.to_string())?;
            drop(zpl);
            pool.dsl().close_filesystem("tank/fs").await.map_err(|error| error.to_string())?;
            pool.export().await.map_err(|error| error.to_string())?;
        } else {
            pool.stop("the power failed");
        }
        Ok(())
    })
    .expect("nothing goes wrong");
    drop(devices);
    Arc::strong_count(&disk) - 1
}

#[test]
fn an_exported_pool_lets_go_of_its_disks() {
    assert_eq!(holders(true), 0);
}

#[test]
fn a_pool_whose_power_failed_lets_go_of_its_disks() {
    assert_eq!(holders(false), 0);
}
