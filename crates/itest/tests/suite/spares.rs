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
    // Its label stays, as OpenZFS has it: who wants the device says so.
    lab.zpool("create other d4").refused().says("reserved as a hot spare").says("zpool labelclear");
    lab.zpool("create -f other d4").ok();
    lab.export("other");
    lab.judge_and_return("tank", &mount, &tree);
}

/// A pool that is destroyed reserves nothing any more; whoever imports it all the same has everything of it again.
#[test]
fn a_destroyed_pool_comes_back_with_its_spares_and_cache_devices() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let import = format!("import -Df -d {} tank", lab.dev().display());
    lab.zpool("create -m none tank d0 d1 spare d2 d3 cache d4").ok();
    lab.zpool("destroy tank").ok();
    lab.zpool(&import).ok();
    let status = lab.zpool("status tank").ok();
    for device in ["/d2", "/d3"] {
        assert!(line(&status.stdout, device).ends_with("AVAIL"), "{status}");
    }
    assert!(line(&status.stdout, "/d4").ends_with("ONLINE 0 0 0"), "{status}");
    // They are the pool's as before, also for others while it is away.
    lab.export("tank");
    lab.zpool("create -m none other d3").refused().says("is reserved as a hot spare");
    lab.zpool("import -d . tank").ok();
    lab.zpool("destroy tank").ok();
    lab.zpool("create -m none other d3 spare d5 cache d4").ok();
    lab.zpool(&import).ok();
    let status = lab.zpool("status tank").ok();
    assert!(line(&status.stdout, "/d2").ends_with("AVAIL"), "{status}");
    assert!(line(&status.stdout, "/d3").contains("UNAVAIL"), "it is a vdev of 'other': {status}");
    assert!(!line(&status.stdout, "/d4").contains("ONLINE"), "it caches for 'other': {status}");
    lab.scrub("other").says("with 0 errors");
    lab.export("other");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_clean(&lab.dev(), "other");
}

/// What lay there was written over: another pool's device, or a spare at work in a pool that was not open.
#[test]
fn the_end_of_a_pool_writes_to_nothing_that_is_no_spare_of_its_own() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    lab.zpool("create -m none tank d0 spare d1").ok();
    lab.zpool("create -m none other d2").ok();
    lab.export("other");
    fs::rename(lab.disk(1), lab.tmp().join("spare")).expect("moved");
    fs::rename(lab.disk(2), lab.disk(1)).expect("moved");
    lab.zpool("destroy tank").ok();
    lab.zpool("import -d . other").ok();
    lab.scrub("other").says("with 0 errors");
    lab.zpool("destroy other").ok();

    lab.disks(6, 128);
    lab.zpool("create -f -m none tank mirror d0 d1 spare d2").ok();
    lab.zpool("create -f -m none other d3 spare d2").ok();
    lab.zpool("offline tank d1").ok();
    lab.zpool("replace -w tank d1 d2").ok();
    lab.zpool("export -f tank").ok();
    // The next daemon knows nothing of the pool that is not open.
    lab.platter(["daemon", "stop"]).ok();
    lab.zpool("destroy other").ok();
    lab.zpool("import -d . tank").ok();
    let status = lab.zpool("status tank").ok();
    assert!(line(&status.stdout, "/d2").contains("ONLINE"), "{status}");
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// It was back five seconds after somebody had taken it away.
#[test]
fn a_spare_that_was_taken_away_stays_away() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("", "tank", "raidz d0 d1 d2 spare d3");
    let tree = Tree::filled(&mount, 1);
    let stands_in = |what: &str| {
        wait_status(&lab, "tank", what, |status| status.contains("INUSE") && is_resilvered(status));
    };
    let content = fs::read(lab.disk(1)).expect("the disk");
    dies(&lab, "d1");
    stands_in("a spare stands in");
    lab.zpool("detach tank d3").ok();
    let stays_away = || {
        std::thread::sleep(Duration::from_secs(8));
        let status = lab.zpool("status tank").ok();
        assert!(line(&status.stdout, "/d3").ends_with("AVAIL"), "{status}");
    };
    stays_away();
    // That was not in order, only out of sight.
    let name = name(&lab.zpool("status tank").ok().stdout, "/d1");
    lab.zpool(&format!("offline tank {name}")).ok();
    std::thread::sleep(Duration::from_secs(3));
    lab.zpool(&format!("online tank {name}"));
    stays_away();
    // Once the device has been in order, it is helped again.
    fs::write(lab.disk(1), content).expect("it is back");
    wait_status(&lab, "tank", "it is back", |status| line(status, "/d1").contains("ONLINE") && is_resilvered(status));
    dies(&lab, "d1");
    stands_in("a spare stands in once more");
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

