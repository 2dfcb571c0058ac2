//! Bookmarks through the commands: what they know of space when their snapshots are gone, and what goes back past them.

use std::fs;

use platter_itest::{Lab, data, zdb};

#[track_caller]
fn value(lab: &Lab, property: &str, name: &str) -> String {
    lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().to_owned()
}

fn feature(lab: &Lab) -> String {
    lab.zpool("get -H -o value feature@bookmark_written tank").ok().stdout.trim().to_owned()
}

/// What was written since a snapshot can be told when there is only its bookmark left, and OpenZFS's zdb finds nothing
/// wrong on the way.
#[test]
fn a_bookmark_knows_what_was_written_since() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o recordsize=16k -o compression=lz4", "tank/fs");
    let number = |property: &str, name: &str| value(&lab, property, name).parse::<u64>().unwrap();
    assert_eq!(feature(&lab), "enabled");
    for round in 0..4u64 {
        fs::write(mount.join(format!("file{round}")), data::random(round, 600_000)).unwrap();
        let _ = fs::remove_file(mount.join(format!("file{}", round.saturating_sub(2))));
        lab.zfs(&format!("snapshot tank/fs@{round}")).ok();
        lab.zfs(&format!("bookmark tank/fs@{round} #{round}")).ok();
    }
    assert_eq!(feature(&lab), "active");
    for property in ["referenced", "logicalreferenced", "refcompressratio", "guid", "createtxg"] {
        assert_eq!(value(&lab, property, "tank/fs#1"), value(&lab, property, "tank/fs@1"), "{property}");
    }
    lab.zfs("bookmark tank/fs#1 #copy").ok();
    fs::write(mount.join("file2"), data::random(9, 300_000)).unwrap();
    lab.zpool("sync").ok();
    let since = || {
        let mut told = Vec::new();
        for newer in ["tank/fs@2", "tank/fs@3", "tank/fs"] {
            for earlier in 0..=1 {
                told.push(number(&format!("written@{earlier}"), newer));
                let marked = number(&format!("written#{earlier}"), newer);
                assert_eq!(marked, *told.last().unwrap(), "{newer} since {earlier}");
                assert_eq!(number(&format!("written#tank/fs#{earlier}"), newer), marked);
            }
            assert_eq!(number("written#copy", newer), number("written#1", newer));
        }
        told
    };
    let told = since();
    lab.zfs("destroy tank/fs@0%1").ok();
    lab.zpool("sync").ok();
    let marked: Vec<u64> = ["tank/fs@2", "tank/fs@3", "tank/fs"]
        .into_iter()
        .flat_map(|newer| [number("written#0", newer), number("written#1", newer)])
        .collect();
    assert_eq!(marked, told);
    // What is not before it, or not there.
    for (property, name) in [("written#2", "tank/fs@2"), ("written#3", "tank/fs@2"), ("written#x", "tank/fs")] {
        assert_eq!(value(&lab, property, name), "-", "{property} of {name}");
    }
    // Without any snapshot left, what a bookmark had and the head gives up is still counted.
    lab.zfs("destroy tank/fs@%").ok();
    let before = number("written#0", "tank/fs");
    fs::write(mount.join("more"), data::random(11, 320_000)).unwrap();
    fs::remove_file(mount.join("file2")).unwrap();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    let more = number("written#0", "tank/fs").abs_diff(before);
    assert!(more < 64 << 10, "320 kB came, 300 kB went that were written since: {more}");
    let estimate = lab.zfs("snapshot tank/fs@new").ok();
    assert_eq!(estimate.stdout, "");
    let run = lab.zfs("send -nP -i #0 tank/fs@new").ok();
    let size: u64 = run.stdout.lines().last().unwrap().split_whitespace().last().unwrap().parse().unwrap();
    let written = number("written#0", "tank/fs@new");
    assert!(size.abs_diff(written) < written / 4, "a stream of {written} bytes is estimated at {size}");
    for name in ["0", "1", "2", "3", "copy"] {
        lab.zfs(&format!("destroy tank/fs#{name}")).ok();
    }
    assert_eq!(feature(&lab), "enabled");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A data set does not go back past a bookmark unless somebody says so.
#[test]
fn a_rollback_names_the_bookmarks_in_its_way() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    for name in ["a", "b"] {
        fs::write(mount.join(name), name).unwrap();
        lab.zfs(&format!("snapshot tank/fs@{name}")).ok();
        lab.zfs(&format!("bookmark tank/fs@{name} #{name}")).ok();
    }
    lab.zfs("destroy tank/fs@b").ok();
    lab.zfs("rollback tank/fs@a")
        .refused()
        .says("cannot rollback to 'tank/fs@a': more recent snapshots or bookmarks exist")
        .says("use '-r' to force deletion of the following snapshots and bookmarks:\ntank/fs#b");
    assert!(mount.join("b").exists());
    lab.zfs("rollback -r tank/fs@a").ok();
    assert!(!mount.join("b").exists());
    assert_eq!(lab.zfs("list -H -o name -t bookmark tank/fs").ok().stdout, "tank/fs#a\n");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
