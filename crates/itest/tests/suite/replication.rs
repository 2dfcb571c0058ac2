//! `zfs send -R` and its receive: a tree of data sets, clones and snapshots becomes the same elsewhere, again and
//! again, whatever was renamed, promoted, moved or destroyed meanwhile.

use std::fs;

use platter_itest::binary::platter as binary;
use platter_itest::{Lab, Run, Tree, data, zdb};

use crate::send_receive::{receive, sent};

/// `zfs SEND | zfs RECEIVE`.
fn pass(lab: &Lab, send: &str, receive: &str) -> Run {
    let zfs = format!("{} zfs", binary().display());
    lab.run("sh", ["-c", &format!("{zfs} send {send} | {zfs} receive {receive}")])
}

/// Names below `top`, without it, of all kinds.
fn names(lab: &Lab, top: &str) -> Vec<String> {
    let listed = lab.names(top);
    let mut names: Vec<String> =
        listed.iter().map(|name| name.strip_prefix(top).expect("below it").to_owned()).collect();
    names.sort();
    names
}

/// What every snapshot of both trees has.
#[track_caller]
fn assert_equal(lab: &Lab, from: &str, to: &str) {
    assert_eq!(names(lab, from), names(lab, to));
    for name in names(lab, from) {
        let Some((dataset, snapshot)) = name.split_once('@') else { continue };
        let tree = |top: &str| Tree::of(&lab.mnt(&format!("{top}{dataset}")).join(".zfs/snapshot").join(snapshot));
        tree(from).assert_same(&tree(to), &name);
        let origin = |top: &str| {
            let origin = lab.zfs(&format!("get -H -o value origin {top}{dataset}")).ok().stdout.trim().to_owned();
            origin.strip_prefix(top).unwrap_or(&origin).to_owned()
        };
        assert_eq!(origin(from), origin(to), "origin of {name}");
    }
}

fn write(lab: &Lab, dataset: &str, name: &str, seed: u64) {
    fs::write(lab.mnt(dataset).join(name), data::random(seed, 200_000)).expect("a file");
}

