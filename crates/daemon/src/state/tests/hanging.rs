//! A pool whose devices hang, next to one that is well.

use futures::FutureExt as _;
use platter_api::snapshots::TakeSnapshots;

use super::*;

/// Longer than anything here may take, however slow the machine.
const LIMIT: Duration = Duration::from_secs(60);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, what).await.expect("it waits for another pool's devices")
}

async fn two_pools() -> Bench {
    let bench = Bench::new().with_pool().await;
    let request = CreateRequest {
        name: "other".into(),
        vdevs: vec![platter_api::request::VdevRequest::Leaf("/d1".into())],
        altroot: Some(bench.root()),
        ..CreateRequest::default()
    };
    bench.daemon.create_pool(CreatePool { request, quotas: Vec::new(), dry_run: false }).await.unwrap();
    bench.disks.hanging.lock().insert("tank".into());
    bench
}

/// An export that waited for its devices held the one lock of all administration: no other pool could be changed, and
/// neither `export -f` nor the daemon's end came through.
#[tokio::test]
async fn an_export_that_waits_for_its_devices_holds_up_its_own_pool_only() {
    let bench = two_pools().await;
    let waiting = tokio::spawn({
        let daemon = bench.daemon.clone();
        async move { daemon.export_pool(&close("tank")).await }
    });
    while bench.places().await.contains_key("tank") {
        tokio::task::yield_now().await;
    }
    soon(bench.make("other/a", &[])).await;
    soon(bench.set("other/a", "mountpoint", Some("/moved"))).await.unwrap();
    soon(bench.daemon.mount(&MountRequest { dataset: Some("other".into()), ..MountRequest::default() }))
        .await
        .expect_err("it is mounted already");
    soon(bench.daemon.export_pool(&close("other"))).await.unwrap();
    let request = ImportRequest { pool: "other".into(), altroot: Some(bench.root()), ..ImportRequest::default() };
    soon(bench.daemon.import_pool(ImportPool { request, mount: true })).await.unwrap();
    assert!(!waiting.is_finished());

    let forced = ClosePool { force: true, ..close("tank") };
    let said = soon(bench.daemon.export_pool(&forced)).await.unwrap();
    let expected = "pool 'tank' was given up: /d0 does not answer\ntransaction group 42 is on its devices; what was \
                    changed since, 1000 bytes of files among it, is given up, but for what fsync(2) made stable";
    assert_eq!(said, [expected]);
    soon(waiting).await.unwrap().expect_err("what waited is told");
    assert_eq!(bench.daemon.pool_names().pools, ["other"]);
    assert_eq!(pools_file::read(&bench.daemon.home.pools_file()).unwrap().keys().collect::<Vec<_>>(), ["other"]);
}

#[tokio::test]
async fn the_daemon_ends_although_a_pool_hangs_and_says_what_was_given_up() {
    let bench = two_pools().await;
    let said = soon(bench.daemon.shut_down()).await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with("pool 'tank' was given up: /d0 does not answer"), "{said:?}");
    assert!(bench.daemon.pool_names().pools.is_empty());
    assert_eq!(pools_file::read(&bench.daemon.home.pools_file()).unwrap().len(), 2, "both come back");
}

/// Each pool that is closed writes the list: one that was given up before was not in it, and the next daemon did not
/// open it.
#[tokio::test]
async fn what_was_given_up_at_the_end_comes_back_though_others_close_later() {
    let bench = two_pools().await;
    bench.disks.slow.lock().insert("other".into());
    let said = soon(bench.daemon.shut_down()).await;
    assert_eq!(said.len(), 1, "{said:?}");
    let listed = pools_file::read(&bench.daemon.home.pools_file()).unwrap();
    assert_eq!(listed.keys().collect::<Vec<_>>(), ["other", "tank"]);
}

/// Behind a change that waits for the devices of a suspended pool, they waited as long as that, and nobody was told
/// what would help.
#[tokio::test]
async fn behind_a_change_that_waits_for_devices_an_export_says_what_helps() {
    let bench = Bench::new().with_pool().await;
    let change = bench.daemon.locks.of("tank").await;
    let call = close("tank");
    let (mut export, mut destroy) =
        (Box::pin(bench.daemon.export_pool(&call)), Box::pin(bench.daemon.destroy_pool(&call)));
    assert!(futures::poll!(&mut export).is_pending() && futures::poll!(&mut destroy).is_pending());
    let guid = bench.daemon.pool("tank").unwrap().guid();
    bench.disks.suspended.send_modify(|all| _ = all.insert(guid));
    let refused = [soon(export).await.unwrap_err(), soon(destroy).await.unwrap_err()];
    for (error, command) in refused.into_iter().zip(["export", "destroy"]) {
        assert_eq!(error.message, format!("cannot {command} 'tank': pool I/O is currently suspended"));
        assert!(error.hint.is_some_and(|hint| hint.contains("zpool clear tank")));
    }
    // And when it goes on, it is exported.
    bench.disks.suspended.send_modify(|all| all.clear());
    drop(change);
    soon(bench.daemon.export_pool(&call)).await.unwrap();
}

/// As an export does; a pool of that name is there all the same.
#[tokio::test]
async fn behind_a_change_that_waits_for_devices_every_other_change_says_what_helps() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    let change = bench.daemon.locks.of("tank").await;
    let guid = bench.daemon.pool("tank").unwrap().guid();
    let name = "tank/a".to_owned();
    let take = TakeSnapshots { names: vec!["tank/a@1".into()], ..TakeSnapshots::default() };
    let destroy = DestroyDataset { name: name.clone(), ..DestroyDataset::default() };
    let rename = RenameDataset { from: name.clone(), to: "tank/b".into(), ..RenameDataset::default() };
    let create = CreateDataset { name: "tank/c".into(), ..CreateDataset::default() };
    let operate = OperatePool {
        pool: "tank".into(),
        operation: PoolOperation::Change(PoolChange::Detach { device: "/d0".into() }),
        command: String::new(),
    };
    let (daemon, owner) = (&bench.daemon, &Asker::Owner);
    let mut waiting = [
        async { daemon.take_snapshots(&take).await.map(drop) }.boxed(),
        async { daemon.destroy_dataset(&destroy).await.map(drop) }.boxed(),
        async { daemon.rename_dataset(&rename, owner).await.map(drop) }.boxed(),
        async { daemon.create_dataset(&create, owner).await.map(drop) }.boxed(),
        async { bench.set(&name, "atime", Some("off")).await.map(drop) }.boxed(),
        async { daemon.operate_pool(operate).await.map(drop) }.boxed(),
    ];
    for one in &mut waiting {
        assert!(futures::poll!(one).is_pending());
    }
    bench.disks.suspended.send_modify(|all| _ = all.insert(guid));
    for one in waiting {
        let error = soon(one).await.unwrap_err();
        assert!(error.message.ends_with(": pool I/O is currently suspended"), "{}", error.message);
        assert!(error.hint.is_some_and(|hint| hint.contains("zpool clear tank")));
    }
    let request = CreateRequest { name: "tank".into(), altroot: Some(bench.root()), ..CreateRequest::default() };
    let again = CreatePool { request, quotas: Vec::new(), dry_run: false };
    let there = soon(bench.daemon.create_pool(again)).await.unwrap_err();
    assert_eq!(there.message, "cannot create 'tank': pool already exists");
    drop(change);
}
