//! Sequential reconstruction (`zpool attach -s`, `zpool replace -s`): what it makes is what the other sides have, in
//! the middle too, whatever comes between. Each on-disk change is judged by zdb.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::{Faults, FaultyDisks, Lab, Tree, damage, data, zdb};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// Slow enough for a busy machine to meet a reconstruction in its middle; labels and metadata are as fast as ever.
const SLOW: Faults = Faults { late: Duration::from_millis(500), late_size: 64 << 10, ..Faults::NONE };

/// Files of some 40 MB, so that a slow disk takes a while.
fn fill(mount: &Path) -> Tree {
    for number in 0..10 {
        fs::write(mount.join(format!("file-{number}")), data::random(number, 4_000_000)).expect("a file");
    }
    Tree::of(mount)
}

/// What `zpool status -j` tells of the reconstruction of the only mirror.
fn rebuild(lab: &Lab) -> Value {
    let told = lab.zpool("status -j --json-int tank").ok();
    let json: Value = serde_json::from_str(&told.stdout).expect("JSON");
    json["pools"]["tank"]["scan_stats"]["rebuild_stats"]["mirror-0"].clone()
}

/// Waits until something was reconstructed, and not everything.
#[track_caller]
fn wait_for_the_middle(lab: &Lab) -> Value {
    let start = Instant::now();
    loop {
        let told = rebuild(lab);
        if told["rebuilt"].as_u64().is_some_and(|bytes| bytes > 0) {
            assert_eq!(told["state"], "ACTIVE", "it was too fast: {told}");
            return told;
        }
        assert!(start.elapsed() < LIMIT, "nothing happens: {}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A pool of d0 alone with files, and slow disks beside it.
fn slow(lab: &Lab, disks: usize) -> (FaultyDisks, PathBuf, Tree) {
    lab.disks(disks, 128);
    let faulty = FaultyDisks::over(lab, disks);
    let mount = lab.create("", "tank", &faulty.disk(0).display().to_string());
    let tree = fill(&mount);
    lab.zpool("sync tank").ok();
    (1..disks).for_each(|disk| faulty.set(disk, SLOW));
    (faulty, mount, tree)
}

fn attach(lab: &Lab, faulty: &FaultyDisks, to: usize, new: usize) {
    lab.zpool(&format!("attach -s tank {} {}", faulty.disk(to).display(), faulty.disk(new).display())).ok();
}

/// The pool as it is on some of its disks alone; the others come back afterwards.
#[track_caller]
fn assert_same_without(lab: &Lab, gone: &[usize], tree: &Tree) {
    lab.export("tank");
    let away = |disk: &usize| lab.root().join(format!("away-{disk}"));
    gone.iter().for_each(|disk| fs::rename(lab.disk(*disk), away(disk)).expect("moved"));
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "without the disks that had it before");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    gone.iter().for_each(|disk| fs::rename(away(disk), lab.disk(*disk)).expect("moved back"));
}

#[test]
fn a_device_joins_and_a_scrub_follows() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "d0");
    fill(&mount);
    assert_eq!(lab.zpool("get -H -o value feature@device_rebuild tank").ok().stdout, "enabled\n");
    lab.zpool("attach -s -w tank d0 d1").ok();
    lab.zpool("wait -t scrub tank").ok();
    let status = lab.zpool("status tank").ok().says("scan: scrub repaired 0B").says("scan: resilvered (mirror-0) ");
    let status = status.says("with 0 errors on").says("No known data errors");
    assert!(!status.stdout.contains("resilvering") && !status.stdout.contains("status:"), "{status}");
    assert_eq!(lab.zpool("get -H -o value feature@device_rebuild tank").ok().stdout, "enabled\n");
    let told = rebuild(&lab);
    assert_eq!((&told["state"], told["errors"].as_u64()), (&Value::from("COMPLETE"), Some(0)));
    assert!(told["rebuilt"].as_u64() >= Some(40_000_000), "{told}");
    let history = lab.zpool("history -i tank").ok();
    let count =
        |what: &str| history.stdout.lines().filter(|line| line.contains("rebuild") && line.contains(what)).count();
    assert_eq!((count("started"), count("complete"), count("canceled"), count("reset")), (1, 1, 0, 0), "{history}");
    let events = lab.zpool("events -v tank").ok();
    assert_eq!(events.stdout.matches("resilver_type = \"sequential\"").count(), 2, "{events}");
    let tree = Tree::filled(&mount, 2);
    lab.judge_and_return("tank", &mount, &tree);
    assert_same_without(&lab, &[0], &tree);
}