#[test]
fn a_tree_follows_what_happens_to_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 300);
    lab.create("", "tank", "d0");
    lab.create("", "copy", "d1");
    for (name, seed) in [("tank/a", 1), ("tank/a/b", 2), ("tank/a/b/c", 3), ("tank/a/gone", 4), ("tank/a/x", 5)] {
        lab.create_fs("", name);
        write(&lab, name, "first", seed);
    }
    lab.zfs("snapshot -r tank/a@0").ok();
    lab.zfs("clone tank/a/b@0 tank/a/clone").ok();
    write(&lab, "tank/a/clone", "own", 6);
    lab.zfs("snapshot -r tank/a@1").ok();
    lab.zfs("set my:mark=one tank/a/b@1").ok();
    lab.zfs("hold keep tank/a/b@0").ok();
    // Not mounted: a mount makes folders for what is mounted in it, and it would be another one then.
    pass(&lab, "-Rh tank/a@1", "-u copy/a").ok();
    assert_eq!(names(&lab, "tank/a"), names(&lab, "copy/a"));
    let mark = |name: &str| lab.zfs(&format!("get -H -o value,source my:mark {name}")).ok().stdout.trim().to_owned();
    assert_eq!(mark("copy/a/b@1"), "one\treceived");
    assert!(lab.zfs("holds copy/a/b@0").ok().stdout.contains("keep"));
    lab.zfs("destroy copy/a/b@0").refused();

    // A new name, a new place, two that exchange names, a promotion, and what is new or gone.
    lab.zfs("rename tank/a/b/c tank/a/c").ok();
    lab.zfs("promote tank/a/clone").ok();
    for (from, to) in [("x", "swap"), ("gone", "x"), ("swap", "gone")] {
        lab.zfs(&format!("rename tank/a/{from} tank/a/{to}")).ok();
    }
    lab.zfs("rename tank/a@0 tank/a@zero").ok();
    lab.zfs("set my:mark=two tank/a/b@1").ok();
    lab.create_fs("", "tank/a/new");
    for (name, seed) in [("tank/a/new", 11), ("tank/a/c", 12), ("tank/a/x", 13), ("tank/a/clone", 14)] {
        write(&lab, name, "second", seed);
    }
    lab.zfs("snapshot -r tank/a@2").ok();
    pass(&lab, "-R -I @1 tank/a@2", "-u copy/a").ok();
    assert_eq!(names(&lab, "tank/a"), names(&lab, "copy/a"));
    assert_eq!(mark("copy/a/b@1"), "two\treceived");

    // What is gone stays without -F, and with it goes.
    lab.zfs("destroy -r tank/a/gone").ok();
    lab.zfs("destroy tank/a@zero").ok();
    write(&lab, "tank/a", "third", 21);
    lab.zfs("snapshot -r tank/a@3").ok();
    pass(&lab, "-R -i @2 tank/a@3", "-u copy/a").ok();
    assert!(names(&lab, "copy/a").contains(&"/gone@2".to_owned()));
    assert!(names(&lab, "copy/a").contains(&"@zero".to_owned()));
    lab.zfs("snapshot -r tank/a@4").ok();
    pass(&lab, "-R -i @3 tank/a@4", "-F copy/a").ok();
    lab.zfs("mount -a").ok();
    assert_equal(&lab, "tank/a", "copy/a");

    // With -d and -e the topmost is renamed, too.
    pass(&lab, "-R tank/a@4", "-d copy/whole").refused();
    lab.zfs("create copy/whole").ok();
    pass(&lab, "-R tank/a@4", "-d copy/whole").ok();
    assert_equal(&lab, "tank/a", "copy/whole/a");
    lab.zfs("rename tank/a/b tank/a/d").ok();
    lab.zfs("snapshot -r tank/a@5").ok();
    pass(&lab, "-R -i @4 tank/a@5", "-F -d copy/whole").ok();
    assert_equal(&lab, "tank/a", "copy/whole/a");
    for pool in ["tank", "copy"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

#[test]
fn a_target_without_anything_in_common_keeps_what_it_has() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    lab.create("", "tank", "d0");
    lab.create("", "copy", "d1");
    lab.create_fs("", "tank/a");
    lab.zfs("snapshot tank/a@1").ok();
    lab.zfs("snapshot tank/a@2").ok();
    lab.create_fs("", "copy/a");
    lab.create_fs("", "copy/a/below");
    write(&lab, "copy/a/below", "only copy", 1);
    lab.zfs("snapshot -r copy/a@1").ok();
    let before = names(&lab, "copy");
    pass(&lab, "-R -i @1 tank/a@2", "-F copy/a").refused();
    assert_eq!(names(&lab, "copy"), before);
    pass(&lab, "-R -i @1 tank/a@2", "-n -F copy/a");
    assert_eq!(names(&lab, "copy"), before);
}

/// What `zfs get` says of `property`, and where the value comes from.
#[track_caller]
fn with_source(lab: &Lab, property: &str, name: &str) -> (String, String) {
    let said = lab.zfs(&format!("get -Hp -o value,source {property} {name}")).ok().stdout;
    let (value, source) = said.trim().split_once('\t').expect("two columns");
    (value.to_owned(), source.to_owned())
}

