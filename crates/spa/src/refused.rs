//! Changes of data sets that are refused in their group leave no trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use platter_api::request::{CreateRequest, ImportRequest, Setting, VdevRequest};
use platter_dsl::PoolError;

use crate::Pool;
use crate::test_environment::environment;

async fn pool_in(folder: &Path) -> Arc<Pool> {
    let disk = folder.join("disk");
    File::create(&disk).and_then(|file| file.set_len(128 << 20)).expect("a file");
    let request =
        CreateRequest { name: "tank".into(), vdevs: vec![VdevRequest::Leaf(disk)], ..CreateRequest::default() };
    Pool::create(environment(1), request).await.expect("created")
}

/// The names of all data sets, as another host finds them.
async fn names_elsewhere(folder: &Path, pool: Arc<Pool>) -> Vec<String> {
    pool.export().await.expect("exported");
    let request = ImportRequest { pool: "tank".into(), search: vec![folder.into()], ..ImportRequest::default() };
    let pool = Pool::import(environment(2), request).await.expect("imported");
    let names = pool.dsl().datasets().await.expect("read").into_iter().map(|report| report.name).collect();
    pool.export().await.expect("exported");
    names
}

// The child was made after the look whether there were any, and before its parent was destroyed.
#[tokio::test]
async fn a_data_set_that_is_given_a_child_meanwhile_is_not_destroyed() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool_in(folder.path()).await;
    let none = BTreeMap::new();
    pool.dsl().create_dataset("tank/a", &none).await.expect("made");
    let (made, destroyed) =
        tokio::join!(pool.dsl().create_dataset("tank/a/b", &none), pool.dsl().destroy_dataset("tank/a"));
    made.expect("made");
    assert!(matches!(destroyed, Err(PoolError::Busy(_))), "{destroyed:?}");
    assert_eq!(names_elsewhere(folder.path(), pool).await, ["tank", "tank/a", "tank/a/b"]);
}

// What was to be moved was counted for ever although the limit forbade the move.
#[tokio::test]
async fn a_rename_that_a_limit_forbids_counts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let pool = pool_in(folder.path()).await;
    for name in ["tank/a", "tank/a/b", "tank/full"] {
        pool.dsl().create_dataset(name, &BTreeMap::new()).await.expect("made");
    }
    let limit = |count: &str| [("filesystem_limit".to_owned(), Setting::Value(count.to_owned()))];
    pool.dsl().set_dataset_properties("tank/full", &limit("1")).await.expect("set");
    let refused = pool.dsl().rename_dataset("tank/a", "tank/full/a").await;
    assert!(refused.is_err_and(|error| error.to_string().contains("filesystem_limit of 1")));
    assert!(pool.dsl().find("tank/a").expect("there").dir.counts.lock().is_none());
    // With room for both it moves, and both are counted.
    pool.dsl().set_dataset_properties("tank/full", &limit("2")).await.expect("set");
    pool.dsl().rename_dataset("tank/a", "tank/full/a").await.expect("renamed");
    let counts = pool.dsl().find("tank/full").expect("there").dir.counts.lock().expect("counts");
    assert_eq!(counts.filesystems, 2);
    assert_eq!(names_elsewhere(folder.path(), pool).await, ["tank", "tank/full", "tank/full/a", "tank/full/a/b"]);
}
