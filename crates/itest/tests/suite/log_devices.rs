//! Separate intent log devices: added, used, removed, and gone. Each on-disk change is judged by zdb.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::{Lab, Tree, zdb};

/// Appends and makes stable: each piece goes through the log.
fn append(mount: &Path, name: &str, pieces: usize) {
    let mut file = OpenOptions::new().create(true).append(true).open(mount.join(name)).expect("a file");
    for piece in 0..pieces {
        file.write_all(format!("{piece:08}").repeat(512).as_bytes()).expect("written");
        file.sync_all().expect("stable");
    }
}

/// What `zpool iostat -v -p` counts as written operations on a device.
fn writes(lab: &Lab, pool: &str, device: &str) -> u64 {
    let all = lab.zpool(&format!("iostat -v -H -p {pool}")).ok().stdout;
    let line = all.lines().find(|line| line.split_whitespace().next().is_some_and(|name| name.ends_with(device)));
    let line = line.unwrap_or_else(|| panic!("no {device} in {all}"));
    line.split_whitespace().nth(4).and_then(|cell| cell.parse().ok()).expect("a number")
}

fn size(lab: &Lab, pool: &str) -> String {
    lab.zpool(&format!("list -H -p -o size,allocated {pool}")).ok().stdout
}

#[test]
fn a_mirrored_log_takes_what_is_made_stable_and_leaves_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    let preview = lab.zpool("create -n tank mirror d0 d1 log mirror d2 d3").ok();
    preview.says("\tlogs\n\t  mirror\n\t    ");
    let mount = lab.create("", "tank", "mirror d0 d1 log mirror d2 d3");
    let status = lab.zpool("status tank").ok().says("\tlogs\t\n\t  mirror-1  ");
    assert!(status.stdout.find("mirror-0") < status.stdout.find("logs"), "{status}");
    let whole = size(&lab, "tank").split_whitespace().next().map(str::to_owned).expect("a size");
    assert!(whole.parse::<u64>().expect("a number") < 128 << 20, "a log is no space: {whole}");
    lab.zpool("list -v tank").ok().says("\nlogs  ").says("mirror-1");
    lab.zpool("iostat -v tank").ok().says("\nlogs  ").says("mirror-1");
    lab.zpool("status -j tank").ok().says("\"logs\"").says("\"class\":\"log\"");
    append(&mount, "stable", 40);
    assert!(writes(&lab, "tank", "/d2") > 10, "what is made stable is written to the log");
    let tree = Tree::filled(&mount, 1);
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("status tank").ok().says("\tlogs\t\n\t  mirror-1  ");
    // A crash with records in the log.
    append(&mount, "late", 20);
    let late = fs::read(mount.join("late")).expect("it is there");
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.wait_mounted(&mount);
    assert!(fs::read(mount.join("late")).expect("it is there") == late, "what was stable in the log is lost");
    lab.zpool("remove tank d2").refused().says("zpool detach");
    lab.zpool("remove tank mirror-0").refused().says("logs only");
    append(&mount, "before", 5);
    lab.zpool("remove tank mirror-1").ok();
    lab.zpool("status tank").ok().says_not("logs").says_not("mirror-1");
    lab.zpool("history -i tank").ok().says("vdev 1 (log)");
    append(&mount, "after", 5);
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    // Its devices are free for others, and the number that it had stays one.
    lab.zpool("create other mirror d2 d3").ok();
    lab.export("other");
    lab.zpool("add tank log d4").ok();
    append(&mount, "again", 20);
    assert!(writes(&lab, "tank", "/d4") > 5, "it is used");
    lab.zpool("attach -f -w tank d4 d2").ok();
    append(&mount, "again", 5);
    let status = lab.zpool("status tank").ok();
    let logs = status.stdout.split("logs").nth(1).expect("it is one still");
    assert!(logs.contains("mirror-2") && logs.contains("/d2") && logs.contains("/d4"), "{status}");
    lab.zpool("detach tank d2").ok();
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    lab.zpool("remove tank d4").ok();
    lab.judge_and_return("tank", &mount, &tree);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Programs write and make stable all the time; the log is removed and added in between, again and again.
