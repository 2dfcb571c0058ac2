//! Devices that come back, new ones in their places, and those that never answer: what is done while nobody is there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, Tree, zdb};

/// For so long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(150);
/// A device that is away is looked at this often at least (`takeover`'s pause, and some more).
const LOOKED_AT: Duration = Duration::from_secs(40);
/// An import without a disk that does not answer takes the 30 seconds for which that is waited for, and little more.
const IMPORTED: Duration = Duration::from_secs(60);

/// Waits until `zpool status` says so.
#[track_caller]
fn until(lab: &Lab, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let status = lab.zpool("status tank").ok().stdout;
        if is_so(&status) {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: {status}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Whether all is well again.
fn is_whole(status: &str) -> bool {
    status.contains("scan: resilvered") && status.matches("ONLINE").count() >= 4 && !status.contains("replacing")
}

fn fill(mount: &Path, name: &str) {
    fs::create_dir(mount.join(name)).expect("a folder");
    Tree::filled(&mount.join(name), 2);
}

#[test]
fn a_disk_that_comes_back_is_used_again_though_there_is_no_spare() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let away = lab.tmp().join("away");
    for (round, stays) in [("first", Duration::from_secs(1)), ("second", Duration::from_secs(12))] {
        fs::rename(lab.disk(1), &away).expect("moved");
        fill(&mount, round);
        lab.zpool("sync tank").ok();
        std::thread::sleep(stays);
        fs::rename(&away, lab.disk(1)).expect("moved");
        until(&lab, "it is back", |status| is_whole(status) || !status.contains("REMOVED"));
    }
    let tree = Tree::of(&mount);
    lab.scrub("tank").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
    lab.export("tank");
}

#[test]
fn a_new_disk_in_the_place_of_an_old_one_is_used_where_the_owner_says_so() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    fill(&mount, "kept");
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    let (path, pulled) = (lab.disk(2), lab.tmp().join("pulled"));
    let make = |path: &Path| fs::File::create(path).and_then(|file| file.set_len(128 << 20)).expect("a new disk");
    fs::rename(&path, &pulled).expect("pulled out");
    // A file that was moved is still open: what fails is what is written to it.
    lab.zpool(&format!("offline -f tank {}", path.display())).ok();
    make(&path);
    std::thread::sleep(LOOKED_AT);
    lab.zpool("status tank").ok().says("FAULTED").says_not("replacing").says_not("resilver");
    // What holds something is never taken.
    let formatted = std::process::Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&path).status();
    let has_tool = formatted.is_ok_and(|status| status.success());
    lab.zpool("set autoreplace=on tank").ok();
    if has_tool {
        std::thread::sleep(LOOKED_AT);
        lab.zpool("status tank").ok().says("FAULTED").says_not("replacing").says_not("resilver");
    }
    fs::remove_file(&path).expect("removed");
    make(&path);
    let status = until(&lab, "it is replaced", is_whole);
    assert!(!status.contains("FAULTED") && status.contains("with 0 errors"), "{status}");
    // The old disk is put back: it is taken for what it is, and left alone.
    fs::rename(&path, lab.tmp().join("new")).expect("moved");
    fs::rename(&pulled, &path).expect("put back");
    lab.zpool(&format!("offline -f tank {}", path.display())).ok();
    let before = fs::read(&path).expect("the old disk");
    std::thread::sleep(LOOKED_AT);
    assert!(fs::read(&path).expect("the old disk") == before, "it was written to");
    lab.zpool("status tank").ok().says("FAULTED").says_not("replacing");
    fs::remove_file(&path).expect("removed");
    fs::rename(lab.tmp().join("new"), &path).expect("moved");
    lab.zpool("clear tank").ok();
    until(&lab, "it is used again", |status| !status.contains("FAULTED") && !status.contains("in progress"));
    lab.judge_and_return("tank", &mount, &tree);
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Nothing is heard of it, not even an error: everybody would wait for it for ever.
#[test]
fn a_disk_that_never_answers_is_given_up_and_nobody_waits_for_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &format!("mirror {} d1 spare d2", disks.all()));
    fill(&mount, "kept");
    lab.zpool("sync tank").ok();
    disks.set(0, Faults { hang: true, ..Faults::default() });
    fill(&mount, "meanwhile");
    let writer = std::thread::spawn({
        let mount = mount.clone();
        move || {
            let file = fs::File::create(mount.join("stable")).expect("a file");
            file.sync_all().expect("it is stable without that disk");
        }
    });
    until(&lab, "it is given up", |status| status.contains("FAULTED"));
    writer.join().expect("somebody waited for a disk that is not used any more");
    let status = until(&lab, "a spare has everything", |status| {
        status.contains("INUSE") && status.contains("scan: resilvered") && !status.contains("in progress")
    });
    assert!(status.contains("with 0 errors"), "{status}");
    // What was done is told a look later.
    let start = Instant::now();
    while !lab.platter(["faults", "tank"]).ok().says("has not answered for 60 s").stdout.contains("stands in for it") {
        assert!(start.elapsed() < PATIENCE, "{}", lab.platter(["faults", "tank"]));
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.zpool("events -H").ok().says("resource.fs.zfs.statechange");
    let tree = Tree::of(&mount);
    // It answers again, and is what it was: its owner says so.
    disks.set(0, Faults::default());
    lab.zpool("clear tank").ok();
    until(&lab, "it is back, and the spare is free", |status| {
        !status.contains("FAULTED") && status.contains("AVAIL") && !status.contains("in progress")
    });
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} -d {} tank", lab.dev().display(), disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.export("tank");
}

