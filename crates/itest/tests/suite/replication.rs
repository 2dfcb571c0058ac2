//! `zfs send -R` and its receive: a tree of data sets, clones and snapshots becomes the same elsewhere, again and
//! again, whatever was renamed, promoted, moved or destroyed meanwhile.

use std::fs;

use platter_itest::binary::platter as binary;
use platter_itest::{Lab, Run, Tree, data, zdb};

/// `zfs SEND | zfs RECEIVE`.
fn pass(lab: &Lab, send: &str, receive: &str) -> Run {
    let zfs = format!("{} zfs", binary().display());
    lab.run("sh", ["-c", &format!("{zfs} send {send} | {zfs} receive {receive}")])
}

/// Names below `top`, without it, of all kinds.
fn names(lab: &Lab, top: &str) -> Vec<String> {
    let listed = lab.zfs(&format!("list -H -o name -t all -r {top}")).ok().stdout;
    let mut names: Vec<String> =
        listed.lines().map(|name| name.strip_prefix(top).expect("below it").to_owned()).collect();
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