#[test]
fn a_device_takes_the_place_of_another() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = fill(&mount);
    lab.zpool("replace -s -w tank d1 d2").ok();
    let status = lab.zpool("status tank").ok().says("/d2");
    assert!(!status.stdout.contains("replacing") && !status.stdout.contains("/d1"), "{status}");
    lab.zpool("wait -t scrub tank").ok();
    lab.zpool("status tank").ok().says("scrub repaired 0B").says("resilvered (mirror-0)");
    lab.judge_and_return("tank", &mount, &tree);
    assert_same_without(&lab, &[0], &tree);
}

#[test]
fn what_cannot_be_is_refused_in_openzfs_words() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    lab.create("", "tank", "raidz d0 d1 d2");
    let only_mirrors = "only mirror and dRAID vdevs support sequential reconstruction";
    lab.zpool("replace -s tank d1 d3").refused().says("cannot replace d1 with").says(only_mirrors);
    lab.zpool("attach -s tank d1 d3").refused().says("can only attach to mirrors and top-level disks");
    lab.zpool("destroy tank").ok();
    lab.create("-o feature@device_rebuild=disabled", "tank", "mirror d0 d1");
    let disabled = "device_rebuild feature must be enabled in order to use sequential reconstruction";
    lab.zpool("attach -s tank d1 d3").refused().says("cannot attach").says(disabled);
    lab.zpool("replace -s tank d1 d3").refused().says(only_mirrors);
    lab.zpool("set feature@device_rebuild=enabled tank").ok();
    lab.zpool("attach -s -w tank d1 d3").ok();
}

#[test]
fn while_it_runs_there_is_no_other_scan() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, _, tree) = slow(&lab, 4);
    attach(&lab, &faulty, 0, 1);
    wait_for_the_middle(&lab);
    let status = lab.zpool("status tank").ok().says("scan: resilver (mirror-0) in progress since ");
    let status = status.says("One or more devices is currently being resilvered").says(" scanned").says("% done");
    status.says("(resilvering)");
    assert_eq!(lab.zpool("get -H -o value feature@device_rebuild tank").ok().stdout, "active\n");
    lab.zpool("scrub tank").refused().says("cannot scrub 'tank': currently resilvering");
    lab.zpool("scrub -s tank").refused().says("there is no active scrub");
    lab.zpool("resilver tank").ok();
    let third = faulty.disk(2).display().to_string();
    let refused = lab.zpool(&format!("attach tank {} {third}", faulty.disk(0).display())).refused();
    refused.says("currently sequentially resilvering");
    lab.zpool("trim tank").ok();
    // Another one may join in the same way: then everything begins anew.
    attach(&lab, &faulty, 0, 2);
    (1..4).for_each(|disk| faulty.set(disk, Faults::NONE));
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("wait -t scrub,trim tank").ok();
    lab.zpool("history -i tank").ok().says("reset");
    lab.zpool("status tank").ok().says("scrub repaired 0B");
    // And where it is resilvered already, nobody is reconstructed.
    (1..4).for_each(|disk| faulty.set(disk, SLOW));
    let fourth = faulty.disk(3).display().to_string();
    lab.zpool(&format!("attach tank {} {fourth}", faulty.disk(0).display())).ok();
    let refused = lab.zpool(&format!("replace -s tank {fourth} {fourth}")).refused();
    refused.says("currently resilvering");
    (1..4).for_each(|disk| faulty.set(disk, Faults::NONE));
    lab.zpool("wait -t resilver tank").ok();
    drop_and_judge(&lab, faulty, &[0, 1, 3], &tree);
}

/// Exports, takes the slow disks away, and looks at the pool with some of its disks alone.
#[track_caller]
fn drop_and_judge(lab: &Lab, faulty: FaultyDisks, gone: &[usize], tree: &Tree) {
    lab.export("tank");
    drop(faulty);
    zdb::assert_clean(&lab.dev(), "tank");
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "with all disks");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    assert_same_without(lab, gone, tree);
}

#[test]
fn what_is_exported_half_way_is_finished_after_the_import() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, _, tree) = slow(&lab, 2);
    attach(&lab, &faulty, 0, 1);
    let middle = wait_for_the_middle(&lab)["scanned"].as_u64().expect("a number");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let label = lab.run("zdb", ["-l", lab.disk(1).to_str().expect("a path")]).ok();
    label.says("rebuild_txg").says("type: 'mirror'");
    if let Some(mos) = zdb::zdb(&lab.dev(), &["-dddd", "tank"]) {
        let state = mos.ok();
        let line = state.stdout.lines().find(|line| line.contains("org.openzfs:vdev_rebuild"));
        let words: Vec<u64> =
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        assert!(words.len() >= 12 && words[0] == 1 && words[1] > 0, "state and place: {line:?}");
    }
    lab.zpool(&format!("import -d {} tank", faulty.dir().display())).ok();
    lab.wait_mounted(&lab.mnt("tank"));
    let told = rebuild(&lab);
    assert!(told["scanned"].as_u64() >= Some(middle / 2), "it began anew: {told}, was at {middle}");
    faulty.set(1, Faults::NONE);
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("wait -t scrub tank").ok();
    lab.zpool("status tank").ok().says("scrub repaired 0B").says("resilvered (mirror-0)").says("with 0 errors");
    drop_and_judge(&lab, faulty, &[0], &tree);
}

