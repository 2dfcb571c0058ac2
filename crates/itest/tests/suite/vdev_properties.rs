//! Properties of vdevs: kept and shown as OpenZFS does, and what those do that do something.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use platter_itest::reference::ReferencePool;
use platter_itest::{Faults, FaultyDisks, Lab, Run, Tree, data, zdb};

/// For so long a slow device is looked for.
const PATIENCE: Duration = Duration::from_secs(120);
/// How much later a slow disk answers.
const LATE: Duration = Duration::from_secs(1);

fn get(lab: &Lab, property: &str, vdev: &str) -> String {
    lab.zpool(&format!("get -H -o value,source {property} tank {vdev}")).ok().stdout.trim_end().to_owned()
}

/// What is refused because there is no such vdev.
#[track_caller]
fn assert_not_found(run: Run) {
    assert_eq!(run.code, 22, "{run}");
    run.says("cannot find 'd9' in 'tank': device not in pool");
}

/// The number of the last of these entries, each the first one behind that before, in the configuration as zdb has it.
fn zap_object(config: &str, entries: &[&str]) -> String {
    let mut lines = config.lines();
    let found = entries
        .iter()
        .map(|entry| lines.find(|line| line.contains(entry)).unwrap_or_else(|| panic!("no {entry} in {config}")));
    found.last().and_then(|line| line.rsplit(' ').next()).expect("a number").to_owned()
}

/// What is refused, in OpenZFS's words.
fn refuse(lab: &Lab) {
    assert_not_found(lab.zpool("set comment=x tank d9"));
    let refusals = [
        (
            "comment=x",
            "root",
            "cannot set property comment for root-0 on tank: invalid argument for this pool operation",
        ),
        ("failfast=yes", "d0", "cannot set property failfast for d0 on tank: 'failfast' must be one of 'on | off'"),
        ("size=1", "d0", "cannot set property size for d0 on tank: 'size' is readonly"),
        ("colour=x", "d0", "cannot set property colour for d0 on tank: invalid property: 'colour'"),
        ("autosit=on", "mirror-1", "cannot set property autosit for mirror-1 on tank: property not supported"),
        ("sit_out=on", "d0", "cannot set property sit_out for d0 on tank: property not supported for this vdev"),
        ("allocating=off", "d0", "operation not supported on this type of vdev"),
    ];
    for (setting, vdev, text) in refusals {
        lab.zpool(&format!("set {setting} tank {vdev}")).refused().says(text);
    }
    lab.platter(["zpool", "set", &format!("comment={}", "x".repeat(8192)), "tank", "d0"])
        .refused()
        .says("'comment' is too long");
}

