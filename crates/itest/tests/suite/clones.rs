//! Clones through the commands: making, listing, promoting, renaming and destroying them, and what stands in the way.
//! OpenZFS's zdb finds each one's files, and no leak.

use std::fs;

use platter_itest::{Lab, Tree, data, zdb};

#[track_caller]
fn value(lab: &Lab, property: &str, name: &str) -> String {
    lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().to_owned()
}

#[test]
fn a_clone_begins_as_its_origin_and_goes_its_own_way() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs("", "tank/fs");
    let first = Tree::filled(&mount, 3);
    lab.zfs("snapshot tank/fs@one").ok();
    fs::write(mount.join("more"), data::random(1, 900_000)).unwrap();
    lab.zfs("snapshot tank/fs@two").ok();
    let second = Tree::of(&mount);
    fs::write(mount.join("more"), b"short").unwrap();

    let (one, two) = (lab.tmp().join("one"), lab.tmp().join("two"));
    lab.zfs(&format!("clone -o mountpoint={} -o atime=off tank/fs@one tank/one", one.display())).ok();
    lab.zfs(&format!("clone -p -o mountpoint={} tank/fs@two tank/new/two", two.display())).ok();
    first.assert_same(&Tree::of(&one), "in the first clone");
    second.assert_same(&Tree::of(&two), "in the second clone");
    assert_eq!(value(&lab, "origin", "tank/one"), "tank/fs@one");
    assert_eq!(value(&lab, "clones", "tank/fs@two"), "tank/new/two");
    assert_eq!(value(&lab, "origin", "tank/fs"), "-");
    assert_eq!(value(&lab, "atime", "tank/one"), "off");
    fs::write(one.join("own"), data::random(7, 700_000)).unwrap();
    fs::remove_file(two.join("more")).unwrap();
    lab.zfs("snapshot tank/one@mine").ok();
    let own = Tree::of(&one);
    lab.zfs("rename tank/one tank/new/one").ok();
    assert_eq!(value(&lab, "clones", "tank/fs@one"), "tank/new/one");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank/new/one", &own, 4);
    zdb::assert_same_tree(&lab.dev(), "tank/fs@two", &second, 4);

    lab.import("", "tank");
    own.assert_same(&Tree::of(&one), "after an import");
    lab.zfs("destroy -R tank/fs@two").ok();
    lab.zfs("destroy -r tank/new/one").ok();
    lab.zfs("destroy tank/fs@one").ok();
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/new"]);
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// What a pool's feature `livelist` says.
fn livelists(lab: &Lab) -> String {
    lab.zpool("get -H -o value feature@livelist tank").ok().stdout.trim().to_owned()
}

