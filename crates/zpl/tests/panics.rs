//! A panic in a long-lived task stops its pool, which says so, and nobody waits for ever.

#[path = "suite/environment.rs"]
mod environment;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use platter_api::report::Detail;
use platter_api::request::{CreateRequest, VdevRequest};
use platter_dmu::{Objset, Tx};
use platter_dsl::{FilesystemMaker, FilesystemOptions};
use platter_spa::Pool;

use environment::{Maker, environment};

/// Makes the pool's own file system, and has a bug with every other.
struct BuggyMaker(std::sync::atomic::AtomicBool);

impl FilesystemMaker for BuggyMaker {
    fn make<'a>(
        &'a self,
        os: &'a Arc<Objset>,
        tx: &'a Tx,
        options: &'a FilesystemOptions,
    ) -> BoxFuture<'a, platter_zio::Result<()>> {
        assert!(!self.0.swap(true, std::sync::atomic::Ordering::SeqCst), "a bug of the maker's");
        Maker.make(os, tx, options)
    }
}

/// Nobody watched the sync loop: after a panic in it the pool was shown as ONLINE and everything hung, for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_the_sync_loop_stops_the_pool_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("d0");
    std::fs::File::create(&disk).unwrap().set_len(128 << 20).unwrap();
    let environment = environment(Arc::new(BuggyMaker(false.into())), 1);
    let events = environment.events.clone();
    let request =
        CreateRequest { name: "tank".into(), vdevs: vec![VdevRequest::Leaf(disk)], ..CreateRequest::default() };
    let pool = Pool::create(environment, request).await.unwrap();
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { while pool.sync().await.is_ok() {} }
    });
    pool.dsl().create_dataset("tank/a", &BTreeMap::new()).await.expect_err("its task panicked");
    let soon = Duration::from_secs(60);
    tokio::time::timeout(soon, waiting).await.expect("whoever waits is told").unwrap();
    let refused = tokio::time::timeout(soon, pool.sync()).await.expect("nothing hangs").unwrap_err();
    assert!(refused.to_string().contains("suspended"), "{refused}");
    let report = pool.report(Detail::default()).await.unwrap();
    assert_eq!(report.state, "SUSPENDED");
    assert!(report.status.unwrap().contains("an error of the program itself"));
    let told = tokio::time::timeout(soon, async {
        loop {
            let failure = events.after(0).into_iter().find(|event| event.class == "ereport.fs.zfs.io_failure");
            match failure {
                Some(event) => return event,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    });
    let told = told.await.expect("an event");
    let fields = format!("{:?}", told.fields);
    assert!(fields.contains("the sync loop panicked: a bug of the maker's"), "{fields}");
    let _ = tokio::time::timeout(soon, pool.export()).await.expect("it can be closed");
}
