//! `zpool split`: both pools are judged by zdb and compared, the labels of every device are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use platter_itest::loops::Loop;
use platter_itest::{Lab, Tree, judge, zdb};

/// What `zdb -l` says of a device.
fn label(device: &Path) -> String {
    let output = Command::new("zdb").arg("-l").arg(device).output().expect("zdb runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the file system of `pool`, which is a copy of `tank`, is mounted below the alternate root.
fn below(root: &Path, mount: &Path) -> PathBuf {
    root.join(mount.strip_prefix("/").expect("an absolute path"))
}

#[test]
fn one_side_of_each_mirror_becomes_a_pool_of_its_own() {
    let Some(lab) = Lab::open() else { return };
    let Some(_) = judge::need("zdb") else { return };
    lab.disks(5, 128);
    let mount = lab.create("-f", "tank", "mirror d0 d1 mirror d2 d3 d4");
    let old = Tree::filled(&mount, 1);
    lab.zfs("snapshot tank@before").ok();
    lab.zfs("clone tank@before tank/clone").ok();
    let tree = Tree::filled(&mount, 2);
    let shown = lab.zpool("split -n tank twin").ok();
    let (d1, d2, d4) = (lab.disk(1), lab.disk(2), lab.disk(4));
    let expected = |first: &Path, second: &Path| {
        let layout = format!("\ttwin\n\t  {}\n\t  {}\n", first.display(), second.display());
        format!("would create 'twin' with the following layout:\n\n{layout}")
    };
    assert_eq!(shown.stdout, expected(&d1, &d4));
    assert_eq!(lab.zpool("split -nP tank twin d2").ok().stdout, expected(&d1, &d2));
    let guid = zdb::label_guid(&d1).expect("it has a label");
    lab.zpool("split -gn tank twin").ok().says(&guid);
    lab.zpool("split -o comment=copy tank twin d2").ok();
    let status = lab.zpool("status tank").ok().says("ONLINE").says("mirror-1");
    assert!(!status.stdout.contains("mirror-0") && !status.stdout.contains("/d2"), "{status}");
    assert!(status.stdout.contains("/d0") && !status.stdout.contains("/d1"), "{status}");
    lab.zpool("list twin").refused().says("no such pool");
    for device in [&d1, &d2] {
        let said = label(device);
        assert!(said.contains("name: 'twin'") && said.contains("state: 1") && said.contains("split_guid:"), "{said}");
    }
    // A sector that only the labels of the split may be on is not there.
    assert!(!label(&lab.disk(0)).contains("splitcfg"));
    zdb::assert_clean(&lab.dev(), "twin");
    tree.assert_same(&Tree::of(&mount), "in the old pool");
    lab.zpool("history -i tank").ok().says("detach vdev=").says("zpool split -o comment=copy tank twin d2");
    // Both are written to, and each keeps its own.
    let root = lab.root().join("alt");
    lab.zpool(&format!("import -R {} -d {} twin", root.display(), lab.dev().display())).ok();
    let copy = below(&root, &mount);
    lab.wait_mounted(&copy);
    tree.assert_same(&Tree::of(&copy), "in the new pool");
    old.assert_same(&Tree::of(&below(&root, &mount.join("clone"))), "in the new pool's clone");
    old.assert_same(&Tree::of(&copy.join(".zfs/snapshot/before")), "in the new pool's snapshot");
    lab.zpool("get -H -o value comment twin").ok().says("copy");
    lab.zpool("history -i twin").ok().says("split from pool tank");
    let (one, two) = (Tree::filled(&mount, 3), Tree::filled(&copy, 4));
    lab.zpool("status twin").ok().says("ONLINE").says("/d1").says("/d2");
    for pool in ["tank", "twin"] {
        lab.scrub(pool).says("scrub repaired 0B").says("with 0 errors");
    }
    lab.zpool("export twin").ok();
    zdb::assert_clean(&lab.dev(), "twin");
    assert!(!label(&d1).contains("split_guid"), "it is a pool like any other by now");
    one.assert_same(&Tree::of(&mount), "in the old pool");
    lab.judge_and_return("tank", &mount, &one);
    lab.zpool(&format!("import -R {} -d {} twin", root.display(), lab.dev().display())).ok();
    two.assert_same(&Tree::of(&copy), "in the new pool");
    // Its devices may become the old pool's again.
    lab.zpool("destroy twin").ok();
    lab.zpool("attach -w tank d0 d1").ok();
    lab.judge_and_return("tank", &mount, &one);
}

#[test]
fn with_another_root_the_new_pool_is_imported() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 log mirror d2 d3 spare d4");
    let tree = Tree::filled(&mount, 1);
    let root = lab.root().join("alt");
    let run = lab.zpool(&format!("split -R {} tank twin", root.display())).ok();
    assert!(run.stdout.is_empty(), "{run}");
    let copy = below(&root, &mount);
    lab.wait_mounted(&copy);
    tree.assert_same(&Tree::of(&copy), "in the new pool");
    lab.zpool("get -H -o value altroot twin").ok().says(&root.display().to_string());
    // Logs and spares stay.
    let status = lab.zpool("status twin").ok().says("/d1");
    assert!(!status.stdout.contains("logs") && !status.stdout.contains("spares"), "{status}");
    lab.zpool("status tank").ok().says("logs").says("spares").says("/d0");
    let two = Tree::filled(&copy, 2);
    lab.zpool("add -f twin log d5").ok();
    lab.zpool("export twin").ok();
    zdb::assert_clean(&lab.dev(), "twin");
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool(&format!("import -R {} -d {} twin", root.display(), lab.dev().display())).ok();
    two.assert_same(&Tree::of(&copy), "in the new pool");
}

#[test]
fn what_cannot_be_split_is_refused_and_nothing_changes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(9, 128);
    let only = "Unable to split tank: Source pool must be composed only of mirrors";
    for vdevs in ["d0", "raidz d0 d1 d2", "-f mirror d0 d1 d2", "mirror d0 d1 mirror d2 d3"] {
        let (options, vdevs) = vdevs.strip_prefix("-f ").map_or(("", vdevs), |vdevs| ("-f", vdevs));
        let mount = lab.create(options, "tank", vdevs);
        if vdevs.starts_with("mirror d0 d1 d2") {
            lab.zpool("add -f tank d3").ok();
        }
        if vdevs != "mirror d0 d1 mirror d2 d3" {
            lab.zpool("split tank twin").refused().says(only);
            lab.zpool("destroy tank").ok();
            continue;
        }
        let tree = Tree::filled(&mount, 1);
        refuse_bad_words(&lab);
        refuse_what_has_not_all(&lab);
        tree.assert_same(&Tree::of(&mount), "after what was refused");
        lab.judge_and_return("tank", &mount, &tree);
        lab.zpool("status tank").ok().says("mirror-0").says("mirror-1");
    }
}