#[test]
fn a_log_comes_and_goes_under_load() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "d0 d1");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let (mount, over) = (&mount, &over);
            scope.spawn(move || {
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    append(mount, &format!("writer-{writer}-{}", round % 4), 8);
                    round += 1;
                }
            });
        }
        for _ in 0..4 {
            lab.zpool("add tank log d2").ok();
            std::thread::sleep(std::time::Duration::from_millis(300));
            lab.zpool("remove tank d2").ok();
        }
        over.store(true, Ordering::Relaxed);
    });
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    lab.scrub("tank").says("scrub repaired 0B").says("with 0 errors");
}

#[test]
fn bad_words_for_logs_are_refused_and_nothing_changes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 64);
    for (words, says) in [
        ("log d0", "at least one toplevel vdev must be specified"),
        ("d0 log", "log requires at least 1 device"),
        ("d0 log raidz d1 d2 d3", "unsupported 'log' device: raidz"),
        ("d0 log d1 log d2", "'log' can be specified only once"),
        ("d0 log d0", "more than once"),
    ] {
        lab.zpool(&format!("create tank {words}")).refused().says(says);
    }
    lab.create("", "tank", "d0");
    lab.zpool("remove tank d0").refused().says("logs only");
    lab.zpool("remove tank d3").refused().says("no such device in pool");
    lab.zpool("add -n tank log d1").ok().says("\tlogs\n\t  ");
    lab.zpool("status tank").ok().says_not("logs");
    assert!(!fs::read(lab.disk(1)).expect("read").iter().any(|&byte| byte != 0), "a dry run writes nothing");
    lab.export("tank");
}

/// The machine stops with records in the log, and the log's device does not come back.
#[test]
fn a_pool_whose_log_is_gone_is_imported_without_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 128);
    let mount = lab.create("", "tank", "mirror d0 d1 log d2");
    let tree = Tree::filled(&mount, 1);
    lab.zpool("sync tank").ok();
    append(&mount, "late", 60);
    lab.kill_daemon(true);
    let away = lab.tmp().join("d2");
    fs::rename(lab.dev().join("d2"), &away).expect("moved");
    let import = |options: &str| lab.zpool(&format!("import {options} -d {} tank", lab.dev().display()));
    let listed = lab.zpool(&format!("import -d {}", lab.dev().display())).ok();
    listed.says("DEGRADED").says("using the '-m' flag").says("\tlogs\t\n").says("was ").says("d2");
    for _ in 0..2 {
        import("").refused().says("one or more devices is currently unavailable").says("use '-m'").says("[log]");
    }
    // With its device there is nothing to give up.
    fs::rename(&away, lab.dev().join("d2")).expect("moved");
    import("-m").ok();
    lab.wait_mounted(&mount);
    assert_eq!(fs::metadata(mount.join("late")).expect("it is there").len(), 60 * 4096);
    append(&mount, "later", 60);
    lab.kill_daemon(true);
    fs::rename(lab.dev().join("d2"), &away).expect("moved");
    import("-m").ok();
    lab.wait_mounted(&mount);
    let status = lab.zpool("status tank").ok().says("DEGRADED").says("\tlogs\t\n").says("UNAVAIL");
    assert_eq!(fs::metadata(mount.join("late")).expect("it is there").len(), 60 * 4096);
    let later = fs::metadata(mount.join("later")).map_or(0, |metadata| metadata.len());
    assert!(later <= 60 * 4096 && later.is_multiple_of(4096), "whole appends, as far as a group has them: {later}");
    append(&mount, "without", 10);
    let gone = status.stdout.lines().find(|line| line.contains("UNAVAIL")).expect("its line");
    let gone = gone.split_whitespace().next().expect("a name").to_owned();
    lab.zpool(&format!("remove tank {gone}")).ok();
    lab.zpool("status tank").ok().says("ONLINE").says_not("logs").says_not("UNAVAIL");
    let now = Tree::of(&mount);
    for (name, was) in tree.files() {
        let found = now.files().find(|(other, _)| *other == name).map(|(_, entry)| entry);
        assert!(found == Some(was), "{name} is another file");
    }
    let tree = Tree::of(&mount);
    lab.judge_and_return("tank", &mount, &tree);
    lab.scrub("tank").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // The labels of a device that comes back do not know that it is a log no more.
    fs::rename(&away, lab.dev().join("d2")).expect("moved");
    let listed = lab.zpool(&format!("import -d {}", lab.dev().display())).ok();
    listed.says("The pool can be imported").says_not("logs").says_not("d2");
    lab.import("", "tank");
    lab.zpool("status tank").ok().says("ONLINE").says_not("logs");
    lab.export("tank");
}