/// An import waited for each disk in turn, and for one that never answers for ever.
#[test]
fn a_disk_that_does_not_answer_an_import_is_passed_over_and_comes_back_by_itself() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &format!("raidz {} d1 d2", disks.all()));
    fill(&mount, "kept");
    lab.export("tank");
    // The same file beside them would be a second way to the same disk.
    let search = format!("-d {} -d {} -d {}", lab.disk(1).display(), lab.disk(2).display(), disks.dir().display());
    let passed_over = format!("passed over '{}': it does not answer", disks.disk(0).display());
    disks.set(0, Faults { hang: true, ..Faults::default() });
    let start = Instant::now();
    lab.zpool(&format!("import {search}")).ok().says("state: DEGRADED").says("does not answer").says(&passed_over);
    assert!(start.elapsed() < IMPORTED, "the listing took {:?}", start.elapsed());
    lab.zpool(&format!("import {search} bank")).refused().says("no such pool").says("did not answer");
    disks.set(0, Faults { late: Duration::from_secs(31), ..Faults::default() });
    let start = Instant::now();
    lab.zpool(&format!("import {search} tank")).ok().says(&passed_over);
    assert!(start.elapsed() < IMPORTED, "the import took {:?}", start.elapsed());
    lab.wait_mounted(&mount);
    lab.zpool("status tank").ok().says("DEGRADED").says("UNAVAIL");
    fill(&mount, "meanwhile");
    let tree = Tree::of(&mount);
    disks.set(0, Faults::default());
    until(&lab, "it is back", |status| is_whole(status) && !status.contains("DEGRADED"));
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import {search} tank")).ok().says_not("passed over");
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.export("tank");
}

/// How long it takes until all of a pool is in use again.
fn back_within(lab: &Lab, most: Duration) {
    let start = Instant::now();
    until(lab, "it is back", |status| status.contains("state: ONLINE"));
    assert!(start.elapsed() < most, "after {:?}", start.elapsed());
}

#[test]
fn the_right_disk_is_used_soon_wherever_a_wrong_one_was() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let (away, wrong) = (lab.tmp().join("away"), lab.tmp().join("wrong"));
    let blank = || fs::File::create(&wrong).and_then(|file| file.set_len(128 << 20)).expect("a file");
    fs::copy(lab.disk(1), &away).expect("copied");
    fs::remove_file(lab.disk(1)).expect("removed");
    until(&lab, "it is missed", |status| status.contains("REMOVED"));
    blank();
    fs::rename(&wrong, lab.disk(1)).expect("moved");
    fill(&mount, "meanwhile");
    // It was opened more than once by then, and has to wait longer than before.
    std::thread::sleep(Duration::from_secs(42));
    fs::rename(&away, lab.disk(1)).expect("moved");
    back_within(&lab, Duration::from_secs(20));
    lab.zpool("wait -t resilver tank").ok();
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// That many went together keeps spares back, and not themselves.
#[test]
fn disks_that_went_together_are_used_as_soon_as_they_are_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    let mount = lab.create("", "tank", "raidz3 d0 d1 d2 d3 d4");
    fill(&mount, "before");
    lab.zpool("sync tank").ok();
    let away = |disk: usize| lab.tmp().join(format!("away{disk}"));
    for disk in 0..3 {
        fs::copy(lab.disk(disk), away(disk)).expect("copied");
        fs::remove_file(lab.disk(disk)).expect("removed");
    }
    until(&lab, "they are missed", |status| status.matches("REMOVED").count() == 3);
    fill(&mount, "meanwhile");
    std::thread::sleep(Duration::from_secs(6));
    (0..3).for_each(|disk| fs::rename(away(disk), lab.disk(disk)).expect("moved"));
    back_within(&lab, Duration::from_secs(30));
    lab.zpool("wait -t resilver tank").ok();
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