// They were left out of what was received.
#[test]
fn quotas_and_reservations_come_with_a_stream() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 1024);
    for (pool, disk) in [("tank", "d0"), ("pond", "d1")] {
        lab.create("-O atime=off", pool, disk);
    }
    let mount = lab.create_fs("-o quota=30M -o refquota=20M -o reservation=5M -o snapshot_limit=9", "tank/fs");
    fs::write(mount.join("file"), data::random(1, 4 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    receive(&lab, "pond/fs", &sent(&lab, "-p tank/fs@a", "full")).ok();
    let got = |value: u64| (value.to_string(), "received".to_owned());
    for (limit, value) in [("quota", 30 << 20), ("refquota", 20 << 20), ("reservation", 5 << 20), ("snapshot_limit", 9)]
    {
        assert_eq!(with_source(&lab, limit, "pond/fs"), got(value), "{limit}");
    }
    assert_eq!(with_source(&lab, "usedbyrefreservation", "pond/fs").0, "0");
    fs::write(lab.mnt("pond/fs").join("more"), data::random(2, 20_000_000)).expect_err("over the refquota");
    fs::remove_file(lab.mnt("pond/fs").join("more")).unwrap();

    // More than the old quota allows comes with a larger one; what is set here counts more than what comes.
    lab.zfs("set quota=120M refquota=none tank/fs").ok();
    lab.zfs("set reservation=7M pond/fs").ok();
    lab.zfs("set snapshot_limit=none tank/fs").ok();
    lab.zfs("set reservation=6M tank/fs").ok();
    fs::write(mount.join("file"), data::random(3, 50 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@b").ok();
    receive(&lab, "-F pond/fs", &sent(&lab, "-p -i @a tank/fs@b", "more")).ok();
    assert_eq!(with_source(&lab, "quota", "pond/fs"), got(120 << 20));
    assert_eq!(with_source(&lab, "refquota", "pond/fs"), ("0".to_owned(), "received".to_owned()));
    assert_eq!(with_source(&lab, "reservation", "pond/fs"), ((7 << 20).to_string(), "local".to_owned()));
    lab.zfs("inherit -S reservation pond/fs").ok();
    assert_eq!(with_source(&lab, "reservation", "pond/fs"), got(6 << 20));
    Tree::of(&mount).assert_same(&Tree::of(&lab.mnt("pond/fs")), "received past the old quota");

    // What cannot be had here is said, and the rest is there.
    lab.zfs("set quota=none reservation=300M tank/fs").ok();
    lab.zfs("create -o reservation=600M pond/full").ok();
    receive(&lab, "pond/again", &sent(&lab, "-p tank/fs@b", "again"))
        .says("cannot receive reservation property on pond/again: size is greater than available space");
    assert_eq!(with_source(&lab, "reservation", "pond/again").0, "0");
    receive(&lab, "-x quota -o refquota=90M pond/third", &sent(&lab, "-p tank/fs@a", "third"));
    assert_eq!(with_source(&lab, "refquota", "pond/third"), ((90 << 20).to_string(), "local".to_owned()));

    lab.export("pond");
    zdb::assert_clean(&lab.dev(), "pond");
    lab.import("", "pond");
    assert_eq!(with_source(&lab, "quota", "pond/fs"), got(120 << 20), "after an import");
    fs::write(lab.mnt("pond/fs").join("more"), data::random(2, 90 << 20)).expect_err("over the quota");
}

// A receive that broke off and went on brought none of them, and one that broke off left others behind.
#[test]
fn limits_outlast_a_receive_that_breaks_off() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 1024);
    for (pool, disk) in [("tank", "d0"), ("pond", "d1")] {
        lab.create("-O atime=off", pool, disk);
    }
    let mount = lab.create_fs("-o quota=150M -o reservation=20M -o snapshot_limit=5 -o compression=gzip", "tank/fs");
    fs::write(mount.join("file"), data::random(1, 20 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let zfs = format!("{} zfs", binary().display());
    let broken = |send: &str, bytes: u64, receive: &str| {
        let script = format!("{zfs} send {send} | head -c {bytes} | {zfs} receive {receive}");
        lab.run("sh", ["-c", &script]).refused();
    };
    broken("-p tank/fs@a", 10 << 20, "-s pond/fs");
    let script =
        format!("{zfs} send -t $({zfs} get -Ho value receive_resume_token pond/fs) | {zfs} receive -s pond/fs");
    lab.run("sh", ["-c", &script]).ok();
    let got = |value: u64| (value.to_string(), "received".to_owned());
    for (limit, value) in [("quota", 150 << 20), ("reservation", 20 << 20), ("snapshot_limit", 5)] {
        assert_eq!(with_source(&lab, limit, "pond/fs"), got(value), "{limit}");
    }

    // More comes than the quota before allowed, and breaks off: everything is as it was.
    lab.zfs("set quota=40M reservation=10M tank/fs").ok();
    lab.zfs("snapshot tank/fs@b").ok();
    pass(&lab, "-p -i @a tank/fs@b", "pond/fs").ok();
    lab.zfs("set quota=none compression=zle tank/fs").ok();
    fs::write(mount.join("more"), data::random(2, 80 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@c").ok();
    for receive in ["-s pond/fs", "pond/fs"] {
        broken("-p -i @b tank/fs@c", 60 << 20, receive);
        lab.zfs("receive -A pond/fs");
        assert_eq!(with_source(&lab, "quota", "pond/fs"), got(40 << 20), "after {receive}");
        assert_eq!(with_source(&lab, "compression", "pond/fs"), ("gzip".to_owned(), "received".to_owned()));
    }
    pass(&lab, "-p -i @b tank/fs@c", "pond/fs").ok();
    assert_eq!(with_source(&lab, "quota", "pond/fs"), ("0".to_owned(), "received".to_owned()));

    // Both become smaller, each of which does not fit before the other.
    for (from, quota, reservation) in [("c", 300, 200), ("q300", 150, 20)] {
        lab.zfs(&format!("set reservation=none quota={quota}M tank/fs")).ok();
        lab.zfs(&format!("set reservation={reservation}M tank/fs")).ok();
        lab.zfs(&format!("snapshot tank/fs@q{quota}")).ok();
        pass(&lab, &format!("-p -i @{from} tank/fs@q{quota}"), "pond/fs").ok();
        assert_eq!(with_source(&lab, "quota", "pond/fs"), got(quota << 20));
        assert_eq!(with_source(&lab, "reservation", "pond/fs"), got(reservation << 20));
    }
    lab.export("pond");
    zdb::assert_clean(&lab.dev(), "pond");
}

/// A group may take a data set beyond its `refquota`, so its copy may be beyond that, too.
#[test]
fn what_is_somewhat_beyond_its_refquota_is_received() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    for (pool, disk) in [("tank", "d0"), ("pond", "d1")] {
        lab.create("", pool, disk);
    }
    let mount = lab.create_fs("", "tank/fs");
    lab.zfs("snapshot tank/fs@1").ok();
    pass(&lab, "tank/fs@1", "pond/fs").ok();
    lab.zfs("set refquota=10M pond/fs").ok();
    fs::write(mount.join("file"), data::random(1, 15_000_000)).expect("a file");
    lab.zfs("snapshot tank/fs@2").ok();
    pass(&lab, "-i @1 tank/fs@2", "pond/fs").ok();
    assert_eq!(fs::read(lab.mnt("pond/fs").join("file")).expect("the copy").len(), 15_000_000);
    fs::write(lab.mnt("pond/fs").join("more"), data::random(2, 5_000_000)).expect_err("over the refquota");
}

#[test]
fn what_a_package_leaves_out_is_said_and_clones_have_their_origins() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 300);
    lab.create("", "tank", "d0");
    lab.create("", "copy", "d1");
    for (name, seed) in [("tank/a", 1), ("tank/a/b", 2), ("tank/a/bare", 3)] {
        lab.create_fs("", name);
        write(&lab, name, "first", seed);
    }
    for snapshot in ["tank/a@1", "tank/a/b@1", "tank/a@between", "tank/a/b@between"] {
        lab.zfs(&format!("snapshot {snapshot}")).ok();
    }
    lab.zfs("clone tank/a/b@between tank/a/clone").ok();
    write(&lab, "tank/a/clone", "own", 4);
    // It comes after what it lies below, although that waits for its origin.
    lab.create_fs("", "tank/a/clone/child");
    for snapshot in ["tank/a@2", "tank/a/b@2", "tank/a/clone@2", "tank/a/clone/child@2"] {
        lab.zfs(&format!("snapshot {snapshot}")).ok();
    }
    // Made after the snapshot: nobody misses it. What is older and lacks it is missed, unless that is asked for.
    lab.create_fs("", "tank/a/young");
    let zfs = format!("{} zfs", binary().display());
    let sends = |words: &str| lab.run("sh", ["-c", &format!("{zfs} send {words} > /dev/null")]);
    sends("-R tank/a@2").refused().says("cannot send tank/a@2 recursively: snapshot tank/a/bare@2 does not exist");
    let skipped = "WARNING: skipping dataset tank/a/bare and its children: snapshot 2 does not exist\n";
    assert_eq!(sends("-R -s tank/a@2").ok().stderr, skipped);
    let said = sends("-R -s -n -v tank/a@2").ok().stderr;
    assert_eq!(said, format!("skipping dataset tank/a/young: snapshot 2 does not exist\n{skipped}"));
    lab.zfs("destroy tank/a/bare").ok();

    // From one snapshot to another without those between: but for the one that the clone begins with.
    pass(&lab, "-R tank/a@1", "copy/a").ok();
    assert_eq!(names(&lab, "copy/a"), ["", "/b", "/b@1", "@1"]);
    pass(&lab, "-R -i @1 tank/a@2", "copy/a").ok();
    assert_eq!(
        names(&lab, "copy/a"),
        ["", "/b", "/b@1", "/b@2", "/b@between", "/clone", "/clone/child", "/clone/child@2", "/clone@2", "@1", "@2"],
        "the origin of the clone is there, and nothing else that is between"
    );
    assert_eq!(lab.zfs("get -H -o value origin copy/a/clone").ok().stdout, "copy/a/b@between\n");
    let tree = |name: &str| Tree::of(&lab.mnt(name).join(".zfs/snapshot/2"));
    for name in ["a", "a/b", "a/clone"] {
        tree(&format!("tank/{name}")).assert_same(&tree(&format!("copy/{name}")), name);
    }

    // Backwards nothing can be sent; the rest is, and the command fails.
    lab.zfs("snapshot tank/a/b@3").ok();
    lab.zfs("snapshot tank/a@3").ok();
    lab.zfs("rename tank/a/b@3 late").ok();
    lab.zfs("rename tank/a/b@2 3").ok();
    lab.zfs("rename tank/a/b@late 2").ok();
    let warning = |name: &str| {
        format!("WARNING: could not send {name}@3:\nincremental source ({name}@2) is not earlier than it\n")
    };
    let failed = sends("-R -s -X tank/a/clone,tank/a/young -i @2 tank/a@3").refused();
    assert_eq!(failed.stderr, warning("tank/a/b"));
    assert_eq!(sends("-R -n -s -X tank/a/clone,tank/a/young -I @2 tank/a@3").refused().stderr, warning("tank/a/b"));
    // Whoever received the list alone would destroy what is newer.
    sends("-I @2 tank/a/b@3").refused().says("incremental source (tank/a/b@2) is not earlier than it");
    sends("-R -i @2 tank/a/b@3").refused().says("incremental source (tank/a/b@2) is not earlier than it");
    for pool in ["tank", "copy"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

#[test]
fn what_moved_below_something_new_goes_on_where_it_is() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 300);
    lab.create("", "tank", "d0");
    lab.create("", "copy", "d1");
    for (name, seed) in [("tank/a", 1), ("tank/a/x", 2)] {
        lab.create_fs("", name);
        write(&lab, name, "first", seed);
    }
    lab.zfs("snapshot -r tank/a@1").ok();
    pass(&lab, "-R tank/a@1", "copy/a").ok();
    lab.create_fs("", "tank/a/new");
    lab.zfs("rename tank/a/x tank/a/new/x").ok();
    write(&lab, "tank/a/new/x", "second", 3);
    lab.zfs("snapshot -r tank/a@2").ok();
    pass(&lab, "-R -i @1 tank/a@2", "-F copy/a").ok();
    assert_equal(&lab, "tank/a", "copy/a");
    for pool in ["tank", "copy"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}
