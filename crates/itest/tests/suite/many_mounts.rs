//! Many file systems at once: what each costs the daemon, and what happens when that is more than it may have.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use platter_itest::{Group, Lab, data, zdb};

/// The daemon's threads, open files and bytes of memory.
fn costs(lab: &Lab) -> (usize, usize, u64) {
    let pids = lab.daemon_pids();
    let [pid] = pids[..] else { panic!("one daemon, not {pids:?}") };
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).expect("its own").count();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its own");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a size");
    let kib: u64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    (count("task"), count("fd"), kib << 10)
}

/// Five threads, four descriptors and 6 MiB for each mounted file system, on two processors: with 10 000 of them that
/// was more than any machine has.
#[test]
fn a_mount_costs_a_descriptor_and_little_memory_and_no_thread() {
    // The first ones pay for what all share: caches, heaps of threads, rings.
    const FIRST: usize = 20;
    const COUNT: usize = 80;
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    let mount = lab.create("", "tank", "d0");
    let make = |number: usize| {
        let place = lab.create_fs("", &format!("tank/d{number}"));
        fs::write(place.join("file"), data::random(number as u64, 5000)).expect("written");
    };
    (0..FIRST).for_each(make);
    let (threads, files, memory) = costs(&lab);
    (FIRST..FIRST + COUNT).for_each(make);
    let (threads_now, files_now, memory_now) = costs(&lab);
    // The runtime starts and ends some for what blocks.
    assert!(threads_now < threads + COUNT / 2, "{threads} threads with few mounts, {threads_now} with many");
    assert!(files_now <= files + COUNT + 8, "{files} files with few mounts, {files_now} with many");
    let each = memory_now.saturating_sub(memory) / COUNT as u64;
    assert!(each < 512 << 10, "{each} bytes of memory for each mount");
    for number in 0..FIRST + COUNT {
        let found = fs::read(mount.join(format!("d{number}/file"))).expect("readable");
        assert!(found == data::random(number as u64, 5000), "d{number} has other data");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A process sits in a child: `zfs set setuid=off` of the parent had to unmount and mount all of them, one after the
/// other, each with a look at all others (8 minutes for 875), and gave up at the one in use.
#[test]
fn flags_of_a_parent_reach_all_mounts_though_they_are_in_use() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let places: Vec<_> = (0..8).map(|number| lab.create_fs("", &format!("tank/d{number}"))).collect();
    let program = places[3].join("program");
    fs::write(&program, "#!/bin/sh\nexit 7\n").expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("allowed");
    let held = File::create(places[3].join("held")).expect("made");
    let run = || Command::new(&program).status();
    assert_eq!(run().expect("it may run").code(), Some(7));
    lab.zfs("set exec=off tank").ok();
    assert!(run().is_err(), "exec=off does not reach a file system in use");
    lab.zfs("set setuid=off devices=off tank").ok();
    let table = fs::read_to_string("/proc/self/mounts").expect("readable");
    for place in &places {
        let line = table.lines().find(|line| line.contains(&format!(" {} ", place.display()))).expect("mounted");
        assert!(["nosuid", "nodev", "noexec"].iter().all(|word| line.contains(word)), "{line}");
    }
    lab.zfs("inherit exec tank").ok();
    assert_eq!(run().expect("it may run again").code(), Some(7));
    drop(held);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// At 257 mounts with 1024 descriptors nothing worked any more: `mounts.json` was not written, stopping said nothing.
#[test]
fn mounts_are_refused_while_there_are_descriptors_for_the_rest() {
    const LIMIT: usize = 110;
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    // The soft limit is raised by the daemon itself.
    let limited = format!("ulimit -Sn 60 && ulimit -Hn {LIMIT} && exec \"$@\"");
    lab.zpool_through(&limited, &format!("create -m {} tank d0", lab.mnt("tank").display())).ok();
    let refused = (0..LIMIT).find_map(|number| {
        let run = lab.zfs(&format!("create tank/d{number}"));
        (!run.stderr.is_empty()).then_some((number, run))
    });
    let (mounted, run) = refused.expect("more mounts than descriptors");
    assert!(mounted >= 10, "refused too early: at {mounted}");
    assert!(run.stderr.contains(&format!("the daemon may have {LIMIT} files open")), "{}", run.stderr);
    assert!(run.stderr.contains("LimitNOFILE="), "{}", run.stderr);
    // All else goes on.
    lab.add_disk(1, 256);
    lab.zpool("create -m none other d1").ok();
    lab.zfs("list").ok();
    let noted = fs::read_to_string(lab.home().join("mounts.json")).expect("it is written");
    assert!(noted.contains(&format!("tank/d{}\"", mounted - 1)), "{noted}");
    // More than the other pool has taken.
    for number in 0..6 {
        lab.zfs(&format!("destroy tank/d{number}")).ok();
    }
    lab.zfs(&format!("mount tank/d{mounted}")).ok();
    lab.platter(["daemon", "stop"]).ok();
    assert!(lab.mounts().is_empty(), "{:?}", lab.mounts());
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Four pools of a daemon that may have `bytes` are written and read all at once.
fn four_pools_within(bytes: u64) {
    const POOLS: usize = 4;
    let Some(lab) = Lab::open() else { return };
    let Some(group) = Group::new("platter-test", bytes) else { return };
    lab.disks(POOLS, 512);
    lab.zpool_through(&group.enter(), &format!("create -m {} p0 d0", lab.mnt("p0").display())).ok();
    for pool in 1..POOLS {
        lab.create("", &format!("p{pool}"), &format!("d{pool}"));
    }
    let places: Vec<_> = (0..POOLS).map(|pool| lab.mnt(&format!("p{pool}"))).collect();
    std::thread::scope(|scope| {
        for (seed, place) in places.iter().enumerate() {
            for part in 0..3u64 {
                scope.spawn(move || {
                    let contents = data::random(seed as u64 * 10 + part, 24 << 20);
                    let mut file = File::create(place.join(format!("large{part}"))).expect("made");
                    for piece in contents.chunks(1 << 20) {
                        file.write_all(piece).expect("written");
                    }
                    file.sync_all().expect("stable");
                    for number in 0..100 {
                        fs::write(place.join(format!("small{part}-{number}")), &contents[..3000]).expect("written");
                    }
                });
            }
        }
    });
    for pool in 0..POOLS {
        lab.export(&format!("p{pool}"));
        lab.import("", &format!("p{pool}"));
    }
    std::thread::scope(|scope| {
        for (seed, place) in places.iter().enumerate() {
            scope.spawn(move || {
                for part in 0..3u64 {
                    let found = fs::read(place.join(format!("large{part}"))).expect("readable");
                    assert!(found == data::random(seed as u64 * 10 + part, 24 << 20), "p{seed} has other data");
                }
            });
        }
    });
    assert_eq!(group.killed(), 0, "killed for want of memory");
    for pool in 0..POOLS {
        lab.export(&format!("p{pool}"));
        zdb::assert_clean(&lab.dev(), &format!("p{pool}"));
    }
    lab.platter(["daemon", "stop"]).ok();
}

/// The block cache took a quarter of the memory for each pool, and what waited for disk as much as on a large machine:
/// the daemon was killed within a second of load.
#[test]
fn four_pools_live_within_a_gibibyte() {
    four_pools_within(1 << 30);
}

#[test]
fn four_pools_live_within_200_megabytes() {
    four_pools_within(200_000_000);
}

#[test]
fn less_memory_than_it_needs_is_said() {
    let Some(lab) = Lab::open() else { return };
    let Some(group) = Group::new("platter-small", 48 << 20) else { return };
    lab.disks(1, 128);
    let run = lab.zpool_through(&group.enter(), "create tank d0").refused();
    assert!(run.stderr.contains("the daemon needs 128 MiB of memory; it may have 48 MiB"), "{}", run.stderr);
}
