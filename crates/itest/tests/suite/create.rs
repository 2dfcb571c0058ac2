//! Creating, showing, renaming on import, destroying: the life of a pool on the command line.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Lab, Tree, binary, data, judge, zdb, zhack};

#[test]
fn a_new_pool_is_mounted_and_exports_clean() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(3, 128).join(" ");
    let mount = lab.create("", "tank", &format!("raidz {disks}"));
    assert_eq!(lab.health("tank"), "ONLINE");
    let status = lab.zpool("status tank").ok().says("pool: tank").says("state: ONLINE").says("raidz1-0");
    status.says("errors: No known data errors");
    assert_eq!(fs::read_dir(&mount).expect("the mount can be read").count(), 0);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank", &tree_of_an_empty_root(&lab), 0);
}

/// Imports once more to take the picture and exports again.
fn tree_of_an_empty_root(lab: &Lab) -> Tree {
    let mount = lab.import("", "tank");
    let tree = Tree::of(&mount);
    lab.export("tank");
    tree
}

#[test]
fn every_mix_of_top_level_vdevs_exports_clean() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(12, 96);
    let layouts = [
        "d0",
        "d0 d1 d2",
        "mirror d0 d1",
        "mirror d0 d1 d2 mirror d3 d4 d5",
        "raidz d0 d1",
        "raidz1 d0 d1 d2 raidz1 d3 d4 d5",
        "raidz2 d0 d1 d2 d3 raidz2 d4 d5 d6 d7",
        "raidz3 d0 d1 d2 d3 d4 d5 d6",
        "-f mirror d0 d1 raidz d2 d3 d4 d5",
    ];
    for (number, layout) in layouts.iter().enumerate() {
        let pool = format!("tank{number}");
        // Paths relative to the current folder, as a person types them.
        let mount = lab.create("-f", &pool, layout.trim_start_matches("-f "));
        fs::write(mount.join("file"), data::mixed(number as u64, 3_000_000, 100_000)).expect("a file can be written");
        let tree = Tree::of(&mount);
        lab.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
        zdb::assert_same_tree(&lab.dev(), &pool, &tree, 1);
        let mount = lab.import("", &pool);
        tree.assert_same(&Tree::of(&mount), &format!("after export and import of {layout}"));
        lab.zpool(&format!("destroy {pool}")).ok();
    }
}

#[test]
fn a_dry_run_shows_the_layout_and_changes_nothing() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(3, 96);
    let before = platter_itest::damage::fingerprints(&disks);
    lab.zpool("create -n tank raidz d0 d1 d2").ok().says("would create 'tank'").says("raidz1").says("d2");
    assert_eq!(before, platter_itest::damage::fingerprints(&disks));
    lab.zpool("list tank").refused().says("tank");
}

#[test]
fn a_destroyed_pool_is_gone_and_its_disks_are_free() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    fs::write(mount.join("file"), b"x").expect("a file can be written");
    lab.zpool("destroy tank").ok();
    assert!(lab.mounts().is_empty());
    lab.zpool("list -H").ok().says_not("tank");
    lab.create("", "again", "mirror d0 d1");
    lab.export("again");
    zdb::assert_clean(&lab.dev(), "again");
}

