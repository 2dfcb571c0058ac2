//! Which device is which: labels decide. Whatever lies at a device's path and is not it stays as it is, and a device
//! that has another name now is used where it is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use platter_itest::{Lab, Loop, Run, Tree, binary, damage, data, judge, zdb};

fn fill(mount: &Path, seed: u64) -> Tree {
    for number in 0..6 {
        fs::write(mount.join(format!("{seed}-{number}")), data::mixed(seed + number, 600_000, 50_000)).expect("a file");
    }
    Tree::of(mount)
}

fn exchange(one: &Path, other: &Path) {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside)
        .and_then(|()| fs::rename(other, one))
        .and_then(|()| fs::rename(&aside, other))
        .expect("renamed");
}

/// The state of the device whose path is `path`.
#[track_caller]
fn state_at(lab: &Lab, pool: &str, path: &Path) -> String {
    let list = lab.zpool(&format!("status -P {pool}")).ok();
    let name = path.display().to_string();
    let line = list.stdout.lines().find(|line| line.split_whitespace().next() == Some(&name));
    line.unwrap_or_else(|| panic!("no {name}\n{list}")).split_whitespace().nth(1).expect("a state").to_owned()
}

/// `zpool online`, `clear` and `reopen` took whatever lay at the path of a device that was away: a file system, another
/// pool's disk, a blank file. It got our labels and was overwritten by the resilver.
#[test]
fn what_lies_at_the_path_of_a_device_that_is_away_is_left_alone() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 96);
    let mount = lab.create("", "tank", "mirror d0 d1");
    let other = lab.create("", "other", "d2");
    fill(&other, 90);
    lab.export("other");
    let away = lab.tmp().join("away");
    for (kind, words, note) in [
        ("a pool's disk", "it belongs to pool 'other'", "corrupted data"),
        ("blank", "", "invalid label"),
        ("ext4", "", "invalid label"),
    ] {
        lab.zpool("offline tank d1").ok();
        fill(&mount, 3);
        fs::rename(lab.disk(1), &away).expect("the disk is taken away");
        match kind {
            "a pool's disk" => drop(fs::copy(lab.disk(2), lab.disk(1)).expect("a copy")),
            "blank" => drop(lab.add_disk(1, 96)),
            _ => {
                lab.add_disk(1, 96);
                let made = Command::new("mkfs.ext4").arg("-q").arg(lab.disk(1)).status();
                if !made.is_ok_and(|status| status.success()) {
                    println!("skipped: no mkfs.ext4; random bytes stand for a file system");
                    fs::write(lab.disk(1), data::mixed(5, 96 << 20, 1 << 20)).expect("bytes");
                }
            }
        }
        let before = fs::read(lab.disk(1)).expect("it can be read");
        let untouched = |when: &str| {
            assert!(fs::read(lab.disk(1)).expect("it can be read") == before, "{kind} was written to by {when}");
        };
        let online = lab.zpool("online tank d1");
        online.says("remains in faulted state").says("is not this pool's device").says(words).says("zpool replace");
        lab.zpool("sync tank").ok();
        untouched("online");
        lab.zpool("status tank").ok().says("DEGRADED").says(note).says("is not this pool's device").says("ZFS-8000-4J");
        lab.zpool("clear tank").ok();
        lab.zpool("clear tank d1").ok();
        lab.zpool("reopen tank").ok();
        fill(&mount, 7);
        lab.scrub("tank").says("with 0 errors");
        untouched("clear, reopen and a scrub");
        lab.kill_daemon(true);
        lab.revive("tank");
        untouched("a restart");
        let tree = fill(&mount, 11);
        fs::rename(&away, lab.disk(1)).expect("the disk is back");
        lab.zpool("online tank d1").ok().says_not("faulted");
        lab.zpool("wait -t resilver tank").ok();
        lab.wait_health("tank", "ONLINE");
        lab.judge_and_return("tank", &mount, &tree);
    }
}