#[test]
fn a_daemon_that_dies_in_the_middle_loses_nothing() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, _, tree) = slow(&lab, 2);
    attach(&lab, &faulty, 0, 1);
    wait_for_the_middle(&lab);
    // The disks are mounted, too.
    lab.kill_daemon(false);
    zdb::assert_clean(&lab.dev(), "tank");
    lab.revive("tank");
    faulty.set(1, Faults::NONE);
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("wait -t scrub tank").ok();
    lab.zpool("status tank").ok().says("scrub repaired 0B").says("with 0 errors").says_not("resilvering");
    drop_and_judge(&lab, faulty, &[0], &tree);
}

#[test]
fn without_its_device_it_is_over() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, _, tree) = slow(&lab, 2);
    attach(&lab, &faulty, 0, 1);
    wait_for_the_middle(&lab);
    lab.zpool(&format!("detach tank {}", faulty.disk(0).display())).refused().says("no valid replicas");
    lab.zpool(&format!("detach tank {}", faulty.disk(1).display())).ok();
    let history = lab.zpool("history -i tank").ok();
    assert_eq!(history.stdout.matches("canceled").count(), 1, "{history}");
    assert_eq!(lab.zpool("get -H -o value feature@device_rebuild tank").ok().stdout, "enabled\n");
    lab.zpool("wait -t resilver tank").ok();
    faulty.set(1, Faults::NONE);
    lab.judge_and_return("tank", &lab.mnt("tank"), &tree);
    // One that goes away in the middle is resilvered when it comes back.
    lab.zpool("attach -s tank d0 d1").ok();
    lab.zpool("offline tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    drop(faulty);
    assert_same_without(&lab, &[0], &tree);
}

#[test]
fn files_that_are_written_meanwhile_are_on_the_new_device_too() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, mount, _) = slow(&lab, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let (ending, folder) = (stop.clone(), mount.clone());
    let writer = std::thread::spawn(move || {
        for round in 0.. {
            let path = folder.join(format!("file-{}", round % 14));
            fs::write(&path, data::mixed(1000 + round, 700_000, 60_000)).expect("a file");
            fs::File::open(&path).and_then(|file| file.sync_all()).expect("stable");
            if ending.load(Ordering::Relaxed) {
                return;
            }
        }
    });
    attach(&lab, &faulty, 0, 1);
    wait_for_the_middle(&lab);
    faulty.set(1, Faults { late: Duration::from_millis(5), ..Faults::NONE });
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("wait -t scrub tank").ok();
    lab.zpool("status tank").ok().says("scrub repaired 0B").says("with 0 errors");
    stop.store(true, Ordering::Relaxed);
    writer.join().expect("the writer");
    let tree = Tree::of(&mount);
    drop_and_judge(&lab, faulty, &[0], &tree);
}

#[test]
fn what_is_wrong_on_a_source_is_found_by_the_scrub() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = fill(&mount);
    lab.export("tank");
    damage::overwrite_spots(&lab.disk(0), 7, 40, 60_000);
    lab.import("", "tank");
    lab.zpool("attach -s -w tank d1 d2").ok();
    lab.zpool("wait -t scrub tank").ok();
    let status = lab.zpool("status -v tank").ok().says("scrub repaired").says("with 0 errors");
    let status = status.says("No known data errors");
    assert!(!status.stdout.contains("repaired 0B"), "{status}");
    lab.zpool("clear tank").ok();
    lab.judge_and_return("tank", &mount, &tree);
    assert_same_without(&lab, &[0, 1], &tree);
    // Where there is no other copy, the files are named.
    lab.zpool("labelclear -f d2").ok();
    lab.import("", "tank");
    lab.zpool("destroy tank").ok();
    let mount = lab.create("", "tank", "d0");
    fill(&mount);
    lab.export("tank");
    damage::overwrite_spots(&lab.disk(0), 8, 40, 60_000);
    lab.import("", "tank");
    lab.zpool("attach -s -w -f tank d0 d1").ok();
    lab.zpool("wait -t scrub tank").ok();
    lab.zpool("status -v tank").ok().says("Permanent errors have been detected").says("/file-");
}

