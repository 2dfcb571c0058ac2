//! Property `platter:snap`: data sets get snapshots by themselves, and those that are too many go.

use std::fs;
use std::time::{Duration, Instant};

use platter_itest::binary::platter as binary;
use platter_itest::{Lab, zdb};

/// Snapshots of `dataset` that a schedule made, the oldest first, without the data set.
fn made(lab: &Lab, dataset: &str) -> Vec<String> {
    let listed = lab.zfs(&format!("list -H -d 1 -t snapshot -o name -s createtxg {dataset}")).ok().stdout;
    let own = listed.lines().filter_map(|name| name.split_once('@'));
    own.map(|(_, name)| name.to_owned()).filter(|name| name.starts_with("auto_")).collect()
}

fn has_second(names: &[String]) -> bool {
    names.iter().any(|name| name.ends_with("_1s"))
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn snapshots_come_and_go_by_themselves() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/a");
    lab.create_fs("", "tank/a/b");
    for (wrong, why) in [("hourl:3", "is not hourly"), ("hourly:0", "1 to 10000"), ("1s:2,1s:3", "twice")] {
        lab.zfs(&format!("set platter:snap={wrong} tank/a")).refused().says(why);
    }
    lab.zfs("set platter:prune=perhaps tank/a").refused().says("must be one of 'on | off'");
    lab.zfs("snapshot tank/a@auto_mine").ok();
    lab.zfs("set platter:snap=1s:3,yearly:1 tank/a").ok();
    until("a first snapshot", || ["tank/a", "tank/a/b"].iter().all(|name| has_second(&made(&lab, name))));
    fs::write(mount.join("file"), b"x").unwrap();
    let first = made(&lab, "tank/a").into_iter().find(|name| name.ends_with("_1s")).expect("one");
    lab.zfs(&format!("hold keep tank/a@{first}")).ok();
    // The newest three, the one that is held, that of the year, and the one that only looks like them.
    let kept = |dataset: &str| made(&lab, dataset).iter().filter(|name| name.ends_with("_1s")).count();
    until("others come", || made(&lab, "tank/a").iter().filter(|name| **name > first).count() >= 5);
    until("and go", || kept("tank/a") == 4 && kept("tank/a/b") == 3);
    let all = made(&lab, "tank/a");
    assert!(all.contains(&first) && all.contains(&"auto_mine".to_owned()));
    assert_eq!(all.iter().filter(|name| name.ends_with("_yearly")).count(), 1);
    // Those of one moment are of one group.
    let group = |dataset: &str| {
        let name = made(&lab, "tank/a").into_iter().find(|name| name.ends_with("_yearly")).expect("one");
        lab.zfs(&format!("get -Hp -o value createtxg {dataset}@{name}")).ok().stdout
    };
    assert_eq!(group("tank/a"), group("tank/a/b"));
    until("its files are shown", || {
        let newest = made(&lab, "tank/a").pop().expect("one");
        mount.join(".zfs/snapshot").join(newest).join("file").exists()
    });

    // It goes on after a kill, and stops when it is told to.
    lab.kill_daemon(true);
    lab.revive("tank");
    let before = made(&lab, "tank/a").pop();
    until("it goes on", || made(&lab, "tank/a").pop() > before);
    lab.zfs("set platter:snap=off tank/a").ok();
    std::thread::sleep(Duration::from_secs(7));
    let stopped = made(&lab, "tank/a");
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(made(&lab, "tank/a"), stopped);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A replica takes none: they would part it from where it comes from.
#[test]
fn a_replica_takes_none_but_prunes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.create_fs("", "tank/a");
    lab.zfs("set platter:snap=1s:100 tank/a").ok();
    until("some come", || made(&lab, "tank/a").len() >= 3);
    lab.zfs("set platter:snap=1s:2 tank/a").ok();
    lab.zfs("set platter:prune=off tank/a").ok();
    let last = made(&lab, "tank/a").pop().expect("one");
    let zfs = format!("{} zfs", binary().display());
    let script = format!("{zfs} send -R tank/a@{last} | {zfs} receive -x platter:prune -u tank/copy");
    lab.run("sh", ["-c", &script]).ok();
    until("it is pruned", || made(&lab, "tank/copy").len() == 2);
    assert_eq!(made(&lab, "tank/copy").last(), Some(&last));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(made(&lab, "tank/copy").last(), Some(&last));
    let shown = lab.platter(["schedule", "-H", "tank"]).ok().stdout;
    let row = |dataset: &str| shown.lines().find(|line| line.starts_with(&format!("{dataset}\t"))).expect("a row");
    assert!(row("tank/copy").ends_with("\treceived: only pruned here") && row("tank/a").ends_with("\tnot pruned"));
    let document = lab.platter(["schedule", "-j", "tank/copy"]).ok().stdout;
    assert!(document.contains("\"dataset\":\"tank/copy\"") && !document.contains("\"tank/a\""), "{document}");
    lab.platter(["schedule", "nothing"]).refused().says("dataset does not exist");

    // What cannot be done is told.
    lab.zfs("set snapshot_limit=1 tank/a").ok();
    until("the limit is told", || !lab.platter(["schedule", "tank/a"]).stdout.contains("not pruned"));
    assert_eq!(lab.platter(["schedule", "tank/a"]).code, 1);
}

/// A snapshot that only has an hour's name does not count for that hour, and makes no other one surplus.
#[test]
fn who_takes_the_names_of_a_schedule_has_nothing_destroyed() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.create_fs("", "tank/a");
    lab.zfs("set platter:snap=hourly:2 tank/a").ok();
    until("the hour's own", || made(&lab, "tank/a").len() == 1);
    let own = made(&lab, "tank/a");
    // Off the hours, and of hours in which they were not taken.
    let forged = ["2021-05-06T07:00:01Z", "2021-05-06T08:00:00Z", "2021-05-06T09:00:00Z", "2099-05-06T09:00:00Z"];
    for time in forged {
        lab.zfs(&format!("snapshot tank/a@auto_{time}_hourly")).ok();
    }
    // What is looked at again when it changes.
    lab.zfs("set platter:snap=hourly:1,yearly:1 tank/a").ok();
    until("it is looked at", || made(&lab, "tank/a").len() == 6);
    std::thread::sleep(Duration::from_secs(2));
    let all = made(&lab, "tank/a");
    assert!(own.iter().all(|name| all.contains(name)), "{all:?}");
    assert_eq!(all.len(), 6, "{all:?}");
    let listed = lab.platter(["schedule"]).ok().stdout;
    assert!(!listed.contains("2099") && !listed.contains("2021"), "{listed}");
    // One that stands in the way is told of.
    lab.zfs(&format!("destroy tank/a@{}", own[0])).ok();
    lab.zfs("snapshot tank/a@auto_2025-01-01T00:00:00Z_yearly").ok();
    let yearly = all.iter().find(|name| name.ends_with("_yearly")).expect("one");
    lab.zfs(&format!("destroy tank/a@{yearly}")).ok();
    lab.zfs("set platter:snap=yearly:1 tank/a").ok();
    until("the year's own is taken again", || made(&lab, "tank/a").contains(yearly));
    assert!(made(&lab, "tank/a").contains(&"auto_2025-01-01T00:00:00Z_yearly".to_owned()));
}