#[test]
fn lists_have_openzfs_columns_and_script_forms() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2 d3");
    let list = lab.zpool("list").ok();
    let header = "NAME SIZE ALLOC FREE CKPOINT EXPANDSZ FRAG CAP DEDUP HEALTH ALTROOT";
    assert_eq!(words(list.stdout.lines().next().unwrap_or("")), header, "{list}");
    let script = lab.zpool("list -Hp -o name,size,health,ashift tank").ok();
    let fields: Vec<&str> = script.stdout.trim_end().split('\t').collect();
    assert_eq!((fields.len(), fields[0], fields[2], fields[3]), (4, "tank", "ONLINE", "12"), "{script}");
    assert!(fields[1].parse::<u64>().is_ok_and(|size| size > 300 << 20), "{script}");
    lab.zpool("list -v tank").ok().says("raidz1-0").says("d3");
    let zfs = lab.zfs("list").ok();
    assert_eq!(words(zfs.stdout.lines().next().unwrap_or("")), "NAME USED AVAIL REFER MOUNTPOINT", "{zfs}");
    lab.zfs("list -o name,used,avail,refer,compressratio").ok().says("RATIO");
    lab.zpool("iostat -v tank").ok().says("capacity").says("operations").says("bandwidth").says("d0");
    let repeated = lab.zpool("iostat -H tank 1 2").ok();
    assert_eq!(repeated.stdout.lines().filter(|line| line.starts_with("tank")).count(), 2, "{repeated}");
    lab.zpool("history tank").ok().says("create").says("tank");
    lab.zpool("sync tank").ok();
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn json_output_parses_and_has_openzfs_keys() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 96);
    lab.create("", "tank", "raidz d0 d1 d2");
    for (command, key) in [
        ("zpool list -j", "pools"),
        ("zpool status -j", "pools"),
        ("zpool get -j size tank", "pools"),
        ("zfs list -j", "datasets"),
        ("zfs get -j compression tank", "datasets"),
    ] {
        let run = lab.platter(command.split(' ')).ok();
        let value: serde_json::Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{command}: not JSON: {error}\n{run}"));
        assert!(value["output_version"]["command"].is_string(), "{command}: no output_version\n{run}");
        assert!(value[key]["tank"].is_object(), "{command}: no {key}.tank\n{run}");
    }
}

#[test]
fn the_binary_answers_by_the_name_it_is_called_by() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 96);
    for name in ["zpool", "zfs"] {
        std::os::unix::fs::symlink(binary::platter(), lab.tmp().join(name)).expect("a symlink");
    }
    let zpool = lab.tmp().join("zpool");
    let mount = lab.mnt("tank");
    lab.run(zpool.to_str().expect("UTF-8"), ["create", "-m", mount.to_str().expect("UTF-8"), "tank", "d0"]).ok();
    let by_arg0 =
        lab.command(binary::platter()).arg0("zfs").args(["list", "-H", "-o", "name"]).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&by_arg0.stdout).trim(), "tank");
    lab.export("tank");
}

#[test]
fn commands_release_their_output() {
    // The daemon that the first command starts must not hold the command's stdout: `$(zpool list)` would never return.
    let Some(lab) = Lab::open() else { return };
    let mut command = lab.command(binary::platter());
    command.args(["zpool", "list"]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let child = command.spawn().expect("it starts");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(Duration::from_secs(30)).expect("stdout is still open 30 s after the command");
    assert!(output.expect("output").status.success());
    assert!(start.elapsed() < Duration::from_secs(30));
    assert_eq!(lab.daemon_pids().len(), 1, "one daemon runs");
}

#[test]
fn the_daemon_says_once_that_it_started_and_stops_with_all_data_synced() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let first = lab.zpool("list").ok();
    assert!(first.mentions("daemon"), "the first command says that it starts a daemon\n{first}");
    lab.zpool("list").ok().says_not("daemon");
    let mount = lab.create("", "tank", "mirror d0 d1");
    let bytes = data::random(7, 5_000_000);
    fs::write(mount.join("unsynced"), &bytes).expect("a file can be written");
    let before = Tree::of(&mount);
    lab.platter(["daemon", "stop"]).ok();
    let start = Instant::now();
    while !lab.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(lab.daemon_pids().is_empty(), "the daemon still runs");
    assert!(lab.mounts().is_empty(), "still mounted: {:?}", lab.mounts());
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank", &before, 1);
}

#[test]
fn sigterm_is_a_clean_shutdown() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    fs::write(mount.join("unsynced"), data::random(8, 3_000_000)).expect("a file can be written");
    let before = Tree::of(&mount);
    for pid in lab.daemon_pids() {
        let _ = Command::new("kill").args(["-TERM", &pid.to_string()]).status();
    }
    let start = Instant::now();
    while !lab.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(lab.daemon_pids().is_empty(), "the daemon still runs");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank", &before, 1);
}

#[test]
fn two_instances_live_side_by_side_and_never_share_a_device() {
    let Some(one) = Lab::open() else { return };
    let Some(two) = Lab::open() else { return };
    one.disks(2, 96);
    two.disks(2, 96);
    one.create("", "tank", "mirror d0 d1");
    two.create("", "tank", "mirror d0 d1");
    let busy = one.disk(0);
    two.zpool(&format!("create -f other {}", busy.display())).refused().says("d0");
    two.zpool(&format!("import -d {} -f tank other", one.dev().display())).refused();
    assert_eq!(one.health("tank"), "ONLINE");
    one.export("tank");
    two.export("tank");
    zdb::assert_clean(&one.dev(), "tank");
    zdb::assert_clean(&two.dev(), "tank");
}

