//! Disks of which one is behind after a power failure: a copy that is exactly one group old looks as after a failure
//! between two uberblocks, but has nothing of the last group; a log may end later on one disk than on another.

use std::collections::BTreeMap;
use std::sync::Arc;

use platter_api::request::{CreateRequest, PoolChange, VdevRequest};
use platter_model::clock;
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_ondisk::ObjectId;
use platter_ondisk::label::VDEV_LABEL_END_SIZE;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::{Pool, labels};
use platter_zpl::NewFile;

use crate::hosts::{self, connect};

const SIZE: u64 = 64 << 20;
const LENGTH: usize = 1 << 20;
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
/// The disk that becomes older.
const COPIED: usize = 1;

async fn reached(disk: &SimDisk) -> u64 {
    labels::read(disk).await.expect("labels").reached().0
}

/// A new host that has these of the disks.
fn host(disks: &[SimDisk], there: &[usize], seed: u64) -> platter_spa::Environment {
    world::environment(seed, connect(disks, there), Arc::new(StandingClock))
}

async fn import(disks: &[SimDisk], there: &[usize], seed: u64) -> Arc<Pool> {
    hosts::import(host(disks, there, seed)).await
}

/// What is in the file everywhere.
async fn contents(pool: &Arc<Pool>, file: ObjectId) -> u8 {
    let found = hosts::contents(pool, file, LENGTH).await;
    assert!(found.iter().all(|byte| *byte == found[0]), "a mixture");
    found[0]
}

async fn without_the_others(clock: Arc<clock::SimClock>, vdev: VdevRequest, count: usize, alone: &[usize]) {
    let disk = |number| SimDisk::new(&clock, 1, DiskId(number as u32), Parameters::instant(SIZE));
    let disks: Vec<SimDisk> = (0..count).map(disk).collect();
    let all: Vec<usize> = (0..count).collect();
    let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
    let pool = Pool::create(host(&disks, &all, 1), request).await.expect("created");
    let properties = [("checksum", "off"), ("compression", "off")];
    let properties: BTreeMap<_, _> = properties.map(|(name, value)| (name.into(), value.into())).into();
    pool.dsl().create_dataset("tank/fs", &properties).await.expect("a data set");
    let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
    let file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
    zpl.write(file, 0, &[1; LENGTH], false).await.expect("written");
    pool.sync().await.expect("synced");
    let (copy, at) = (disks[COPIED].image(), reached(&disks[COPIED]).await);
    zpl.write(file, 0, &[2; LENGTH], false).await.expect("written");
    pool.sync().await.expect("synced");
    assert_eq!(reached(&disks[COPIED]).await, at + 1);
    pool.stop("the power failed");
    drop((zpl, pool));
    disks[COPIED].set_image(copy);
    assert_eq!((reached(&disks[COPIED]).await, reached(&disks[0]).await), (at, at + 1));

    let pool = import(&disks, &all, 2).await;
    assert_eq!(contents(&pool, file).await, 2);
    let _ = pool.scrub_wait().await;
    pool.sync().await.expect("synced");
    pool.export().await.expect("exported");
    drop(pool);
    let pool = import(&disks, alone, 3).await;
    assert_eq!(contents(&pool, file).await, 2, "the copy was taken for complete");
    pool.export().await.expect("exported");
}