/// What waits to be replayed keeps the log in the pool.
#[test]
fn a_log_that_somebody_needs_stays() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    lab.create("-o cachefile=none", "tank", "d0 log d1");
    let place = lab.create_fs("", "tank/fs");
    lab.zpool("sync tank").ok();
    append(&place, "late", 20);
    lab.kill_daemon(true);
    lab.zpool(&format!("import -N -d {} tank", lab.dev().display())).ok();
    lab.zpool("remove tank d1").refused().says("device is busy");
    lab.zpool("offline tank d1").refused().says("device is busy");
    lab.zpool("status tank").ok().says("logs");
    lab.zfs("mount -a").ok();
    lab.wait_mounted(&place);
    lab.zpool("remove tank d1").ok();
    assert_eq!(fs::metadata(place.join("late")).expect("it is there").len(), 20 * 4096);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Nothing is in it then that a crash would need, and the pool can be had without its device.
#[test]
fn a_log_goes_offline_and_is_used_again_when_it_is_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("-o cachefile=none", "tank", "d0 log d1");
    let import = || lab.zpool(&format!("import -d {} tank", lab.dev().display())).ok();
    append(&mount, "stable", 20);
    lab.zpool("offline tank d1").ok();
    lab.zpool("offline tank d1").ok();
    lab.zpool("offline tank d0").refused().says("no valid replicas");
    lab.zpool("status tank").ok().says("DEGRADED").says("OFFLINE");
    append(&mount, "without", 20);
    lab.kill_daemon(true);
    let away = lab.tmp().join("d1");
    fs::rename(lab.dev().join("d1"), &away).expect("moved");
    import();
    lab.wait_mounted(&mount);
    lab.zpool("status tank").ok().says("DEGRADED").says("OFFLINE");
    for name in ["stable", "without"] {
        assert_eq!(fs::metadata(mount.join(name)).expect("it is there").len(), 20 * 4096, "{name}");
    }
    append(&mount, "without", 20);
    fs::rename(&away, lab.dev().join("d1")).expect("moved");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // Its own label knows nothing of it.
    import();
    lab.wait_mounted(&mount);
    lab.zpool("status tank").ok().says("DEGRADED").says("OFFLINE");
    append(&mount, "without", 10);
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.wait_mounted(&mount);
    lab.zpool("status tank").ok().says("DEGRADED").says("OFFLINE");
    assert_eq!(fs::metadata(mount.join("without")).expect("it is there").len(), 50 * 4096);
    let tree = Tree::of(&mount);
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.zpool("status tank").ok().says(" state: ONLINE").says_not("OFFLINE").says_not("DEGRADED");
    let before = writes(&lab, "tank", "/d1");
    append(&mount, "back", 40);
    assert!(writes(&lab, "tank", "/d1") > before + 10, "it is used again");
    // For now: the next import brings it back.
    lab.zpool("offline -t tank d1").ok();
    append(&mount, "back", 5);
    lab.zpool("sync tank").ok();
    lab.export("tank");
    import();
    lab.wait_mounted(&mount);
    lab.zpool("status tank").ok().says_not("OFFLINE");
    append(&mount, "back", 5);
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.wait_mounted(&mount);
    assert_eq!(fs::metadata(mount.join("back")).expect("it is there").len(), 50 * 4096);
    for (name, was) in tree.files() {
        let now = Tree::of(&mount);
        let found = now.files().find(|(other, _)| *other == name).map(|(_, entry)| entry);
        assert!(found == Some(was), "{name} is another file");
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A side of a mirrored log that was away, offline or not, has nothing of what was made stable since; without the other
/// one that must not be taken for an empty log.
#[test]
fn a_side_of_a_log_that_was_away_is_no_log() {
    for is_offline in [true, false] {
        let Some(lab) = Lab::open() else { return };
        lab.disks(3, 128);
        let mount = lab.create("-o cachefile=none", "tank", "d0 log mirror d1 d2");
        let import = |options: &str| lab.zpool(&format!("import {options} -d {} tank", lab.dev().display()));
        let away = |name: &str| lab.tmp().join(name);
        let take = |name: &str| fs::rename(lab.dev().join(name), away(name)).expect("moved");
        let put_back = |name: &str| fs::rename(away(name), lab.dev().join(name)).expect("moved");
        if is_offline {
            lab.zpool("offline tank d1").ok();
        } else {
            lab.export("tank");
            take("d1");
            lab.zpool(&format!("import -o cachefile=none -d {} tank", lab.dev().display())).ok();
            lab.wait_mounted(&mount);
        }
        lab.zpool("sync tank").ok();
        append(&mount, "late", 20);
        lab.kill_daemon(true);
        take("d2");
        if !is_offline {
            put_back("d1");
        }
        import("").refused().says("use '-m'").says("[log]");
        put_back("d2");
        import("").ok();
        lab.wait_mounted(&mount);
        assert_eq!(fs::metadata(mount.join("late")).expect("it is there").len(), 20 * 4096);
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
    }
}

/// The machine stops moments after a side of a log has gone, and that side alone is there again.
#[test]
fn a_side_of_a_log_that_went_just_now_is_no_log() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("-o cachefile=none", "tank", "d0 log mirror d1 d2");
    let away = |name: &str| lab.tmp().join(name);
    append(&mount, "early", 5);
    lab.zpool("sync tank").ok();
    fs::copy(lab.dev().join("d1"), away("d1")).expect("copied");
    fs::remove_file(lab.dev().join("d1")).expect("removed");
    let start = Instant::now();
    while !lab.zpool("status tank").ok().stdout.contains("REMOVED") {
        assert!(start.elapsed() < Duration::from_secs(60), "nobody notices that d1 has gone");
    }
    // A group is written for it, as soon as that can be.
    std::thread::sleep(Duration::from_millis(500));
    append(&mount, "late", 20);
    lab.kill_daemon(true);
    fs::rename(lab.dev().join("d2"), away("d2")).expect("moved");
    fs::rename(away("d1"), lab.dev().join("d1")).expect("moved");
    let import = || lab.zpool(&format!("import -d {} tank", lab.dev().display()));
    import().refused().says("use '-m'").says("[log]");
    fs::rename(away("d2"), lab.dev().join("d2")).expect("moved");
    import().ok();
    lab.wait_mounted(&mount);
    assert_eq!(fs::metadata(mount.join("late")).expect("it is there").len(), 20 * 4096);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Labels do not know which device is offline; who lists pools is told.
#[test]
fn a_device_that_is_offline_is_listed_so() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    lab.create("", "tank", "mirror d0 d1 log d2");
    lab.zpool("offline tank d1").ok();
    lab.zpool("offline tank d2").ok();
    lab.export("tank");
    let listed = lab.zpool(&format!("import -d {}", lab.dev().display())).ok();
    let listed = listed.says("DEGRADED").says("are offlined").says("despite missing").says_not("'-m'");
    for name in ["d1", "d2"] {
        let line = listed.stdout.lines().find(|line| line.contains(name)).expect("its line");
        assert!(line.contains("OFFLINE"), "{line}");
    }
    // With the other one missing it cannot be imported, and nothing is damaged.
    fs::rename(lab.dev().join("d0"), lab.tmp().join("d0")).expect("moved");
    let list = || lab.zpool(&format!("import -d {}", lab.dev().display())).ok();
    list().says("UNAVAIL").says("Attach the missing").says_not("corrupted");
    let refused = lab.zpool(&format!("import -d {} tank", lab.dev().display())).refused();
    refused.says("currently unavailable").says("missing device").says("d0");
    fs::rename(lab.tmp().join("d0"), lab.dev().join("d0")).expect("moved");
    list().says("DEGRADED");
    lab.import("", "tank");
    lab.zpool("status tank").ok().says("OFFLINE");
    lab.export("tank");
}

