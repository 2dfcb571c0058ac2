//! Pools made by OpenZFS's kernel module: imported read-only with every byte as in the manifest, or refused by naming
//! what is not known; in no case changed.

use std::collections::BTreeSet;
use std::path::Path;

use platter_itest::reference::ReferencePool;
use platter_itest::tree::Kind;
use platter_itest::{Lab, Tree, damage, zdb};

/// Imports a copy read-only below an alternate root and compares every file system with its manifest (of `state`, a
/// subfolder of it, or of the only state). Returns how many were compared, or `None` when the import was refused (then
/// the reason has been checked).
fn compare(name: &str, state: &str, reasons: &[&str]) -> Option<usize> {
    let pool = ReferencePool::copy(name)?;
    let lab = Lab::open()?;
    let before = damage::fingerprints(&pool.disks());
    let root = lab.root().join("mnt/ref");
    let import =
        lab.zpool(&format!("import -f -o readonly=on -R {} -d {} {name}", root.display(), pool.dir().display()));
    // Encrypted data sets are passed over: their keys are not loaded.
    let imported = import.code == 0;
    if !imported {
        // "Never a guess": the refusal names a feature or the version that this build cannot read.
        import.clone().refused().says(name).says_one_of(reasons);
        assert_eq!(before, damage::fingerprints(&pool.disks()), "a refused import changed a disk");
        return None;
    }
    let mut compared = 0;
    for (dataset, expected) in pool.manifests_in(state) {
        if dataset.contains('@') {
            continue;
        }
        let get = lab.zfs(&format!("get -H -o value mounted,mountpoint {dataset}")).ok();
        let values: Vec<&str> = get.stdout.lines().collect();
        if values.first() != Some(&"yes") {
            let why = lab.zfs(&format!("mount {dataset}")).refused();
            // Without its key: said, not guessed.
            why.says(&dataset).says("encryption key not loaded");
            continue;
        }
        let mount = std::path::PathBuf::from(values[1]);
        let found = Tree::read(&mount, &BTreeSet::from([".zfs".to_owned()]))
            .unwrap_or_else(|error| panic!("{dataset} cannot be read: {error}"));
        compare_trees(&dataset, &expected, &found);
        compared += 1;
    }
    lab.zpool(&format!("export {name}")).ok();
    assert_eq!(before, damage::fingerprints(&pool.disks()), "a read-only import changed a disk");
    zdb::assert_clean(&pool.dir(), name);
    let complaints: Vec<&str> = import.stderr.lines().filter(|line| line.contains("cannot mount")).collect();
    assert!(complaints.is_empty(), "{compared} file systems are right, but the import complained\n{import}");
    Some(compared)
}

/// As [`Tree::assert_same`], but mount points of children are left out: they were made on another machine.
#[track_caller]
fn compare_trees(dataset: &str, expected: &Tree, found: &Tree) {
    let children: BTreeSet<&String> =
        expected.0.iter().chain(&found.0).filter(|(_, entry)| entry.mounted).map(|(path, _)| path).collect();
    let keep = |tree: &Tree| {
        let mut kept =
            Tree(tree.0.iter().filter(|(p, _)| !children.contains(p)).map(|(p, e)| (p.clone(), e.clone())).collect());
        // A visible control folder counts as a link of the root on one side only.
        if let Some(root) = kept.0.get_mut(".") {
            root.nlink = 0;
        }
        for entry in kept.0.values_mut() {
            if entry.kind == Kind::Dir {
                entry.size = 0;
            }
        }
        kept
    };
    keep(expected).assert_same(&keep(found), &format!("in {dataset} from the manifest"));
}

#[test]
fn a_raidz_pool_of_the_kernel_module_reads_as_its_manifest_says() {
    if platter_itest::reference::ReferencePool::copy("refz1").is_none() {
        return;
    }
    let compared = compare("refz1", "", &[]).expect("every feature of the pool can be read");
    assert!(compared >= 20, "only {compared} file systems compared");
}

#[test]
fn a_legacy_pool_reads_as_its_manifest_says_or_is_refused_by_version() {
    if let Some(compared) = compare("refv28", "", &["version 28", "version: 28", "legacy"]) {
        assert!(compared >= 5, "only {compared} file systems compared");
    }
}

#[test]
fn a_pool_with_an_unreplayed_log_is_read_or_refused_and_never_changed() {
    // A read-only import replays nothing, so it shows the last transaction group.
    if let Some(compared) = compare("refzil", "refzil-not-replayed", &["log", "org.", "com."]) {
        assert!(compared >= 1, "no file system compared");
    }
}

#[test]
fn a_log_that_the_kernel_module_left_is_replayed() {
    let (Some(pool), Some(lab)) = (ReferencePool::copy("refzil"), Lab::open()) else { return };
    let root = lab.root().join("mnt/ref");
    lab.zpool(&format!("import -f -R {} -d {} refzil", root.display(), pool.dir().display())).ok();
    let mut compared = 0;
    for (dataset, expected) in pool.manifests_in("refzil-replayed") {
        let mount = lab.zfs(&format!("get -H -o value mountpoint {dataset}")).ok().stdout;
        let found = Tree::read(Path::new(mount.trim()), &BTreeSet::from([".zfs".to_owned()]))
            .unwrap_or_else(|error| panic!("{dataset} cannot be read: {error}"));
        // Times are those of the replay.
        let without_times = |mut tree: Tree| {
            tree.0.values_mut().for_each(|entry| entry.mtime_ns = 0);
            tree
        };
        compare_trees(&dataset, &without_times(expected), &without_times(found));
        compared += 1;
    }
    assert!(compared >= 3, "only {compared} file systems compared");
    lab.scrub("refzil").says("repaired 0B").says("with 0 errors");
    lab.zpool("export refzil").ok();
    zdb::assert_clean(&pool.dir(), "refzil");
}

#[test]
fn the_listing_of_importable_pools_shows_the_reference_pools() {
    let (Some(pool), Some(lab)) = (ReferencePool::copy("refz1"), Lab::open()) else { return };
    let before = damage::fingerprints(&pool.disks());
    let list = lab.zpool(&format!("import -d {}", pool.dir().display())).ok();
    list.says("refz1").says("17881871464930842434").says("raidz1-0");
    assert_eq!(before, damage::fingerprints(&pool.disks()));
}
