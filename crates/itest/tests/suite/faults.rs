//! Devices that are judged for their errors: what the verdict does, what takes it back, and what it never does.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, Run, Tree, damage, data, zdb};

/// For so long a verdict is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// In which no verdict comes, if none is to come.
const NONE_FOR: Duration = Duration::from_secs(12);
/// Errors wherever there are data, though the labels in front can be read and written.
const BAD_DATA: Faults = Faults { read: true, write: true, from: damage::LABEL_START_BYTES, ..Faults::NONE };

fn platter(lab: &Lab, words: &[&str]) -> Run {
    lab.platter(words)
}

/// Writes and reads until `platter faults` says what it should.
#[track_caller]
fn work_until(lab: &Lab, mount: &Path, said: &str) -> String {
    let start = Instant::now();
    for number in 0_u64.. {
        work(lab, mount, number);
        let faults = platter(lab, &["faults", "tank"]).ok().stdout;
        if faults.contains(said) {
            return faults;
        }
        assert!(start.elapsed() < PATIENCE, "not '{said}': {faults}\n{}", lab.zpool("status -v tank"));
        std::thread::sleep(Duration::from_millis(200));
    }
    unreachable!("it says so or time is up")
}

fn work(lab: &Lab, mount: &Path, number: u64) {
    let path = mount.join(format!("work-{}", number % 8));
    fs::write(&path, data::random(number, 600_000)).expect("a file");
    lab.zpool("sync tank").ok();
    let file = fs::File::open(&path).expect("the file");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("no pages");
    assert!(fs::read(&path).expect("it can be read") == data::random(number, 600_000));
}

/// The words of `status` about a device.
fn line(lab: &Lab, device: &str) -> String {
    let status = lab.zpool("status tank").ok().stdout;
    let is_it = |line: &&str| line.split_whitespace().next().is_some_and(|name| name.ends_with(device));
    let line = status.lines().find(is_it).unwrap_or_default();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn too_many_errors_fault_a_device_and_clear_has_it_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let disks = FaultyDisks::over(&lab, 3);
    let mount = lab.create("-O primarycache=metadata", "tank", &format!("raidz {}", disks.all()));
    Tree::filled(&mount, 1);
    disks.set(1, BAD_DATA);
    let faults = work_until(&lab, &mount, "it is FAULTED now");
    assert!(faults.contains("too many errors:") && faults.contains("within 600 s"), "{faults}");
    assert!(faults.contains("Replace it now, as nothing stands in for it"), "{faults}");
    assert!(line(&lab, "/d1").contains("FAULTED") && line(&lab, "/d1").ends_with("too many errors"));
    lab.zpool("events -H").ok().says("fault.fs.zfs.vdev.io").says("resource.fs.zfs.statechange");
    lab.wait_health("tank", "DEGRADED");
    // It survives the daemon, and both labels and zdb know of it.
    disks.set_all(Faults::default());
    platter(&lab, &["daemon", "stop"]).ok();
    lab.zpool("list").ok();
    lab.wait_mounted(&mount);
    assert!(line(&lab, "/d1").contains("FAULTED") && line(&lab, "/d1").ends_with("too many errors"));
    platter(&lab, &["faults", "-j", "tank"]).ok().says("\"state\":\"FAULTED\"").says("\"kind\":\"verdict\"");
    let tree = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    assert!(line(&lab, "/d1").contains("FAULTED"), "OpenZFS drops such a verdict at an import, and tries again");
    // `online` and `clear` take it back, and it gets what it missed.
    lab.zpool("clear tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    disks.set(1, BAD_DATA);
    let start = Instant::now();
    while !line(&lab, "/d1").contains("FAULTED") {
        work(&lab, &mount, start.elapsed().as_secs());
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("status tank"));
    }
    disks.set_all(Faults::default());
    lab.wait_health("tank", "DEGRADED");
    lab.zpool(&format!("online tank {}", disks.disk(1).display())).ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    assert!(line(&lab, "/d1").contains("ONLINE"));
    lab.scrub("tank").says("with 0 errors");
    drop(tree);
    let tree = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.export("tank");
}

