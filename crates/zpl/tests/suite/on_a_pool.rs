//! File systems on real pools over files: what was written is there after export and import, and zdb finds the pool
//! consistent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};
use platter_dmu::{Objset, Tx};
use platter_dsl::{FilesystemMaker, FilesystemOptions};
use platter_spa::{Environment, Pool};
use platter_zpl::{MountOptions, NewFile, UnlimitedSpace, Zpl};

use crate::environment::{Clock, Maker};

struct FailingMaker;

/// File systems of this version are filled, and then the maker fails.
const FAILS: u64 = 3;

impl FilesystemMaker for FailingMaker {
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        async move {
            Maker.make(os, tx, options).await?;
            let failed = platter_zio::ZioError::Invalid("this one is to fail".into());
            if options.version == FAILS { Err(failed) } else { Ok(()) }
        }
        .boxed()
    }
}

fn environment() -> Environment {
    crate::environment::environment(Arc::new(FailingMaker), 5)
}

fn disks(folder: &Path, count: usize) -> Vec<PathBuf> {
    (0..count)
        .map(|i| {
            let path = folder.join(format!("d{i}"));
            std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
            path
        })
        .collect()
}

/// Whether the outside judge is content; `None` when it is not installed.
fn zdb(folder: &Path, pool: &str) -> Option<(bool, String)> {
    let output = Command::new("zdb").args(["-e", "-p"]).arg(folder).args(["-bcc", pool]).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success() && text.contains("No leaks"), text))
}

fn judge(folder: &Path, pool: &str) {
    match zdb(folder, pool) {
        Some((clean, text)) => assert!(clean, "{text}"),
        None => eprintln!("skipped: zdb is not installed"),
    }
}

async fn mount(pool: &Arc<Pool>, name: &str) -> Arc<Zpl> {
    let os = pool.dsl().open_filesystem(name).await.unwrap();
    Zpl::mount(os, MountOptions::default(), Arc::new(Clock), Arc::new(UnlimitedSpace)).await.unwrap()
}