#[test]
fn texts_are_kept_in_the_vdevs_own_objects() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("-f", "tank", "d2 mirror d0 d1");
    let tree = Tree::filled(&mount, 1);
    for (vdev, text) in [("mirror-1", "the-mirror"), ("d0", "left"), ("d2", "alone")] {
        lab.zpool(&format!("set comment={text} tank {vdev}")).ok();
        lab.zpool(&format!("set org.example:shelf={text}-1 tank {vdev}")).ok();
    }
    lab.zpool("set failfast=off tank d1").ok();
    lab.zpool("set io_n=7 tank mirror-1").ok();
    let check = || {
        assert_eq!(get(&lab, "comment,org.example:shelf", "mirror-1"), "the-mirror\tlocal\nthe-mirror-1\tlocal");
        assert_eq!(get(&lab, "comment,org.example:shelf", "d0"), "left\tlocal\nleft-1\tlocal");
        assert_eq!(get(&lab, "comment,org.example:shelf", "d1"), "-\tdefault\n-\tdefault");
        assert_eq!(get(&lab, "comment,org.example:shelf", "d2"), "alone\tlocal\nalone-1\tlocal");
        assert_eq!(get(&lab, "failfast", "d1"), "off\tlocal");
        assert_eq!(get(&lab, "failfast", "d0"), "on\tdefault");
        assert_eq!((get(&lab, "io_n", "mirror-1"), get(&lab, "io_n", "d0")), ("7\tlocal".into(), "-\tdefault".into()));
    };
    check();
    lab.zpool("get all tank d0").ok().says("org.example:shelf  left-1").says("comment            left");
    lab.zpool("get all tank d1").ok().says_not("org.example");
    let json = lab.zpool("get -j all tank d2").ok();
    json.says("\"org.example:shelf\":{\"value\":\"alone-1\",\"source\":{\"type\":\"LOCAL\",\"data\":\"-\"}}");
    lab.zpool("history -i tank").ok().says("vdev set").says("org.example:shelf=left-1");
    refuse(&lab);
    check();
    lab.judge_and_return("tank", &mount, &tree);
    check();
    // zdb finds them where OpenZFS looks for them.
    lab.export("tank");
    if let Some(config) = zdb::zdb(&lab.dev(), &["-C", "tank"]) {
        let config = config.ok().stdout;
        let (top, leaf) = ("vdev_zap_top", "vdev_zap_leaf");
        for (entries, text) in [
            (&["type: 'mirror'", top][..], "the-mirror-1"),
            (&["type: 'mirror'", "children[0]", leaf], "left-1"),
            (&["type: 'file'", top], "alone-1"),
        ] {
            let object = zap_object(&config, entries);
            let zap = zdb::zdb(&lab.dev(), &["-dddd", "tank", &object]).expect("zdb").ok();
            zap.says(&format!("org.example:shelf = {text}"));
        }
    }
    let mount = lab.import("", "tank");
    // An empty value takes a user property away, and is the comment.
    lab.zpool("set org.example:shelf= tank d0").ok();
    lab.zpool("set comment= tank d0").ok();
    assert_eq!(get(&lab, "comment,org.example:shelf", "d0"), "\tlocal\n-\tdefault");
    lab.zpool("get all tank d0").ok().says_not("org.example");
    // A device that joins makes a mirror of one that was alone, which keeps what was said of it.
    lab.zpool("attach -w tank d2 d3").ok();
    assert_eq!(get(&lab, "comment", "mirror-0"), "alone\tlocal");
    assert_eq!(get(&lab, "comment", "d2"), "-\tdefault");
    lab.judge_and_return("tank", &mount, &tree);
    assert_eq!(get(&lab, "comment", "mirror-0"), "alone\tlocal");
}

/// A pool made here has no object for its root; one that OpenZFS made has.
#[test]
fn the_root_has_properties_in_a_pool_that_openzfs_made() {
    let (Some(pool), Some(lab)) = (ReferencePool::copy("refzil"), Lab::open()) else { return };
    let import = || lab.zpool(&format!("import -f -N -d {} refzil", pool.dir().display())).ok();
    let get = |what: &str| lab.zpool(&format!("get -H -o value,source {what} refzil root")).ok().stdout;
    import();
    lab.zpool("set comment=openzfs refzil root").ok();
    lab.zpool("set cool:vdev=goodbye refzil root-0").ok();
    assert_eq!(get("comment,cool:vdev,allocating"), "openzfs\tlocal\ngoodbye\tlocal\non\tdefault\n");
    lab.zpool("set allocating=off refzil root").refused().says("operation not supported on this type of vdev");
    lab.zpool("set autosit=on refzil root").refused().says("property not supported for this vdev");
    lab.zpool("export refzil").ok();
    zdb::assert_clean(&pool.dir(), "refzil");
    import();
    assert_eq!(get("comment,cool:vdev"), "openzfs\tlocal\ngoodbye\tlocal\n");
    lab.zpool("set cool:vdev= refzil root").ok();
    assert_eq!(get("cool:vdev"), "-\tdefault\n");
    lab.zpool("export refzil").ok();
    zdb::assert_clean(&pool.dir(), "refzil");
}

/// Bytes allocated on a top-level vdev.
fn allocated(lab: &Lab, vdev: &str) -> u64 {
    lab.zpool("sync tank").ok();
    get(lab, "-p allocated", vdev).split('\t').next().and_then(|number| number.parse().ok()).expect("a number")
}

