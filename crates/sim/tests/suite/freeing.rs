//! What was destroyed is freed over several groups, through crashes and exports, and zdb agrees at every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use platter_api::report::PropertyValue;
use platter_api::request::{CreateRequest, VdevRequest};
use platter_model::clock::{self, SimClock};
use platter_model::disk::{DiskId, Parameters, SimDisk};
use platter_ondisk::label::VDEV_LABEL_START_SIZE;
use platter_sim::crash::judge;
use platter_sim::world::{self, SimDevices, StandingClock};
use platter_spa::{Environment, Pool};
use platter_zpl::{NewFile, SetXattr};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::hosts::{self, connect};

const SIZE: u64 = 64 << 20;
const NEW: NewFile = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
const FILES: u64 = 70;
/// What one file system has at least, in bytes.
const GONE: u64 = 7 * 300_000;

fn host(disk: &SimDisk, seed: u64, frees: u64) -> Environment {
    let devices = connect(std::slice::from_ref(disk), &[0]);
    Environment { frees_per_group: frees, ..world::environment(seed, devices, Arc::new(StandingClock)) }
}

async fn import(disk: &SimDisk, seed: u64, frees: u64) -> Arc<Pool> {
    hosts::import(host(disk, seed, frees)).await
}

/// A pool of one disk with two file systems, `tank/gone` and `tank/kept`, of small and large and sparse files.
async fn filled(clock: &Arc<SimClock>, frees: u64, properties: &[(&str, &str)]) -> (SimDisk, Arc<Pool>) {
    let disk = SimDisk::new(clock, 1, DiskId(0), Parameters::instant(SIZE));
    let vdevs = vec![VdevRequest::Leaf(SimDevices::path(0))];
    let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
    let pool = Pool::create(host(&disk, 1, frees), request).await.expect("created");
    let properties: BTreeMap<String, String> =
        properties.iter().map(|&(name, value)| (name.into(), value.into())).collect();
    for name in ["tank/gone", "tank/kept"] {
        pool.dsl().create_dataset(name, &properties).await.expect("a data set");
        let zpl = world::mount(&pool, name, Arc::new(StandingClock)).await.expect("mounted");
        for number in 0..FILES {
            let file = zpl.create(zpl.root(), format!("file{number}").as_bytes(), NEW).await.expect("a file").object;
            let length = if number % 10 == 0 { 300_000 } else { 3_000 };
            let bytes = random(number, length);
            zpl.write(file, number * 50_000, &bytes, false).await.expect("written");
            if number % 7 == 0 {
                zpl.setxattr(file, b"user.long", &[7; 5_000], SetXattr::Any, false).await.expect("an attribute");
            }
        }
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        pool.dsl().close_filesystem(name).await.expect("closed");
    }
    pool.sync().await.expect("synced");
    (disk, pool)
}

async fn number(pool: &Arc<Pool>, property: &str) -> u64 {
    match pool.properties().await.expect("properties")[property].value {
        PropertyValue::Number(number) => number,
        ref other => panic!("{property} is {other:?}"),
    }
}

/// Bytes that do not compress.
fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    ChaCha20Rng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn assert_clean(disk: &SimDisk) {
    if judge::is_there() {
        judge::verdict(&[(disk.image(), SIZE)]).expect("zdb finds it clean");
    }
}

/// Waits until nothing is left to be freed; how many groups that took.
async fn freed(pool: &Arc<Pool>) -> u64 {
    for groups in 0.. {
        if number(pool, "freeing").await == 0 {
            return groups;
        }
        pool.sync().await.expect("synced");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(groups < 10_000, "it comes to an end");
    }
    unreachable!()
}

#[test]
fn a_crash_after_any_group_goes_on_where_it_was() {
    clock::run(|clock| async move {
        let (mut disk, pool) = filled(&clock, 1, &[("xattr", "sa")]).await;
        let before = number(&pool, "allocated").await;
        pool.dsl().destroy_dataset("tank/gone").await.expect("destroyed");
        let mut left = number(&pool, "freeing").await;
        assert!(left > 0, "one block is not all");
        let mut seed = 2;
        let mut pool = pool;
        // Each host has the pool for a group or a few, and then the power fails.
        while left > 0 {
            // A group is under way: what the old host still writes, no disk gets.
            let image = disk.image();
            pool.stop("the power failed");
            drop(pool);
            disk = SimDisk::new(&clock, 1, DiskId(0), Parameters::instant(SIZE));
            disk.set_image(image);
            if seed % 16 == 0 {
                assert_clean(&disk);
            }
            pool = import(&disk, seed, seed % 4 + 1).await;
            if seed % 5 == 0 {
                pool.sync().await.expect("synced");
            }
            let now = number(&pool, "freeing").await;
            assert!(now <= left);
            (left, seed) = (now, seed + 1);
        }
        assert!(seed > 10, "it took many hosts");
        assert_eq!(number(&pool, "leaked").await, 0);
        let after = number(&pool, "allocated").await;
        assert!(after < before - GONE, "{before} bytes before, {after} after");
        let zpl = world::mount(&pool, "tank/kept", Arc::new(StandingClock)).await.expect("mounted");
        for number in 0..FILES {
            let file = zpl.lookup(zpl.root(), format!("file{number}").as_bytes()).await.expect("there").object;
            let pieces = zpl.read(file, number * 50_000, 3_000).await.expect("read");
            assert_eq!(
                pieces.iter().flat_map(|piece| piece.iter().copied()).collect::<Vec<u8>>(),
                random(number, 3_000)
            );
        }
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        pool.dsl().close_filesystem("tank/kept").await.expect("closed");
        pool.export().await.expect("exported");
        assert_clean(&disk);
    });
}

