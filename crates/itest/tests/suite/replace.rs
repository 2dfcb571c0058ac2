//! `zpool attach`, `detach` and `replace`, with files in use meanwhile; each on-disk change is judged by zdb.

use std::fs;

use platter_itest::{Lab, Tree, zdb};

#[test]
fn a_device_of_a_raidz_is_replaced() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    Tree::filled(&mount, 1);
    lab.zpool("replace tank d1").refused().says("is part of active pool 'tank'");
    lab.zpool("replace tank nosuch d3").refused().says("cannot replace nosuch with").says("no such device in pool");
    lab.zpool("replace tank d1 d0").refused().says("is part of active pool 'tank'");
    lab.zpool("attach tank d1 d3").refused().says("can only attach to mirrors and top-level disks");
    lab.zpool("attach tank raidz1-0 d3").refused().says("it is a raidz vdev; name one of its devices");
    lab.zpool("replace tank raidz1-0 d3").refused().says("it is a raidz vdev; name one of its devices");
    lab.zpool("clear tank raidz1-0").ok();
    lab.zpool("detach tank d1").refused().says("only applicable to mirror and replacing vdevs");
    lab.zpool("replace -w tank d1 d3").ok();
    // It left by itself: no command says so.
    lab.zpool("create -n other d1").ok();
    lab.zpool("create -n other d3").refused().says("is part of active pool 'tank'");
    let tree = Tree::filled(&mount, 2);
    let status = lab.zpool("status tank").ok().says("resilvered").says("/d3");
    assert!(!status.stdout.contains("/d1") && !status.stdout.contains("replacing"), "{status}");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("history -i tank").ok().says("vdev attach replace vdev=").says("detach vdev=");
    // It has nothing of the pool any more.
    lab.zpool("add -n -f tank d1").ok();
    let labels = fs::read(lab.dev().join("d1")).expect("read");
    assert!(labels[..512 << 10].iter().all(|byte| *byte == 0), "its labels are still there");
    // The others are enough, and with them the new one.
    lab.export("tank");
    fs::rename(lab.dev().join("d0"), lab.dev().join("away")).expect("moved");
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "without another device");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Disks have links by their serial numbers, and another place when they are plugged in again.
#[test]
fn the_place_that_a_disk_behind_a_link_has_left_is_free() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let (dev, link) = (lab.dev(), lab.dev().join("link"));
    std::os::unix::fs::symlink("d0", &link).expect("linked");
    lab.create("", "tank", "mirror link d1");
    lab.zpool("offline tank link").ok();
    fs::rename(dev.join("d0"), dev.join("moved")).expect("moved");
    fs::remove_file(&link).and_then(|()| std::os::unix::fs::symlink("moved", &link)).expect("linked");
    lab.zpool("online tank link").ok();
    let new_disk = || fs::File::create(dev.join("d0")).and_then(|file| file.set_len(128 << 20)).expect("a new one");
    new_disk();
    lab.zpool("create -n other moved").refused().says("is part of active pool 'tank'");
    lab.zpool("create -n other link").refused().says("is part of active pool 'tank'");
    lab.zpool("create -O mountpoint=none other d0").ok();
    lab.zpool("destroy other").ok();
    // There is no link any more.
    fs::rename(dev.join("moved"), &link).expect("moved");
    fs::File::create(dev.join("moved")).and_then(|file| file.set_len(128 << 20)).expect("another one");
    lab.zpool("create -O mountpoint=none other moved").ok();
    lab.zpool("create -n -f another link").refused().says("is part of active pool 'tank'");
    lab.zpool("destroy other").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn another_device_at_the_same_path_takes_the_place() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("offline tank d1").ok();
    let path = lab.dev().join("d1");
    fs::remove_file(&path).expect("removed");
    fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("another one");
    lab.zpool("replace -w tank d1").ok();
    let status = lab.zpool("status tank").ok().says("ONLINE");
    assert!(!status.stdout.contains("/old"), "{status}");
    // The pool still has the file open that was there before.
    fs::remove_file(&path).expect("removed");
    fs::File::create(&path).and_then(|file| file.set_len(128 << 20)).expect("another one");
    lab.zpool("replace -w tank d1").ok();
    let status = lab.zpool("status tank").ok().says("ONLINE");
    assert!(!status.stdout.contains("/old"), "{status}");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_single_device_becomes_a_mirror_and_another_single_device() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "d0");
    Tree::filled(&mount, 1);
    lab.zpool("detach tank d0").refused().says("only applicable to mirror and replacing vdevs");
    lab.zpool("attach -w tank d0 d1").ok();
    lab.zpool("status tank").ok().says("mirror-0");
    let tree = Tree::filled(&mount, 2);
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("wait tank").ok();
    lab.zpool("detach tank d0").ok();
    let tree = Tree::filled(&mount, 3);
    lab.judge_and_return("tank", &mount, &tree);
    let status = lab.zpool("status tank").ok();
    assert!(!status.stdout.contains("mirror") && !status.stdout.contains("/d0"), "{status}");
    lab.zpool("detach tank d1").refused();
    // The one that left can come back as another.
    lab.zpool("attach -w tank d1 d0").ok();
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_device_that_is_too_small_is_refused() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "d0");
    let tree = Tree::filled(&mount, 1);
    fs::File::create(lab.dev().join("small")).and_then(|file| file.set_len(100 << 20)).expect("a file");
    lab.zpool("attach tank d0 small").refused().says("device is too small");
    lab.zpool("replace tank d0 small").refused().says("device is too small");
    lab.zpool("attach -o ashift=13 tank d0 d1").refused().says("different optimal sector size");
    lab.judge_and_return("tank", &mount, &tree);
}
