//! The big ones, run by `make test-big`: a real tree of 50 000 files and 4 GiB of incompressible data.
//!
//! `PLATTER_BIG_TREE` names a tree to copy; without it one of 50 000 files is made. `PLATTER_BIG_GIB` is the amount of
//! random data (default 4).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use platter_itest::{Lab, data, judge, rsync, zdb};

const LIMIT: Duration = Duration::from_secs(3600);

/// A source-like tree: 50 000 files of 0 to 60 KiB in 2 500 folders, with links and modes.
fn make_tree(root: &Path) {
    for number in 0..50_000u64 {
        let dir = root.join(format!("module{}/part{}/unit{}", number % 50, number / 50 % 10, number / 500 % 5));
        if number < 2_500 {
            fs::create_dir_all(&dir).expect("a folder");
        }
        let mut rng = data::Rng::new(number);
        let len = match rng.below(10) {
            0 => 0,
            1..=6 => rng.below(4_000),
            7..=8 => rng.below(20_000),
            _ => rng.below(60_000),
        };
        let path = dir.join(format!("file_{number:05}.txt"));
        fs::write(&path, data::text(number, len as usize)).expect("a file");
        if number % 1_000 == 7 {
            std::os::unix::fs::symlink(&path, dir.join(format!("link_{number}"))).expect("a symlink");
            fs::hard_link(&path, dir.join(format!("hard_{number}"))).expect("a hard link");
        }
    }
}

#[test]
#[ignore = "takes minutes: make test-big"]
fn a_tree_of_50_000_files_survives_copy_export_and_import() {
    if judge::need("rsync").is_none() {
        return;
    }
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(7, 2048);
    let source = match std::env::var_os("PLATTER_BIG_TREE") {
        Some(tree) => PathBuf::from(tree),
        None => {
            let source = lab.tmp().join("tree");
            fs::create_dir(&source).expect("a folder");
            make_tree(&source);
            source
        }
    };
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2 d3 d4 d5 d6");
    let mount = lab.create_fs("-o compression=lz4", "tank/tree");
    let copy = mount.join("copy");
    let start = Instant::now();
    lab.run("cp", ["-a", source.to_str().expect("UTF-8"), copy.to_str().expect("UTF-8")]).ok();
    println!("cp -a: {:.1} s", start.elapsed().as_secs_f64());
    rsync::assert_no_difference(&lab, &source, &copy);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    let start = Instant::now();
    rsync::assert_no_difference(&lab, &source, &copy);
    println!("rsync --checksum after import: {:.1} s", start.elapsed().as_secs_f64());
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    fs::remove_dir_all(&copy).expect("the copy can be removed");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
#[ignore = "moves gigabytes: make test-big"]
fn gigabytes_of_random_data_survive_export_and_import() {
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    let gib: u64 = std::env::var("PLATTER_BIG_GIB").ok().and_then(|value| value.parse().ok()).unwrap_or(4);
    // Six data disks and some room.
    lab.disks(7, gib * 1024 / 6 + 512);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2 d3 d4 d5 d6");
    let mount = lab.create_fs("-o recordsize=1M -o compression=off", "tank/media");
    let path = mount.join("random");
    let start = Instant::now();
    let mut file = File::create(&path).expect("create");
    for mib in 0..gib * 1024 {
        file.write_all(&data::random(mib, 1 << 20)).expect("write");
    }
    file.sync_all().expect("fsync");
    drop(file);
    println!("wrote {gib} GiB in {:.1} s", start.elapsed().as_secs_f64());
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    let start = Instant::now();
    let mut file = File::open(&path).expect("open");
    let mut back = vec![0; 1 << 20];
    for mib in 0..gib * 1024 {
        file.read_exact(&mut back).expect("read");
        assert!(back == data::random(mib, 1 << 20), "MiB number {mib} differs");
    }
    // An open file keeps its pool busy.
    drop(file);
    println!("read {gib} GiB in {:.1} s", start.elapsed().as_secs_f64());
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
}

/// Resident memory of the daemon, in bytes.
fn resident(lab: &Lab) -> u64 {
    let pid = lab.daemon_pids()[0];
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has memory");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") << 10
}

#[test]
#[ignore = "takes a minute: make test-big"]
fn files_that_the_kernel_merely_knows_cost_little_memory() {
    // 2 KB each of the first 100 000 once, cached dnodes included.
    const FILES: u64 = 100_000;
    let Some(lab) = Lab::open_big(LIMIT) else { return };
    lab.disks(1, 2048);
    let mount = lab.create("-O primarycache=metadata -O atime=off", "tank", "d0");
    for number in 0..FILES {
        let dir = mount.join(format!("dir{}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir(&dir).expect("a folder");
        }
        File::create(dir.join(format!("file{number}"))).expect("a file");
    }
    lab.export("tank");
    lab.platter(["daemon", "stop"]).ok();
    let mount = lab.import("", "tank");
    let before = resident(&lab);
    let mut known = 0;
    for dir in fs::read_dir(&mount).expect("listed") {
        for file in fs::read_dir(dir.expect("an entry").path()).expect("listed") {
            known += file.expect("an entry").metadata().map(|_| 1).expect("metadata");
        }
    }
    assert_eq!(known, FILES);
    let each = resident(&lab).saturating_sub(before) / FILES;
    println!("{each} bytes for each file that the kernel knows");
    assert!(each < 1500, "{each} bytes for each file that the kernel knows");
}
