//! Space and objects per user, group and project: what `zfs userspace` shows is what zdb finds, in the totals and in
//! the files.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use platter_itest::{Lab, data, zdb};

/// Bytes and objects by id.
type Usage = BTreeMap<u64, (u64, u64)>;

/// `zfs userspace` (or `groupspace`, `projectspace`) by number.
#[track_caller]
fn usage(lab: &Lab, command: &str, dataset: &str) -> Usage {
    let numbers = if command == "projectspace" { "" } else { "-n" };
    let run = lab.zfs(&format!("{command} -Hp {numbers} -o name,used,objused {dataset}")).ok();
    let numbers = |line: &str| -> (u64, (u64, u64)) {
        let fields: Vec<u64> = line.split('\t').map(|field| field.parse().expect("a number")).collect();
        (fields[0], (fields[1], fields[2]))
    };
    run.stdout.lines().map(numbers).collect()
}

/// What zdb finds: the totals of users, groups and projects, and the same summed up from the files themselves.
fn found(dir: &Path, dataset: &str) -> Option<([Usage; 3], [Usage; 3])> {
    let run = zdb::zdb(dir, &["-Pdddd", dataset])?.ok();
    let (mut totals, mut sums) = (<[Usage; 3]>::default(), <[Usage; 3]>::default());
    let (mut object, mut bytes) = (0i64, 0u64);
    for line in run.stdout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [number, level, _, _, dsize, _, _, full, ..] if level.len() < 3 && full.contains('.') => {
                object = number.parse().unwrap_or(0);
                bytes = dsize.parse().unwrap_or(0);
            }
            [name, "=", value] if (-3..0).contains(&object) => {
                let place = &mut totals[usize::try_from(-1 - object).expect("-1, -2 or -3")];
                let value: u64 = value.parse().expect("a total");
                match name.strip_prefix("obj-") {
                    Some(id) => place.entry(u64::from_str_radix(id, 16).expect("an id")).or_default().1 = value,
                    None => place.entry(u64::from_str_radix(name, 16).expect("an id")).or_default().0 = value,
                }
            }
            [kind @ ("uid" | "gid" | "projid"), id] => {
                let at = ["uid", "gid", "projid"].iter().position(|known| known == kind).expect("one of them");
                let sum = sums[at].entry(id.parse().expect("an id")).or_default();
                *sum = (sum.0 + bytes + 512, sum.1 + 1);
            }
            _ => {}
        }
    }
    Some((totals, sums))
}

#[test]
fn totals_follow_files_through_everything_that_happens_to_them() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    lab.disks(2, 256);
    lab.create("", "tank", "mirror d0 d1");
    let mount = lab.create_fs("", "tank/u");
    for index in 0..30u32 {
        let path = mount.join(format!("f{index}"));
        fs::write(&path, data::random(u64::from(index), 1000 * index as usize + 1)).expect("a file");
        chown(&path, Some(1000 + index % 4), Some(2000 + index % 3)).expect("given away");
    }
    fs::create_dir(mount.join("d")).expect("a directory");
    chown(mount.join("d"), Some(1001), None).expect("given away");
    lab.zpool("sync tank").ok();
    for index in (0..30).step_by(3) {
        fs::remove_file(mount.join(format!("f{index}"))).expect("removed");
    }
    fs::hard_link(mount.join("f1"), mount.join("d/link")).expect("a link");
    fs::write(mount.join("f2"), b"shorter").expect("rewritten");
    chown(mount.join("f4"), Some(1003), Some(2002)).expect("given on");
    fs::File::options().write(true).open(mount.join("f5")).and_then(|f| f.set_len(1 << 30)).expect("a hole");
    lab.zpool("sync tank").ok();
    let (users, groups) = (usage(&lab, "userspace", "tank/u"), usage(&lab, "groupspace", "tank/u"));
    let projects = usage(&lab, "projectspace", "tank/u");
    assert_eq!(users.keys().copied().collect::<Vec<_>>(), [0, 1000, 1001, 1002, 1003]);
    assert_eq!(projects.keys().copied().collect::<Vec<_>>(), [0]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let Some((totals, sums)) = found(&lab.dev(), "tank/u") else { return };
    assert_eq!(totals, [users.clone(), groups, projects], "what is shown is what is on disk");
    assert_eq!(sums, totals, "and what the files add up to");
    lab.import("", "tank");
    assert_eq!(usage(&lab, "userspace", "tank/u"), users);
    // A snapshot keeps what was counted.
    lab.zfs("snapshot tank/u@counted").ok();
    assert_eq!(usage(&lab, "userspace", "tank/u@counted"), users);
    let one = |name: &str| lab.zfs(&format!("get -Hp -o value userused@0,userquota@0 {name}")).ok().stdout;
    assert_eq!(one("tank/u@counted"), one("tank/u"));
    lab.zfs("userspace tank/u@none").refused().says("cannot open 'tank/u@none': dataset does not exist");
    lab.zfs("destroy tank/u@counted").ok();
    lab.export("tank");
}

