//! Hot spares: a disk dies, and nothing has to be typed. Each on-disk change is judged by zdb.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use platter_itest::{Lab, Loop, Tree, judge, zdb};

/// Waits until `zpool status` says what it should, and returns it.
fn wait_status(lab: &Lab, pool: &str, what: &str, is_so: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        let status = lab.zpool(&format!("status {pool}")).ok().stdout;
        if is_so(&status) {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "{what}: {status}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The line of `status` about a device, its words joined by single blanks.
fn line(status: &str, device: &str) -> String {
    let lines = status.lines().filter(|line| line.split_whitespace().next().is_some_and(|name| name.ends_with(device)));
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join("; ")
}

/// What `status` calls a device that is not there: its line ends with where it was.
fn name(status: &str, was: &str) -> String {
    let line = status.lines().find(|line| line.contains(was)).expect("it is there");
    line.split_whitespace().next().expect("a name").to_owned()
}

fn is_resilvered(status: &str) -> bool {
    status.contains("resilvered") && !status.contains("in progress")
}

/// A disk that is away for good is one whose file is cut short: the pool has it open.
fn dies(lab: &Lab, disk: &str) {
    fs::OpenOptions::new().write(true).open(lab.dev().join(disk)).and_then(|file| file.set_len(0)).expect("cut");
    fs::remove_file(lab.dev().join(disk)).expect("removed");
}

#[test]
fn a_spare_stands_in_and_becomes_a_device_like_any_other() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2 spare d3 d4");
    let status = lab.zpool("status tank").ok();
    assert_eq!(line(&status.stdout, "/d3"), format!("{} AVAIL", lab.disk(3).display()), "{status}");
    assert!(status.stdout.contains("\tspares\n\t  "), "{status}");
    let tree = Tree::filled(&mount, 1);
    dies(&lab, "d1");
    let status = wait_status(&lab, "tank", "a spare stands in", |status| {
        status.contains("INUSE     currently in use") && is_resilvered(status)
    });
    assert!(status.contains("spare-1"), "{status}");
    assert!(line(&status, "/d3").contains("ONLINE 0 0 0"), "{status}");
    assert!(line(&status, "/d4").ends_with("AVAIL"), "one for one: {status}");
    lab.zpool("events -H").ok().says("sysevent.fs.zfs.vdev_spare");
    lab.zpool("remove tank d3").refused().says("in use");
    lab.zpool("replace tank d0 d3").refused().says("in use");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
    let status = lab.zpool("status tank").ok();
    assert!(status.stdout.contains("INUSE     currently in use"), "{status}");
    // The disk that died leaves: the spare stays in its place.
    let dead = name(&status.stdout, "/d1");
    lab.zpool(&format!("detach tank {dead}")).ok();
    let status = lab.zpool("status tank").ok().says("ONLINE");
    assert!(!status.stdout.contains("spare-") && !status.stdout.contains("INUSE"), "{status}");
    assert_eq!(line(&status.stdout, "/d3"), format!("{} ONLINE 0 0 0", lab.disk(3).display()), "{status}");
    let tree = Tree::filled(&mount, 2);
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("remove tank d4").ok();
    lab.zpool("status tank").ok().says_not("spares");
    // Its label is gone, too.
    lab.zpool("add -n -f tank d4").ok();
    lab.zpool("create other d4").ok();
    lab.export("other");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_spare_goes_back_when_its_work_is_done() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 spare d2");
    Tree::filled(&mount, 1);
    // The pool does not see a moved file go: only at the next import it is not there.
    lab.export("tank");
    let away = lab.tmp().join("d1");
    fs::rename(lab.dev().join("d1"), &away).expect("moved");
    lab.import("", "tank");
    wait_status(&lab, "tank", "a spare stands in for what was missing at the import", |status| {
        status.contains("INUSE") && is_resilvered(status)
    });
    let tree = Tree::filled(&mount, 2);
    lab.zpool("sync tank").ok();
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.zpool("status tank").ok().says("INUSE     currently in use");
    // The disk is plugged in again.
    fs::rename(&away, lab.dev().join("d1")).expect("moved");
    lab.zpool("online tank d1").ok();
    let status = wait_status(&lab, "tank", "the spare goes back", |status| status.contains("AVAIL"));
    assert!(!status.contains("spare-") && line(&status, "/d1").contains("ONLINE"), "{status}");
    tree.assert_same(&Tree::of(&mount), "after the spare went");
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("status tank").ok().says("AVAIL");
    // Another disk takes the place of the one that died: the spare is free again.
    dies(&lab, "d0");
    let status =
        wait_status(&lab, "tank", "a spare stands in", |status| status.contains("INUSE") && is_resilvered(status));
    let dead = name(&status, "/d0");
    lab.zpool(&format!("replace tank {dead} d2")).refused().says("already in replacing/spare config");
    lab.zpool(&format!("replace -w tank {dead} d3")).ok();
    let status = wait_status(&lab, "tank", "the spare goes back", |status| status.contains("AVAIL"));
    assert!(!status.contains("spare-") && !status.contains("replacing"), "{status}");
    assert!(line(&status, "/d3").contains("ONLINE"), "{status}");
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_spare_that_dies_is_followed_by_another() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2 spare d3");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("add tank spare d4").ok();
    // A disk is replaced by hand with a spare, while it works.
    lab.zpool("replace -w tank d2 d3").ok();
    lab.zpool("attach tank d1 d4").refused().says("reserved as a hot spare");
    let status = wait_status(&lab, "tank", "it is resilvered", is_resilvered);
    assert!(status.contains("spare-2") && line(&status, "/d2").contains("ONLINE"), "{status}");
    lab.zpool("detach tank d3").ok();
    let status = lab.zpool("status tank").ok();
    assert_eq!(line(&status.stdout, "/d3"), format!("{} AVAIL", lab.disk(3).display()), "{status}");
    dies(&lab, "d2");
    let status =
        wait_status(&lab, "tank", "a spare stands in", |status| status.contains("INUSE") && is_resilvered(status));
    // The smallest one first, of equal ones that which was added first.
    let (first, second) = if line(&status, "/d3").contains("INUSE") { ("d3", "d4") } else { ("d4", "d3") };
    dies(&lab, first);
    let status = wait_status(&lab, "tank", "the other one stands in", |status| {
        line(status, second).contains("INUSE") && line(status, first).contains("UNAVAIL") && is_resilvered(status)
    });
    assert!(status.contains("spare-2"), "{status}");
    lab.scrub("tank").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn one_spare_serves_two_pools() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let first = lab.create("", "one", "mirror d0 d1 spare d4");
    lab.zpool("create -n two d4").refused().says("is reserved as a hot spare for pool 'one'");
    lab.zpool("add one spare d4").refused();
    lab.create("", "two", "mirror d2 d3 spare d4");
    let tree = Tree::filled(&first, 1);
    dies(&lab, "d1");
    wait_status(&lab, "one", "a spare stands in", |status| status.contains("INUSE") && is_resilvered(status));
    let status = wait_status(&lab, "two", "it is told", |status| !status.contains("AVAIL"));
    assert!(!status.contains("spare-"), "{status}");
    // The other pool can do nothing but wait.
    dies(&lab, "d3");
    std::thread::sleep(Duration::from_secs(8));
    lab.zpool("status two").ok().says("DEGRADED").says_not("spare-1");
    let status = lab.zpool("status one").ok();
    let dead = name(&status.stdout, "/d1");
    lab.zpool(&format!("replace -w one {dead} d5")).ok();
    wait_status(&lab, "two", "the spare that is free stands in", |status| {
        status.contains("spare-1") && is_resilvered(status)
    });
    lab.zpool("remove one d4").ok();
    lab.scrub("one").says("with 0 errors");
    lab.scrub("two").says("with 0 errors");
    lab.judge_and_return("one", &first, &tree);
}

#[test]
fn what_is_wrong_with_spares_is_told() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    lab.zpool("create tank spare d0").refused().says("at least one toplevel vdev must be specified");
    lab.zpool("create tank d0 spare").refused().says("spare requires at least 1 device");
    lab.zpool("create -n tank mirror d0 d1 spare d2").ok().says("\tspares\n");
    let mount = lab.create("", "tank", "mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("add -n tank spare d2").ok().says("\tspares\n");
    lab.zpool("status tank").ok().says_not("spares");
    lab.zpool("remove tank d2").refused().says("no such device in pool");
    lab.zpool("remove tank d0").refused().says("hot spares only");
    fs::File::create(lab.dev().join("small")).and_then(|file| file.set_len(100 << 20)).expect("a file");
    lab.zpool("add tank spare small d2").ok();
    lab.zpool("offline tank d2").refused().says("device is reserved as a hot spare");
    lab.zpool("replace tank d0 small").refused().says("device is too small");
    lab.zpool("list -v tank").ok().says("AVAIL");
    lab.zpool("status -j tank").ok().says("\"spares\":{");
    dies(&lab, "d0");
    let status = wait_status(&lab, "tank", "the one that fits stands in", |status| status.contains("INUSE"));
    assert!(line(&status, "/small").ends_with("AVAIL"), "{status}");
    dies(&lab, "small");
    wait_status(&lab, "tank", "a spare that is gone is told of", |status| status.contains("UNAVAIL   cannot open"));
    wait_status(&lab, "tank", "it is resilvered", is_resilvered);
    lab.judge_and_return("tank", &mount, &tree);
}

/// A disk of two partitions, the second of which is to be a spare; what the machine calls the disk.
fn partitioned(lab: &Lab, index: usize) -> Option<Loop> {
    lab.add_disk(index, 320);
    let script = "label: gpt\nsize=20M\nsize=280M\n";
    lab.run("sh", ["-c", &format!("printf '{script}' | sfdisk -q {}", lab.disk(index).display())]).ok();
    let disk = Loop::over(&lab.disk(index))?;
    // Where the kernel does not look by itself.
    let _ = std::process::Command::new("partprobe").arg(&disk.0).status();
    let start = Instant::now();
    while !Path::new(&format!("{}p2", disk.0)).exists() {
        if start.elapsed() > Duration::from_secs(10) {
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(disk)
}

/// The disk as a whole was taken without a word, and the spare in its partition overwrote what was put there.
#[test]
fn a_disk_with_a_spare_in_a_partition_is_left_alone() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 256);
    let Some(disk) = partitioned(&lab, 9) else { return judge::skip("loop devices", "they have no partitions here") };
    let (whole, part) = (disk.0.as_str(), format!("{}p2", disk.0));
    let mount = lab.create("", "tank", &format!("mirror d0 d1 spare {part}"));
    let tree = Tree::filled(&mount, 1);
    for words in [format!("create other {whole}"), format!("create -f other {whole}")] {
        lab.zpool(&words).refused().says(&format!("{part} is reserved as a hot spare for pool 'tank'"));
    }
    for words in [format!("add tank spare {whole}"), format!("add -f tank spare {whole}")] {
        lab.zpool(&words).refused().says(&format!("{part} is reserved as a hot spare for pool 'tank'"));
    }
    lab.zpool(&format!("attach -f tank d0 {whole}")).refused().says("reserved as a hot spare");
    // By another face, too.
    let Some(face) = Loop::over(Path::new(&part)) else { return judge::skip("loop devices", "no second one") };
    lab.zpool(&format!("create -f other {}", face.0)).refused().says("is reserved as a hot spare for pool 'tank'");
    drop(face);
    lab.export("tank");
    lab.zpool(&format!("create other {whole}")).refused().says(&format!("{part} is reserved as a hot spare"));
    let other = lab.create("-f", "other", whole);
    let precious = Tree::filled(&other, 2);
    lab.export("other");
    // The kernel has the partition still.
    lab.zpool(&format!("create third {part}")).refused().says(&format!("{whole} is part of exported pool 'other'"));
    lab.import("", "tank");
    let status = lab.zpool("status tank").ok();
    assert!(line(&status.stdout, "p2").contains("UNAVAIL"), "{status}");
    lab.zpool(&format!("replace tank d0 {part}")).refused().says("as a whole is part of pool 'other'");
    dies(&lab, "d1");
    std::thread::sleep(Duration::from_secs(9));
    lab.zpool("status tank").ok().says("DEGRADED").says_not("INUSE");
    tree.assert_same(&Tree::of(&mount), "the pool without a spare");
    lab.zpool(&format!("import -d {whole} other")).ok();
    lab.wait_mounted(&other);
    precious.assert_same(&Tree::of(&other), "what was put on the disk");
    lab.scrub("other").says("with 0 errors");
    lab.export("other");
    lab.export("tank");
}
