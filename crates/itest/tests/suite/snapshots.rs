//! Snapshots through the commands: taking, listing, holding, renaming, going back, destroying. OpenZFS's zdb has each
//! snapshot's files compared with what the mount showed when it was taken, and its figures with those of `zfs get`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use platter_itest::damage::{self, Layout};
use platter_itest::{Lab, Tree, data, zdb};

use crate::datasets::mos;

const MIB: u64 = 1 << 20;
// Linux's numbers.
const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EEXIST: i32 = 17;
const EXDEV: i32 = 18;
const EINVAL: i32 = 22;
const EROFS: i32 = 30;

/// What `zfs list -H -o name -t snapshot` says.
fn snapshots(lab: &Lab, options: &str) -> Vec<String> {
    let run = lab.zfs(&format!("list -H -o name -t snapshot {options}")).ok();
    run.stdout.lines().map(str::to_owned).collect()
}

#[track_caller]
fn value(lab: &Lab, property: &str, name: &str) -> String {
    lab.zfs(&format!("get -Hp -o value {property} {name}")).ok().stdout.trim().to_owned()
}

/// Figures that `zfs` shows of a snapshot, with zdb's names.
const FIGURES: [(&str, &str); 5] = [
    ("used", "unique"),
    ("referenced", "used_bytes"),
    ("logicalreferenced", "uncompressed_bytes"),
    ("createtxg", "creation_txg"),
    ("guid", "guid"),
];

fn listed_and_set(lab: &Lab, names: &[String]) {
    assert_eq!(snapshots(lab, ""), names);
    assert_eq!(snapshots(lab, "-S creation tank/fs").len(), 4);
    assert_eq!(value(lab, "my:round", "tank/fs@s2"), "2");
    lab.zfs("set my:round=x tank/fs@s2").ok();
    lab.zfs("inherit my:round tank/fs@s3").ok();
    let rows = lab.zfs("get -H my:round tank/fs@s2 tank/fs@s3").ok().stdout;
    assert_eq!(rows, "tank/fs@s2\tmy:round\tx\tlocal\ntank/fs@s3\tmy:round\t-\t-\n");
    lab.zfs("set atime=off tank/fs@s2").refused().says("this property can not be modified for snapshots");
    assert_eq!(value(lab, "type,defer_destroy,userrefs,clones", "tank/fs@s1"), "snapshot\noff\n0");
    let all = lab.zfs("list -H -o name -t all -r tank").ok().stdout;
    assert_eq!(
        all.lines().collect::<Vec<_>>(),
        [vec!["tank", "tank/fs"], names.iter().map(|n| &**n).collect()].concat()
    );
}

/// Exports the pool.
fn shown_as_zdb_says(lab: &Lab, names: &[String]) {
    // Until then the head still changes, and with it what the last one has alone.
    lab.zfs("unmount tank/fs").ok();
    lab.zpool("sync").ok();
    let shown: Vec<(String, BTreeMap<&str, String>)> = names
        .iter()
        .map(|name| {
            let figures = FIGURES.iter().map(|(ours, _)| *ours).chain(["objsetid", "written"]);
            (name.clone(), figures.map(|property| (property, value(lab, property, name))).collect())
        })
        .collect();
    assert!(shown.iter().any(|(_, figures)| figures["used"] != "0"), "some have something alone: {shown:?}");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let objects = mos(&lab.dev(), "tank").unwrap_or_default();
    for (name, figures) in shown.iter().filter(|_| !objects.is_empty()) {
        let object = &objects[&figures["objsetid"].parse().unwrap()];
        for (ours, theirs) in FIGURES {
            assert_eq!(figures[ours], object.number(theirs).to_string(), "{ours} of {name}");
        }
    }
}