#[test]
fn quotas_of_users_and_groups_hold() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can give files away");
        return;
    }
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    let path = mount.join("file");
    fs::write(&path, data::random(1, 1 << 20)).expect("a file");
    chown(&path, Some(1234), Some(4321)).expect("given away");
    lab.zpool("sync tank").ok();
    lab.zfs("set userquota@1234=512K groupobjquota@4321=1 tank/u").ok();
    let append = || fs::File::options().append(true).open(mount.join("file"))?.write_all(b"more");
    let error = append().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    fs::write(mount.join("other"), b"root's").expect("others are free");
    let error = chown(mount.join("other"), None, Some(4321)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
    let shown = lab.zfs("get -H -o value userquota@1234,groupobjquota@4321,groupobjused@4321 tank/u").ok().stdout;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["512K", "1", "1"]);
    lab.zfs("set userquota@no-such-person=1G tank/u").refused();
    lab.zfs("set userused@1234=1G tank/u").refused();

    // A clone has those of its snapshot, and what it is given.
    lab.zfs("snapshot tank/u@now").ok();
    lab.zfs("clone -o userquota@1234=9M -o groupquota@7=5M tank/u@now tank/c").ok();
    let of_clone = "get -H -o value userquota@1234,groupquota@7,groupobjquota@4321 tank/c";
    let shown = lab.zfs(of_clone).ok().stdout;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["9M", "5M", "1"]);
    lab.zfs("clone -o userused@1=9M tank/u@now tank/d").refused().says("readonly");
    lab.zfs("list tank/d").refused();
    lab.zfs("create -V 8M tank/v").ok();
    lab.zfs("snapshot tank/v@now").ok();
    lab.zfs("clone -p -o userquota@1=9M tank/v@now tank/p/v").refused().says("do not apply to volumes");
    lab.zfs("list tank/p").refused();
    lab.zfs("destroy -r tank/v").ok();
    lab.zfs("destroy tank/c").ok();
    lab.zfs("destroy tank/u@now").ok();

    // The limits are there again after an import, hold at once, and go when they are taken back.
    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert_eq!(append().unwrap_err().raw_os_error(), Some(122));
    fs::remove_file(mount.join("file")).expect("deleting works over quota");
    lab.zpool("sync tank").ok();
    chown(mount.join("other"), None, Some(4321)).expect("there is room for one");
    lab.zfs("set userquota@1234=none groupobjquota@4321=none tank/u").ok();
    fs::write(mount.join("file"), data::random(2, 1 << 20)).expect("no limit");
    chown(mount.join("file"), Some(1234), Some(4321)).expect("no limit");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `zfs project WORDS PATH...` below `mount`, with the paths shortened again.
