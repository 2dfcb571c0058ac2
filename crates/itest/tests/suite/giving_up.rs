//! Devices that hang, fail or are full while a pool is left: no other pool waits, `export -f` and `daemon stop` end
//! within seconds, and what was stable is there afterwards.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, Tree, binary, data, zdb};

const HANG: Faults = Faults { hang: true, ..Faults::NONE };

/// A stable file, then one that is not.
fn fill(mount: &Path) -> Tree {
    let mut file = File::create(mount.join("stable")).expect("a file");
    file.write_all(&data::mixed(1, 600_000, 50_000)).and_then(|()| file.sync_all()).expect("stable");
    Tree::of(mount)
}

/// A command that may not end while devices hang.
fn start(lab: &Lab, words: &str) -> Child {
    let mut command = lab.command(binary::platter());
    command.args(words.split_whitespace()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("a command")
}

/// Imports by way of the disks that answer again; late transfers of before may still hold them for a moment.
fn import_again(lab: &Lab, disks: &FaultyDisks) {
    let began = Instant::now();
    let words = format!("import -d {} tank", disks.dir().display());
    while lab.zpool(&words).code != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", lab.zpool(&words));
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.wait_mounted(&lab.mnt("tank"));
}

#[test]
fn a_device_that_hangs_in_an_export_is_given_up_by_force_and_no_other_pool_waits() {
    // The export held the lock of all administration: `zfs create` in another pool, `export -f` and `daemon stop` hung.
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &disks.all());
    lab.create("", "other", &lab.disk(1).display().to_string());
    let tree = fill(&mount);
    fs::write(mount.join("late"), data::mixed(2, 3_000_000, 90_000)).expect("a file");
    disks.set_all(HANG);
    let mut export = start(&lab, "zpool export tank");
    std::thread::sleep(Duration::from_secs(1));
    assert!(export.try_wait().expect("a child").is_none(), "an ordinary export waits for its devices");
    // It said ONLINE and nothing else, for as long as that lasted.
    let began = Instant::now();
    while !lab.zpool("status tank").ok().mentions("does not answer") {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(500));
    }
    lab.zpool("status -x").ok().says("zpool export -f tank");
    lab.create_fs("", "other/fs");
    lab.zfs("destroy other/fs").ok();
    lab.zpool("list").ok().says("other");
    let began = Instant::now();
    lab.zpool("export -f tank").ok().says("'tank' was given up").says("does not answer");
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
    let _ = export.wait();
    assert!(lab.mounts().iter().all(|at| *at != mount), "nothing stays mounted");
    lab.create_fs("", "other/after");
    disks.set_all(Faults::default());
    import_again(&lab, &disks);
    let _ = fs::remove_file(mount.join("late"));
    tree.assert_same(&Tree::of(&mount), "what was stable");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn the_daemon_ends_although_a_device_hangs() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &disks.all());
    let tree = fill(&mount);
    disks.set_all(HANG);
    fs::write(mount.join("late"), data::mixed(2, 300_000, 90_000)).expect("a file");
    lab.platter(["daemon", "stop"]).refused().says("'tank' was given up").says("ended");
    assert!(lab.mounts().iter().all(|at| *at != mount), "nothing stays mounted");
    disks.set_all(Faults::default());
    // The next daemon opens it by itself, when the last transfers of before are over.
    let began = Instant::now();
    while lab.zpool("list tank").code != 0 || lab.health("tank") != "ONLINE" {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", lab.zpool("status"));
        lab.zpool("import tank");
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.wait_mounted(&mount);
    let _ = fs::remove_file(mount.join("late"));
    tree.assert_same(&Tree::of(&mount), "what was stable");
}

#[test]
fn an_export_whose_devices_fail_is_refused_and_the_pool_stays() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let disks = FaultyDisks::over(&lab, 1);
    let mount = lab.create("", "tank", &disks.all());
    fill(&mount);
    fs::write(mount.join("late"), data::mixed(2, 3_000_000, 90_000)).expect("a file");
    disks.set_all(Faults { write: true, flush: true, ..Faults::default() });
    lab.zpool("export tank").refused().says("pool I/O is currently suspended");
    lab.zpool("export tank").refused().says("pool I/O is currently suspended");
    disks.set_all(Faults::default());
    lab.zpool("clear tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.zpool("export tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
    import_again(&lab, &disks);
    assert_eq!(fs::read(mount.join("late")).expect("a file"), data::mixed(2, 3_000_000, 90_000));
}

#[test]
fn a_full_host_disk_suspends_the_pool_and_it_leaves_by_force() {
    let Some(lab) = Lab::open() else { return };
    let small = lab.root().join("small");
    fs::create_dir(&small).expect("a folder");
    lab.run("mount", ["-t", "tmpfs", "-o", "size=24m", "small", small.to_str().expect("UTF-8")]).ok();
    let disk = small.join("d0");
    File::create(&disk).and_then(|file| file.set_len(256 << 20)).expect("a sparse file");
    let mount = lab.create("-O compression=off", "tank", &disk.display().to_string());
    lab.disks(1, 128);
    lab.create("", "other", &lab.disk(0).display().to_string());
    let tree = fill(&mount);
    // More than there is room for: its writer waits.
    let late = mount.join("late");
    let writer = std::thread::spawn(move || fs::write(late, data::mixed(3, 40_000_000, 1_000_000)));
    lab.wait_health("tank", "SUSPENDED");
    lab.zpool("export tank").refused().says("pool I/O is currently suspended");
    lab.create_fs("", "other/fs");
    lab.zpool("export -f tank").ok().says("'tank' was given up");
    let _ = writer.join().expect("the writer is told");
    lab.run("mount", ["-o", "remount,size=200m", small.to_str().expect("UTF-8")]).ok();
    lab.zpool(&format!("import -d {} tank", small.display())).ok();
    lab.wait_mounted(&mount);
    let _ = fs::remove_file(mount.join("late"));
    tree.assert_same(&Tree::of(&mount), "what was stable");
    lab.export("tank");
    zdb::assert_clean(&small, "tank");
    lab.umount(&small);
}