/// A disk that is partitioned was taken, and with it the file system in a partition of it.
#[test]
fn a_disk_with_a_file_system_in_a_partition_is_taken_only_by_force() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 200);
    let partitioned = Command::new("sh")
        .args(["-c", "printf 'label: gpt\nsize=64MiB\nsize=96MiB\n' | sfdisk -q \"$0\""])
        .arg(lab.disk(0))
        .status();
    let made =
        Command::new("mkfs.ext4").args(["-q", "-F", "-E", "offset=68157440"]).arg(lab.disk(0)).arg("96M").status();
    if ![partitioned, made].into_iter().all(|run| run.is_ok_and(|status| status.success())) {
        return judge::skip("a partitioned disk", "sfdisk or mkfs.ext4 fails here");
    }
    let Some(disk) = Loop::over(&lab.disk(0)) else { return judge::skip("loop devices", "losetup fails here") };
    let before = fs::read(lab.disk(0)).expect("readable");
    // Where nothing makes nodes for partitions there is only the disk.
    let second = format!("{}p2", disk.0);
    let places = [&disk.0, &second].into_iter().filter(|path| Path::new(path).exists());
    for place in places {
        lab.zpool(&format!("create other {place}")).refused().says("contains a filesystem of type 'ext4'").says("-f");
    }
    assert!(fs::read(lab.disk(0)).expect("readable") == before, "a refused command wrote to the disk");
    lab.zpool(&format!("create -f other {}", disk.0)).ok();
    lab.zpool("destroy other").ok();
}

/// sdb and sdd have changed names: each pool took the other's disk and destroyed it.
#[test]
fn disks_of_two_pools_that_exchanged_names_come_back_to_their_pools() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 96);
    let (one, two) = (lab.create("", "one", "mirror d0 d1"), lab.create("", "two", "mirror d2 d3"));
    fill(&one, 1);
    fill(&two, 50);
    lab.zpool("offline one d1").ok();
    lab.zpool("offline two d3").ok();
    exchange(&lab.disk(1), &lab.disk(3));
    let trees = (fill(&one, 20), fill(&two, 70));
    lab.zpool("online one d1").ok().says_not("faulted");
    lab.zpool("online two d3").ok().says_not("faulted");
    for pool in ["one", "two"] {
        lab.zpool(&format!("wait -t resilver {pool}")).ok();
        lab.wait_health(pool, "ONLINE");
    }
    assert_eq!((&*state_at(&lab, "one", &lab.disk(3)), &*state_at(&lab, "two", &lab.disk(1))), ("ONLINE", "ONLINE"));
    // The list of pools followed: the next daemon finds them there.
    lab.kill_daemon(true);
    lab.revive("one");
    lab.revive("two");
    for (pool, mount, tree) in [("one", &one, &trees.0), ("two", &two, &trees.1)] {
        assert_eq!(lab.health(pool), "ONLINE");
        lab.scrub(pool).says("repaired 0B").says("with 0 errors");
        tree.assert_same(&Tree::of(mount), "after the exchange");
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// Two devices of one pool exchanged names while one was away: the one that came back was looked for at its old path,
/// where the other was.
#[test]
fn devices_of_one_pool_that_exchanged_names_both_come_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 96);
    let mount = lab.create("", "tank", "raidz d0 d1 d2");
    fill(&mount, 1);
    lab.zpool("offline tank d1").ok();
    fill(&mount, 20);
    // d0 is in use meanwhile.
    exchange(&lab.disk(0), &lab.disk(1));
    lab.zpool("online tank d1").ok().says_not("faulted");
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    assert_eq!([0, 1].map(|disk| state_at(&lab, "tank", &lab.disk(disk))), ["ONLINE", "ONLINE"]);
    let tree = fill(&mount, 40);
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    // Each is called by its new name now.
    lab.zpool("offline tank d0").ok();
    lab.zpool("online tank d0").ok().says_not("faulted");
    lab.zpool("wait -t resilver tank").ok();
    lab.judge_and_return("tank", &mount, &tree);
    // Names that nobody remembers, at the next start of the daemon; one disk more than may be missing.
    lab.kill_daemon(true);
    for disk in 0..2 {
        fs::rename(lab.disk(disk), lab.disk(disk + 7)).expect("renamed");
    }
    lab.zpool("list -H -o health tank").ok().says("ONLINE");
    lab.wait_mounted(&mount);
    tree.assert_same(&Tree::of(&mount), "under new names");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// An old copy of a disk (a backup beside it) was taken for the disk when that was gone, overwritten, and what it did