#[test]
fn a_snapshot_has_what_was_there() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(3, 256);
    lab.create("", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs("-o compression=lz4", "tank/fs");
    let mut kept: Vec<(String, Tree)> = Vec::new();
    for round in 0..4u64 {
        let folder = mount.join(format!("round{round}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..8 {
            fs::write(folder.join(format!("f{file}")), data::mixed(round * 9 + file, 300_000, 4096)).unwrap();
        }
        let shared = fs::File::options().create(true).truncate(false).write(true).open(mount.join("shared")).unwrap();
        shared.write_all_at(&data::random(round, 200_000), round * 100_000).unwrap();
        if round == 2 {
            fs::remove_dir_all(mount.join("round0")).unwrap();
        }
        let name = format!("tank/fs@s{round}");
        lab.zfs(&format!("snapshot -o my:round={round} {name}")).ok();
        kept.push((name, Tree::of(&mount)));
    }
    fs::remove_dir_all(mount.join("round1")).unwrap();
    lab.zpool("sync").ok();

    let names: Vec<String> = kept.iter().map(|(name, _)| name.clone()).collect();
    listed_and_set(&lab, &names);
    shown_as_zdb_says(&lab, &names);
    for (name, tree) in &kept {
        zdb::assert_same_tree(&lab.dev(), name, tree, 4);
    }

    lab.import("", "tank");
    lab.zfs("destroy -nvp tank/fs@s1%s2").ok().says("destroy\ttank/fs@s1\ndestroy\ttank/fs@s2\nreclaim\t");
    let before: u64 = value(&lab, "usedbysnapshots", "tank/fs").parse().unwrap();
    let reclaim = lab.zfs("destroy -vp tank/fs@s0,s2%s3").ok().stdout;
    let reclaim: u64 = reclaim.lines().last().and_then(|line| line.strip_prefix("reclaim\t")).unwrap().parse().unwrap();
    lab.zpool("wait -t free tank").ok();
    let after: u64 = value(&lab, "usedbysnapshots", "tank/fs").parse().unwrap();
    assert_eq!(before - after, reclaim, "what was said to become free is free");
    assert_eq!(snapshots(&lab, ""), ["tank/fs@s1"]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    zdb::assert_same_tree(&lab.dev(), "tank/fs@s1", &kept[1].1, 4);
    lab.import("", "tank");
    lab.zfs("destroy tank/fs").refused().says("filesystem has children").says("tank/fs@s1");
    lab.zfs("destroy -r tank/fs").ok();
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

// Linux writes pages that a program stored into through a mapping when it likes.
#[test]
fn what_was_stored_through_a_mapping_is_in_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    let length = 4 * MIB as usize;
    fs::write(mount.join("mapped"), vec![0; length]).unwrap();
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[:]=b'x'*len(m)\n\
                  print('stored',flush=True)\nsys.stdin.read()\n";
    let path = mount.join("mapped");
    let mut child = lab
        .command("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    assert_eq!(line, "stored\n");
    lab.zfs("snapshot tank/fs@s").ok();
    drop(child.stdin.take());
    child.wait().unwrap();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(found) = zdb::extracted_sha256(&lab.dev(), "tank/fs@s", "mapped") {
        assert_eq!(found, data::sha256(&vec![b'x'; length]));
    }
}

#[test]
fn several_at_once_and_what_stands_in_the_way() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.create_fs("", "tank/a");
    lab.create_fs("", "tank/a/b");
    lab.zfs("snapshot -r tank@all").ok();
    assert_eq!(snapshots(&lab, "-r tank"), ["tank@all", "tank/a@all", "tank/a/b@all"]);
    let groups = lab.zfs("get -Hp -o value -t snapshot -r createtxg tank").ok().stdout;
    assert!(groups.lines().all(|group| Some(group) == groups.lines().next()), "in one group: {groups}");
    lab.zfs("snap tank/a@two tank/a/b@two").ok();

    let refused = lab.zfs("snapshot tank/a@two tank/a/b@three").refused();
    refused.says("cannot create snapshot 'tank/a@two': dataset already exists").says("no snapshots were created");
    lab.zfs("snapshot tank/a@x tank/a@y").refused().says("multiple snapshots of same fs not allowed");
    lab.zfs("snapshot tank/no@x").refused().says("cannot open 'tank/no': dataset does not exist");
    lab.zfs("snapshot tank/a@x*").refused().says("invalid character '*' in name");
    let long = "n".repeat(247);
    lab.zfs(&format!("snapshot -r tank@{long}")).refused().says("name is too long");
    assert_eq!(snapshots(&lab, "-r tank").len(), 5, "what is refused makes nothing");
    lab.zfs("set snapshot_limit=3 tank/a").ok();
    lab.zfs("snapshot tank/a@x").refused().says("out of space").says("snapshot_limit");
    lab.zfs("set snapshot_limit=none tank/a").ok();

    lab.zfs("hold -r keep tank/a@two").ok();
    lab.zfs("hold keep tank/a@two")
        .refused()
        .says("cannot hold snapshot 'tank/a@two': tag already exists on this dataset");
    let held = lab.zfs("holds -Hp -r tank/a@two").ok().stdout;
    assert!(held.starts_with("tank/a@two\tkeep\t") && held.lines().count() == 2, "{held}");
    lab.zfs("destroy tank/a@two")
        .refused()
        .says("cannot destroy snapshot tank/a@two: it's being held. Run 'zfs holds -r tank/a@two' to see holders.");
    lab.zfs("destroy -d tank/a@two").ok();
    assert_eq!(value(&lab, "defer_destroy", "tank/a@two"), "on");
    lab.zfs("release keep tank/a@all").refused().says("no such tag on this dataset");
    lab.zfs("release -r keep tank/a@two").ok();
    assert_eq!(snapshots(&lab, "tank/a"), ["tank/a@all"], "it goes with its last tag");

    lab.zfs("rename -r tank@all tank@each").ok();
    assert_eq!(snapshots(&lab, "-r tank"), ["tank@each", "tank/a@each", "tank/a/b@each", "tank/a/b@two"]);
    lab.zfs("rename tank/a/b@each tank/a/b@two").refused().says("dataset already exists");
    lab.zfs("rename tank/a/b@each tank/a@x").refused().says("snapshots must be part of same dataset");
    lab.zfs("rename tank/a/b@each @first").ok();
    lab.zfs("destroy tank/a@none").refused().says("could not find any snapshots to destroy; check snapshot names.");
    lab.zfs("destroy -r tank@%").ok();
    assert_eq!(snapshots(&lab, "-r tank"), [""; 0]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_file_system_goes_back() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("old"), data::random(1, 500_000)).unwrap();
    lab.zfs("snapshot tank/fs@old").ok();
    let tree = Tree::of(&mount);
    fs::write(mount.join("new"), data::random(2, 900_000)).unwrap();
    fs::write(mount.join("old"), b"overwritten").unwrap();
    lab.zfs("snapshot tank/fs@new").ok();
    lab.zfs("rollback tank/fs@old").refused().says("more recent snapshots or bookmarks exist").says("tank/fs@new");
    lab.zfs("rollback tank/fs@no").refused().says("dataset does not exist");
    lab.zfs("rollback -r tank/fs@old").ok();
    tree.assert_same(&Tree::of(&mount), "after going back");
    assert_eq!(snapshots(&lab, ""), ["tank/fs@old"]);
    assert_eq!(value(&lab, "used", "tank/fs@old"), "0");
    lab.zpool("wait -t free tank").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("-o readonly=on", "tank");
    lab.zfs("snapshot tank/fs@x").refused().says("read-only");
    lab.zfs("destroy tank/fs@old").refused().says("read-only");
}

/// Files and folders of a snapshot in a mount, as far as its own attributes tell.
fn shown(mount: &Path, name: &str) -> Tree {
    Tree::of(&mount.join(".zfs/snapshot").join(name))
}

#[test]
fn a_mount_shows_its_snapshots() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    let folder = mount.join(".zfs/snapshot");
    let listed = || -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(listed(), [""; 0]);
    let first = Tree::filled(&mount, 5);
    lab.zfs("snapshot tank/fs@one").ok();
    assert_eq!(listed(), ["one"], "it is there at once");
    fs::write(mount.join("later"), data::random(9, 700_000)).unwrap();
    let second = Tree::of(&mount);
    lab.zfs("snapshot tank/fs@two").ok();
    fs::write(mount.join("later"), b"short").unwrap();
    first.assert_same(&shown(&mount, "one"), "in the first snapshot");
    second.assert_same(&shown(&mount, "two"), "in the second snapshot");

    let old = folder.join("two/later");
    for refused in [fs::write(&old, b"x"), fs::remove_file(&old), fs::create_dir(folder.join("two/new"))] {
        assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    assert_eq!(fs::metadata(folder.join("three")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    let (own, theirs) = (fs::metadata(mount.join("later")).unwrap(), fs::metadata(&old).unwrap());
    assert_ne!(own.ino(), theirs.ino(), "who compares device and number does not take them for one file");
    fs::copy(&old, mount.join("copied")).unwrap();
    assert_eq!(fs::read(mount.join("copied")).unwrap(), data::random(9, 700_000));
    assert_eq!(fs::rename(&old, mount.join("moved")).unwrap_err().kind(), std::io::ErrorKind::CrossesDevices);

    lab.zfs("rename tank/fs@two tank/fs@second").ok();
    assert_eq!(listed(), ["one", "second"]);
    assert!(fs::metadata(folder.join("two")).is_err());
    let mut open = fs::File::open(folder.join("second/later")).unwrap();
    lab.zfs("destroy tank/fs@second").ok();
    assert_eq!(listed(), ["one"]);
    assert!(fs::metadata(folder.join("second")).is_err());
    assert!(std::io::Read::read_to_end(&mut open, &mut Vec::new()).is_err(), "nothing is read of what is gone");
    drop(open);
    for round in 0..40 {
        lab.zfs(&format!("snapshot tank/fs@r{round}")).ok();
        assert_eq!(fs::read(folder.join(format!("r{round}/later"))).unwrap(), b"short");
    }
    lab.zfs("destroy tank/fs@r0%r38").ok();
    first.assert_same(&shown(&mount, "one"), "after many others");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `.zfs` is where property `snapdir` says, at once, and other implementations find the value.
#[test]
fn the_control_directory_is_shown_as_wanted() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    fs::write(mount.join("file"), b"x").unwrap();
    lab.zfs("snapshot tank/fs@a").ok();
    let listed = || -> Vec<String> {
        let entries = fs::read_dir(&mount).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let is_found = || fs::metadata(mount.join(".zfs/snapshot/a/file")).is_ok();
    for _ in 0..2 {
        assert!(listed() == ["file"] && is_found());
        lab.zfs("set snapdir=visible tank").ok();
        assert!(listed() == [".zfs", "file"] && is_found());
        lab.zfs("set snapdir=disabled tank/fs").ok();
        assert!(listed() == ["file"] && !is_found());
        assert_eq!(fs::metadata(mount.join(".zfs")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert!(fs::create_dir(mount.join(".zfs")).is_err(), "its name stays its own");
        lab.zfs("inherit snapdir tank/fs").ok();
        assert!(listed() == [".zfs", "file"] && is_found());
        lab.zfs("set snapdir=hidden tank").ok();
    }
    lab.zfs("set snapdir=disabled redundant_metadata=none tank/fs").ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(run) = zdb::zdb(&lab.dev(), &["-dddd", "tank"]) {
        // What does not know the values takes the defaults.
        for stored in ["snapdir = 0", "snapdir$iuv = 2", "redundant_metadata = 0", "redundant_metadata$iuv = 3"] {
            assert!(run.stdout.contains(stored), "{stored}");
        }
    }
    lab.import("", "tank");
    for (property, value) in [("snapdir", "disabled"), ("redundant_metadata", "none")] {
        let stored = lab.zfs(&format!("get -H -o value,source {property} tank/fs")).ok().stdout;
        assert_eq!(stored.trim(), format!("{value}\tlocal"));
    }
    assert!(!is_found());
}

/// `written@…` is what a snapshot, or the data set, has and that earlier snapshot had not.
#[test]
fn what_was_written_since_is_told() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o recordsize=16k", "tank/fs");
    for round in 0..4u64 {
        fs::write(mount.join(format!("file{round}")), data::random(round, 600_000)).unwrap();
        let _ = fs::remove_file(mount.join(format!("file{}", round.saturating_sub(2))));
        lab.zfs(&format!("snapshot tank/fs@{round}")).ok();
    }
    fs::write(mount.join("last"), data::random(9, 300_000)).unwrap();
    lab.zpool("sync").ok();
    let number = |property: &str, name: &str| value(&lab, property, name).parse::<u64>().unwrap();
    // Files of each, in order; what was written and is gone again counts no more.
    let files: [&[(u32, u64)]; 5] = [
        &[],
        &[(1, 600_000)],
        &[(1, 600_000), (2, 600_000)],
        &[(2, 600_000), (3, 600_000)],
        &[(2, 600_000), (3, 600_000), (4, 300_000)],
    ];
    for newer in 1..=4 {
        let name = if newer == 4 { "tank/fs".to_owned() } else { format!("tank/fs@{newer}") };
        for earlier in 0..newer {
            let written = number(&format!("written@{earlier}"), &name);
            assert_eq!(number(&format!("written@tank/fs@{earlier}"), &name), written);
            if earlier + 1 == newer {
                assert_eq!(written, number("written", &name));
            }
            let new = files[newer].iter().filter(|file| !files[earlier].contains(file));
            let least: u64 = new.map(|(_, size)| size).sum();
            assert!((least..least + 100_000).contains(&written), "{name} since {earlier}: {written}");
        }
    }
    lab.zfs("clone tank/fs@1 tank/clone").ok();
    let (cloned, written) = (number("written@tank/fs@0", "tank/clone"), number("written", "tank/fs@1"));
    assert!(cloned >= written && cloned <= written + number("written", "tank/clone"));
    // What is not before it, or not there.
    for (property, name) in
        [("written@2", "tank/fs@1"), ("written@1", "tank/fs@1"), ("written@x", "tank/fs"), ("written@1", "tank")]
    {
        assert_eq!(value(&lab, property, name), "-");
    }
    assert!(lab.zfs("list -H -o name,written@0 tank/fs").ok().stdout.starts_with("tank/fs\t1."));
    // A data set that is a pool's root has bookmarks, too.
    lab.zfs("snapshot tank@a").ok();
    lab.zfs("bookmark tank@a tank#b").ok();
    assert_eq!(lab.zfs("list -H -o name -t bookmark tank#b").ok().stdout, "tank#b\n");
    lab.zfs("destroy tank#b").ok();
}

/// `mkdir`, `rmdir` and `mv` in `.zfs/snapshot` where the data set wants it so.
#[test]
fn folders_of_the_control_directory_are_snapshots() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    let folder = mount.join(".zfs/snapshot");
    fs::write(mount.join("file"), b"first").unwrap();
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
    lab.zfs("snapshot tank/fs@kept").ok();
    // As in OpenZFS, not unless somebody says so.
    assert_eq!(errno(fs::create_dir(folder.join("one"))), EACCES);
    assert_eq!(errno(fs::remove_dir(folder.join("kept"))), EACCES);
    lab.zfs("set platter:snapdir=writable tank").ok();
    // What is only in the kernel's pages is in it.
    fs::write(mount.join("file"), b"second").unwrap();
    fs::create_dir(folder.join("one")).unwrap();
    fs::write(mount.join("file"), b"third").unwrap();
    assert_eq!(fs::read(folder.join("one/file")).unwrap(), b"second");
    assert_eq!(errno(fs::create_dir(folder.join("one"))), EEXIST);
    assert_eq!(errno(fs::create_dir(folder.join("a b#c"))), EINVAL);
    assert_eq!(errno(File::create(folder.join("file")).map(drop)), EROFS);
    fs::rename(folder.join("one"), folder.join("two")).unwrap();
    assert_eq!(errno(fs::rename(folder.join("two"), folder.join("kept"))), EEXIST);
    assert_eq!(errno(fs::rename(folder.join("two"), mount.join("two"))), EXDEV);
    assert_eq!(fs::read(folder.join("two/file")).unwrap(), b"second");
    assert_eq!(snapshots(&lab, "tank/fs"), ["tank/fs@kept", "tank/fs@two"]);
    lab.zfs("hold tag tank/fs@two").ok();
    assert_eq!(errno(fs::remove_dir(folder.join("two"))), EBUSY);
    lab.zfs("release tag tank/fs@two").ok();
    lab.zfs("clone tank/fs@two tank/clone").ok();
    assert!(fs::remove_dir(folder.join("two")).is_err());
    lab.zfs("destroy tank/clone").ok();
    // Somebody else, and at the same time as others.
    let others = ["mkdir", "rmdir"]
        .map(|what| format!("setpriv --reuid 65534 --clear-groups {what} '{}'", folder.join("x").display()));
    for other in others {
        assert!(!lab.command("sh").arg("-c").arg(other).status().unwrap().success());
    }
    std::thread::scope(|scope| {
        for number in 0..8 {
            let folder = &folder;
            scope.spawn(move || {
                fs::create_dir(folder.join(format!("at once {number}"))).unwrap();
                fs::remove_dir(folder.join(format!("at once {number}"))).unwrap();
            });
        }
    });
    fs::remove_dir(folder.join("two")).unwrap();
    assert_eq!(snapshots(&lab, "tank/fs"), ["tank/fs@kept"]);
    assert!(lab.zpool("history tank").ok().stdout.contains("zfs rename tank/fs@one tank/fs@two"));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A data set that is in use is not destroyed, and nor are its snapshots.
#[test]
fn what_is_in_use_keeps_its_snapshots() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/fs");
    lab.zfs("create -V 8M tank/volume").ok();
    for name in ["tank/fs", "tank/volume"] {
        lab.zfs(&format!("snapshot {name}@keep")).ok();
    }
    let open = File::create(mount.join("file")).unwrap();
    lab.zfs("destroy -r tank/fs").refused().says("busy");
    drop(open);
    let path = lab.platter(["volume", "path", "tank/volume"]).ok().stdout;
    let open = File::open(path.trim()).unwrap();
    lab.zfs("destroy -r tank/volume").refused().says("busy");
    drop(open);
    assert_eq!(snapshots(&lab, ""), ["tank/fs@keep", "tank/volume@keep"]);
    // What a hold refuses is mounted again where it was.
    lab.zfs("hold tag tank/fs@keep").ok();
    lab.zfs("destroy -r tank/fs").refused();
    assert!(mount.join("file").exists());
    lab.zfs("release tag tank/fs@keep").ok();
    lab.zfs("destroy -r tank/fs").ok();
    lab.zfs("snapshot tank/volume@a pond/x@a").refused().says("not in one pool");
}

/// A damaged file of which only snapshots and a clone are left is listed by its name in one of them: a scrub looks at
/// what they share once.
#[test]
fn damage_in_snapshots_is_listed_by_name() {
    let Some(lab) = Lab::open() else { return };
    if zdb::zdb(&lab.dev(), &["-h"]).is_none() {
        return;
    }
    lab.disks(1, 256);
    lab.create("-o ashift=12 -O atime=off", "tank", "d0");
    let mount = lab.create_fs("-o compression=off -o recordsize=16k", "tank/fs");
    fs::create_dir(mount.join("folder")).unwrap();
    fs::write(mount.join("folder/file"), data::random(1, 400_000)).unwrap();
    let object = fs::metadata(mount.join("folder/file")).unwrap().ino();
    lab.zfs("snapshot tank/fs@a").ok();
    lab.zfs("snapshot tank/fs@b").ok();
    lab.zfs("clone -u tank/fs@a tank/clone").ok();
    fs::remove_file(mount.join("folder/file")).unwrap();
    lab.export("tank");
    let blocks = zdb::blocks(&lab.dev(), "tank/clone", object).expect("blocks");
    let dva = blocks[3].dvas.first().expect("a copy");
    for range in damage::sectors_of(dva, Layout::Disk, 12, 0) {
        damage::overwrite(&lab.disk(0), range, 7);
    }
    lab.import("", "tank");
    lab.scrub("tank");
    let status = lab.zpool("status -v tank").ok();
    assert!(status.stdout.contains("tank/fs@a:/folder/file\n"), "{status}");
    assert!(!status.stdout.contains("<0x"), "{status}");
}