/// Fills the file system with `byte` after the file was removed: its place is used again.
async fn take_its_place(pool: &Arc<Pool>, byte: u8) {
    let zpl = world::mount(pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
    zpl.unlink(zpl.root(), b"file").await.expect("removed");
    // What was freed rests for some groups.
    for _ in 0..4 {
        zpl.create(zpl.root(), b"other", NEW).await.expect("a file");
        pool.sync().await.expect("synced");
        zpl.unlink(zpl.root(), b"other").await.expect("removed");
    }
    let other = zpl.create(zpl.root(), b"other", NEW).await.expect("a file").object;
    let bytes = vec![byte; LENGTH];
    for at in 0..52 {
        if zpl.write(other, at * LENGTH as u64, &bytes, false).await.is_err() {
            break;
        }
        pool.sync().await.expect("synced");
    }
    zpl.unmount().await.expect("unmounted");
    drop(zpl);
    pool.dsl().close_filesystem("tank/fs").await.expect("closed");
}

/// A mirror of two with a file that no checksum protects.
async fn with_a_file(disks: &[SimDisk]) -> (Arc<Pool>, ObjectId) {
    let vdev = VdevRequest::Mirror((0..2).map(SimDevices::path).collect());
    let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
    let pool = Pool::create(host(disks, &[0, 1], 1), request).await.expect("created");
    let properties = [("checksum", "off"), ("compression", "off")];
    let properties: BTreeMap<_, _> = properties.map(|(name, value)| (name.into(), value.into())).into();
    pool.dsl().create_dataset("tank/fs", &properties).await.expect("a data set");
    let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
    let file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
    zpl.write(file, 0, &vec![1; LENGTH], false).await.expect("written");
    zpl.unmount().await.expect("unmounted");
    drop(zpl);
    pool.dsl().close_filesystem("tank/fs").await.expect("closed");
    pool.sync().await.expect("synced");
    (pool, file)
}

// Each side of a mirror was imported without the other. Which won told of the other only the groups that it had missed;
// where that one had freed older blocks and used their places again, it was believed: with no checksum to tell, files
// that nobody had touched had other bytes.
#[test]
fn a_side_that_was_written_without_the_other_is_not_believed_in_anything() {
    clock::run(|clock| async move {
        let disk = |number| SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(SIZE));
        let disks: Vec<SimDisk> = (0..2).map(disk).collect();
        let (pool, file) = with_a_file(&disks).await;
        pool.export().await.expect("exported");

        let pool = import(&disks, &[0], 2).await;
        take_its_place(&pool, 2).await;
        pool.export().await.expect("exported");
        let alone = reached(&disks[0]).await;
        let pool = import(&disks, &[1], 3).await;
        while reached(&disks[1]).await <= alone {
            pool.sync().await.expect("synced");
            pool.set_property("comment", &reached(&disks[1]).await.to_string()).await.expect("set");
        }
        assert_eq!(contents(&pool, file).await, 1);
        pool.export().await.expect("exported");

        let pool = import(&disks, &[0, 1], 4).await;
        assert_eq!(contents(&pool, file).await, 1);
        let _ = pool.scrub_wait().await;
        pool.sync().await.expect("synced");
        pool.export().await.expect("exported");
        drop(pool);
        let pool = import(&disks, &[0], 5).await;
        assert_eq!(contents(&pool, file).await, 1, "what was written without the other was believed");
        pool.export().await.expect("exported");
    });
}

// As above, but the other side comes back while the pool is in use.
#[test]
fn a_side_that_was_written_elsewhere_while_it_was_offline_is_not_believed_either() {
    clock::run(|clock| async move {
        let disk = |number| SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(SIZE));
        let disks: Vec<SimDisk> = (0..2).map(disk).collect();
        let (pool, file) = with_a_file(&disks).await;
        let change = |change| pool.change(change);
        let device = SimDevices::path(0).display().to_string();
        change(PoolChange::Offline { device: device.clone(), temporary: false }).await.expect("offline");

        let other = import(&disks, &[0], 2).await;
        take_its_place(&other, 2).await;
        other.export().await.expect("exported");
        drop(other);
        while reached(&disks[1]).await <= reached(&disks[0]).await {
            pool.set_property("comment", &reached(&disks[1]).await.to_string()).await.expect("set");
            pool.sync().await.expect("synced");
        }
        change(PoolChange::Online { device, expand: false }).await.expect("online");
        let _ = pool.scrub_wait().await;
        pool.sync().await.expect("synced");
        pool.export().await.expect("exported");
        drop(pool);
        let pool = import(&disks, &[0], 5).await;
        assert_eq!(contents(&pool, file).await, 1, "what was written elsewhere was believed");
        pool.export().await.expect("exported");
    });
}

#[test]
fn a_copy_one_group_old_gets_that_group_in_a_mirror() {
    clock::run(|clock| async move {
        let vdev = VdevRequest::Mirror((0..2).map(SimDevices::path).collect());
        without_the_others(clock, vdev, 2, &[COPIED]).await;
    });
}

#[test]
fn a_copy_one_group_old_gets_that_group_in_a_raidz() {
    clock::run(|clock| async move {
        let vdev = VdevRequest::Raidz { parity: 1, children: (0..3).map(SimDevices::path).collect() };
        without_the_others(clock, vdev, 3, &[COPIED, 2]).await;
    });
}