fn refuse_bad_words(lab: &Lab) {
    lab.zpool("create other d5").ok();
    let at_most = "Unable to split tank: Device list must include at most one disk from each mirror";
    for (words, says) in [
        ("tank other", "Unable to split tank: pool already exists"),
        ("tank tank", "Unable to split tank: pool already exists"),
        ("tank 1x", "Unable to split tank: name must begin with a letter"),
        ("tank mirror", "Unable to split tank: name is reserved"),
        ("nosuch twin", "cannot open 'nosuch': no such pool"),
        ("tank twin d0 d1", at_most),
        ("tank twin d1 d1", at_most),
        ("tank twin d5", at_most),
        ("tank twin d4", at_most),
        ("tank twin nosuch", "Unable to build a pool from the specified devices"),
        ("tank twin mirror d0 d1", "Cannot use 'mirror' as a device for splitting"),
        ("-o readonly=on tank twin", "property readonly can only be set at import time"),
        ("-o ashift=4 tank twin", "only values between 9 and 16 are allowed"),
        ("-o version=28 tank twin", "version"),
        ("-R rel tank twin", "Unable to split tank: bad alternate root 'rel'"),
    ] {
        lab.zpool(&format!("split {words}")).refused().says(says);
    }
    for words in ["-o ro tank twin", "-l tank twin", "-f tank twin", "tank", "-o fake=1 tank twin"] {
        assert_eq!(lab.zpool(&format!("split {words}")).code, 2, "{words}");
    }
    lab.zpool("destroy other").ok();
    lab.zpool("list twin").refused();
}

fn refuse_what_has_not_all(lab: &Lab) {
    lab.zpool("offline tank d1").ok();
    lab.zpool("split tank twin").refused().says("Unable to split tank: invalid argument for this pool operation");
    // The other one is the only one that has everything.
    lab.zpool("split tank twin d0").refused().says("Unable to split tank: pool is busy");
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.export("tank");
    lab.import("-o readonly=on", "tank");
    lab.zpool("split tank twin").refused().says("Unable to split tank: pool is read-only");
    lab.export("tank");
    lab.import("", "tank");
}

/// A pool that has whole disks has its partition on each, and so has the new one.
#[test]
fn whole_disks_are_split() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 200);
    let (Some(one), Some(two)) = (Loop::over(&lab.disk(0)), Loop::over(&lab.disk(1))) else {
        return judge::skip("loop devices", "losetup fails here");
    };
    let mount = lab.create("", "tank", &format!("mirror {} {}", one.0, two.0));
    let tree = Tree::filled(&mount, 1);
    let root = lab.root().join("alt");
    lab.zpool(&format!("split -R {} tank twin {}", root.display(), one.0)).ok();
    let copy = below(&root, &mount);
    lab.wait_mounted(&copy);
    tree.assert_same(&Tree::of(&copy), "in the new pool");
    tree.assert_same(&Tree::of(&mount), "in the old pool");
    let again = Tree::filled(&copy, 2);
    lab.zpool("export twin").ok();
    lab.zpool(&format!("import -R {} -d {} twin", root.display(), one.0)).ok();
    again.assert_same(&Tree::of(&copy), "after export and import");
    lab.zpool("destroy twin").ok();
    lab.zpool("destroy tank").ok();
    let _ = fs::remove_dir(&root);
}

/// Trims and initializing of what leaves go on in the new pool.
#[test]
fn work_on_what_is_free_does_not_keep_a_device() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 512);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("trim -r 1M tank").ok();
    lab.zpool("initialize tank").ok();
    lab.zpool("split tank twin").ok();
    lab.zpool("status tank").ok().says("ONLINE").says_not("mirror");
    zdb::assert_clean(&lab.dev(), "twin");
    let root = lab.root().join("alt");
    lab.zpool(&format!("import -R {} -d {} twin", root.display(), lab.dev().display())).ok();
    tree.assert_same(&Tree::of(&below(&root, &mount)), "in the new pool");
    for pool in ["tank", "twin"] {
        lab.zpool(&format!("initialize -c {pool}"));
        lab.zpool(&format!("trim -c {pool}"));
    }
    lab.zpool("export twin").ok();
    zdb::assert_clean(&lab.dev(), "twin");
    lab.judge_and_return("tank", &mount, &tree);
}
