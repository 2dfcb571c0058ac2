//! Pools in the middle of a replacement, as OpenZFS may leave them: a device of a RAID-Z, a side of a mirror and a
//! single device under replacement.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platter_device::OpenOptions;
use platter_nvlist::NvList;
use platter_ondisk::names::config::RESILVER_TXG;
use platter_ondisk::{Guid, Txg};
use platter_vdev::Leaf;

use crate::config::VdevConfig;
use crate::labels::LabelTarget;
use crate::open_vdevs::{self, NewDevices};
use crate::test_environment::environment;
use crate::{Pool, labels};
use platter_api::report::{Detail, VdevReport};
use platter_api::request::{CreateRequest, ImportRequest, PoolChange, VdevRequest};
use platter_dsl::PoolError;

const SIZE: u64 = 128 << 20;
/// The guids of the nested vdev and of the new device.
const NESTED: (u64, u64) = (77, 78);

fn make_files(folder: &Path, count: usize) -> Vec<PathBuf> {
    let paths: Vec<PathBuf> = (0..count).map(|number| folder.join(format!("d{number}"))).collect();
    for path in &paths {
        std::fs::File::create(path).and_then(|file| file.set_len(SIZE)).expect("a file");
    }
    paths
}

/// Puts a `kind` vdev over the device of index `child` and the one at `path`, which has nothing yet.
async fn nest(pool: &Pool, kind: &str, child: usize, path: &Path) {
    let core = &pool.core;
    let top = core.dsl.store.top(0).expect("a vdev");
    let mut old = core.config.read().vdev_tree.children[0].clone();
    let mut other = NvList::new();
    other.add_u64(RESILVER_TXG, 4);
    let new = VdevConfig {
        kind: "file".into(),
        id: 1,
        guid: Guid(NESTED.1),
        path: Some(path.display().to_string()),
        create_txg: 4,
        other,
        ..VdevConfig::default()
    };
    let device = core.environment.devices.open_path(path, OpenOptions::exclusive()).await.expect("a device");
    let targets = [LabelTarget { device: device.clone(), guid: new.guid, top: 0, ashift: old.ashift as u32 }];
    labels::wipe(&targets).await.expect("wiped");
    let opener = NewDevices([(new.guid.0, device.clone())].into());
    let leaf = Leaf::open(&open_vdevs::spec(&new), &opener, true, top.least_leaf_asize()).await;
    leaf.note_lacking(Txg(1), core.dsl.gate.open_txg().plus(2));
    let nested = |mut device: VdevConfig| {
        let (id, guid) = (device.id, Guid(NESTED.0));
        device.id = 0;
        let children = vec![device, new.clone()];
        VdevConfig { kind: kind.into(), id, guid, create_txg: 4, children, ..VdevConfig::default() }
    };
    if old.is_leaf() {
        // What belongs to the top-level vdev stays at the top.
        let mut device = VdevConfig { metaslab_array: Default::default(), top_zap: Default::default(), ..old.clone() };
        (device.asize, device.ashift, device.metaslab_shift) = (0, 0, 0);
        let (metaslab_array, top_zap) = (old.metaslab_array, old.top_zap);
        let (asize, ashift, metaslab_shift) = (old.asize, old.ashift, old.metaslab_shift);
        old = VdevConfig { metaslab_array, top_zap, asize, ashift, metaslab_shift, ..nested(device) };
    } else {
        let device = old.children[child].clone();
        old.children[child] = nested(device);
    }
    let mut arrangement = top.arrangement();
    arrangement.children[child].push(leaf);
    (arrangement.guid, arrangement.kind) = (old.guid, open_vdevs::spec(&old).kind);
    top.exchange(arrangement).await.expect("exchanged");
    core.leaf_devices.lock().insert(NESTED.1, device);
    core.config.write().vdev_tree.children[0] = old;
    core.dsl.dirty_config();
    pool.sync().await.expect("synced");
}

async fn import(folder: &Path) -> Result<Arc<Pool>, PoolError> {
    let search = vec![folder.to_owned()];
    let request = ImportRequest { pool: "tank".into(), search, force: true, ..ImportRequest::default() };
    Pool::import(environment(2), request).await
}

async fn vdev(pool: &Pool) -> VdevReport {
    pool.report(Detail::default()).await.expect("a report").vdevs.children[0].clone()
}

/// The tree in one line, as `zpool status` shows it: names without folders, and states.
fn line(vdev: &VdevReport) -> String {
    let name = vdev.path.as_deref().unwrap_or(&vdev.name).rsplit('/').next().unwrap_or("").to_owned();
    let below: Vec<String> = vdev.children.iter().map(line).collect();
    let state = if vdev.state == "ONLINE" { String::new() } else { format!(" {}", vdev.state) };
    if below.is_empty() { format!("{name}{state}") } else { format!("{name}{state} [{}]", below.join(", ")) }
}

