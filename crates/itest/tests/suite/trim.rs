//! What is free goes back to the host: `zpool trim`, `autotrim`, and `zpool initialize`, which does the opposite. Each
//! on-disk change is judged by zdb.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use platter_itest::{Lab, Loop, Run, Tree, binary, data, zdb};

const MIB: u64 = 1 << 20;

/// Bytes that the disks take of the host's file system.
fn taken(lab: &Lab, count: usize) -> u64 {
    (0..count).map(|index| fs::metadata(lab.disk(index)).expect("it is there").blocks() * 512).sum()
}

/// Bytes that a pool has in use, parity included.
fn used(lab: &Lab, pool: &str) -> u64 {
    lab.zpool(&format!("list -Hpo alloc {pool}")).ok().stdout.trim().parse().expect("a number")
}

/// Writes a file of incompressible bytes.
fn write(mount: &Path, name: &str, seed: u64, mib: u64) {
    fs::write(mount.join(name), data::random(seed, (mib * MIB) as usize)).expect("written");
}

/// Fails as OpenZFS's command does: -1.
#[track_caller]
fn fails(run: Run) -> Run {
    assert_eq!(run.code, 255, "{run}");
    run
}

/// Fills the pool and removes most files again, every other one at first, so that there are many holes.
fn fill_and_empty(lab: &Lab, pool: &str, mount: &Path) {
    for index in 0..40 {
        write(mount, &format!("f{index}"), index, 2);
    }
    lab.zpool(&format!("sync {pool}")).ok();
    for index in (0..40).filter(|index| index % 4 != 1) {
        fs::remove_file(mount.join(format!("f{index}"))).expect("removed");
    }
    lab.zpool(&format!("sync {pool}")).ok();
}

#[test]
fn a_pool_of_files_that_was_filled_and_emptied_shrinks_to_what_it_uses() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 256);
    for (layout, disks) in [("d0", 1), ("mirror d0 d1", 2), ("raidz d0 d1 d2 d3", 4), ("raidz2 d0 d1 d2 d3", 4)] {
        (0..4).for_each(|index| drop(lab.add_disk(index, 256)));
        let mount = lab.create("-o ashift=12", "tank", layout);
        fill_and_empty(&lab, "tank", &mount);
        let tree = Tree::of(&mount);
        let before = taken(&lab, disks);
        lab.zpool("trim -w tank").ok();
        lab.zpool("sync tank").ok();
        let (after, used) = (taken(&lab, disks), used(&lab, "tank"));
        // A mirror's sides each have all; labels are no blocks of the pool.
        let copies = if layout.starts_with("mirror") { 2 } else { 1 };
        let most = (used * copies + disks as u64 * MIB) * 105 / 100;
        assert!(after <= most, "{layout}: {after} bytes of the host's for {used}, it was {before}");
        assert!(after < before / 2, "{layout}: {before} before, {after} after");
        let status = lab.zpool("status -t tank").ok().says("(100% trimmed, completed at ");
        assert_eq!(status.stdout.matches("100% trimmed").count(), disks, "{status}");
        lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
        lab.judge_and_return("tank", &mount, &tree);
        lab.zpool("status -t tank").ok().says("(100% trimmed, completed at ");
        lab.zpool("events -H").ok().says("sysevent.fs.zfs.trim_start").says("sysevent.fs.zfs.trim_finish");
        lab.zpool("history -i tank").ok().says("trim vdev=").says("activated").says("complete");
        lab.zpool("destroy tank").ok();
    }
}