/// not have was in no list: of unchecksummed data its stale bytes were the truth.
#[test]
fn an_old_copy_of_a_disk_is_not_taken_for_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("-O checksum=off", "tank", "raidz1 d0 d1 d2");
    let churn = lab.tmp().join("churn");
    lab.zfs(&format!("create -o mountpoint={} tank/churn", churn.display())).ok();
    fill(&mount, 1);
    lab.zpool("sync tank").ok();
    let backup = lab.dev().join("backup-of-d0");
    fs::copy(lab.disk(0), &backup).expect("a copy");
    let before = damage::fingerprints(std::slice::from_ref(&backup));
    let tree = fill(&mount, 7);
    lab.zpool("sync tank").ok();
    let gone = lab.tmp().join("gone");
    fs::rename(lab.disk(0), &gone).expect("taken away");
    fs::remove_file(&gone).expect("rm");
    // Looked for by a command, and by a daemon that starts; the names of files are also written meanwhile.
    for round in 0..2 {
        lab.zpool("reopen tank").ok();
        assert_eq!(lab.health("tank"), "DEGRADED", "round {round}");
        fs::write(churn.join("later"), [round]).expect("write");
        lab.platter(["daemon", "stop"]).ok();
    }
    assert_eq!(lab.health("tank"), "DEGRADED");
    assert_eq!(before, damage::fingerprints(std::slice::from_ref(&backup)), "the backup is nobody's to write");
    tree.assert_same(&Tree::of(&mount), "without the disk");
    // Where the disk was, it is used, for what it is: everything since is made up for.
    fs::copy(&backup, lab.disk(0)).expect("a copy");
    lab.zpool("online tank d0").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    tree.assert_same(&Tree::of(&mount), "with the copy at the disk's place");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // An import finds the newer of the two, wherever it lies.
    fs::remove_file(lab.disk(1)).expect("rm");
    lab.zpool("import -d . tank").ok();
    tree.assert_same(&Tree::of(&mount), "without another disk");
    lab.export("tank");
    assert_eq!(before, damage::fingerprints(std::slice::from_ref(&backup)), "the backup is nobody's to write");
}

