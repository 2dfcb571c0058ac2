//! What a pool tells about itself (events, properties of pool and vdevs), and what it becomes (`zpool upgrade`).

use std::fs;
use std::path::Path;

use platter_itest::{Lab, Tree, data, zdb};

fn fill(mount: &Path, seed: u64) {
    for number in 0..6 {
        fs::write(mount.join(format!("{seed}-{number}")), data::mixed(seed + number, 400_000, 40_000)).expect("a file");
    }
}

#[track_caller]
fn property(lab: &Lab, name: &str) -> String {
    lab.zpool(&format!("get -Hp -o value {name} tank")).ok().stdout.trim().to_owned()
}

#[test]
fn pools_with_a_version_are_upgraded_to_feature_flags() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    for version in [15, 23, 26, 28] {
        let mount = lab.create(&format!("-f -o version={version}"), "tank", "raidz d0 d1 d2");
        fill(&mount, 1);
        lab.create_fs("", "tank/fs");
        fill(&lab.mnt("tank/fs"), 7);
        lab.zpool("upgrade").ok().says("legacy version numbers").says(&format!("{version}   tank"));
        lab.zpool("set compatibility=legacy tank").ok();
        lab.zpool("upgrade tank")
            .refused()
            .says("Upgrade not performed because 'compatibility' property set to 'legacy'");
        assert_eq!(property(&lab, "version"), version.to_string());
        lab.zpool("set compatibility=off tank").ok();
        let upgraded = lab.zpool("upgrade tank").ok();
        let upgraded = upgraded.says(&format!("Successfully upgraded 'tank' from version {version} to feature flags"));
        upgraded.says("Enabled the following features on 'tank'").says("log_spacemap");
        assert_eq!((&*property(&lab, "version"), &*property(&lab, "feature@lz4_compress")), ("-", "active"));
        // Old and new files, old and new file systems.
        fill(&mount, 20);
        fs::remove_file(mount.join("1-0")).expect("a file can be removed");
        lab.create_fs("-o compression=zstd", "tank/new");
        fill(&lab.mnt("tank/new"), 30);
        let tree = Tree::of(&mount);
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        lab.import("", "tank");
        lab.wait_mounted(&lab.mnt("tank/new"));
        tree.assert_same(&Tree::of(&mount), &format!("after the upgrade from version {version}"));
        lab.zpool("upgrade tank").ok().says("already has all supported");
        fill(&mount, 40);
        lab.zfs("destroy tank/fs").ok();
        lab.scrub("tank").says("with 0 errors");
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        lab.import("", "tank");
        lab.zpool("destroy tank").ok();
    }
}

#[test]
fn events_tell_what_happened_in_order() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    fill(&mount, 1);
    lab.scrub("tank");
    lab.zpool("offline tank d1").ok();
    lab.zpool("online tank d1").ok();
    let events = lab.zpool("events -H").ok();
    let classes: Vec<&str> = events.stdout.lines().filter_map(|line| line.split('\t').nth(1)).collect();
    let wanted = ["pool_create", "scrub_start", "scrub_finish", "vdev_online"];
    let places = wanted.map(|name| classes.iter().position(|class| *class == format!("sysevent.fs.zfs.{name}")));
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{wanted:?} at {places:?} in {classes:?}");
    let verbose = lab.zpool("events -v tank").ok();
    verbose.says("TIME                           CLASS").says("pool = \"tank\"").says("eid = 0x1\n");
    lab.zpool("events other").ok().says_not("sysevent");
    lab.zpool("events -c -v").refused();
    lab.zpool("events -c").ok().says("cleared").says("events");
    lab.zpool("events -H").ok().says_not("pool_create");
}

#[test]
fn properties_have_openzfs_names_and_order() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 96);
    lab.create("", "tank", "raidz d0 d1 d2");
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.split('\t').nth(1)).map(str::to_owned).collect()
    };
    let pool = lab.zpool("get -Hp all tank").ok();
    let pool = names(&pool.stdout);
    assert_eq!(pool[..4], ["size", "capacity", "altroot", "health"]);
    let last = pool.iter().position(|name| name == "last_scrubbed_txg").expect("it is shown");
    assert_eq!(pool[last + 1], "feature@async_destroy");
    assert_eq!(property(&lab, "dedup_table_quota"), "auto");
    let vdev = lab.zpool("get -H all tank d1").ok();
    let vdev = names(&vdev.stdout);
    assert_eq!(vdev[..4], ["capacity", "state", "guid", "asize"]);
    assert_eq!(vdev[vdev.len() - 2..], ["slow_ios", "sit_out"]);
    let raidz = lab.zpool("get -Hp -o property,value parity,numchildren,state tank raidz1-0").ok();
    assert_eq!(raidz.stdout, "parity\t1\nnumchildren\t3\nstate\t7\n");
    assert_eq!(lab.zpool("get -H -o name guid tank all-vdevs").ok().stdout.lines().count(), 5);
    assert!(lab.zpool("get -j guid tank root").ok().stdout.contains("root-0"));
    lab.zpool("get guid tank nosuch").refused().says("Expected a list of vdevs in \"tank\"");
    // Properties without effect are refused with the reason.
    for setting in ["autotrim=no", "autoexpand=no", "cachefile=/tmp/x", "bootfs=tank", "failmode=no"] {
        lab.zpool(&format!("set {setting} tank")).refused();
    }
    for (name, value) in [("failmode", "panic"), ("comment", "mine"), ("multihost", "on"), ("org.test:who", "me")] {
        lab.zpool(&format!("set {name}={value} tank")).ok();
        assert_eq!(property(&lab, name), value);
    }
    lab.export("tank");
    lab.import("-o failmode=continue", "tank");
    assert_eq!(property(&lab, "comment"), "mine");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!((property(&lab, "failmode"), property(&lab, "org.test:who")), ("continue".into(), "me".into()));
}