#[track_caller]
fn project(lab: &Lab, mount: &Path, words: &str, paths: &[&str]) -> Vec<String> {
    let paths = paths.iter().map(|path| mount.join(path).to_str().expect("UTF-8").to_owned());
    let words = ["zfs", "project"].into_iter().chain(words.split_whitespace()).map(str::to_owned).chain(paths);
    let run = lab.platter(words).ok();
    let mut lines: Vec<String> =
        run.stdout.lines().map(|line| line.replace(&format!("{}/", mount.display()), "")).collect();
    lines.sort();
    lines
}

/// `zfs project -p ID PATH`, which must fail for this reason.
#[track_caller]
fn project_fails(lab: &Lab, id: &str, path: &Path, reason: &str) {
    lab.platter(["zfs", "project", "-p", id, path.to_str().expect("UTF-8")]).refused().says(reason);
}

#[track_caller]
fn errno<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// What `lsattr` and `chattr` say of a tree of project 7 and a file outside of it.
fn assert_lsattr_agrees(lab: &Lab, mount: &Path) {
    if let Some(program) = platter_itest::judge::need("lsattr") {
        let program = program.to_str().expect("UTF-8");
        let listed = lab.run(program, ["-pd", mount.join("tree").to_str().expect("UTF-8")]).ok();
        assert!(listed.stdout.trim_start().starts_with("7 ") && listed.stdout.contains('P'), "{listed}");
        lab.run("chattr", ["-p", "9", mount.join("outside").to_str().expect("UTF-8")]).ok();
        assert_eq!(project(lab, mount, "", &["outside"]), ["    9 - outside"]);
        assert_eq!(
            project(lab, mount, "-c -p 9", &["outside"]),
            ["outside - project inherit flag is not set"],
            "it has the number and not the flag"
        );
    }
}

#[test]
fn a_tree_of_one_project_keeps_others_out_and_is_counted() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o xattr=dir", "tank/u");
    fs::create_dir_all(mount.join("tree/before")).expect("folders");
    fs::write(mount.join("tree/before/old"), data::random(1, 100_000)).expect("a file");
    fs::write(mount.join("outside"), b"of no project").expect("a file");
    let attribute = |path: &str| {
        rustix::fs::setxattr(mount.join(path), "user.a", &[1; 5000], rustix::fs::XattrFlags::empty()).expect("set");
    };
    attribute("tree/before/old");
    project(&lab, &mount, "-s -p 7 -r", &["tree"]);
    fs::write(mount.join("tree/new"), data::random(2, 200_000)).expect("a file");
    fs::create_dir(mount.join("tree/sub")).expect("a folder");
    fs::write(mount.join("tree/sub/newer"), b"x").expect("a file");
    std::os::unix::fs::symlink("new", mount.join("tree/link")).expect("a link");
    attribute("tree/new");
    assert_eq!(project(&lab, &mount, "-d", &["tree"]), ["    7 P tree"]);
    assert_eq!(project(&lab, &mount, "", &["outside"]), ["    0 - outside"]);
    let all = ["tree", "tree/before", "tree/before/old", "tree/new", "tree/sub", "tree/sub/newer"];
    assert_eq!(project(&lab, &mount, "-r", &["tree"]), all.map(|path| format!("    7 P {path}")));
    assert_lsattr_agrees(&lab, &mount);
    assert_eq!(project(&lab, &mount, "-c -r", &["tree"]), [""; 0]);

    const EXDEV: Option<i32> = Some(18);
    assert_eq!(errno(fs::rename(mount.join("outside"), mount.join("tree/in"))), EXDEV);
    assert_eq!(errno(fs::hard_link(mount.join("outside"), mount.join("tree/in"))), EXDEV);
    let exchanged = rustix::fs::renameat_with(
        rustix::fs::CWD,
        mount.join("tree/new"),
        rustix::fs::CWD,
        mount.join("outside"),
        rustix::fs::RenameFlags::EXCHANGE,
    );
    assert_eq!(exchanged, Err(rustix::io::Errno::XDEV));
    fs::rename(mount.join("tree/link"), mount.join("tree/sub/link")).expect("links too have a project");
    fs::rename(mount.join("tree/before/old"), mount.join("tree/sub/old")).expect("the same project");
    fs::hard_link(mount.join("tree/new"), mount.join("tree/sub/linked")).expect("the same project");
    fs::rename(mount.join("tree/sub/newer"), mount.join("taken out")).expect("out of the tree is free");
    project(&lab, &mount, "-p 7", &["outside"]);
    fs::rename(mount.join("outside"), mount.join("tree/in")).expect("the same project now");
    let taken_in = project(&lab, &mount, "", &["tree/in", "taken out"]);
    assert_eq!(taken_in, ["    7 P taken out", "    7 P tree/in"], "what comes into the tree passes the project on");
    project(&lab, &mount, "-C -k", &["taken out"]);
    assert_eq!(project(&lab, &mount, "", &["taken out"]), ["    7 - taken out"]);

    lab.zpool("sync tank").ok();
    let projects = usage(&lab, "projectspace", "tank/u");
    assert_eq!(projects.keys().copied().collect::<Vec<_>>(), [0, 7]);
    let of_users = usage(&lab, "userspace", "tank/u").values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let of_projects = projects.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    assert_eq!(of_projects, of_users, "every file is in one project");
    // Folders, files, link, and two hidden folders with a file each.
    assert_eq!(projects[&7].1, 3 + 4 + 1 + 4);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    let Some((totals, sums)) = found(&lab.dev(), "tank/u") else { return };
    assert_eq!((&totals[2], &sums[2]), (&projects, &projects), "zdb's totals and zdb's files");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert_eq!(project(&lab, &mount, "-d", &["tree"]), ["    7 P tree"]);
    project(&lab, &mount, "-C -r", &["tree"]);
    fs::remove_file(mount.join("taken out")).expect("removed");
    lab.zpool("sync tank").ok();
    let left = usage(&lab, "projectspace", "tank/u");
    assert_eq!((left.len(), left[&7].1), (2, 1), "a link keeps its number: none can be set on it");
    lab.export("tank");
}