/// Its label as a device of the pool was never written: it was refused from then on, as a stranger.
#[test]
fn a_spare_that_returns_as_it_was_before_it_stood_in_gets_everything() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 spare d2");
    let idle = fs::read(lab.disk(2)).expect("the spare");
    let tree = Tree::filled(&mount, 1);
    dies(&lab, "d1");
    wait_status(&lab, "tank", "a spare stands in", |status| status.contains("INUSE") && is_resilvered(status));
    dies(&lab, "d2");
    wait_status(&lab, "tank", "it is away", |status| !line(status, "/d2").contains("ONLINE"));
    fs::write(lab.disk(2), idle).expect("put back");
    wait_status(&lab, "tank", "it is there", |status| line(status, "/d2").contains("ONLINE") && is_resilvered(status));
    // What the first resilver left is given to it by another one.
    lab.zpool("wait -t resilver tank").ok();
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
    lab.judge_and_return("tank", &mount, &tree);
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
    let shared = |pool: &str| {
        format!(
            "cannot export '{pool}': use '-f' to override the following errors:\n'{pool}' has an active shared spare \
             which could be used by other pools once '{pool}' is exported.\n"
        )
    };
    lab.zpool("export one").refused().says(&shared("one"));
    assert_eq!(Tree::of(&first), tree, "a refused export has unmounted nothing");
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
    lab.scrub("two").says("with 0 errors");
    lab.zpool("export two").refused().says(&shared("two"));
    lab.zpool("export -f two").ok();
    lab.zpool("remove one d4").ok();
    lab.scrub("one").says("with 0 errors");
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
    lab.zpool("remove tank d0").refused().says("hot spares, cache devices and logs only");
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

/// Runs again when this is dropped.
struct Stopped(Vec<i32>);

impl Stopped {
    fn now(pids: Vec<i32>) -> Self {
        Self::signal(&pids, "-STOP");
        Self(pids)
    }

    fn signal(pids: &[i32], signal: &str) {
        let pids = pids.iter().map(i32::to_string);
        assert!(std::process::Command::new("kill").arg(signal).args(pids).status().expect("kill").success());
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        Self::signal(&self.0, "-CONT");
    }
}

/// Nobody had used the spare, and no command had named it: all commands to all pools waited for its server.
#[test]
fn a_spare_whose_server_is_away_holds_up_nobody() {
    let (Some(below), Some(lab)) = (Lab::open(), Lab::open()) else { return };
    below.disks(1, 512);
    let spare = below.create("", "outer", "d0").join("spare");
    fs::File::create(&spare).and_then(|file| file.set_len(128 << 20)).expect("a file");
    lab.disks(7, 128);
    let mount = lab.create("", "tank", &format!("mirror d0 d1 spare {}", spare.display()));
    lab.create("", "other", "mirror d2 d3");
    let tree = Tree::filled(&mount, 1);
    let stopped = Stopped::now(below.daemon_pids());
    std::thread::sleep(Duration::from_secs(3));
    // What is remembered of the path answers otherwise.
    let _ = fs::write("/proc/sys/vm/drop_caches", "2");
    std::thread::sleep(Duration::from_secs(2));
    let began = Instant::now();
    let other = ["status other", "list tank", "get all other", "add other spare d4", "remove other d4"];
    let own = ["status tank", "add tank spare d5", "replace -w tank d1 d6", "sync tank"];
    for words in other.into_iter().chain(own) {
        let start = Instant::now();
        lab.zpool(words).ok();
        assert!(start.elapsed() < Duration::from_secs(40), "{words}: {:?}", start.elapsed());
    }
    dies(&lab, "d6");
    let status = wait_status(&lab, "tank", "the spare that answers stands in", |status| {
        line(status, "/d5").contains("INUSE") && is_resilvered(status)
    });
    assert!(line(&status, "/spare").contains("UNAVAIL"), "{status}");
    lab.zpool("export other").ok();
    assert!(began.elapsed() < Duration::from_secs(200), "{:?}", began.elapsed());
    drop(stopped);
    wait_status(&lab, "tank", "it answers again", |status| line(status, "/spare").ends_with("AVAIL"));
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.export("tank");
}

/// Without a look at the status, and without writes, a device that died was not noticed.
#[test]
fn a_spare_stands_in_for_a_device_of_an_idle_pool() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    lab.create("", "tank", "mirror d0 d1 spare d2");
    lab.zpool("sync tank").ok();
    std::thread::sleep(Duration::from_secs(8));
    dies(&lab, "d1");
    std::thread::sleep(Duration::from_secs(14));
    lab.zpool("status tank").ok().says("INUSE     currently in use");
}