#[test]
fn what_a_device_does_not_take_is_not_taken_for_done() {
    let Some(lab) = Lab::open() else { return };
    let (faulty, _, tree) = slow(&lab, 2);
    attach(&lab, &faulty, 0, 1);
    wait_for_the_middle(&lab);
    // Its labels can be written, and what lies behind the first 40 MB cannot.
    let refuses = Faults { write: true, from: 44 << 20, ..Faults::NONE };
    faulty.set(1, refuses);
    lab.zpool("wait -t resilver tank").ok();
    let status = lab.zpool("status tank").ok();
    assert!(!status.stdout.contains("resilvered (mirror-0)") || !status.stdout.contains("with 0 errors"), "{status}");
    faulty.set(1, Faults::NONE);
    lab.zpool("clear tank").ok();
    lab.zpool(&format!("online tank {}", faulty.disk(1).display())).ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    drop_and_judge(&lab, faulty, &[0], &tree);
}

// What was replaced left at once, and with it the only good copy of what the other side had rotten.
#[test]
fn what_was_replaced_stays_until_all_is_verified() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    let mount = lab.create("-O compression=off", "tank", "mirror d0 d1");
    let tree = fill(&mount);
    lab.zpool("sync tank").ok();
    // From here on d0 has nothing right any more, and nobody knows.
    damage::overwrite_data_area(&lab.disk(0), 5);
    lab.zpool("replace -s tank d1 d2").ok();
    let start = Instant::now();
    while lab.zpool("scrub -p tank").code != 0 {
        let scan = rebuild(&lab);
        assert!(start.elapsed() < LIMIT, "no scrub began: {scan}");
        std::thread::sleep(Duration::from_millis(5));
        if lab.zpool("status tank").ok().stdout.contains("scrub repaired") {
            break;
        }
    }
    let status = lab.zpool("status tank").ok().stdout;
    if status.contains("scrub paused") {
        for _ in 0..3 {
            lab.zpool("sync tank").ok();
        }
        assert!(lab.zpool("status tank").ok().stdout.contains("replacing-"), "it left before it was verified");
        // Also when the pool is left meanwhile.
        lab.export("tank");
        lab.import("", "tank");
        assert!(lab.zpool("status tank").ok().stdout.contains("replacing-"), "it left before it was verified");
        lab.zpool("scrub tank").ok();
    }
    lab.zpool("wait -t replace,scrub tank").ok();
    let status = lab.zpool("status -v tank").ok().stdout;
    assert!(status.contains("No known data errors") && !status.contains("replacing-"), "{status}");
    tree.assert_same(&Tree::of(&mount), "of two sides of which one was bad");
    lab.zpool("clear tank").ok();
    assert_same_without(&lab, &[0, 1], &tree);
}

// The scrub that has to follow was forgotten when the pool was left before it began: a resilver comes first.
#[test]
fn the_scrub_follows_after_an_import_too() {
    export_before_the_scrub(false);
}

/// The resilver that comes first made the pool forget that something was still to be verified.
#[test]
fn so_does_one_that_waits_for_a_resilver() {
    export_before_the_scrub(true);
}

/// A device joins, and another comes back: the resilver of that one comes before the scrub. The pool is exported when
/// the device is reconstructed, at once or when the resilver is under way.
fn export_before_the_scrub(is_resilvered: bool) {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let faulty = FaultyDisks::over(&lab, 4);
    let disk = |number| faulty.disk(number).display().to_string();
    let mount = lab.create("", "tank", &disk(0));
    fill(&mount);
    lab.zpool(&format!("add -f tank mirror {} {}", disk(2), disk(3))).ok();
    lab.zpool(&format!("offline tank {}", disk(3))).ok();
    for number in 10..20 {
        fs::write(mount.join(format!("file-{number}")), data::random(number, 4_000_000)).expect("a file");
    }
    let tree = Tree::of(&mount);
    lab.zpool("sync tank").ok();
    [1, 3].into_iter().for_each(|disk| faulty.set(disk, Faults { late: Duration::from_millis(20), ..Faults::NONE }));
    attach(&lab, &faulty, 0, 1);
    lab.zpool(&format!("online tank {}", disk(3))).ok();
    let start = Instant::now();
    while rebuild(&lab)["state"] == "ACTIVE" {
        assert!(start.elapsed() < LIMIT, "it does not end: {}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(5));
    }
    let start = Instant::now();
    while is_resilvered && !lab.zpool("status tank").ok().stdout.contains("scan: resilver in progress") {
        assert!(start.elapsed() < LIMIT, "no resilver follows: {}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(5));
    }
    lab.export("tank");
    faulty.set_all(Faults::NONE);
    lab.import("", "tank");
    lab.zpool("wait -t resilver,scrub tank").ok();
    let start = Instant::now();
    while !lab.zpool("status tank").ok().stdout.contains("scrub repaired 0B") {
        assert!(start.elapsed() < LIMIT, "no scrub follows: {}", lab.zpool("status tank"));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_same_without(&lab, &[0, 2], &tree);
}