#[test]
fn quotas_of_projects_hold() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    fs::create_dir(mount.join("tree")).expect("a folder");
    fs::write(mount.join("outside"), b"of no project").expect("a file");
    project(&lab, &mount, "-s -p 7", &["tree"]);
    fs::write(mount.join("tree/file"), data::random(1, 1 << 20)).expect("a file");
    lab.zpool("sync tank").ok();
    lab.zfs("set projectquota@7=512K projectobjquota@7=100 tank/u").ok();
    const EDQUOT: Option<i32> = Some(122);
    let append = |name: &str| fs::File::options().append(true).open(mount.join(name))?.write_all(b"more");
    assert_eq!(errno(append("tree/file")), EDQUOT);
    assert_eq!(errno(fs::write(mount.join("tree/another"), b"x")), EDQUOT);
    append("outside").expect("others are free");
    project_fails(&lab, "7", &mount.join("outside"), "Disk quota exceeded");
    let shown = "get -H -o value projectquota@7,projectobjquota@7,projectobjused@7 tank/u";
    let shown = lab.zfs(shown).ok().stdout;
    assert_eq!(shown.split_whitespace().collect::<Vec<_>>(), ["512K", "100", "2"]);
    // df shows the limits inside the tree.
    let inside = rustix::fs::statvfs(mount.join("tree")).expect("statvfs");
    assert_eq!((inside.f_blocks * inside.f_frsize, inside.f_bavail), (512 << 10, 0));
    assert_eq!((inside.f_files, inside.f_ffree), (100, 98));
    assert!(rustix::fs::statvfs(&mount).expect("statvfs").f_bavail > 0);
    lab.zfs("set projectused@7=1G tank/u").refused();
    lab.zfs("set projectquota@name=1G tank/u").refused();

    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    assert_eq!(errno(append("tree/file")), EDQUOT);
    lab.zfs("set projectquota@7=none projectobjquota@7=2 tank/u").ok();
    append("tree/file").expect("space is free, objects are not");
    assert_eq!(errno(fs::create_dir(mount.join("tree/d"))), EDQUOT);
    lab.zfs("set projectobjquota@7=none tank/u").ok();
    fs::create_dir(mount.join("tree/d")).expect("no limit");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn files_from_before_projects_get_one_when_it_is_set() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-o feature@project_quota=disabled", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    for (name, bytes) in [("plain", 70_000), ("rewritten", 80_000), ("given", 90_000), ("listed", 100_000)] {
        fs::write(mount.join(name), data::random(bytes, bytes as usize)).expect("a file");
    }
    let attribute = |path: &str, value: &[u8]| {
        rustix::fs::setxattr(mount.join(path), "user.a", value, rustix::fs::XattrFlags::empty()).expect("set");
    };
    attribute("listed", &[1; 700]);
    attribute("given", &[2; 20]);
    project_fails(&lab, "5", &mount.join("given"), "Operation not supported");
    lab.zpool("set feature@project_quota=enabled tank").ok();
    lab.zpool("sync tank").ok();
    fs::write(mount.join("new"), data::random(5, 5000)).expect("a file");
    fs::write(mount.join("rewritten"), data::random(6, 6000)).expect("a file");
    lab.zpool("sync tank").ok();
    // The first change counts what was never counted, in the background.
    counted(&lab, "tank/u");
    assert_eq!(usage(&lab, "projectspace", "tank/u").keys().copied().collect::<Vec<_>>(), [0]);
    project(&lab, &mount, "-p 5", &["given", "listed"]);
    assert_eq!(project(&lab, &mount, "", &["given", "plain"]), ["    0 - plain", "    5 - given"]);
    lab.zpool("sync tank").ok();
    let projects = usage(&lab, "projectspace", "tank/u");
    assert_eq!(projects[&5].1, 2);
    let before = platter_itest::Tree::of(&mount);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some((totals, sums)) = found(&lab.dev(), "tank/u") {
        assert_eq!(totals[2], projects, "what is shown is what is on disk");
        assert_eq!(sums[2][&5], projects[&5], "and what the files add up to");
        let all = |usage: &Usage| usage.values().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        assert_eq!(all(&totals[2]), all(&sums[0]), "files without a number are in project 0");
        zdb::assert_same_tree(&lab.dev(), "tank/u", &before, 5);
    }
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    before.assert_same(&platter_itest::Tree::of(&mount), "after export and import");
    lab.export("tank");
}