#[test]
fn wrong_bytes_degrade_a_device_its_spare_comes_and_goes_with_clear() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("-O primarycache=metadata", "tank", "mirror d0 d1 spare d2 d3");
    for number in 0..60 {
        fs::write(mount.join(format!("file-{number}")), data::random(number, 300_000)).expect("a file");
    }
    lab.zpool("sync tank").ok();
    // From now on what is read comes from disk.
    lab.export("tank");
    lab.import("", "tank");
    damage::overwrite_data_area(&lab.disk(1), 3);
    let start = Instant::now();
    while !line(&lab, "/d1").contains("DEGRADED") {
        for number in 0..60 {
            let path = mount.join(format!("file-{number}"));
            let file = fs::File::open(&path).expect("the file");
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("no pages");
            assert!(fs::read(&path).expect("it can be read") == data::random(number, 300_000));
        }
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(200));
    }
    let faults = work_until(&lab, &mount, "has everything");
    assert!(faults.contains("used on, and not relied on"), "{faults}");
    let status = lab.zpool("status tank").ok();
    assert_eq!(status.stdout.matches("INUSE").count(), 1, "one spare for one failure: {status}");
    assert!(line(&lab, "/d1").ends_with("too many errors"), "{status}");
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    assert!(line(&lab, "/d1").contains("DEGRADED"), "{}", lab.zpool("status tank"));
    // It is trusted again: the spare goes back.
    lab.scrub("tank").says("with 0 errors");
    lab.zpool("clear tank d1").ok();
    lab.wait_health("tank", "ONLINE");
    let start = Instant::now();
    while lab.zpool("status tank").ok().stdout.matches("AVAIL").count() < 2 {
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn the_last_good_copy_stays_and_a_burst_is_nobodys_fault() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let disks = FaultyDisks::over(&lab, 2);
    let mount =
        lab.create("-O primarycache=metadata -o failmode=continue", "tank", &disks.disk(0).display().to_string());
    Tree::filled(&mount, 1);
    // From now on what is read comes from disk.
    let again = |mount: &Path| {
        lab.export("tank");
        lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
        lab.wait_mounted(mount);
    };
    again(&mount);
    // Every read fails, and there is nothing else to read from.
    disks.set(0, Faults { write: false, ..BAD_DATA });
    let start = Instant::now();
    while !line(&lab, "/d0").contains("DEGRADED") {
        for entry in fs::read_dir(&mount).expect("the folder").flatten().filter(|entry| entry.path().is_file()) {
            let Ok(file) = fs::File::open(entry.path()) else { continue };
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            let _ = fs::read(entry.path());
        }
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(200));
    }
    // Its state is there a moment before what was done is written down.
    let start = Instant::now();
    while !platter(&lab, &["faults", "tank"]).ok().mentions("it is DEGRADED now: the others cannot do without it") {
        assert!(start.elapsed() < PATIENCE, "{}", platter(&lab, &["faults", "tank"]));
        std::thread::sleep(Duration::from_millis(200));
    }
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.zpool("destroy tank").ok();
    // Both sides of a mirror at once: the cable.
    let mount = lab.create("-f -O primarycache=metadata", "tank", &format!("mirror {}", disks.all()));
    let tree = Tree::filled(&mount, 2);
    again(&mount);
    disks.set_all(Faults { write: false, ..BAD_DATA });
    let start = Instant::now();
    while start.elapsed() < NONE_FOR {
        for (name, _) in tree.files() {
            let Ok(file) = fs::File::open(mount.join(name)) else { continue };
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
            let _ = fs::read(mount.join(name));
        }
    }
    platter(&lab, &["faults", "tank"]).ok().says("no device's fault").says_not("it is to be given up");
    let status = lab.zpool("status tank").ok();
    assert!(!line(&lab, "/d0").contains("FAULTED") && !line(&lab, "/d1").contains("FAULTED"), "{status}");
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    tree.assert_same(&Tree::of(&mount), "when the cable is back");
    lab.export("tank");
}