#[test]
fn a_clone_has_a_livelist_by_which_it_goes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("much"), data::random(1, 30 << 20)).unwrap();
    lab.zfs("snapshot tank/fs@one").ok();
    assert_eq!(livelists(&lab), "enabled");
    let clone = lab.tmp().join("clone");
    lab.zfs(&format!("clone -o mountpoint={} tank/fs@one tank/clone", clone.display())).ok();
    assert_eq!(livelists(&lab), "active");
    for round in 0..4 {
        fs::write(clone.join("own"), data::random(round, 2 << 20)).unwrap();
        lab.zpool("sync").ok();
    }
    lab.zfs("snapshot tank/clone@mine").ok();
    fs::remove_file(clone.join("own")).unwrap();
    fs::write(clone.join("other"), data::random(9, 1 << 20)).unwrap();
    let tree = Tree::of(&clone);
    lab.export("tank");
    // zdb compares the list with what was written since the origin.
    if let Some(run) = zdb::zdb(&lab.dev(), &["-dddd", "tank/clone"]) {
        assert!(run.ok().stdout.contains("Livelist: "), "zdb shows no livelist");
    }
    zdb::assert_same_tree(&lab.dev(), "tank/clone", &tree, 4);
    lab.import("", "tank");
    fs::write(clone.join("other"), data::random(10, 1 << 20)).unwrap();
    lab.zfs("destroy -r tank/clone").ok();
    lab.zpool("wait -t free tank").ok();
    assert_eq!((livelists(&lab), value(&lab, "usedbychildren", "tank/fs")), ("enabled".into(), "0".into()));

    // With contents that are no longer what was born since the origin, it has none.
    for (made, changed) in [("a", "promote tank/a"), ("b", "rollback tank/b@own")] {
        lab.zfs(&format!("clone tank/fs@one tank/{made}")).ok();
        lab.zfs(&format!("snapshot tank/{made}@own")).ok();
        assert_eq!(livelists(&lab), "active");
        lab.zfs(changed).ok();
        assert_eq!(livelists(&lab), "enabled", "after {changed}");
        if changed.starts_with("promote") {
            lab.zfs("promote tank/fs").ok();
        }
        lab.zfs(&format!("destroy -r tank/{made}")).ok();
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn what_cannot_be_cloned_or_promoted_is_said() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.create_fs("", "tank/fs");
    lab.zfs("snapshot tank/fs@a").ok();
    lab.zfs("snapshot tank/fs@b").ok();
    for (arguments, said) in [
        ("tank/fs@no tank/x", "cannot open 'tank/fs@no': dataset does not exist"),
        ("tank/fs tank/x", "cannot open 'tank/fs': missing '@' delimiter in snapshot name"),
        ("tank/fs@a tank/no/x", "cannot create 'tank/no/x': parent does not exist"),
        ("tank/fs@a tank/fs", "cannot create 'tank/fs': dataset already exists"),
        ("tank/fs@a other/x", "cannot create 'other/x': no such pool 'other'"),
        ("tank/fs@a tank", "cannot create 'tank': missing dataset name"),
        ("-o casesensitivity=mixed tank/fs@a tank/x", "'casesensitivity' is readonly"),
        ("-o nonsense=1 tank/fs@a tank/x", "cannot create 'tank/x': invalid property 'nonsense'"),
    ] {
        lab.zfs(&format!("clone {arguments}")).refused().says(said);
    }
    lab.zfs("clone -p tank/fs@a tank/fs").ok();
    lab.zfs("set filesystem_limit=1 tank").ok();
    lab.zfs("clone tank/fs@a tank/x").refused().says("cannot create 'tank/x': out of space");
    lab.zfs("set filesystem_limit=none tank").ok();
    lab.zfs("clone -u tank/fs@b tank/x").ok();
    assert_eq!(value(&lab, "mounted", "tank/x"), "no");
    lab.zfs("snapshot tank/x@a").ok();

    lab.zfs("promote tank/fs").refused().says("cannot promote 'tank/fs': not a cloned filesystem");
    lab.zfs("promote tank/no").refused().says("cannot open 'tank/no': dataset does not exist");
    lab.zfs("promote tank/fs@a").refused().says("cannot open 'tank/fs@a': snapshot delimiter '@' is not expected here");
    lab.zfs("promote tank/x")
        .refused()
        .says("cannot promote 'tank/x': conflicting snapshot 'a' from parent 'tank/fs@b'");
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a", "tank/fs@b", "tank/x", "tank/x@a"]);
    what_has_dependents_goes_with_them(&lab);
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `tank/x`, which has snapshot `a`, is a clone of `tank/fs@b`.
fn what_has_dependents_goes_with_them(lab: &Lab) {
    let dependents = lab.zfs("destroy tank/fs@b").refused();
    dependents
        .says("cannot destroy 'tank/fs@b': snapshot has dependent clones")
        .says("use '-R' to destroy the following datasets:\ntank/x@a\ntank/x");
    lab.zfs("destroy -r tank/fs")
        .refused()
        .says("cannot destroy 'tank/fs': filesystem has dependent clones")
        .says("use '-R' to destroy the following datasets:\ntank/x@a\ntank/x");
    lab.zfs("destroy tank/x")
        .refused()
        .says("cannot destroy 'tank/x': filesystem has children")
        .says("use '-r' to destroy the following datasets:\ntank/x@a");
    lab.zfs("rollback -r tank/fs@a")
        .refused()
        .says("cannot rollback to 'tank/fs@a': clones of previous snapshots exist")
        .says("use '-R' to force deletion of the following clones and dependents:\ntank/x@a\ntank/x");

    lab.zfs("destroy -d tank/fs@b").ok();
    assert_eq!(value(lab, "defer_destroy", "tank/fs@b"), "on");
    let planned = lab.zfs("destroy -Rnv tank/fs").ok().stdout;
    let order =
        ["tank/fs@a", "tank/x@a", "tank/x", "tank/fs@b", "tank/fs"].map(|name| format!("would destroy {name}\n"));
    assert_eq!(planned, order.concat());
    lab.zfs("destroy -r tank/x").ok();
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a"], "it goes with its last clone");
    lab.zfs("snapshot tank/fs@c").ok();
    lab.zfs("clone tank/fs@c tank/y").ok();
    lab.zfs("rollback -R tank/fs@a").ok();
    assert_eq!(lab.names("tank"), ["tank", "tank/fs", "tank/fs@a"]);
    lab.zfs("clone tank/fs@a tank/y").ok();
    lab.zfs("destroy -R tank/fs").ok();
    assert_eq!(lab.names("tank"), ["tank"]);
}

#[test]
fn a_promoted_clone_shows_what_moved_to_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    lab.create("", "tank", "mirror d0 d1");
    let mount = lab.create_fs("", "tank/fs");
    let first = Tree::filled(&mount, 2);
    lab.zfs("snapshot tank/fs@one").ok();
    fs::write(mount.join("two"), data::random(2, 300_000)).unwrap();
    lab.zfs("snapshot tank/fs@two").ok();
    fs::write(mount.join("three"), data::random(3, 300_000)).unwrap();
    lab.zfs("snapshot tank/fs@three").ok();
    let place = lab.tmp().join("clone");
    lab.zfs(&format!("clone -o mountpoint={} tank/fs@two tank/clone", place.display())).ok();
    lab.zfs("clone -u tank/fs@one tank/other").ok();
    let listed = |folder: &std::path::Path| -> Vec<String> {
        let entries = fs::read_dir(folder.join(".zfs/snapshot")).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!((listed(&mount), listed(&place)), (vec!["one".into(), "three".into(), "two".into()], vec![]));
    first.assert_same(&Tree::of(&mount.join(".zfs/snapshot/one")), "before");

    lab.zfs("promote tank/clone").ok();
    assert_eq!((listed(&mount), listed(&place)), (vec!["three".to_owned()], vec!["one".to_owned(), "two".to_owned()]));
    first.assert_same(&Tree::of(&place.join(".zfs/snapshot/one")), "in the promoted clone");
    assert!(fs::metadata(mount.join(".zfs/snapshot/one")).is_err(), "it is somebody else's");
    assert_eq!(value(&lab, "origin", "tank/fs"), "tank/clone@two");
    assert_eq!(value(&lab, "origin", "tank/clone"), "-");
    assert_eq!(value(&lab, "origin", "tank/other"), "tank/clone@one");
    assert_eq!(value(&lab, "clones", "tank/clone@two"), "tank/fs");
    assert_eq!(fs::read(mount.join("three")).unwrap(), data::random(3, 300_000));
    let figures = |name: &str| {
        ["used", "usedbydataset", "usedbysnapshots", "referenced"]
            .map(|property| value(&lab, property, name).parse::<u64>().unwrap())
    };
    let [used, by_dataset, by_snapshots, _] = figures("tank/fs");
    assert_eq!(used, by_dataset + by_snapshots);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank/clone@one", &first, 4);

    lab.import("", "tank");
    lab.zfs("promote tank/fs").ok();
    lab.zfs("destroy tank/clone").ok();
    lab.zfs("destroy tank/other").ok();
    first.assert_same(&Tree::of(&mount.join(".zfs/snapshot/one")), "back again");
    lab.zfs("destroy -r tank/fs").ok();
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
