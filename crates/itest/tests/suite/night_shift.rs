//! The night shift: disks die one after the other, each in another way, while files are written and read. Nobody types
//! a command; in the morning the pool is whole, and its owner has been told.

use std::fs;
use std::path::Path;

use platter_itest::{Faults, FaultyDisks, Lab, NightLoad, Tree, Webhook, damage, zdb};

/// A spare is in so long after the verdict.
const SPARE_IN: u64 = 10;
/// Files that are read.
const FILES: u64 = 160;
/// Where the labels in front end.
const BEHIND_LABELS: u64 = damage::LABEL_START_BYTES;

/// Waits until a spare has everything that a device had; it was in soon enough after its verdict.
#[track_caller]
fn is_helped(lab: &Lab, hook: &Webhook, verdict: &[&str], device: &Path) {
    let judged = hook.wait(lab, verdict, device);
    let helped = hook.wait(lab, &["sysevent.fs.zfs.vdev_spare"], device);
    assert!(helped - judged <= SPARE_IN, "{} s after the verdict on {}", helped - judged, device.display());
    hook.wait(lab, &["sysevent.fs.zfs.resilver_finish"], device);
    let faults = lab.platter(["faults", "tank"]).ok();
    faults.says(&device.display().to_string()).says("stands in for it").says("Replace it when it suits you");
}

#[test]
fn disks_die_in_every_way_and_nobody_types_a_command() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(11, 128);
    // Two of them fail on command; the spares are the last three.
    let disks = FaultyDisks::over(&lab, 2);
    let hook = Webhook::open();
    lab.platter(["notify", "add", "webhook", &hook.url]).ok();
    let mirrors = format!("mirror {} mirror d2 d3 mirror d4 d5 mirror d6 d7 spare d8 d9 d10", disks.all());
    let mount = lab.create("-O primarycache=metadata", "tank", &mirrors);
    NightLoad::prepare(&mount, FILES);
    // What is read from now on comes from disk.
    let folders = format!("-d {} -d {}", lab.dev().display(), disks.dir().display());
    lab.export("tank");
    lab.zpool(&format!("import {folders} tank")).ok();
    lab.wait_mounted(&mount);
    let load = NightLoad::on(mount.clone(), FILES);
    // One vanishes: who comes first sees it gone, or a read fails that nothing else helps.
    let vanished = lab.disk(7);
    fs::OpenOptions::new().write(true).open(&vanished).and_then(|file| file.set_len(0)).expect("cut");
    fs::remove_file(&vanished).expect("removed");
    is_helped(&lab, &hook, &["resource.fs.zfs.removed", "resource.fs.zfs.statechange"], &vanished);
    // One fails wherever there are data, though its labels can be read and written.
    disks.set(0, Faults { read: true, write: true, from: BEHIND_LABELS, ..Faults::default() });
    is_helped(&lab, &hook, &["fault.fs.zfs.vdev.io"], &disks.disk(0));
    // One delivers other bytes than were written, and no error.
    damage::overwrite_data_area(&lab.disk(4), 7);
    is_helped(&lab, &hook, &["fault.fs.zfs.vdev.checksum"], &lab.disk(4));
    load.end();
    let status = lab.zpool("status tank").ok();
    let status = status.says("FAULTED").says("DEGRADED").says("too many errors").says("No known data errors");
    assert_eq!(status.stdout.matches("INUSE").count(), 3, "one spare for each: {status}");
    lab.zpool("events -H").ok().says("fault.fs.zfs.vdev.io").says("fault.fs.zfs.vdev.checksum");
    lab.platter(["notify", "list"]).ok().says("webhook").says_not("trouble");
    NightLoad::check(&mount, FILES);
    let tree = Tree::of(&mount);
    lab.scrub("tank").says("with 0 errors").says("No known data errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import {folders} tank")).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "in the morning");
    // Verdicts outlive the night.
    lab.zpool("status tank").ok().says("FAULTED").says("too many errors");
    lab.export("tank");
}