/// `logbias=throughput` leaves the log to others: at once, after an import, and what is made stable is so all the same.
#[test]
fn the_log_is_left_alone_where_throughput_is_wanted() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "d0 log d1");
    lab.zfs("get -H -o value,source logbias tank").ok().says("latency").says("default");
    let bulk = lab.create_fs("-o logbias=throughput", "tank/bulk");
    // What is in the log's device but for its labels.
    let contents = || {
        let all = fs::read(lab.dev().join("d1")).expect("a device");
        let log = &all[4 << 20..all.len() - (1 << 20)];
        log.iter().fold(0_u64, |hash, byte| hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(*byte))
    };
    let is_used = |work: &dyn Fn()| {
        lab.zpool("sync tank").ok();
        let before = contents();
        work();
        contents() != before
    };
    assert!(!is_used(&|| append(&bulk, "bulk", 60)));
    assert!(is_used(&|| append(&mount, "quick", 60)));
    // The block that is next in a chain stays where it is.
    lab.zfs("set logbias=throughput tank").ok();
    append(&mount, "quick", 5);
    assert!(!is_used(&|| append(&mount, "quick", 60)));
    append(&bulk, "late", 20);
    append(&mount, "late", 20);
    lab.kill_daemon(true);
    lab.revive("tank");
    lab.wait_mounted(&bulk);
    for at in [&mount, &bulk] {
        assert_eq!(fs::metadata(at.join("late")).expect("it is there").len(), 20 * 4096);
    }
    assert!(!is_used(&|| append(&mount, "quick", 60)));
    lab.zfs("inherit logbias tank").ok();
    lab.zfs("set logbias=latency tank/bulk").ok();
    assert!(is_used(&|| append(&bulk, "bulk", 60)));
    lab.zfs("set logbias=fast tank").refused().says("must be one of");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The file of a log is deleted, which whoever has it open can use on: nobody will find it again.
#[test]
fn nothing_is_made_stable_in_a_file_that_was_deleted_only() {
    for log in ["d1", "mirror d1 d2"] {
        let Some(lab) = Lab::open() else { return };
        lab.disks(3, 128);
        let mount = lab.create("-o cachefile=none", "tank", &format!("d0 log {log}"));
        append(&mount, "early", 10);
        if log != "d1" {
            lab.zpool("offline tank d2").ok();
        }
        fs::remove_file(lab.dev().join("d1")).expect("removed");
        let start = Instant::now();
        while !lab.zpool("status tank").ok().stdout.contains("the file was deleted") {
            assert!(start.elapsed() < Duration::from_secs(60), "nobody notices that d1 has gone");
        }
        std::thread::sleep(Duration::from_millis(500));
        append(&mount, "late", 20);
        lab.kill_daemon(true);
        lab.zpool(&format!("import -m -d {} tank", lab.dev().display())).ok();
        lab.wait_mounted(&mount);
        for (name, pieces) in [("early", 10), ("late", 20)] {
            assert_eq!(fs::metadata(mount.join(name)).expect("it is there").len(), pieces * 4096, "{name}");
        }
        lab.export("tank");
    }
}