/// Waits until a data set's projects are counted, and with them its users' objects.
#[track_caller]
fn counted(lab: &Lab, dataset: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while lab.zfs(&format!("projectspace -H -o used {dataset}")).ok().stdout.is_empty() {
        assert!(Instant::now() < deadline, "{dataset} is not counted");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn objects_are_counted_where_somebody_works_after_the_pool_began_to_count() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("-d", "tank", "d0");
    let objects = |dataset: &str| lab.zfs(&format!("userspace -H -o name,objused,objquota {dataset}")).ok().stdout;
    let feature = || lab.zpool("get -H -o value feature@userobj_accounting tank").ok().stdout;
    for name in ["tank/used", "tank/idle", "tank/mounted", "tank/asked"] {
        let mount = lab.create_fs("", name);
        (0..20).for_each(|file| fs::write(mount.join(format!("file{file}")), "text").expect("a file"));
    }
    let all = || ["tank/used", "tank/idle", "tank/mounted", "tank/asked"].map(objects);
    lab.zfs("unmount tank/mounted").ok();
    assert_eq!(all(), ["root\t-\t-\n"; 4]);
    let late = lab.create_fs("", "tank/late");
    // What is made in the group that begins to count, and changes of what is there, make nobody count.
    fs::write(late.join("file"), "text").expect("a file");
    lab.zpool("set feature@userobj_accounting=enabled tank").ok();
    lab.zpool("set feature@project_quota=enabled tank").ok();
    lab.zpool("sync tank").ok();
    for name in ["tank/idle", "tank/late"] {
        let file = fs::read_dir(lab.mnt(name)).expect("a folder").next().expect("a file").expect("a name");
        fs::write(file.path(), "other text").expect("a file");
    }
    lab.zpool("sync tank").ok();
    lab.zpool("sync tank").ok();
    assert_eq!((all(), feature().trim()), (["root\t-\t-\n"; 4].map(str::to_owned), "enabled"));
    assert_eq!(lab.zfs("get -H -o value,source userobjused@root tank/idle").ok().stdout, "-\t-\n");

    fs::write(lab.mnt("tank/used").join("new"), "text").expect("a file");
    counted(&lab, "tank/used");
    lab.zfs("mount tank/mounted").ok();
    counted(&lab, "tank/mounted");
    // Who sets a quota wants it to hold from now on.
    lab.zfs("set userobjquota@root=9K tank/asked").ok();
    let expected = ["root\t22\tnone\n", "root\t-\t-\n", "root\t21\tnone\n", "root\t21\t9K\n"];
    assert_eq!((all(), feature().trim()), (expected.map(str::to_owned), "active"));

    // Nor does anybody have to wait for a change: this ends when all is counted.
    lab.zfs("set version=current tank/late").ok();
    assert_eq!(objects("tank/late"), "root\t2\tnone\n");

    // What is not counted is not begun by a look, and an export in the middle of a count loses nothing.
    fs::write(lab.mnt("tank/idle").join("new"), "text").expect("a file");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    lab.wait_mounted(&lab.mnt("tank/idle"));
    counted(&lab, "tank/idle");
    assert_eq!(objects("tank/idle"), "root\t22\tnone\n");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some((totals, sums)) = found(&lab.dev(), "tank/idle") {
        assert_eq!(totals[..2], sums[..2], "what is counted is what the files add up to");
        assert_eq!(totals[2], totals[0], "files without a number are in project 0");
    }
}

/// The count of the objects had been begun, and with that none was begun any more for as long as it was mounted.
#[test]
fn what_a_pool_begins_to_count_later_is_counted_too() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("-d", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    lab.zpool("set feature@userobj_accounting=enabled tank").ok();
    fs::write(mount.join("one"), "text").expect("a file");
    let deadline = Instant::now() + Duration::from_secs(60);
    while lab.zfs("userspace -H -o objused tank/u").ok().stdout.trim() == "-" {
        assert!(Instant::now() < deadline, "its objects are not counted");
        thread::sleep(Duration::from_millis(50));
    }
    lab.zpool("set feature@project_quota=enabled tank").ok();
    fs::write(mount.join("two"), "text").expect("a file");
    counted(&lab, "tank/u");
    assert_eq!(usage(&lab, "projectspace", "tank/u")[&0].1, 3);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `zpool sync tank`, without a program that takes some milliseconds to start.
fn sync_at_once(lab: &Lab) {
    let mut daemon = UnixStream::connect(lab.home().join("daemon.sock")).expect("the daemon listens");
    let sync = r#"{"operate_pool":{"pool":"tank","operation":{"sync":{"force":false}}}}"#;
    let request = format!(
        "POST /v2 HTTP/1.1\r\nHost: platter\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{sync}",
        sync.len()
    );
    daemon.write_all(request.as_bytes()).expect("asked");
    let mut answer = String::new();
    daemon.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn what_was_removed_is_not_counted_after_a_sync() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/u");
    let before = usage(&lab, "userspace", "tank/u");
    for round in 0..10 {
        fs::write(mount.join("file"), data::random(round, 100_000)).expect("a file");
        sync_at_once(&lab);
        assert_ne!(usage(&lab, "userspace", "tank/u"), before);
        fs::remove_file(mount.join("file")).expect("removed");
        sync_at_once(&lab);
        assert_eq!(usage(&lab, "userspace", "tank/u"), before);
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