/// Writes a file, half of it made stable piece by piece; its object.
fn write(path: &Path, seed: u64, pieces: usize) -> u64 {
    let mut file = fs::File::create(path).expect("a file");
    for piece in 0..pieces {
        file.write_all(&data::random(seed + piece as u64, 256 << 10)).expect("a write");
        if piece % 2 == 0 {
            file.sync_all().expect("it is stable");
        }
    }
    file.metadata().expect("a file").ino()
}

#[test]
fn nothing_new_is_put_where_nothing_is_to_be_allocated() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 192);
    let mount = lab.create("-f -O compression=off", "tank", "d0 mirror d1 d2");
    write(&mount.join("before"), 1, 80);
    let space = |lab: &Lab| -> u64 {
        let run = lab.zfs("get -Hp -o value available tank").ok();
        run.stdout.trim().parse().expect("a number")
    };
    let (was, both) = (allocated(&lab, "d0"), space(&lab));
    assert!(was > 4 << 20, "both are used: {was}");
    lab.zpool("set allocating=off tank mirror-1").ok();
    lab.zpool("set allocating=off tank d0").refused().says("invalid argument for this pool operation");
    lab.zpool("set allocating=on tank mirror-1").ok();
    lab.zpool("set allocating=off tank d0").ok();
    lab.zpool("set allocating=off tank d0").ok();
    lab.zpool("set allocating=off tank mirror-1").refused().says("no other vdev would allocate");
    assert_eq!(
        (get(&lab, "allocating", "d0"), get(&lab, "allocating", "mirror-1")),
        ("off\tlocal".into(), "on\tdefault".into())
    );
    assert_eq!(get(&lab, "allocating", "d1"), "-\t-");
    let status = lab.zpool("status tank").ok();
    let noted: Vec<&str> = status.stdout.lines().filter(|line| line.ends_with("  (non-allocating)")).collect();
    assert!(noted.len() == 1 && noted[0].contains("/d0"), "{status}");
    lab.zpool("status -j tank").ok().says("\"noalloc\":\"1\"");
    assert!(space(&lab) < both / 2 + (16 << 20), "its space is nobody's: {} of {both}", space(&lab));
    let first = write(&mount.join("after"), 1000, 80);
    let full = allocated(&lab, "d0");
    assert!(full <= was, "{full} after {was}");
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    assert_eq!(get(&lab, "allocating", "d0"), "off\tlocal");
    let second = write(&mount.join("imported"), 2000, 80);
    assert!(allocated(&lab, "d0") <= full, "an import does not forget it");
    // Neither does a crash with records in the intent log.
    write(&mount.join("crashed"), 3000, 9);
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.wait_mounted(&mount);
    assert!(allocated(&lab, "d0") <= full);
    assert!(fs::read(mount.join("crashed")).expect("a file").len() >= 8 * (256 << 10));
    // It is the vdev's, whatever device is there.
    lab.zpool("attach -w tank d0 d3").ok();
    assert_eq!(get(&lab, "allocating", "mirror-0"), "off\tlocal");
    lab.zpool("detach tank d0").ok();
    assert_eq!(get(&lab, "allocating", "d3"), "off\tlocal");
    let third = write(&mount.join("exchanged"), 4000, 80);
    assert!(allocated(&lab, "d3") <= full);
    let tree = Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    for object in [first, second, third] {
        let Some(blocks) = zdb::blocks(&lab.dev(), "tank", object) else { break };
        assert!(blocks.len() > 100 && blocks.iter().all(|block| block.dvas.iter().all(|dva| dva.vdev == 1)));
    }
    if let Some(config) = zdb::zdb(&lab.dev(), &["-C", "tank"]) {
        config.ok().says("non_allocating: 1");
    }
    let mount = lab.import("", "tank");
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.zpool("set allocating=on tank d3").ok();
    lab.zpool("status tank").ok().says_not("non-allocating");
    let low = allocated(&lab, "d3");
    write(&mount.join("again"), 5000, 80);
    assert!(allocated(&lab, "d3") > low + (4 << 20), "it is used again");
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
}