/// Groups in which nothing is written have no uberblock: the last two may be several numbers apart, and a disk that the
/// very last one did not reach when the power failed was taken for an old copy of itself.
#[test]
fn a_disk_without_the_last_uberblock_is_believed_where_it_is_needed() {
    clock::run(|clock| async move {
        let disk = |number| SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(SIZE));
        let disks: Vec<SimDisk> = (0..3).map(disk).collect();
        let vdev = VdevRequest::Raidz { parity: 1, children: (0..3).map(SimDevices::path).collect() };
        let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
        let pool = Pool::create(host(&disks, &[0, 1, 2], 1), request).await.expect("created");
        let properties = [("checksum", "off"), ("compression", "off")];
        let properties: BTreeMap<_, _> = properties.map(|(name, value)| (name.into(), value.into())).into();
        pool.dsl().create_dataset("tank/fs", &properties).await.expect("a data set");
        let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
        let file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
        zpl.write(file, 0, &[1; LENGTH], false).await.expect("written");
        for _ in 0..8 {
            pool.sync().await.expect("synced");
        }
        let (old, at) = (disks[COPIED].image(), reached(&disks[COPIED]).await);
        zpl.write(file, 0, &[2; LENGTH], false).await.expect("written");
        pool.sync().await.expect("synced");
        assert!(reached(&disks[COPIED]).await > at + 1, "groups passed without an uberblock");
        pool.stop("the power failed");
        drop((zpl, pool));
        // It has all that was written, but the labels.
        let mut image = disks[COPIED].image();
        for labels in [0, SIZE - VDEV_LABEL_END_SIZE] {
            let mut bytes = vec![0; VDEV_LABEL_END_SIZE as usize];
            old.read_at(labels, &mut bytes);
            image.write_at(labels, &bytes);
        }
        disks[COPIED].set_image(image);
        let pool = import(&disks, &[0, COPIED], 2).await;
        assert_eq!(contents(&pool, file).await, 2);
        pool.export().await.expect("exported");
    });
}

/// The power fails when one side of a mirror has the last block of an intent log and the other has not. Once the log is
/// claimed with that block, the other side alone could not be mounted: a claimed block of it was "damaged".
#[test]
fn a_claimed_log_is_on_both_sides_of_a_mirror() {
    clock::run(async |clock| claimed_with_an_old_side(clock, false, &[0, COPIED]).await);
}

/// The same with a side that has nothing of the last groups either: the log is allocated in the space maps already.
#[test]
fn a_claimed_log_is_on_a_side_that_is_groups_behind() {
    clock::run(async |clock| claimed_with_an_old_side(clock, true, &[0, COPIED]).await);
}

/// The older side comes back after the log was claimed: the resilver brings it what waits to be replayed.
#[test]
fn a_resilver_brings_logs_that_wait_to_be_replayed() {
    clock::run(async |clock| claimed_with_an_old_side(clock, true, &[0]).await);
}

/// Makes a log of which one side of a mirror lacks the end, and with `groups` also groups that were written meanwhile;
/// imports the pool with the disks that are `there`, then with both, then with the side that lacked it only.
async fn claimed_with_an_old_side(clock: Arc<clock::SimClock>, groups: bool, there: &[usize]) {
    let disk = |number| SimDisk::new(&clock, 1, DiskId(number), Parameters::instant(SIZE));
    let disks: Vec<SimDisk> = (0..2).map(disk).collect();
    let vdev = VdevRequest::Mirror((0..2).map(SimDevices::path).collect());
    let request = CreateRequest { name: "tank".into(), vdevs: vec![vdev], ..CreateRequest::default() };
    let pool = Pool::create(host(&disks, &[0, 1], 1), request).await.expect("created");
    pool.dsl().create_dataset("tank/fs", &BTreeMap::new()).await.expect("a data set");
    let zpl = world::mount(&pool, "tank/fs", Arc::new(StandingClock)).await.expect("mounted");
    let file = zpl.create(zpl.root(), b"file", NEW).await.expect("a file").object;
    zpl.write(file, 0, &vec![1; LENGTH], false).await.expect("written");
    // The first block of a log waits for a group.
    zpl.fsync(file).await.expect("stable");
    pool.sync().await.expect("synced");
    let at = reached(&disks[COPIED]).await;
    let mut copy = groups.then(|| disks[COPIED].image());
    for byte in [2, 3] {
        if !groups {
            copy = Some(disks[COPIED].image());
        }
        zpl.write(file, 0, &vec![byte; LENGTH], false).await.expect("written");
        zpl.fsync(file).await.expect("stable");
        if groups && byte == 2 {
            // Others go on, and the log waits: it is not freed before its group is on disk.
            pool.dsl().create_dataset("tank/other", &BTreeMap::new()).await.expect("a data set");
            zpl.write(file, 0, &vec![3; LENGTH], false).await.expect("written");
            zpl.fsync(file).await.expect("stable");
        }
    }
    assert!(groups || reached(&disks[0]).await == at, "all that is new is in the log");
    pool.stop("the power failed");
    drop((zpl, pool));
    disks[COPIED].set_image(copy.expect("a copy"));

    for there in [there, &[0, COPIED]] {
        let pool = import(&disks, there, 2).await;
        pool.sync().await.expect("the claim is on disk");
        pool.scrub_wait().await.expect("resilvered");
        pool.stop("the power failed once more");
        drop(pool);
    }
    let pool = import(&disks, &[COPIED], 3).await;
    assert_eq!(contents(&pool, file).await, 3);
    pool.export().await.expect("exported");
}
