//! What is refused changes nothing: neither a property nor a mount.

use super::*;
use platter_api::messages::RenameDataset;

/// `zfs set mountpoint=relative` unmounted the file system, was refused, and mounted it again: open files made it fail
/// halfway, and whoever worked below found it gone for a moment.
#[tokio::test]
async fn what_is_refused_unmounts_nothing() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/a", &[]).await;
    bench.make("tank/a/kept", &[]).await;
    bench.order();
    bench.set("tank/a", "mountpoint", Some("nonsense")).await.unwrap_err();
    let rename = RenameDataset { from: "tank/a".into(), to: "tank/full".into(), ..RenameDataset::default() };
    bench.daemon.rename_dataset(&rename, &Asker::Owner).await.unwrap_err();
    let destroy = DestroyDataset { name: "tank/a/kept".into(), ..DestroyDataset::default() };
    bench.daemon.destroy_dataset(&destroy).await.unwrap_err();
    assert_eq!(bench.order(), [""; 0]);
}

/// A file system at `/proc`, `/dev` or over the daemon's own folder cut off the machine or the daemon.
#[tokio::test]
async fn places_that_the_machine_or_the_daemon_needs_are_refused() {
    let bench = Bench::new();
    let none = BTreeMap::from([("mountpoint".to_owned(), "none".to_owned())]);
    let request = CreateRequest {
        name: "bare".into(),
        vdevs: vec![platter_api::request::VdevRequest::Leaf("/d0".into())],
        dataset_properties: none,
        ..CreateRequest::default()
    };
    let create = |request| bench.daemon.create_pool(CreatePool { request, quotas: Vec::new(), dry_run: false });
    let mut at_root = request.clone();
    at_root.dataset_properties = BTreeMap::from([("mountpoint".to_owned(), "/".to_owned())]);
    let error = create(at_root).await.unwrap_err();
    assert!(error.message.starts_with("cannot create 'bare': '/' cannot be a mount point: "), "{error}");
    create(request).await.unwrap();
    bench.make("bare/a", &[]).await;
    let home = bench.daemon.home.path().display().to_string();
    let above = bench.dir.path().display().to_string();
    for place in ["/", "/proc", "/sys/fs", "/dev", "/proc/self/../x", &home, &above] {
        let properties = BTreeMap::from([("mountpoint".to_owned(), place.to_owned())]);
        let call = CreateDataset { name: "bare/b".into(), properties, mount: true, ..CreateDataset::default() };
        let error = bench.daemon.create_dataset(&call, &Asker::Owner).await.unwrap_err();
        assert!(error.message.contains("cannot create 'bare/b': '") && error.message.contains("cannot be a mount"));
        let error = bench.set("bare/a", "mountpoint", Some(place)).await.unwrap_err();
        assert!(error.message.starts_with("cannot set property for 'bare/a': '"), "{error}");
    }
    // What is below it would inherit it.
    bench.set("bare", "canmount", Some("off")).await.unwrap();
    bench.make("bare/proc", &[]).await;
    bench.set("bare", "mountpoint", Some("/")).await.unwrap_err();
    assert!(bench.daemon.mount_entries().await.is_empty());
}