async fn round_trip(vdevs: Vec<VdevRequest>, folder: &Path, ashift: &str, gang_above: u64) {
    let request = CreateRequest {
        name: "tank".into(),
        vdevs,
        pool_properties: BTreeMap::from([("ashift".into(), ashift.into())]),
        history: "zpool create tank".into(),
        ..CreateRequest::default()
    };
    let pool = Pool::create(environment(), request).await.unwrap();
    pool.force_ganging(gang_above);
    let mut properties = BTreeMap::from([("recordsize".to_owned(), "1M".to_owned())]);
    if gang_above < u64::MAX {
        // Members have as many copies as their block, and its checksum.
        properties.extend([("copies", "2"), ("checksum", "edonr")].map(|(name, value)| (name.into(), value.into())));
    }
    pool.dsl().create_dataset("tank/media", &properties).await.unwrap();
    let zpl = mount(&pool, "tank/media").await;
    let mut expected = BTreeMap::new();
    for i in 0..20u32 {
        let name = format!("file{i}");
        let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
        let attr = zpl.create(zpl.root(), name.as_bytes(), new).await.unwrap();
        let length = 1 + (i as usize * 77_777) % 3_000_000;
        let data: Vec<u8> = (0..length).map(|n| (n * 31 + i as usize) as u8 ^ (n >> 9) as u8).collect();
        for (at, chunk) in data.chunks(1 << 20).enumerate() {
            zpl.write(attr.object, (at << 20) as u64, chunk, false).await.unwrap();
        }
        expected.insert(name, data);
        if i % 7 == 3 {
            pool.sync().await.unwrap();
        }
    }
    zpl.unlink(zpl.root(), b"file3").await.unwrap();
    expected.remove("file3");
    zpl.unmount().await.unwrap();
    drop(zpl);
    pool.dsl().close_filesystem("tank/media").await.unwrap();
    pool.export().await.unwrap();
    drop(pool);
    judge(folder, "tank");

    let request = ImportRequest { pool: "tank".into(), search: vec![folder.to_owned()], ..ImportRequest::default() };
    let pool = Pool::import(environment(), request).await.unwrap();
    let zpl = mount(&pool, "tank/media").await;
    for (name, data) in &expected {
        let attr = zpl.lookup(zpl.root(), name.as_bytes()).await.unwrap();
        assert_eq!(attr.size, data.len() as u64);
        let read: Vec<u8> =
            zpl.read(attr.object, 0, attr.size).await.unwrap().iter().flat_map(|b| b.to_vec()).collect();
        assert!(read == *data, "{name} differs");
    }
    drop(zpl);
    pool.dsl().close_filesystem("tank/media").await.unwrap();
    pool.scrub_start().await.unwrap();
    pool.scrub_wait().await.unwrap();
    let report = pool.report(platter_api::report::Detail { errors: true, extended: false }).await.unwrap();
    assert_eq!((report.scan.errors, report.scan.repaired, &*report.scan.state), (0, 0, "finished"));
    pool.dsl().destroy_dataset("tank/media").await.unwrap();
    pool.export().await.unwrap();
    judge(folder, "tank");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raidz1_pool_is_clean_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let children = disks(folder.path(), 5);
    round_trip(vec![VdevRequest::Raidz { parity: 1, children }], folder.path(), "12", u64::MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stripe_of_mirrors_is_clean_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = disks(folder.path(), 4);
    let second = paths.split_off(2);
    round_trip(vec![VdevRequest::Mirror(paths), VdevRequest::Mirror(second)], folder.path(), "9", u64::MAX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_gang_blocks_is_clean_and_complete() {
    let folder = tempfile::tempdir().unwrap();
    let children = disks(folder.path(), 4);
    round_trip(vec![VdevRequest::Raidz { parity: 1, children }], folder.path(), "9", 60_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_whose_own_books_are_gang_blocks_settles() {
    // Each pass of a group used to place the MOS's gang blocks anew, which changed the space maps: no group ended.
    let folder = tempfile::tempdir().unwrap();
    round_trip(vec![VdevRequest::Mirror(disks(folder.path(), 2))], folder.path(), "9", 1024).await;
}

async fn small_pool(folder: &Path) -> Arc<Pool> {
    let vdevs = disks(folder, 1).into_iter().map(VdevRequest::Leaf).collect();
    let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
    Pool::create(environment(), request).await.unwrap()
}

fn given(properties: &[(&str, &str)]) -> BTreeMap<String, String> {
    properties.iter().map(|&(name, value)| (name.into(), value.into())).collect()
}

async fn names(pool: &Pool) -> Vec<String> {
    pool.dsl().datasets().await.unwrap().into_iter().map(|dataset| dataset.name).collect()
}

// `zfs create -o dnodesize=16k` gave the master node, which is object 1, a dnode of 32 slots: it does not fit its
// block, and the error left a data set without contents, at which OpenZFS's `zfs list` aborts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_system_is_made_whatever_the_size_of_its_dnodes() {
    let folder = tempfile::tempdir().unwrap();
    let pool = small_pool(folder.path()).await;
    for size in ["legacy", "auto", "1k", "2k", "4k", "8k", "16k"] {
        let name = format!("tank/{size}");
        pool.dsl().create_dataset(&name, &given(&[("dnodesize", size)])).await.unwrap();
        let zpl = mount(&pool, &name).await;
        let new = NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, open: false };
        zpl.create(zpl.root(), b"file", new).await.unwrap();
        zpl.unmount().await.unwrap();
        drop(zpl);
        pool.dsl().close_filesystem(&name).await.unwrap();
    }
    pool.export().await.unwrap();
    judge(folder.path(), "tank");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_that_fails_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let pool = small_pool(folder.path()).await;
    let limited = ("filesystem_limit", "2");
    pool.dsl().create_dataset("tank/a", &given(&[limited])).await.unwrap();
    for properties in [&[("version", "3")][..], &[("version", "3"), ("recordsize", "1M"), limited, ("quota", "20M")]] {
        let error = pool.dsl().create_dataset("tank/a/b", &given(properties)).await.unwrap_err();
        assert!(error.to_string().contains("this one is to fail"), "{error}");
        assert_eq!(names(&pool).await, ["tank", "tank/a"]);
    }
    let count = &pool.dsl().dataset("tank/a").await.unwrap().properties["filesystem_count"];
    assert_eq!(format!("{:?}", count.value), "Number(0)");
    pool.export().await.unwrap();
    drop(pool);
    judge(folder.path(), "tank");

    let request =
        ImportRequest { pool: "tank".into(), search: vec![folder.path().to_owned()], ..ImportRequest::default() };
    let pool = Pool::import(environment(), request).await.unwrap();
    assert_eq!(names(&pool).await, ["tank", "tank/a"]);
    for name in ["tank/a/b", "tank/a/c"] {
        pool.dsl().create_dataset(name, &given(&[])).await.unwrap();
    }
    pool.export().await.unwrap();
    judge(folder.path(), "tank");
}
