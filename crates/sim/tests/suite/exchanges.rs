//! Devices join vdevs, leave them and take each other's place, also with the power failing in between; what counts is
//! whether the pool has everything without the others afterwards.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::{Detail, VdevReport};
use platter_api::request::{CreateRequest, PoolChange, VdevRequest};
use platter_model::clock::{self, SimClock};
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_ondisk::ObjectId;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::Pool;
use platter_zpl::NewFile;

use crate::hosts::{self, connect};

const SIZE: u64 = 64 << 20;
const LENGTH: usize = 1 << 20;
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };

struct Rig {
    disks: Vec<SimDisk>,
    devices: Arc<SimDevices>,
    pool: Arc<Pool>,
    file: ObjectId,
}

impl Rig {
    /// A pool on the first disks of `count`, with a file in it.
    async fn new(clock: &Arc<SimClock>, vdev: VdevRequest, count: u32) -> Self {
        let disk = |number| SimDisk::new(clock, 1, DiskId(number), Parameters::instant(SIZE));
        let disks: Vec<SimDisk> = (0..count).map(disk).collect();
        let devices = connect(&disks, &(0..disks.len()).collect::<Vec<_>>());
        let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
        let environment = world::environment(1, devices.clone(), Arc::new(StandingClock));
        let pool = Pool::create(environment, request).await.expect("created");
        pool.dsl().create_dataset("tank/fs", &BTreeMap::new()).await.expect("a data set");
        let mut rig = Self { disks, devices, pool, file: ObjectId(0) };
        let zpl = world::mount(&rig.pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
        rig.file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        rig.pool.dsl().close_filesystem("tank/fs").await.expect("closed");
        rig.write(1).await;
        rig
    }

    async fn write(&self, byte: u8) {
        let zpl = world::mount(&self.pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
        // Nothing that compresses to a hole.
        let bytes: Vec<u8> =
            (0..LENGTH).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ byte).collect();
        zpl.write(self.file, 0, &bytes, false).await.expect("written");
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        self.pool.dsl().close_filesystem("tank/fs").await.expect("closed");
        self.pool.sync().await.expect("synced");
    }

    async fn read(&self) -> u8 {
        let found = hosts::contents(&self.pool, self.file, LENGTH).await;
        let byte = found[0];
        let right = |at: usize| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ byte;
        assert!((0..LENGTH).all(|at| found[at] == right(at)), "a mixture");
        byte
    }

    async fn exchange(&self, old: usize, new: usize, replaces: bool) {
        let device = SimDevices::path(old).display().to_string();
        let new = SimDevices::path(new);
        let change = PoolChange::Attach { device, new, replaces, force: false, ashift: 0, sequential: false };
        self.pool.change(change).await.expect("it joined");
    }

    async fn detach(&self, number: usize) -> Result<(), String> {
        let device = SimDevices::path(number).display().to_string();
        self.pool.change(PoolChange::Detach { device }).await.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Waits for the resilver, and until what was replaced has left.
    async fn settle(&self) {
        self.pool.scrub_wait().await.expect("resilvered");
        for _ in 0..1000 {
            if !shape(&self.vdevs().await).contains("replacing") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("what was replaced has not left: {}", shape(&self.vdevs().await));
    }

    async fn vdevs(&self) -> VdevReport {
        self.pool.report(Detail::default()).await.expect("a report").vdevs
    }

    async fn shape(&self) -> String {
        shape(&self.vdevs().await)
    }

    /// The power fails; the pool is imported with these disks only.
    async fn restart(self, there: &[usize]) -> Self {
        self.pool.stop("the power failed");
        let Self { disks, file, .. } = self;
        drop(self.pool);
        let devices = connect(&disks, there);
        let environment = world::environment(2, devices.clone(), Arc::new(StandingClock));
        let pool = hosts::import(environment).await;
        Self { disks, devices, pool, file }
    }

    async fn end(self) {
        self.pool.export().await.expect("exported");
        drop(self.devices);
    }
}

/// The kinds of a tree.
fn shape(vdev: &VdevReport) -> String {
    match vdev.children.iter().map(shape).collect::<Vec<_>>().join(" ") {
        children if children.is_empty() => vdev.kind.clone(),
        children => format!("{}({children})", vdev.kind),
    }
}

fn leaf(number: usize) -> VdevRequest {
    VdevRequest::Leaf(SimDevices::path(number))
}

fn raidz(count: usize) -> VdevRequest {
    VdevRequest::Raidz { parity: 1, children: (0..count).map(SimDevices::path).collect() }
}

#[test]
fn a_single_device_becomes_a_mirror_and_another_single_device() {
    clock::run(|clock| async move {
        let rig = Rig::new(&clock, leaf(0), 3).await;
        assert_eq!(rig.detach(0).await.unwrap_err(), "only applicable to mirror and replacing vdevs");
        rig.exchange(0, 1, false).await;
        // A pool whose resilver was canceled looked healthy, and nothing began it again.
        let report = rig.pool.report(Detail::default()).await.expect("a report");
        assert!(report.status.is_some_and(|status| status.contains("currently being resilvered")));
        assert_eq!(rig.pool.scrub_stop().await.unwrap_err().to_string(), "currently resilvering");
        rig.settle().await;
        rig.write(2).await;
        rig.exchange(1, 2, false).await;
        rig.settle().await;
        assert_eq!(rig.shape().await, "root(mirror(file file file))");
        // Each of them has everything.
        let rig = rig.restart(&[1]).await;
        assert_eq!(rig.read().await, 2);
        let rig = rig.restart(&[0, 1, 2]).await;
        rig.settle().await;
        rig.detach(0).await.expect("detached");
        rig.write(3).await;
        rig.detach(1).await.expect("detached");
        assert_eq!(rig.shape().await, "root(file)");
        assert!(rig.detach(2).await.is_err());
        rig.write(4).await;
        let rig = rig.restart(&[0, 1, 2]).await;
        assert_eq!((rig.shape().await.as_str(), rig.read().await), ("root(file)", 4));
        rig.end().await;
    });
}

#[test]
fn a_device_of_a_raidz_is_replaced_and_not_missed() {
    clock::run(|clock| async move {
        let rig = Rig::new(&clock, raidz(3), 4).await;
        rig.exchange(1, 3, true).await;
        rig.write(2).await;
        rig.settle().await;
        assert_eq!(rig.shape().await, "root(raidz(file file file))");
        rig.write(3).await;
        // Without another one it is needed.
        let rig = rig.restart(&[0, 1, 3]).await;
        assert_eq!(rig.read().await, 3);
        let rig = rig.restart(&[0, 3]).await;
        assert_eq!(rig.read().await, 3);
        rig.end().await;
    });
}

#[test]
fn the_other_side_leaves_a_mirror_while_one_is_replaced() {
    clock::run(|clock| async move {
        let rig = Rig::new(&clock, VdevRequest::Mirror([0, 1].map(SimDevices::path).to_vec()), 3).await;
        let guid = rig.vdevs().await.children[0].guid;
        rig.exchange(1, 2, true).await;
        rig.detach(0).await.expect("detached");
        assert_eq!(rig.shape().await, "root(replacing(file file))");
        // It is still the same top-level vdev to whoever finds older labels.
        assert_eq!(rig.vdevs().await.children[0].guid, guid);
        let rig = rig.restart(&[0, 1, 2]).await;
        rig.settle().await;
        assert_eq!(rig.vdevs().await.children[0].guid, guid);
        let rig = rig.restart(&[2]).await;
        assert_eq!((rig.shape().await.as_str(), rig.read().await), ("root(file)", 1));
        rig.end().await;
    });
}

#[test]
fn a_missing_device_is_replaced() {
    clock::run(|clock| async move {
        let rig = Rig::new(&clock, raidz(3), 4).await;
        let rig = rig.restart(&[0, 2, 3]).await;
        rig.write(2).await;
        let missing = rig.vdevs().await.children[0].children[1].guid.to_string();
        let change = PoolChange::Attach {
            device: missing,
            new: SimDevices::path(3),
            replaces: true,
            force: false,
            ashift: 0,
            sequential: false,
        };
        rig.pool.change(change).await.expect("it takes its place");
        rig.settle().await;
        assert_eq!(rig.shape().await, "root(raidz(file file file))");
        let rig = rig.restart(&[2, 3]).await;
        assert_eq!(rig.read().await, 2);
        rig.end().await;
    });
}

#[test]
fn the_power_fails_right_after_a_device_joined() {
    clock::run(|clock| async move {
        for vdev in [leaf(0), raidz(3)] {
            let (old, new) = (0, 3);
            let rig = Rig::new(&clock, vdev, 4).await;
            rig.exchange(old, new, true).await;
            let rig = rig.restart(&[0, 1, 2, 3]).await;
            assert_eq!(rig.read().await, 1);
            rig.write(2).await;
            rig.settle().await;
            let rig = rig.restart(&[1, 2, 3]).await;
            assert_eq!(rig.read().await, 2);
            rig.end().await;
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    clock::run(|clock| async move {
        let rig = Rig::new(&clock, raidz(3), 5).await;
        let small = SimDisk::new(&clock, 1, DiskId(9), Parameters::instant(SIZE / 2 + (32 << 20) - (1 << 20)));
        rig.devices.insert(9, Arc::new(small.connect()));
        let device = SimDevices::path(0).display().to_string();
        let attach = |device: &str, new: usize, replaces| PoolChange::Attach {
            device: device.to_owned(),
            new: SimDevices::path(new),
            replaces,
            force: false,
            ashift: 0,
            sequential: false,
        };
        for (change, reason) in [
            (attach(&device, 3, false), "can only attach to mirrors and top-level disks"),
            (attach("/dev/nothing", 3, true), "no such device in pool"),
            (attach(&device, 9, true), "6"),
            (attach(&device, 1, true), "is part of"),
        ] {
            let error = rig.pool.change(change).await.expect_err("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert_eq!(rig.shape().await, "root(raidz(file file file))");
        rig.exchange(0, 3, true).await;
        let again = rig.pool.change(attach(&device, 4, true)).await;
        assert!(again.is_err(), "it is being replaced, or has left");
        rig.settle().await;
        assert_eq!(rig.read().await, 1);
        rig.end().await;
    });
}