#[test]
fn a_vdev_without_which_there_is_no_room_goes_on_allocating() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 384);
    lab.add_disk(1, 96);
    let mount = lab.create("-O compression=off", "tank", "d0 d1");
    write(&mount.join("much"), 1, 900);
    lab.zpool("set allocating=off tank d0").refused().says("out of space");
    assert_eq!(get(&lab, "allocating", "d0"), "on\tdefault");
    write(&mount.join("more"), 2000, 40);
    lab.zpool("set allocating=off tank d1").ok();
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
}

/// Reads a file from the disks; how long that took. Of what is mounted anew the kernel has no pages, which advice to
/// drop them does not always achieve.
fn read_from_disk(lab: &Lab, path: &Path, expected: &[u8]) -> Duration {
    lab.zfs("unmount tank").ok();
    lab.zfs("mount tank").ok();
    let start = Instant::now();
    assert!(fs::read(path).expect("it can be read") == expected, "what is read is what was written");
    start.elapsed()
}

#[test]
fn a_slow_disk_of_a_raidz_sits_out_and_reads_are_as_fast_as_the_others() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(6, 128);
    let disks = FaultyDisks::over(&lab, 6);
    let mount = lab.create("-O primarycache=metadata -O compression=off", "tank", &format!("raidz {}", disks.all()));
    let bytes = data::random(1, 4 << 20);
    fs::write(mount.join("file"), &bytes).expect("a file");
    lab.zpool("sync tank").ok();
    let tree = Tree::of(&mount);
    let path = |index| disks.disk(index).display().to_string();
    assert_eq!(
        (get(&lab, "autosit", "raidz1-0"), get(&lab, "sit_out", &path(2))),
        ("off\tdefault".into(), "off\t-".into())
    );
    // By hand: as many as there is parity.
    lab.zpool(&format!("set sit_out=on tank {}", path(0))).ok();
    assert_eq!(get(&lab, "sit_out", &path(0)), "on\t-");
    lab.zpool(&format!("set sit_out=on tank {}", path(1))).refused().says("too many disks already sitting out");
    read_from_disk(&lab, &mount.join("file"), &bytes);
    lab.zpool(&format!("set sit_out=off tank {}", path(0))).ok();
    assert_eq!(get(&lab, "sit_out", &path(0)), "off\t-");
    // By itself.
    lab.zpool("set autosit=on tank raidz1-0").ok();
    assert_eq!(get(&lab, "autosit", "raidz1-0"), "on\tlocal");
    let quick = read_from_disk(&lab, &mount.join("file"), &bytes);
    disks.set(3, Faults { late: LATE, ..Faults::NONE });
    let slow = read_from_disk(&lab, &mount.join("file"), &bytes);
    assert!(slow > LATE, "{slow:?}, and {quick:?} before");
    let start = Instant::now();
    while get(&lab, "sit_out", &path(3)) == "off\t-" {
        read_from_disk(&lab, &mount.join("file"), &bytes);
        assert!(start.elapsed() < PATIENCE, "{}", lab.zpool("get -H all tank all-vdevs"));
    }
    lab.zpool("events -H").ok().says("ereport.fs.zfs.sitout");
    let reads = disks.reads(3);
    read_from_disk(&lab, &mount.join("file"), &bytes);
    assert_eq!(disks.reads(3), reads, "a disk that sits out is not read");
    for index in [0, 1, 2, 4, 5] {
        assert_eq!(get(&lab, "sit_out", &path(index)), "off\t-");
    }
    lab.zpool("status tank").ok().says("state: ONLINE").says("No known data errors");
    disks.set_all(Faults::NONE);
    // A scrub reads it all the same.
    lab.scrub("tank").says("with 0 errors");
    lab.zpool("clear tank").ok();
    assert_eq!(get(&lab, "sit_out", &path(3)), "off\t-");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.zpool(&format!("import -d {} tank", disks.dir().display())).ok();
    lab.wait_mounted(&mount);
    assert_eq!(get(&lab, "autosit", "raidz1-0"), "on\tlocal");
    tree.assert_same(&Tree::of(&mount), "after all that");
    lab.export("tank");
}
