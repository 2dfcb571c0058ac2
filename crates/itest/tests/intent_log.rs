//! The intent log from a user's side: what was synced before the daemon died is there afterwards, OpenZFS's zdb reads
//! the log, and property `sync` means what it says.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use platter_itest::{Lab, Tree, data, zdb};

const O_DSYNC: i32 = 0o10000;

/// Kills the daemon: what it handed to the kernel stays, all else is gone.
fn kill(lab: &Lab) {
    for pid in lab.daemon_pids() {
        let _ = lab.run("kill", ["-KILL", &pid.to_string()]);
    }
    let start = Instant::now();
    while !lab.daemon_pids().is_empty() && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for mount in lab.mounts() {
        let _ = lab.run("umount", ["-l", mount.to_str().expect("UTF-8")]);
    }
}

/// Brings the pool back.
fn revive(lab: &Lab, mount: &Path) {
    if lab.zpool("list -H tank").code != 0 {
        lab.zpool(&format!("import -f -d {} tank", lab.dev().display())).ok();
    }
    lab.wait_mounted(mount);
}

/// What zdb prints of the pool's logs.
fn log(lab: &Lab) -> Option<String> {
    Some(zdb::zdb(&lab.dev(), &["-iii", "tank"])?.ok().stdout)
}

/// How many records of type `name` the log holds.
fn records(log: &str, name: &str) -> usize {
    log.lines().filter(|line| line.contains(&format!("{name} ")) && line.contains("len")).count()
}

fn write_synced(path: &Path, bytes: &[u8]) {
    let mut file = File::create(path).expect("create");
    file.write_all(bytes).expect("write");
    file.sync_all().expect("sync");
}

/// Times are those of the replay.
fn without_times(mut tree: Tree) -> Tree {
    tree.0.values_mut().for_each(|entry| entry.mtime_ns = 0);
    tree
}

/// One of each change that has a record; the last one is synced, and with it all.
fn change_everything(mount: &Path, round: u32) {
    let dir = mount.join(format!("round{round}"));
    fs::create_dir(&dir).expect("mkdir");
    write_synced(&dir.join("small"), b"a few bytes");
    write_synced(&dir.join("large"), &data::random(u64::from(round), 300_000));
    symlink("small", dir.join("link")).expect("symlink");
    fs::hard_link(dir.join("small"), dir.join("second name")).expect("link");
    fs::write(dir.join("gone"), b"soon").expect("write");
    fs::remove_file(dir.join("gone")).expect("remove");
    fs::create_dir(dir.join("empty")).expect("mkdir");
    fs::remove_dir(dir.join("empty")).expect("rmdir");
    fs::write(dir.join("before"), data::text(5, 20_000)).expect("write");
    fs::rename(dir.join("before"), dir.join("after")).expect("rename");
    let mut file = OpenOptions::new().write(true).open(dir.join("after")).expect("open");
    file.set_len(7_777).expect("truncate");
    file.seek(SeekFrom::Start(100_000)).expect("seek");
    file.write_all(b"behind a hole").expect("write");
    file.set_permissions(fs::Permissions::from_mode(0o600)).expect("chmod");
    file.sync_all().expect("sync");
}

#[test]
fn openzfs_reads_the_log_and_every_kind_of_change_survives_a_kill() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    // The first one makes the log known.
    write_synced(&mount.join("first"), b"x");
    for round in 0.. {
        lab.zpool("sync tank").ok();
        change_everything(&mount, round);
        let before = without_times(Tree::of(&mount));
        kill(&lab);
        zdb::assert_clean(&lab.dev(), "tank");
        let log = log(&lab);
        revive(&lab, &mount);
        without_times(Tree::of(&mount)).assert_same(&before, "after the kill");
        let Some(log) = log else { break };
        let kinds = ["MKDIR", "CREATE", "WRITE", "SYMLINK", "LINK", "REMOVE", "RMDIR", "RENAME", "SETATTR"];
        let missing: Vec<_> = kinds.iter().filter(|kind| records(&log, &format!("TX_{kind}")) == 0).collect();
        if missing.is_empty() {
            assert!(records(&log, "TX_WRITE") >= 4, "a large write is split\n{log}");
            break;
        }
        // A group came between: then its part is not in the log.
        assert!(round < 10, "never in the log: {missing:?}\n{log}");
    }
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(log) = log(&lab) {
        assert_eq!(records(&log, "TX_"), 0, "an exported pool has no log\n{log}");
    }
}

#[test]
fn a_read_only_import_replays_nothing_and_a_later_one_does() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    let mount = lab.create("", "tank", "mirror d0 d1");
    write_synced(&mount.join("first"), b"x");
    lab.zpool("sync tank").ok();
    let mut in_log = false;
    for round in 0..10 {
        let name = format!("late{round}");
        write_synced(&mount.join(&name), b"in the log");
        kill(&lab);
        in_log = log(&lab).is_some_and(|log| records(&log, "TX_CREATE") > 0);
        let import = format!("import -f -N -o readonly=on -d {} tank", lab.dev().display());
        if lab.zpool("list -H tank").code == 0 {
            // The daemon that was started by the question has the pool already.
            lab.wait_mounted(&mount);
        } else {
            lab.zpool(&import).ok();
            lab.zpool("export tank").ok();
            lab.zpool(&format!("import -f -d {} tank", lab.dev().display())).ok();
            lab.wait_mounted(&mount);
        }
        assert_eq!(fs::read(mount.join(&name)).expect("it was synced"), b"in the log");
        if in_log {
            break;
        }
    }
    assert!(in_log || zdb::zdb(&lab.dev(), &["-V"]).is_none(), "the log was never used");
}

