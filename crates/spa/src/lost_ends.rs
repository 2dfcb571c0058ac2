//! What can only grow, and whose end is lost in every copy: the pool goes on, and begins a new one.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use platter_ondisk::ObjectId;
use platter_ondisk::label::VDEV_LABEL_START_SIZE;

use crate::Pool;
use crate::test_environment::environment;
use platter_api::request::{CreateRequest, ImportRequest, VdevRequest};

/// So many that no map is small enough to be kept in a pointer.
const FILESYSTEMS: u32 = 40;

async fn import(folder: &Path, seed: u8) -> Arc<Pool> {
    let request =
        ImportRequest { pool: "tank".into(), search: vec![folder.into()], force: true, ..ImportRequest::default() };
    Pool::import(environment(seed), request).await.expect("imported")
}

/// A pool on one file with some data sets, and what they take in its metaslabs.
async fn filled(folder: &Path, old: bool) -> Arc<Pool> {
    let disk = folder.join("disk");
    File::create(&disk).and_then(|file| file.set_len(128 << 20)).expect("a file");
    let vdevs = vec![VdevRequest::Leaf(disk)];
    let mut request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
    if old {
        request.pool_properties.insert("feature@log_spacemap".into(), "disabled".into());
    }
    let pool = Pool::create(environment(1), request).await.expect("created");
    for number in 0..FILESYSTEMS {
        pool.dsl().create_dataset(&format!("tank/{number}"), &BTreeMap::new()).await.expect("a data set");
        // Each group adds to the maps: few entries would need no block.
        pool.sync().await.expect("synced");
    }
    pool.export().await.expect("exported");
    import(folder, 2).await
}

/// Where every copy of the last block of an object of the MOS is.
async fn end_of(pool: &Pool, object: ObjectId) -> Vec<u64> {
    let phys = pool.core.dsl.mos.dnode(object).await.expect("an object").phys();
    assert_eq!(phys.levels, 1);
    let last = phys.blkptrs[phys.max_blkid as usize];
    assert!(last.copies() > 0, "{object:?} has {last:?}");
    last.dvas().map(|dva| dva.offset + VDEV_LABEL_START_SIZE).collect()
}

/// The pool as it is now: exporting it would write everything once more, elsewhere.
fn copied(folder: &Path, pool: &Pool) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    std::fs::copy(folder.join("disk"), copy.path().join("disk")).expect("copied");
    pool.stop("the power failed");
    copy
}

fn damage(folder: &Path, places: &[u64]) {
    let file = File::options().write(true).open(folder.join("disk")).expect("a file");
    places.iter().for_each(|place| file.write_all_at(&[0x5a; 512], *place).expect("damaged"));
}

/// The maps that there are, and how long each is.
fn maps(pool: &Pool) -> Vec<(ObjectId, u64)> {
    let allocator = pool.core.dsl.store.state().allocator.lock();
    let metaslabs = allocator.groups()[0].metaslabs().iter().filter(|metaslab| metaslab.map_length > 0);
    metaslabs.map(|metaslab| (metaslab.space_map, metaslab.map_length)).collect()
}

fn damaged(pool: &Pool) -> usize {
    pool.core.dsl.store.state().allocator.lock().groups()[0].damaged()
}

async fn goes_on_without_its_maps(old: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = filled(folder.path(), old).await;
    pool.sync().await.expect("synced");
    let all = maps(&pool);
    assert!(all.len() > 1, "{all:?}");
    let mut places = Vec::new();
    // The others have the space that is allocated from now on.
    for (map, _) in all.iter().step_by(2) {
        places.extend(end_of(&pool, *map).await);
    }
    let folder = copied(folder.path(), &pool);
    damage(folder.path(), &places);

    let pool = import(folder.path(), 3).await;
    // Frees in them, allocations beside them.
    for number in 0..FILESYSTEMS {
        pool.dsl().destroy_dataset(&format!("tank/{number}")).await.expect("destroyed");
        pool.dsl().create_dataset(&format!("tank/new{number}"), &BTreeMap::new()).await.expect("a data set");
    }
    for _ in 0..8 {
        pool.sync().await.expect("synced");
    }
    pool.export().await.expect("it was not stopped");
    drop(pool);

    let pool = import(folder.path(), 4).await;
    let loaded: Vec<_> = {
        let allocator = pool.core.dsl.store.state().allocator.lock();
        allocator.groups()[0].metaslabs().iter().map(|metaslab| metaslab.index as usize).collect()
    };
    for index in loaded {
        pool.core.dsl.store.load(platter_zio::MetaslabId { vdev: 0, index }).await;
    }
    assert_eq!(damaged(&pool), 0, "each that was written has a map again that can be read");
    pool.dsl().create_dataset("tank/last", &BTreeMap::new()).await.expect("a data set");
    pool.scrub_wait().await.expect("scrubbed");
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn space_maps_begin_anew() {
    goes_on_without_its_maps(false).await;
}

#[tokio::test]
async fn space_maps_begin_anew_in_a_pool_without_logs_of_them() {
    goes_on_without_its_maps(true).await;
}

#[tokio::test]
async fn the_history_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = filled(folder.path(), false).await;
    pool.sync().await.expect("synced");
    let history = pool.core.dsl.objects.lock().history;
    let places = end_of(&pool, history).await;
    let folder = copied(folder.path(), &pool);
    damage(folder.path(), &places);

    let pool = import(folder.path(), 3).await;
    for number in 0..3 {
        pool.dsl().create_dataset(&format!("tank/new{number}"), &BTreeMap::new()).await.expect("a data set");
        pool.sync().await.expect("synced");
    }
    // Nothing leads to what was lost.
    pool.scrub_start().await.expect("it begins");
    pool.scrub_wait().await.expect("scrubbed");
    let report = pool.report(platter_api::report::Detail { errors: true, extended: false }).await.expect("a report");
    assert_eq!((report.scan.errors, report.scan.state.as_str()), (0, "finished"));
    let records = pool.history().await.expect("a history");
    assert!(records.iter().any(|record| format!("{record:?}").contains("new2")), "{records:?}");
    pool.export().await.expect("it was not stopped");
}