#[test]
fn an_export_does_not_wait_for_what_is_freed() {
    clock::run(|clock| async move {
        let (disk, pool) = filled(&clock, 1, &[]).await;
        pool.dsl().destroy_dataset("tank/gone").await.expect("destroyed");
        pool.dsl().destroy_dataset("tank/kept").await.expect("destroyed");
        pool.export().await.expect("exported");
        drop(pool);
        assert_clean(&disk);
        let pool = import(&disk, 2, 1).await;
        assert!(number(&pool, "freeing").await > 0, "some of it is left");
        pool.export().await.expect("exported");
        drop(pool);
        let pool = import(&disk, 3, 1_000_000).await;
        assert!(freed(&pool).await < 5);
        assert_eq!(number(&pool, "leaked").await, 0);
        pool.export().await.expect("exported");
        assert_clean(&disk);
    });
}

/// What is freed block by block is free in the end to the byte, also where the same space is written anew meanwhile.
#[test]
fn new_files_are_written_while_old_ones_are_freed() {
    clock::run(|clock| async move {
        let (disk, pool) = filled(&clock, 3, &[]).await;
        pool.dsl().destroy_dataset("tank/gone").await.expect("destroyed");
        let zpl = world::mount(&pool, "tank/kept", Arc::new(StandingClock)).await.expect("mounted");
        let file = zpl.create(zpl.root(), b"new", NEW).await.expect("a file").object;
        for round in 0..40u64 {
            zpl.write(file, round % 7 * 100_000, &vec![round as u8; 200_000], false).await.expect("written");
            pool.sync().await.expect("synced");
        }
        freed(&pool).await;
        zpl.unmount().await.expect("unmounted");
        drop(zpl);
        pool.dsl().close_filesystem("tank/kept").await.expect("closed");
        assert_eq!(number(&pool, "leaked").await, 0);
        pool.export().await.expect("exported");
        assert_clean(&disk);
    });
}

/// The sync loop waited for the sector, as it must for what the pool cannot do without: the pool was suspended, and
/// again after each import.
#[test]
fn a_sector_that_cannot_be_read_leaks_what_it_leads_to_and_suspends_nothing() {
    clock::run(|clock| async move {
        let (disk, pool) = filled(&clock, 1, &[("compression", "off")]).await;
        let os = pool.dsl().open_filesystem("tank/gone").await.expect("opened");
        let root = world::mount(&pool, "tank/gone", Arc::new(StandingClock)).await.expect("mounted");
        let file = root.lookup(root.root(), b"file40").await.expect("there").object;
        let indirect = os.dnode(file).await.expect("there").phys().blkptrs[0];
        assert!(indirect.level() > 0);
        root.unmount().await.expect("unmounted");
        drop((root, os));
        pool.dsl().close_filesystem("tank/gone").await.expect("closed");
        pool.dsl().destroy_dataset("tank/gone").await.expect("destroyed");
        pool.export().await.expect("exported");
        drop(pool);
        for dva in indirect.dvas() {
            let start = VDEV_LABEL_START_SIZE + dva.offset;
            disk.make_unreadable(start..start + dva.asize);
        }
        let pool = import(&disk, 2, 50).await;
        freed(&pool).await;
        assert!(number(&pool, "leaked").await >= 300_000, "the file's blocks");
        pool.dsl().create_dataset("tank/new", &BTreeMap::new()).await.expect("it goes on");
        pool.export().await.expect("exported");
        drop(pool);
        // It stays leaked, and is told of.
        let pool = import(&disk, 3, 50).await;
        assert!(number(&pool, "leaked").await >= 300_000 && number(&pool, "freeing").await == 0);
        pool.export().await.expect("exported");
    });
}

/// Devices that fail for a moment are no reason to give anything up.
#[test]
fn a_sector_that_can_be_read_again_is_waited_for() {
    clock::run(|clock| async move {
        let (disk, pool) = filled(&clock, 1, &[("compression", "off")]).await;
        let before = number(&pool, "allocated").await;
        pool.dsl().destroy_dataset("tank/gone").await.expect("destroyed");
        pool.export().await.expect("exported");
        drop(pool);
        let pool = import(&disk, 2, 10).await;
        // Everything but the labels, in turn with nothing.
        for _ in 0..3 {
            disk.make_unreadable(VDEV_LABEL_START_SIZE..SIZE - (1 << 20));
            tokio::time::sleep(Duration::from_secs(3)).await;
            disk.make_readable();
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        let _ = pool.clear(None).await;
        freed(&pool).await;
        assert_eq!(number(&pool, "leaked").await, 0);
        assert!(number(&pool, "allocated").await < before - GONE);
        pool.export().await.expect("exported");
        assert_clean(&disk);
    });
}