#[test]
fn what_its_owner_holds_is_left_alone() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 spare d2");
    let tree = Tree::filled(&mount, 1);
    platter(&lab, &["faults", "hold", "d9"]).refused().says("no such device in any pool");
    platter(&lab, &["faults", "hold", "d1"]).ok().says("d1 is held from now on");
    // Also by the next daemon.
    platter(&lab, &["daemon", "stop"]).ok();
    lab.zpool("list").ok();
    lab.wait_mounted(&mount);
    fs::OpenOptions::new().write(true).open(lab.disk(1)).and_then(|file| file.set_len(0)).expect("cut");
    fs::remove_file(lab.disk(1)).expect("removed");
    lab.wait_health("tank", "DEGRADED");
    std::thread::sleep(NONE_FOR);
    lab.zpool("status tank").ok().says("AVAIL").says_not("INUSE");
    platter(&lab, &["faults", "tank"]).ok().says("held").says("platter faults release");
    let path = lab.disk(1).display().to_string();
    platter(&lab, &["faults", "release", &path]).ok().says("is not held from now on");
    let start = Instant::now();
    while !lab.zpool("status tank").ok().mentions("INUSE") {
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.zpool("wait -t resilver tank").ok();
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_device_has_limits_of_its_own() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let disks = FaultyDisks::over(&lab, 3);
    let mount = lab.create("-O primarycache=metadata", "tank", &format!("raidz {}", disks.all()));
    let d1 = disks.disk(1).display().to_string();
    let get = |what: &str| lab.zpool(&format!("get -H -o value,source {what} tank {d1}")).ok().stdout;
    assert_eq!(get("io_n"), "-\tdefault\n");
    lab.zpool(&format!("set io_n=1M tank {d1}")).ok();
    lab.zpool(&format!("set checksum_t=60 tank {d1}")).ok();
    assert_eq!((get("io_n"), get("checksum_t")), ("1048576\tlocal\n".into(), "60\tlocal\n".into()));
    lab.zpool(&format!("set io_n=many tank {d1}")).refused();
    lab.zpool(&format!("set color=blue tank {d1}")).refused();
    assert_eq!(lab.zpool("set io_n=3 tank d9").says("device not in pool").code, 22);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    assert_eq!((get("io_n"), get("checksum_t")), ("1048576\tlocal\n".into(), "60\tlocal\n".into()));
    // A million are not too many, as its owner says; three are.
    disks.set(1, BAD_DATA);
    let start = Instant::now();
    let mut number = 0;
    while start.elapsed() < NONE_FOR {
        work(&lab, &mount, number);
        number += 1;
    }
    lab.platter(["faults", "tank"]).ok().says("I/O errors").says_not("too many");
    lab.zpool(&format!("set io_n=3 tank {d1}")).ok();
    work_until(&lab, &mount, "it is FAULTED now");
    lab.zpool(&format!("set io_n=none tank {d1}")).ok();
    assert_eq!(get("io_n"), "-\tdefault\n");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_device_is_faulted_by_its_owner_for_good_or_for_now() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("offline -f tank d1").ok();
    assert!(line(&lab, "/d1").contains("FAULTED") && line(&lab, "/d1").ends_with("external device fault"));
    lab.judge_and_return("tank", &mount, &tree);
    assert!(line(&lab, "/d1").contains("FAULTED") && line(&lab, "/d1").ends_with("external device fault"));
    // Another one is the last good copy.
    lab.zpool("offline -f tank d2").ok();
    assert!(line(&lab, "/d2").contains("DEGRADED") && line(&lab, "/d2").ends_with("external device fault"));
    lab.zpool("clear tank").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.zpool("offline -ft tank d0").ok();
    assert!(line(&lab, "/d0").contains("FAULTED"));
    lab.zpool("reopen tank").ok();
    assert!(line(&lab, "/d0").contains("FAULTED"));
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.scrub("tank").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
}