#[test]
fn openzfs_writes_to_our_pool_and_we_read_it_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    let mount = lab.create("-o ashift=12", "tank", "raidz2 d0 d1 d2 d3 d4");
    fs::write(mount.join("a"), data::mixed(1, 4_000_000, 70_000)).expect("a file can be written");
    let before = Tree::of(&mount);
    lab.export("tank");
    // Imports read-write with OpenZFS's own engine, writes, syncs several txgs, exports.
    if zhack::enable_feature(&lab.dev(), "tank", "com.example:harmless").is_none() {
        return;
    }
    zdb::assert_clean(&lab.dev(), "tank");
    let mount = lab.import("", "tank");
    before.assert_same(&Tree::of(&mount), "after OpenZFS wrote to the pool");
    fs::write(mount.join("b"), data::random(2, 1_000_000)).expect("a file can be written");
    let both = Tree::of(&mount);
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank", &both, 2);
}

/// A file system in a file: made by mkfs, or where that is missing, what ext2 has to be recognised by.
fn make_ext(path: &Path) {
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(path).status();
    if made.is_ok_and(|status| status.success()) {
        return;
    }
    println!("skipped: no mkfs.ext4; a superblock stands for the file system");
    let file = fs::File::options().write(true).open(path).expect("the disk");
    for (at, bytes) in [
        (0, [100, 0, 0, 0]),
        (4, [0, 4, 0, 0]),
        (0x20, [0, 32, 0, 0]),
        (0x38, [0x53, 0xef, 0, 0]),
        (0x60, [0x40, 0, 0, 0]),
    ] {
        file.write_all_at(&bytes, 1024 + at).expect("written");
    }
}

/// One partition of 96 MiB from 1 MiB on; false without sfdisk.
fn partition(disk: &Path) -> bool {
    let Ok(mut child) = Command::new("sfdisk").arg("-q").arg(disk).stdin(Stdio::piped()).spawn() else { return false };
    let table = "label: dos\nstart=2048, size=196608, type=83\n";
    child.stdin.take().expect("a pipe").write_all(table.as_bytes()).expect("the table");
    assert!(child.wait().expect("sfdisk ends").success());
    true
}

/// `zpool create` and `add` destroyed an ext4 that was not mounted, on a disk, in a file, or in a partition.
#[test]
fn what_holds_a_file_system_is_taken_only_by_force() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 96);
    for disk in [1, 3] {
        make_ext(&lab.disk(disk));
    }
    let before = fs::read(lab.disk(1)).expect("it can be read");
    let words = |disk: usize| format!("{} contains a filesystem of type 'ext4'", lab.disk(disk).display());
    let refused = lab.zpool("create tank mirror d0 d1 mirror d2 d3").refused();
    let refused = refused.says("invalid vdev specification\nuse '-f' to override the following errors:\n");
    refused.says(&words(1)).says(&words(3));
    lab.create("", "tank", "mirror d0 d2");
    lab.zpool("add tank mirror d1 d4").refused().says("use '-f' to override").says(&words(1));
    assert!(fs::read(lab.disk(1)).expect("it can be read") == before, "it was written to");
    lab.zpool("add -f tank mirror d1 d4").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // Nothing is left of it: the disks of a pool that was destroyed are free.
    lab.import("", "tank");
    lab.zpool("destroy tank").ok();
    lab.create("", "tank", "mirror d1 d4");
    lab.zpool("destroy tank").ok();

    // In a partition, of a file that is taken as a whole: the partition table alone is no reason.
    lab.add_disk(7, 128);
    if !partition(&lab.disk(7)) {
        return judge::skip("partitions", "there is no sfdisk");
    }
    lab.create("", "tank", "d7");
    lab.zpool("destroy tank").ok();
    assert!(partition(&lab.disk(7)));
    let inside = fs::read(lab.disk(3)).expect("the file system");
    let file = fs::File::options().write(true).open(lab.disk(7)).expect("the disk");
    file.write_all_at(&inside, 1 << 20).expect("written");
    let words = format!("{}p1 contains a filesystem of type 'ext4'", lab.disk(7).display());
    lab.zpool("create tank d7").refused().says(&words);
}
