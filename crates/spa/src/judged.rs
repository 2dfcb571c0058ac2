//! Devices that are judged: what a verdict does, what it never does, and what takes it back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use platter_api::faults::{Cause, DeviceSigns, DeviceState};
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};

use crate::Pool;
use crate::test_environment::environment;

fn make_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("d{number}"))).collect();
    for path in &paths {
        std::fs::File::create(path).and_then(|file| file.set_len(128 << 20)).expect("a file");
    }
    paths
}

async fn create(vdevs: Vec<VdevRequest>) -> Arc<Pool> {
    let request = CreateRequest { name: "tank".into(), vdevs, ..CreateRequest::default() };
    Pool::create(environment(1), request).await.expect("created")
}

fn signs(pool: &Pool, path: &Path) -> DeviceSigns {
    let all = pool.signs();
    all.into_iter().find(|device| device.name == path.display().to_string()).expect("it is part of the pool")
}

async fn judge(pool: &Pool, path: &Path, cause: Cause) -> String {
    let change = PoolChange::Judge { device: path.display().to_string(), cause };
    pool.change(change).await.expect("carried out").state.expect("a state")
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}");
}

#[tokio::test]
async fn a_verdict_survives_an_import_and_clear_takes_it_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 3);
    let pool = create(vec![VdevRequest::Mirror(files.clone())]).await;
    assert_eq!(judge(&pool, &files[1], Cause::Io).await, "FAULTED");
    assert_eq!(judge(&pool, &files[2], Cause::Checksum).await, "DEGRADED");
    // Again it changes nothing, and what is faulted is not degraded.
    assert_eq!(judge(&pool, &files[1], Cause::Checksum).await, "FAULTED");
    let classes: Vec<String> = pool.core.environment.events.after(0).into_iter().map(|event| event.class).collect();
    for class in ["fault.fs.zfs.vdev.io", "fault.fs.zfs.vdev.checksum", "resource.fs.zfs.statechange"] {
        assert!(classes.iter().any(|known| known == class), "{class}: {classes:?}");
    }
    pool.export().await.expect("exported");
    let request = ImportRequest { pool: "tank".into(), search: vec![folder.path().into()], ..Default::default() };
    let pool = Pool::import(environment(2), request).await.expect("imported");
    for (file, state) in [(0, DeviceState::Online), (1, DeviceState::Faulted), (2, DeviceState::Degraded)] {
        let device = signs(&pool, &files[file]);
        assert_eq!((device.state, device.is_judged), (state, state != DeviceState::Online), "{device:?}");
        assert_eq!(device.reason.is_some(), device.is_judged, "{device:?}");
    }
    let fault = PoolChange::Fault { device: files[0].display().to_string(), temporary: true };
    // What is degraded is used on: the pool can do without this one.
    assert_eq!(pool.change(fault).await.expect("carried out").state.as_deref(), Some("FAULTED"));
    pool.clear(None).await.expect("cleared");
    for file in &files {
        let device = signs(&pool, file);
        assert_eq!((device.state, device.is_judged), (DeviceState::Online, false), "{device:?}");
    }
    until("it has what it missed", || files.iter().all(|file| signs(&pool, file).has_everything)).await;
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn the_last_good_copy_is_never_taken_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 3);
    let pool = create(vec![VdevRequest::Mirror(files[..2].to_vec()), VdevRequest::Leaf(files[2].clone())]).await;
    assert_eq!(judge(&pool, &files[2], Cause::Io).await, "DEGRADED");
    assert_eq!(judge(&pool, &files[0], Cause::Io).await, "FAULTED");
    assert_eq!(judge(&pool, &files[1], Cause::Io).await, "DEGRADED");
    pool.force_group().await.expect("it goes on");
    let online = PoolChange::Online { device: files[0].display().to_string(), expand: false };
    pool.change(online).await.expect("back");
    until("it has what it missed", || signs(&pool, &files[0]).has_everything).await;
    assert!(!signs(&pool, &files[0]).is_judged);
    // Now the other one can be done without.
    assert_eq!(judge(&pool, &files[1], Cause::Io).await, "FAULTED");
    pool.export().await.expect("exported");
}

#[tokio::test]
async fn a_spare_comes_for_a_verdict_goes_with_it_and_never_for_what_is_held() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = make_files(folder.path(), 5);
    let (mirror, spares) = (files[..2].to_vec(), files[2..4].to_vec());
    let pool = create(vec![VdevRequest::Mirror(mirror), VdevRequest::Spare(spares)]).await;
    // Asked for first: signs look at what is held, too.
    let guid = signs(&pool, &files[0]).guid;
    pool.core.environment.held.lock().insert(guid);
    assert_eq!(judge(&pool, &files[0], Cause::Checksum).await, "DEGRADED");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(signs(&pool, &files[0]).helper, None, "its owner holds it");
    pool.core.environment.held.lock().clear();
    until("a spare is in", || signs(&pool, &files[0]).helper_has_everything).await;
    assert_eq!(signs(&pool, &files[0]).state, DeviceState::Degraded, "it is used on");
    // One failure, one spare.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(pool.signs().len(), 3);
    // With the spare in it can be given up.
    assert_eq!(judge(&pool, &files[0], Cause::Io).await, "FAULTED");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(pool.signs().len(), 3);
    pool.clear(Some(&files[0].display().to_string())).await.expect("cleared");
    until("the spare is free", || pool.signs().len() == 2).await;
    assert_eq!((signs(&pool, &files[0]).state, signs(&pool, &files[0]).helper), (DeviceState::Online, None));
    pool.export().await.expect("exported");
}