#[test]
fn property_sync_decides_what_survives() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    let mount = lab.create("", "tank", "d0");
    let always = lab.create_fs("-o sync=always", "tank/always");
    let disabled = lab.create_fs("-o sync=disabled", "tank/disabled");
    for dir in [&mount, &always, &disabled] {
        write_synced(&dir.join("first"), b"x");
    }
    lab.zpool("sync tank").ok();
    // Nobody asks for stability here, but O_DSYNC does.
    fs::create_dir(always.join("dir")).expect("mkdir");
    fs::write(always.join("dir/file"), b"stable at once").expect("write");
    fs::rename(always.join("dir/file"), always.join("dir/renamed")).expect("rename");
    let mut options = OpenOptions::new();
    let file = options.create(true).write(true).custom_flags(O_DSYNC).open(mount.join("dsync")).expect("open");
    file.write_all_at(b"stable too", 0).expect("write");
    let start = Instant::now();
    for round in 0..200 {
        write_synced(&disabled.join(format!("file{round}")), b"whenever");
    }
    let quick = start.elapsed();
    kill(&lab);
    if let Some(log) = log(&lab) {
        let (_, about_disabled) = log.split_once("Dataset tank/disabled").unwrap_or_default();
        let own = about_disabled.split("Dataset ").next().unwrap_or_default();
        assert_eq!(records(own, "TX_"), 0, "sync=disabled logs nothing\n{own}");
    }
    revive(&lab, &mount);
    lab.wait_mounted(&always);
    assert_eq!(fs::read(always.join("dir/renamed")).expect("sync=always"), b"stable at once");
    assert_eq!(fs::read(mount.join("dsync")).expect("O_DSYNC"), b"stable too");
    assert!(quick < Duration::from_secs(60), "200 files in {quick:?} with sync=disabled");
    lab.zfs("get -H -o value sync tank/always").ok().says("always");
    lab.zfs("set sync=standard tank/always").ok();
    lab.zfs("set sync=nonsense tank").refused().says("must be one of");
    // It has no effect yet, so it is refused.
    lab.zfs("set logbias=throughput tank").refused().says("logbias");
}

/// One writer's files: names with the hash of what was last acknowledged, and of what was being written then.
#[derive(Default)]
struct Promise {
    /// Name, with every content that it may have.
    files: BTreeMap<String, Vec<Option<String>>>,
}

/// Creates, overwrites, appends and replaces files, syncing each time, until the daemon is gone.
fn load(dir: &Path, seed: u64, stop: &AtomicBool) -> Promise {
    let mut promise = Promise::default();
    let mut rng = data::Rng::new(seed);
    while !stop.load(Ordering::Relaxed) {
        let name = format!("w{seed}-{}", rng.below(40));
        let path = dir.join(&name);
        let length = if rng.below(8) == 0 { rng.below(400_000) } else { rng.below(9_000) } as usize;
        let bytes = data::mixed(rng.next_u64(), length, 3000);
        let hash = data::sha256(&bytes);
        let known = promise.files.entry(name.clone()).or_insert_with(|| vec![None]);
        // Until it is acknowledged, both states are right; in place, so is anything between: not compared.
        let replace = rng.below(3) > 0;
        let before = known.clone();
        known.push(Some(hash.clone()));
        let done = if replace {
            let other = dir.join(format!("{name}.new"));
            File::create(&other)
                .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_all()))
                .and_then(|()| fs::rename(&other, &path))
                .and_then(|()| File::open(dir)?.sync_all())
        } else {
            if before != [None] {
                known.push(Some("anything".into()));
            }
            known.push(Some("anything".into()));
            File::create(&path).and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_data()))
        };
        if done.is_err() {
            break;
        }
        promise.files.insert(name, vec![Some(hash)]);
    }
    promise
}

fn check(dir: &Path, promise: &Promise, round: u32) {
    for (name, allowed) in &promise.files {
        let found = fs::read(dir.join(name)).ok().map(|bytes| data::sha256(&bytes));
        let anything = allowed.contains(&Some("anything".into()));
        assert!(anything || allowed.contains(&found), "round {round}: {name} is {found:?}, may be {allowed:?}");
    }
}

/// Kills the daemon at `rounds` moments while four writers sync all the time.
fn kill_under_load(lab: &Lab, rounds: u32) {
    lab.disks(3, 512);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mut rng = data::Rng::new(0x5eed);
    for round in 0..rounds {
        let stop = AtomicBool::new(false);
        let promises: Vec<Promise> = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let (mount, stop) = (&mount, &stop);
                    scope.spawn(move || load(mount, u64::from(round) * 4 + writer, stop))
                })
                .collect();
            std::thread::sleep(Duration::from_millis(100 + rng.below(1500)));
            kill(lab);
            stop.store(true, Ordering::Relaxed);
            writers.into_iter().map(|writer| writer.join().expect("the writer ends")).collect()
        });
        // As it was left, log and all.
        zdb::assert_clean(&lab.dev(), "tank");
        revive(lab, &mount);
        promises.iter().for_each(|promise| check(&mount, promise, round));
        if round % 3 == 2 {
            for entry in fs::read_dir(&mount).expect("list") {
                fs::remove_file(entry.expect("an entry").path()).expect("remove");
            }
        }
    }
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn what_was_synced_survives_kills_at_any_moment() {
    let Some(lab) = Lab::open() else { return };
    kill_under_load(&lab, 5);
}

#[test]
#[ignore = "takes half an hour: make test-big"]
fn what_was_synced_survives_200_kills() {
    let Some(lab) = Lab::open_big(Duration::from_secs(3 * 3600)) else { return };
    kill_under_load(&lab, 200);
}