/// The request, the index of the device that is replaced, and what status says before and after its old device and
/// `also` are gone. What was replaced has left by then; what a spare stands in for has not.
async fn check(vdevs: VdevRequest, kind: &str, count: usize, child: usize, whole: &str, also: &[usize], reduced: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("a folder");
    let paths = make_files(&folder, count + 1);
    let at = |number: &PathBuf| folder.join(number);
    let vdevs = match vdevs {
        VdevRequest::Leaf(path) => VdevRequest::Leaf(at(&path)),
        VdevRequest::Mirror(paths) => VdevRequest::Mirror(paths.iter().map(at).collect()),
        VdevRequest::Raidz { parity, children } => {
            VdevRequest::Raidz { parity, children: children.iter().map(at).collect() }
        }
        VdevRequest::Log(_) | VdevRequest::Spare(_) | VdevRequest::Cache(_) => {
            unreachable!("they are replaced like others, or no vdevs")
        }
    };
    let request = CreateRequest { name: "tank".into(), vdevs: vec![vdevs], ..CreateRequest::default() };
    let pool = Pool::create(environment(1), request).await.expect("created");
    for number in 0..20 {
        pool.dsl().create_dataset(&format!("tank/fs{number}"), &Default::default()).await.expect("a data set");
    }
    nest(&pool, kind, child, &paths[count]).await;
    assert_eq!(line(&vdev(&pool).await), whole);
    pool.close().await.expect("closed");
    drop(pool);

    // Another host finds and opens it, and makes the new device complete.
    let found = Pool::discover(&environment(2), std::slice::from_ref(&folder), &[]).await.expect("found").pools;
    assert_eq!((found.len(), line(&found[0].vdevs.children[0])), (1, whole.to_owned()));
    let pool = import(&folder).await.expect("imported");
    assert_eq!(line(&vdev(&pool).await), whole);
    let new = || {
        let leaves = pool.core.dsl.store.top(0).expect("a vdev").leaves();
        leaves.iter().find(|leaf| leaf.path().as_ref() == Some(&paths[count])).expect("the new device").clone()
    };
    assert!(new().is_missing(Txg(4)), "its list came along");
    // It resilvers by itself; what was still open when the device joined may take a second round.
    for _ in 0..4 {
        pool.scrub_wait().await.expect("ended");
        pool.sync().await.expect("synced");
    }
    assert!(new().missing().is_empty(), "{:?}", new().missing());
    // What was replaced leaves by itself, a moment later.
    for _ in 0..500 {
        if !line(&vdev(&pool).await).contains("replacing") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(new().stats().snapshot().checksum_errors, 0, "nobody is blamed");
    pool.close().await.expect("closed");
    drop(pool);
    if let Ok(kept) = std::env::var("PLATTER_KEEP_NESTED") {
        let kept = PathBuf::from(kept).join(format!("{kind}{count}"));
        std::fs::create_dir_all(&kept).expect("a folder");
        paths.iter().for_each(|path| _ = std::fs::copy(path, kept.join(path.file_name().expect("a name"))));
    }
    new_is_enough(&folder, &paths, child, also, reduced).await;
}

/// The new device, the last of `paths`, is enough without the old one, `child`, and without `also`.
async fn new_is_enough(folder: &Path, paths: &[PathBuf], child: usize, also: &[usize], reduced: &str) {
    let count = paths.len() - 1;
    std::fs::remove_file(&paths[child]).expect("removed");
    also.iter().for_each(|&number| std::fs::remove_file(&paths[number]).expect("removed"));
    let found = Pool::discover(&environment(3), &[folder.to_owned()], &[]).await.expect("found").pools;
    assert_eq!(line(&found[0].vdevs.children[0]), reduced);
    let pool = import(folder).await.expect("imported");
    assert_eq!(line(&vdev(&pool).await), reduced);
    let device = paths[count].display().to_string();
    let change = PoolChange::Offline { device, temporary: false };
    assert!(matches!(pool.change(change).await, Err(PoolError::Busy(_))), "it is the last");
    pool.dsl().create_dataset("tank/more", &Default::default()).await.expect("a data set");
    pool.scrub_start().await.expect("started");
    pool.scrub_wait().await.expect("ended");
    let report = pool.report(Detail { errors: true, ..Detail::default() }).await.expect("a report");
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    pool.close().await.expect("closed");
    drop(pool);

    // Without that one too, it is clear that nothing can be done.
    std::fs::remove_file(&paths[count]).expect("removed");
    assert!(import(folder).await.is_err());
}

#[tokio::test]
async fn a_device_of_a_raidz_under_replacement() {
    let vdevs = VdevRequest::Raidz { parity: 1, children: vec!["d0".into(), "d1".into(), "d2".into()] };
    let reduced = "raidz1-0 DEGRADED [d0 UNAVAIL, d3, d2]";
    check(vdevs, "replacing", 3, 1, "raidz1-0 [d0, replacing-1 [d1, d3], d2]", &[0], reduced).await;
}

#[tokio::test]
async fn a_spare_in_a_raidz() {
    let vdevs = VdevRequest::Raidz { parity: 1, children: vec!["d0".into(), "d1".into(), "d2".into()] };
    let reduced = "raidz1-0 DEGRADED [d0, d1 UNAVAIL, spare-2 DEGRADED [d2 UNAVAIL, d3]]";
    check(vdevs, "spare", 3, 2, "raidz1-0 [d0, d1, spare-2 [d2, d3]]", &[1], reduced).await;
}

#[tokio::test]
async fn a_side_of_a_mirror_under_replacement() {
    let vdevs = VdevRequest::Mirror(vec!["d0".into(), "d1".into()]);
    let reduced = "mirror-0 DEGRADED [d0 UNAVAIL, d2]";
    check(vdevs, "replacing", 2, 1, "mirror-0 [d0, replacing-1 [d1, d2]]", &[0], reduced).await;
}

#[tokio::test]
async fn a_single_device_under_replacement() {
    let vdevs = VdevRequest::Leaf("d0".into());
    let reduced = "d1";
    check(vdevs, "replacing", 1, 0, "replacing-0 [d0, d1]", &[], reduced).await;
}