/// A spare put in by hand beside a device that still works went when the device's counters were cleared.
#[test]
fn what_was_healthy_before_does_not_send_the_spare_away() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    lab.create("", "tank", "mirror d0 d1 spare d2");
    lab.zpool("replace -w tank d0 d2").ok();
    wait_status(&lab, "tank", "it is resilvered", is_resilvered);
    for words in ["clear tank d0", "online tank d0", "clear tank"] {
        lab.zpool(words).ok();
        lab.zpool("sync tank").ok();
        std::thread::sleep(Duration::from_secs(2));
        lab.zpool("status tank").ok().says("spare-0").says("INUSE");
    }
    lab.zpool("clear tank d2").ok();
    lab.export("tank");
    // The label says that it is one beside its guid, and that of no other device does.
    if let Some(zdb) = judge::need("zdb") {
        for (disk, count) in [(2, 2), (0, 1)] {
            let label = lab.run(zdb.to_str().expect("a path"), ["-l", lab.disk(disk).to_str().expect("UTF-8")]).ok();
            assert_eq!(label.stdout.matches("is_spare: 1").count(), count, "{label}");
        }
    }
    lab.import("", "tank");
    lab.zpool("detach tank d2").ok();
    lab.zpool("status tank").ok().says("AVAIL");
    lab.zpool("clear tank d2").refused().says("device is reserved as a hot spare");
}

/// A disk with sectors of 4096 bytes stood in in a vdev of 512-byte sectors.
#[test]
fn a_spare_with_larger_sectors_does_not_stand_in() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let output = std::process::Command::new("losetup").args(["-f", "--show", "-b", "4096"]).arg(lab.disk(2)).output();
    let name = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if name.is_empty() {
        return judge::skip("loop devices", "losetup fails here");
    }
    let large = Loop(name);
    lab.create("-o ashift=9", "tank", &format!("mirror d0 d1 spare {} d3", large.0));
    for option in ["", "-o ashift=9 "] {
        let words = format!("replace {option}tank d0 {}", large.0);
        lab.zpool(&words).refused().says("different optimal sector size");
    }
    dies(&lab, "d1");
    let status = wait_status(&lab, "tank", "the other one stands in", |status| line(status, "/d3").contains("INUSE"));
    assert!(line(&status, large.0.trim_start_matches("/dev/")).ends_with("AVAIL"), "{status}");
    wait_status(&lab, "tank", "it is resilvered", is_resilvered);
    lab.export("tank");
}

/// The spare of a pool that nobody here had open lost its label when another pool let it go.
#[test]
fn a_spare_that_one_pool_lets_go_stays_that_of_others() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    lab.create("", "two", "mirror d2 d3 spare d4");
    lab.export("two");
    lab.platter(["daemon", "stop"]).ok();
    lab.create("", "tank", "mirror d0 d1 spare d4");
    lab.zpool("labelclear -f d4").refused().says("is a member (SPARE) of pool \"tank\"");
    lab.zpool("remove tank d4").ok();
    lab.zpool("status tank").ok().says_not("spares");
    lab.zpool("create three d4").refused().says("reserved as a hot spare");
    lab.import("", "two");
    lab.zpool("status two").ok().says("AVAIL");
    lab.zpool("create -f three d4").refused().says("is reserved as a hot spare for pool 'two'");
    lab.zpool("remove two d4").ok();
    lab.zpool("labelclear d4").ok();
    lab.zpool("labelclear d4").refused().says("failed to read label");
    lab.zpool("create three d4").ok();
    lab.export("three");
}

/// The guid is all that the status shows of a device that died: with it, the new disk at its path was refused.
#[test]
fn a_new_disk_at_the_path_of_a_dead_one_replaces_it_by_guid() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 spare d2");
    let tree = Tree::filled(&mount, 1);
    dies(&lab, "d1");
    let status =
        wait_status(&lab, "tank", "a spare stands in", |status| status.contains("INUSE") && is_resilvered(status));
    lab.add_disk(1, 128);
    lab.zpool("replace tank d0 d0").refused().says("is part of active pool");
    lab.zpool(&format!("replace tank {} d0", name(&status, "/d1"))).refused().says("is part of active pool");
    lab.zpool(&format!("replace -w tank {} d1", name(&status, "/d1"))).ok();
    let status = wait_status(&lab, "tank", "the spare goes back", |status| status.contains("AVAIL"));
    assert!(line(&status, "/d1").contains("ONLINE") && !status.contains("spare-"), "{status}");
    lab.judge_and_return("tank", &mount, &tree);
}