/// A daemon that started without the disk took the backup beside it for the pool, as it had been then.
#[test]
fn a_pool_does_not_go_back_to_an_old_copy_by_itself() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    fill(&mount, 1);
    lab.zpool("sync tank").ok();
    let backup = lab.dev().join("backup-of-d0");
    fs::copy(lab.disk(0), &backup).expect("a copy");
    let before = damage::fingerprints(std::slice::from_ref(&backup));
    fill(&mount, 7);
    lab.platter(["daemon", "stop"]).ok();
    fs::remove_file(lab.disk(0)).expect("rm");
    assert_eq!(lab.health("tank"), "UNAVAIL");
    lab.zpool("status tank").ok().says("only an older copy of the pool was found");
    assert_eq!(before, damage::fingerprints(std::slice::from_ref(&backup)), "nobody wrote it");
    // Whoever wants it says so.
    lab.zpool("import -d . tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `restored` was put back as of an earlier time while the pool was exported: nothing was in its list.
#[test]
fn a_disk_that_is_restored_from_an_old_copy_gets_what_it_lacks() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("-O checksum=off", "tank", "mirror d0 d1");
    let churn = lab.tmp().join("churn");
    lab.zfs(&format!("create -o mountpoint={} tank/churn", churn.display())).ok();
    fill(&mount, 1);
    lab.zpool("sync tank").ok();
    let old = lab.tmp().join("old");
    fs::copy(lab.disk(0), &old).expect("a copy");
    let tree = fill(&mount, 7);
    for round in 0..3 {
        fs::write(churn.join("later"), [round]).expect("write");
        lab.zpool("sync tank").ok();
    }
    lab.export("tank");
    fs::copy(&old, lab.disk(0)).expect("restored");
    lab.zpool("import -d . tank").ok();
    lab.zpool("wait -t resilver tank").ok();
    tree.assert_same(&Tree::of(&mount), "after the resilver");
    lab.zpool("offline tank d1").ok();
    tree.assert_same(&Tree::of(&mount), "from the restored disk alone");
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The copy was moved on by another machine: what that wrote lies in groups that the pool itself has, too, with other
/// bytes. Only what came after the copy's last group was listed.
#[test]
fn a_copy_that_somebody_else_has_changed_is_resilvered_whole() {
    let (Some(lab), Some(other)) = (Lab::open(), Lab::open()) else { return };
    lab.disks(2, 128);
    let mount = lab.create("-O checksum=off", "tank", "mirror d0 d1");
    let churn = lab.tmp().join("churn");
    lab.zfs(&format!("create -o mountpoint={} tank/churn", churn.display())).ok();
    let tree = fill(&mount, 1);
    lab.export("tank");
    fs::copy(lab.disk(0), other.disk(0)).expect("a copy");

    other.zpool("import -f -d . -o cachefile=none -N tank").ok();
    other.zfs(&format!("set -u mountpoint={} tank", other.tmp().join("there").display())).ok();
    other.zfs("mount tank").ok();
    for (path, _) in tree.files() {
        let path = other.tmp().join("there").join(path);
        let length = fs::metadata(&path).expect("a file").len();
        fs::write(&path, data::random(99, length as usize)).expect("changed there");
    }
    other.export("tank");

    lab.import("", "tank");
    for round in 0..40 {
        fs::write(churn.join("later"), [round]).expect("write");
        lab.zpool("sync tank").ok();
    }
    lab.zpool("offline tank d0").ok();
    fs::copy(other.disk(0), lab.disk(0)).expect("put back");
    lab.zpool("online tank d0").ok();
    lab.zpool("wait -t resilver tank").ok();
    tree.assert_same(&Tree::of(&mount), "after the resilver");
    lab.zpool("offline tank d1").ok();
    tree.assert_same(&Tree::of(&mount), "from that disk alone");
    lab.zpool("online tank d1").ok();
    lab.zpool("wait -t resilver tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// What it lacks is written on the disks, and reading that met old blocks on it.
#[test]
fn a_disk_that_was_away_during_an_import_is_not_blamed() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 128);
    let mount = lab.create("", "tank", "raidz1 d0 d1 d2");
    fill(&mount, 1);
    lab.export("tank");
    let away = lab.tmp().join("away");
    fs::rename(lab.disk(0), &away).expect("taken away");
    lab.zpool("import -d . tank").ok();
    lab.wait_mounted(&mount);
    let tree = fill(&mount, 2);
    lab.export("tank");
    fs::rename(&away, lab.disk(0)).expect("put back");
    lab.zpool("import -d . tank").ok();
    lab.wait_mounted(&mount);
    lab.zpool("wait -t resilver tank").ok();
    lab.wait_health("tank", "ONLINE");
    tree.assert_same(&Tree::of(&mount), "after the resilver");
    let status = lab.zpool("status -p tank").ok().stdout;
    let blamed = |line: &&str| line.contains("ONLINE") && !line.ends_with("0     0     0") && !line.contains("state:");
    assert_eq!(status.lines().find(blamed), None, "{status}");
    lab.export("tank");
}

/// By its own path the file was refused; through a loop device it became another pool's, or the same pool's once more.
#[test]
fn a_pools_file_is_not_taken_through_a_loop_device() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "d0");
    let tree = fill(&mount, 1);
    let Some(device) = Loop::over(&lab.disk(0)) else {
        return judge::skip("a loop device", "losetup cannot make one");
    };
    for words in ["create -f -m none other", "add -f tank", "labelclear -f"] {
        let run = lab.zpool(&format!("{words} {}", device.0)).refused();
        assert!(run.stderr.contains("in use") || run.stderr.contains("ACTIVE"), "{run}");
    }
    // Another daemon of this host, by way of a folder in which there is nothing else.
    let links = lab.tmp().join("links");
    fs::create_dir(&links).and_then(|()| std::os::unix::fs::symlink(&device.0, links.join("d"))).expect("a link");
    let home = lab.root().join("second-home");
    let second = |words: &str| {
        let mut command = lab.command(binary::platter());
        command.env("PLATTER_HOME", &home).arg("zpool").args(words.split_whitespace());
        Run::of(&mut command, Duration::from_secs(60))
    };
    let run = second(&format!("import -N -d {} tank", links.display())).refused();
    assert!(run.mentions("in use"), "{run}");
    let mut stop = lab.command(binary::platter());
    Run::of(stop.env("PLATTER_HOME", &home).args(["daemon", "stop"]), Duration::from_secs(60)).ok();
    tree.assert_same(&Tree::of(&mount), "nobody wrote");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    // And the other way round: the loop device is a pool's, the file is wanted.
    lab.zpool(&format!("import -N -d {} tank", links.display())).ok();
    lab.zpool("create -f -m none other d0").refused().says("in use");
    lab.export("tank");
}

/// The command never came back: its write waited for the group that it was part of.
#[test]
fn a_file_on_the_pool_itself_is_none_of_its_devices() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let mount = lab.create("", "tank", "d0");
    let inner = |place: &Path| {
        let path = place.join("inner");
        fs::File::create(&path).and_then(|file| file.set_len(70 << 20)).expect("a sparse file");
        path.display().to_string()
    };
    let direct = inner(&mount);
    lab.zpool(&format!("add tank {direct}")).refused().says("stored in the pool itself");
    // A pool in the pool, and a file in that.
    let second = lab.create("", "second", &direct);
    let indirect = inner(&second);
    lab.zpool(&format!("add -f tank {indirect}")).refused().says("stored in the pool itself");
    lab.zpool("export second").ok();
    lab.export("tank");
}