#[test]
fn a_trim_goes_on_after_a_crash_and_files_stay_as_they_were() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    fill_and_empty(&lab, "tank", &mount);
    let tree = Tree::of(&mount);
    lab.zpool("trim --rate 2M tank").ok();
    lab.zpool("status tank").ok().says("  (trimming)");
    lab.zpool("status -t tank").ok().says("% trimmed, started at ");
    // Long enough for each to come somewhere, and for the place to be written down.
    let start = Instant::now();
    while lab.zpool("status -t tank").ok().mentions("(0% trimmed") {
        assert!(start.elapsed() < Duration::from_secs(120), "nothing is trimmed");
        std::thread::sleep(Duration::from_millis(200));
    }
    std::thread::sleep(Duration::from_secs(7));
    lab.kill_daemon(true);
    zdb::assert_clean(&lab.dev(), "tank");
    lab.revive("tank");
    let status = lab.zpool("status -t tank").ok().says("% trimmed, started at ");
    assert!(!status.mentions("(0% trimmed"), "it goes on where it was: {status}");
    tree.assert_same(&Tree::of(&mount), "after the crash");
    fails(lab.zpool("trim tank d1")).says("cannot trim '").says("/d1': currently trimming");
    lab.zpool("trim -s tank").ok();
    lab.zpool("status -t tank").ok().says("% trimmed, suspended, started at ");
    lab.zpool("wait -t trim tank").ok();
    fails(lab.zpool("trim -s tank d1")).says("there is no active trim");
    // Another file while some are given up.
    lab.zpool("trim tank").ok();
    write(&mount, "more", 99, 8);
    lab.zpool("trim -c tank").ok();
    lab.zpool("status -t tank").ok().says("(untrimmed)");
    lab.zpool("trim -w tank d1 d2").ok();
    let status = lab.zpool("status -t tank").ok();
    assert_eq!((status.stdout.matches("100% trimmed").count(), status.stdout.matches("untrimmed").count()), (2, 1));
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn what_cannot_be_trimmed_is_refused_in_openzfs_words() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    lab.create("", "tank", "mirror d0 d1 log d2 spare d3");
    lab.zpool("trim").refused().says("missing pool name argument").says("usage:");
    lab.zpool("trim -w -s tank").refused().says("-w cannot be used with -c or -s options");
    lab.zpool("trim -c -d tank").refused().says("-d cannot be combined with the -c or -s options");
    lab.zpool("trim -r fast tank").refused().says("invalid value for rate: ");
    fails(lab.zpool("trim none")).says("cannot open 'none': no such pool");
    fails(lab.zpool("trim tank d9")).says("cannot trim 'd9': no such device in pool");
    fails(lab.zpool("trim tank d3")).says("cannot trim 'd3': device is reserved as a hot spare");
    fails(lab.zpool("trim tank mirror-0")).says("cannot trim 'mirror-0': invalid device");
    fails(lab.zpool("trim -d tank d0")).says("trim operations are not supported by this device");
    fails(lab.zpool("trim -c tank d0")).says("there is no active trim");
    lab.zpool("offline tank d1").ok();
    fails(lab.zpool("trim tank d1")).says("/d1': invalid device");
    lab.zpool("online tank d1").ok();
    // A log is a device like any other.
    lab.zpool("trim -w tank d2").ok();
    lab.zpool("get -Hpo value trim_support tank d0").ok().says("on");
    let bytes = lab.zpool("get -Hpo value trim_bytes tank d2").ok().stdout;
    assert!(bytes.trim().parse::<u64>().is_ok_and(|bytes| bytes > MIB), "{bytes}");
    let json = lab.zpool("status -t -j tank").ok();
    assert!(json.stdout.contains("\"trim_state\":\"UNTRIMMED\""), "{json}");
    for said in ["\"trim_state\":\"COMPLETE\"", "\"trim_notsup\":\"0\""] {
        assert!(json.stdout.contains(said), "{said}: {json}");
    }
    lab.zpool("iostat -r tank").ok().says("trim");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_block_device_discards_what_is_free() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    let Some(disk) = Loop::over(&lab.disk(0)) else { return };
    let mount = lab.create("", "tank", &disk.0);
    fill_and_empty(&lab, "tank", &mount);
    let (tree, before) = (Tree::of(&mount), taken(&lab, 1));
    lab.zpool("trim -w tank").ok();
    let after = taken(&lab, 1);
    assert!(after < before / 2, "{before} bytes before, {after} after");
    lab.scrub("tank").says("with 0 errors");
    tree.assert_same(&Tree::of(&mount), "after the trim");
    lab.export("tank");
    zdb::assert_clean(Path::new("/dev"), "tank");
}

#[test]
fn what_becomes_free_is_given_up_by_itself() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    // The first command starts the daemon.
    let mut start = lab.command(binary::platter());
    lab.run_command(start.args(["zpool", "list"]).env("PLATTER_TRIM_TXG_BATCH", "1"));
    let mount = lab.create("-o autotrim=on", "tank", "raidz d0 d1 d2");
    lab.zpool("get -Ho value autotrim tank").ok().says("on");
    for round in 0..2 {
        write(&mount, "large", round, 60);
        lab.zpool("sync tank").ok();
        let before = taken(&lab, 3);
        fs::remove_file(mount.join("large")).expect("removed");
        lab.zpool("sync tank").ok();
        let start = Instant::now();
        while taken(&lab, 3) > before / 3 {
            assert!(start.elapsed() < Duration::from_secs(60), "{} bytes of {before} are still taken", taken(&lab, 3));
            std::thread::sleep(Duration::from_millis(200));
        }
        // Nobody asked for it by hand.
        lab.zpool("status -t tank").ok().says("(untrimmed)");
        lab.export("tank");
        lab.import("", "tank");
    }
    lab.zpool("set autotrim=off tank").ok();
    let tree = Tree::filled(&mount, 1);
    lab.scrub("tank").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn what_is_free_is_written_over_and_that_is_forgotten_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("initialize -s -u tank").refused().says("cannot be combined with other options");
    fails(lab.zpool("initialize -c tank d0")).says("/d0': there is no active initialization");
    lab.zpool("initialize -w tank d0").ok();
    lab.zpool("status -i tank").ok().says("(100% initialized, completed at ").says("(uninitialized)");
    assert!(fs::metadata(lab.disk(0)).is_ok_and(|file| file.blocks() * 512 > 96 * MIB), "it is written over");
    lab.zpool("initialize -w tank d1").ok();
    lab.scrub("tank").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("status -i tank").ok().says("(100% initialized, completed at ");
    lab.zpool("initialize -u tank").ok();
    lab.zpool("status -i tank").ok().says_not("100% initialized");
    lab.zpool("history -i tank").ok().says("initialize vdev=").says("uninitialize vdev=");
    lab.judge_and_return("tank", &mount, &tree);
}
