//! Properties: set, shown, inherited, reset, refused, and what they do. Which names are the same
//! (`casesensitivity`, `normalization`, `utf8only`) is judged by OpenZFS's `zdb`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use platter_itest::{Lab, Tree, data, zdb};

/// An inherited property: its value by default, two others, and one that is refused.
const INHERITED: [[&str; 5]; 19] = [
    ["compression", "on", "zstd-7", "gzip-9", "zip"],
    ["recordsize", "128K", "1M", "512", "100K"],
    ["checksum", "on", "sha256", "blake3", "md5"],
    ["atime", "on", "off", "on", "yes"],
    ["relatime", "on", "off", "on", "maybe"],
    ["copies", "1", "2", "3", "4"],
    ["readonly", "off", "on", "off", "true"],
    ["exec", "on", "off", "on", "1"],
    ["setuid", "on", "off", "on", "1"],
    ["devices", "on", "off", "on", "1"],
    ["xattr", "on", "dir", "off", "sb"],
    ["acltype", "off", "posix", "off", "acl"],
    ["dnodesize", "legacy", "auto", "4k", "3k"],
    ["sync", "standard", "always", "disabled", "never"],
    ["redundant_metadata", "all", "most", "none", "few"],
    ["primarycache", "all", "metadata", "none", "data"],
    ["secondarycache", "all", "metadata", "none", "data"],
    ["overlay", "on", "off", "on", "1"],
    ["mountpoint", "", "none", "legacy", "relative/path"],
];

type Shown = BTreeMap<String, (String, String)>;

/// Value and source of the table's properties.
#[track_caller]
fn shown(lab: &Lab, dataset: &str) -> Shown {
    let names: Vec<&str> = INHERITED.iter().map(|row| row[0]).collect();
    let run = lab.zfs(&format!("get -H -o property,value,source {} {dataset}", names.join(","))).ok();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        (fields[0].to_owned(), (fields[1].to_owned(), fields[2].to_owned()))
    };
    run.stdout.lines().map(row).collect()
}

fn settings(column: usize) -> String {
    INHERITED.iter().map(|row| format!("{}={} ", row[0], row[column])).collect()
}

#[track_caller]
fn assert_shown(lab: &Lab, dataset: &str, column: usize, source: &str) {
    for (property, found) in shown(lab, dataset) {
        let row = INHERITED.iter().find(|row| row[0] == property).expect("a property of the table");
        if property != "mountpoint" || !row[column].is_empty() {
            assert_eq!(found, (row[column].to_owned(), source.to_owned()), "{property} of {dataset}");
        }
    }
}

#[test]
fn properties_are_set_shown_inherited_and_reset() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    lab.zfs("create -u tank/a").ok();
    lab.zfs("create -u tank/a/b").ok();
    lab.zfs(&format!("set -u {} tank/a", settings(2))).ok();
    assert_shown(&lab, "tank/a", 2, "local");
    assert_shown(&lab, "tank/a/b", 2, "inherited from tank/a");
    lab.zfs(&format!("set -u {} tank/a/b", settings(3))).ok();
    assert_shown(&lab, "tank/a/b", 3, "local");

    // One bad value, and none of the others is set.
    for row in INHERITED {
        let refused = lab.zfs(&format!("set com.example:seen=1 {}={} tank/a/b", row[0], row[4])).refused();
        assert!(refused.mentions("cannot set property for 'tank/a/b': '"), "{refused}");
        assert_eq!(refused.code, 1, "{refused}");
    }
    assert_shown(&lab, "tank/a/b", 3, "local");
    assert_eq!(lab.zfs("get -H -o value com.example:seen tank/a/b").ok().stdout, "-\n");

    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_shown(&lab, "tank/a", 2, "local");
    for row in INHERITED {
        lab.zfs(&format!("inherit {} tank/a/b", row[0])).ok();
    }
    assert_shown(&lab, "tank/a/b", 2, "inherited from tank/a");
    for row in INHERITED.iter().filter(|row| row[0] != "mountpoint") {
        lab.zfs(&format!("inherit -r {} tank/a", row[0])).ok();
    }
    let (mountpoint, rest): (Shown, Shown) =
        shown(&lab, "tank/a/b").into_iter().partition(|(name, _)| name == "mountpoint");
    assert_eq!(mountpoint["mountpoint"], ("none".to_owned(), "inherited from tank/a".to_owned()));
    for (property, found) in rest {
        let row = INHERITED.iter().find(|row| row[0] == property).expect("a property of the table");
        assert_eq!(found, (row[1].to_owned(), "default".to_owned()), "{property}");
    }
    lab.export("tank");
}

#[test]
fn what_cannot_be_set_or_inherited_is_refused_in_openzfs_words() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    lab.zfs("create tank/a").ok();
    // The command's history grows, so the pool's space does change.
    let all = |lab: &Lab| -> Vec<String> {
        let run = lab.zfs("get -Hp all tank/a").ok();
        run.stdout.lines().filter(|line| !line.contains("\tavailable\t")).map(str::to_owned).collect()
    };
    let before = all(&lab);
    let set = [
        ("quota=0", "use 'none' to disable quota/refquota"),
        ("quota=10X", "invalid numeric suffix 'X'"),
        ("quota=ten", "bad numeric value 'ten'"),
        ("quota=99999999999E", "numeric value is too large"),
        ("quota=auto", "'auto' is invalid value for 'quota'"),
        ("refreservation=auto", "'refreservation=auto' only allowed on volumes"),
        ("recordsize=32M", "'recordsize' must be power of 2 from 512B to 16M"),
        ("compression=best", "'compression' must be one of 'on | off | lzjb | gzip | gzip-[1-9] | zle | lz4 | "),
        ("casesensitivity=mixed", "'casesensitivity' is readonly"),
        ("version=4", "Can not downgrade; already at version 5"),
        ("version=6", "'version' must be one of"),
        ("used=1", "'used' is readonly"),
        ("userused@0=1", "'userused@0' is readonly"),
        ("userquota@no-such-person=1G", "'userquota@no-such-person' has an invalid user/group name"),
        ("volsize=1G", "'volsize' does not apply to datasets of this type"),
        ("nonsense=1", "invalid property 'nonsense'"),
        ("Big:letters=1", "invalid property 'Big:letters'"),
        ("mountpoint=here", "'mountpoint' must be an absolute path, 'none', or 'legacy'"),
        ("quota=10G reservation=20G", "size is greater than available space"),
        ("aclinherit=discard", "NFSv4 lists"),
        ("nbmand=on", "mandatory locks"),
        ("volmode=what", "'volmode' must be one of 'default | full | geom | dev | none'"),
        ("special_small_blocks=4096", "no special vdevs yet"),
    ];
    for (setting, reason) in set {
        let refused = lab.zfs(&format!("set {setting} tank/a")).refused();
        assert!(refused.mentions("cannot set property for 'tank/a': ") && refused.mentions(reason), "{refused}");
        assert_eq!(refused.code, 1, "{refused}");
    }
    let long = format!("set com.example:{}=x tank/a", "n".repeat(250));
    lab.zfs(&long).refused().says("is too long");
    let long = format!("set com.example:x={} tank/a", "v".repeat(8192));
    lab.zfs(&long).refused().says("property value too long");
    lab.zfs("set atime=off tank/nosuch").refused().says("cannot open 'tank/nosuch': dataset does not exist");
    lab.zfs("set atime=off tank/").refused().says("cannot open 'tank/': trailing slash in name");
    let run = lab.zfs("inherit quota tank/a").refused();
    assert!(run.mentions("'quota' property cannot be inherited") && run.mentions("use 'zfs set quota=none' to clear"));
    lab.zfs("inherit used tank/a").refused().says("used property is read-only");
    assert_eq!(lab.zfs("inherit nonsense tank/a").code, 2);
    assert_eq!(lab.zfs("set tank/a").code, 2);
    assert_eq!(lab.zfs("get nonsense tank/a").code, 2);
    assert_eq!(lab.zfs("list -o name,nonsense").code, 2);
    assert_eq!(before, all(&lab), "nothing changed");

    // The version that it has anyway, alone and beside another property.
    lab.zfs("set version=5 tank/a").ok();
    lab.zfs("set version=current atime=off tank/a").ok();
    assert_eq!(lab.zfs("get -H -o value version,atime tank/a").ok().stdout, "5\noff\n");
    // A smaller quota and a larger one that another setting makes possible.
    lab.zfs("set quota=50M reservation=20M refquota=30M refreservation=10M tank/a").ok();
    lab.zfs("set reservation=60M quota=80M tank/a").ok();
    lab.zfs("inherit -S quota tank/a").ok();
    assert_eq!(lab.zfs("get -H -o value,source quota tank/a").ok().stdout, "none\tdefault\n");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// Options of the mount at `place`, as the kernel has them.
fn kernel_options(place: &Path) -> Vec<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let line = table.lines().find(|line| line.split(' ').nth(4) == place.to_str());
    line.and_then(|line| line.split(' ').nth(5)).unwrap_or("").split(',').map(str::to_owned).collect()
}

/// Whether a live mount does as a property says.
type Does = fn(&Path, value: &str) -> bool;

fn has_option(mount: &Path, option: &str) -> bool {
    kernel_options(mount).iter().any(|found| found == option)
}

/// Whether reading changes a file's access time: of one that was written since it was read, and of one that was not.
fn reading_is_noted(mount: &Path) -> [bool; 2] {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
    [(now - 60, now - 30), (now + 60, now - 30)].map(|(read, written)| {
        let path = mount.join(format!("read{}", fs::read_dir(mount).expect("the mount").count()));
        fs::write(&path, b"x").expect("a file");
        let at = |seconds| rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: at(read), last_modification: at(written) };
        rustix::fs::utimensat(rustix::fs::CWD, &path, &times, rustix::fs::AtFlags::empty()).expect("times");
        let drop = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(fs::File::open(&path).expect("the file"), 0, None, drop).expect("no pages");
        fs::read(&path).expect("the file");
        fs::metadata(&path).expect("the file").atime() != read
    })
}

fn can_have_attributes(mount: &Path) -> bool {
    let path = mount.join(format!("with{}", fs::read_dir(mount).expect("the mount").count()));
    fs::write(&path, b"x").expect("a file");
    rustix::fs::setxattr(&path, "user.a", b"1", rustix::fs::XattrFlags::empty()).is_ok()
}

/// Whether a POSIX list, of one user besides those that every file has, can be set.
fn can_have_lists(mount: &Path) -> bool {
    let path = mount.join("listed");
    fs::write(&path, b"x").expect("a file");
    let entry = |tag: u16, permissions: u16, id: u32| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [entry(1, 6, none), entry(2, 4, 7), entry(4, 4, none), entry(16, 4, none), entry(32, 4, none)];
    let list = [&2u32.to_le_bytes()[..], &entries.concat()].concat();
    rustix::fs::setxattr(&path, "system.posix_acl_access", &list, rustix::fs::XattrFlags::empty()).is_ok()
}

/// What a live mount does about each property that can be inherited, or why nothing.
const LIVE: [(&str, Result<Does, &str>); 19] = [
    ("compression", Err("of blocks written from now on, mounted or not")),
    ("recordsize", Err("of files made from now on, mounted or not")),
    ("checksum", Err("of blocks written from now on, mounted or not")),
    ("atime", Ok(|mount, value| reading_is_noted(mount)[0] == (value == "on"))),
    ("relatime", Ok(|mount, value| reading_is_noted(mount) == [true, value == "off"])),
    ("copies", Err("of blocks written from now on, mounted or not")),
    ("readonly", Ok(|mount, value| fs::write(mount.join("new"), b"x").is_err() == (value == "on"))),
    ("exec", Ok(|mount, value| has_option(mount, "noexec") == (value == "off"))),
    ("setuid", Ok(|mount, value| has_option(mount, "nosuid") == (value == "off"))),
    ("devices", Ok(|mount, value| has_option(mount, "nodev") == (value == "off"))),
    ("xattr", Ok(|mount, value| can_have_attributes(mount) == (value != "off"))),
    ("acltype", Ok(|mount, value| can_have_lists(mount) == (value == "posix"))),
    ("dnodesize", Err("of files made from now on, mounted or not")),
    ("sync", Err("of the intent log, mounted or not")),
    ("redundant_metadata", Err("of blocks written from now on, mounted or not")),
    ("primarycache", Err("of the block cache, mounted or not")),
    ("secondarycache", Err("of cache devices, mounted or not")),
    ("overlay", Err("of mounting")),
    ("mountpoint", Err("of where it is mounted")),
];

/// `zfs set xattr=` and `acltype=` did nothing to a file system that was mounted, until it was mounted again.
#[test]
fn a_live_mount_does_what_its_properties_say() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root's mounts have set-uid bits and devices");
        return;
    }
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/a");
    let all: Vec<&str> = INHERITED.iter().map(|row| row[0]).collect();
    assert_eq!(all, LIVE.iter().map(|(name, _)| *name).collect::<Vec<_>>(), "every property is thought of");
    for (row, (property, does)) in INHERITED.iter().zip(LIVE) {
        let Ok(does) = does else { continue };
        assert!(does(&mount, row[1]), "{property} by default");
        for value in [row[2], row[3], row[2]] {
            lab.zfs(&format!("set {property}={value} tank/a")).ok();
            assert!(does(&mount, value), "{property}={value}");
        }
        lab.zfs(&format!("inherit {property} tank/a")).ok();
        assert!(does(&mount, row[1]), "{property} inherited");
    }
}

#[test]
fn flags_of_a_mount_follow_properties_and_options() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root's mounts have set-uid bits and devices");
        return;
    }
    lab.disks(1, 256);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("", "tank/a");
    let script = mount.join("script");
    fs::write(&script, "#!/bin/sh\nexit 7\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    let run = || Command::new(&script).status().map(|status| status.code()).map_err(|error| error.raw_os_error());
    assert_eq!(run(), Ok(Some(7)));
    for (property, flag) in [("exec", "noexec"), ("setuid", "nosuid"), ("devices", "nodev")] {
        lab.zfs(&format!("set {property}=off tank/a")).ok();
        assert!(kernel_options(&mount).iter().any(|option| option == flag), "{property}");
    }
    assert_eq!(run(), Err(Some(13)), "EACCES");
    // Shown while a file in it is open, too.
    let open = fs::File::open(&script).expect("open");
    for (setting, shown) in [("atime=off", "noatime"), ("relatime=off atime=on", ""), ("relatime=on", "relatime")] {
        lab.zfs(&format!("set {setting} tank/a")).ok();
        let options = kernel_options(&mount);
        let found = ["noatime", "relatime"].into_iter().find(|flag| options.iter().any(|option| option == flag));
        assert_eq!(found.unwrap_or_default(), shown, "{setting}: {options:?}");
    }
    drop(open);
    lab.zfs("set exec=on setuid=on devices=on readonly=on tank/a").ok();
    assert_eq!(run(), Ok(Some(7)));
    let error = fs::write(mount.join("new"), b"x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(30), "EROFS");
    lab.zfs("inherit readonly tank/a").ok();
    fs::write(mount.join("new"), b"x").expect("writable again");

    // Options are for one mount, and show as temporary.
    lab.zfs("unmount tank/a").ok();
    lab.zfs("mount -o noexec,ro,nonsense tank/a").refused().says("nonsense");
    lab.zfs("mount -o noexec,ro tank/a").ok();
    assert_eq!(run(), Err(Some(13)));
    let shown = lab.zfs("get -H -o value,source exec,readonly,setuid tank/a").ok().stdout;
    assert_eq!(shown, "off\ttemporary\non\ttemporary\non\tlocal\n");
    lab.zfs("mount -o remount,rw tank/a").ok();
    fs::write(mount.join("new"), b"y").expect("writable again");
    lab.zfs("mount tank/a").refused().says("filesystem already mounted");

    // A folder that is not empty is covered only when it may be.
    lab.zfs("unmount tank/a").ok();
    fs::create_dir_all(&mount).expect("a folder");
    fs::write(mount.join("in the way"), b"x").expect("a file below");
    lab.zfs("set overlay=off tank/a").ok();
    lab.zfs("mount tank/a").refused().says("directory is not empty");
    lab.zfs("mount -O tank/a").ok();
    assert_eq!(fs::read(mount.join("new")).expect("the file system's own"), b"y");

    // noauto is left alone by -a in both directions.
    lab.zfs("set canmount=noauto tank/a").ok();
    lab.zfs("unmount -a").refused().says("busy");
    assert_eq!(lab.zfs("mount").ok().stdout.lines().count(), 2, "tank/a, and so tank");
    lab.zfs("unmount tank/a").ok();
    lab.zfs("unmount -a").ok();
    assert_eq!(lab.zfs("mount").ok().stdout, "");
    let run = lab.zfs("mount -av").ok();
    assert_eq!(run.stdout, "Reading ZFS config: done.\nMounting ZFS filesystems: (2/2)\n");
    assert_eq!(lab.zfs("mount").ok().stdout.lines().count(), 1, "only tank");
    lab.export("tank");
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Asserts that OpenZFS finds these names: where names fold, their place in a large directory depends on the form that
/// is hashed.
#[track_caller]
fn assert_found_by_zdb(dir: &Path, dataset: &str, names: &[&str]) {
    for name in names {
        let Some(run) = zdb::zdb(dir, &["-O", dataset, name]) else { return };
        assert!(run.stdout.contains("ZFS plain file"), "{dataset}: {name}\n{run}");
    }
}

#[test]
fn names_without_regard_to_case_or_normal_form_are_found_by_openzfs_too() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let ci = lab.create_fs("-o casesensitivity=insensitive", "tank/ci");
    fs::write(ci.join("Grün"), b"1").expect("a file");
    let inode = |name: &str| fs::metadata(ci.join(name)).map(|found| found.ino()).map_err(|error| error.raw_os_error());
    assert_eq!(inode("GRÜN"), inode("Grün"));
    assert_eq!(inode("gRÜn"), inode("Grün"));
    let again = fs::File::options().write(true).create_new(true).open(ci.join("grün"));
    assert_eq!(again.unwrap_err().raw_os_error(), Some(17), "EEXIST");
    // Linux takes both for one file and has nothing to do, with OpenZFS too.
    fs::rename(ci.join("Grün"), ci.join("GRÜN")).expect("nothing to do");
    assert_eq!(names(&ci), ["Grün"]);
    fs::rename(ci.join("GRÜN"), ci.join("aside")).expect("renamed");
    fs::rename(ci.join("aside"), ci.join("GRÜN")).expect("renamed");
    assert_eq!(names(&ci), ["GRÜN"]);
    fs::write(ci.join("other"), b"2").expect("a file");
    fs::rename(ci.join("OTHER"), ci.join("grün")).expect("replaces it");
    assert_eq!(names(&ci), ["grün"]);
    assert_eq!(fs::read(ci.join("Grün")).expect("the other"), b"2");
    fs::create_dir(ci.join("Dir")).expect("a directory");
    fs::write(ci.join("DIR/File"), b"3").expect("a file in it");
    assert_eq!(fs::read(ci.join("dir/FILE")).expect("found"), b"3");
    fs::remove_file(ci.join("GRÜN")).expect("removed");
    assert_eq!(inode("grün"), Err(Some(2)), "no stale name stays with the kernel");

    let both = lab.create_fs("-o normalization=formD", "tank/ci/both");
    let own = lab.zfs("get -H -o value casesensitivity,normalization,utf8only tank/ci/both").ok().stdout;
    assert_eq!(own, "insensitive\nformD\non\n", "what is not given comes from the parent");
    // A name as long as this makes the directory a fat one, where names are found by their hash.
    let long = "Für alle, die einen langen Namen für einen guten Namen halten";
    fs::write(both.join(long), b"x").expect("a file");
    for index in 0..150 {
        fs::write(both.join(format!("Café-{index}")), b"x").expect("a file");
    }
    assert!(both.join("CAFE\u{301}-123").exists() && !both.join("CAFE-123").exists());
    fs::remove_file(both.join("cafe\u{301}-7")).expect("removed");
    assert_eq!(names(&both).len(), 150);
    let wrong = fs::write(both.join(OsStr::from_bytes(b"\xff")), b"x").unwrap_err();
    assert_eq!(wrong.raw_os_error(), Some(84), "EILSEQ");

    let mixed = lab.create_fs("-o casesensitivity=mixed -o normalization=formKC", "tank/mixed");
    for name in ["Ｆull", "FULL", "full"] {
        fs::write(mixed.join(name), name).expect("a file");
    }
    assert_eq!(names(&mixed).len(), 3);
    assert_eq!(fs::read(mixed.join("Full")).expect("compatible forms are the same"), "Ｆull".as_bytes());
    fs::write(mixed.join(long), b"x").expect("a file");
    for index in 0..100 {
        fs::write(mixed.join(format!("Å{index}")), b"x").expect("a file");
        fs::write(mixed.join(format!("å{index}")), b"x").expect("a file");
    }
    assert_eq!(names(&mixed).len(), 204);
    lab.zfs("create -o normalization=formC -o utf8only=off tank/no").refused().says("'utf8only' must be set 'on'");

    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    assert_found_by_zdb(&lab.dev(), "tank/ci", &["Dir/File"]);
    assert_found_by_zdb(&lab.dev(), "tank/ci/both", &["Café-0", "Café-6", "Café-149", long]);
    assert_found_by_zdb(&lab.dev(), "tank/mixed", &["Ｆull", "FULL", "Å0", "å0", "Å99", "å77", long]);
    lab.import("", "tank");
    lab.wait_mounted(&both);
    assert_eq!(fs::read(both.join("CAFÉ-149")).expect("found after an import"), b"x");
    lab.export("tank");
}

#[test]
fn a_file_system_works_with_any_primarycache() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("-O primarycache=none", "tank", "d0");
    lab.zfs("set primarycache=sometimes tank").refused().says("primarycache");
    for caching in ["metadata", "all", "none"] {
        lab.zfs(&format!("set primarycache={caching} tank")).ok();
        let value = lab.zfs("get -H -o value,source primarycache tank").ok().stdout;
        assert_eq!(value, format!("{caching}\tlocal\n"));
        fs::create_dir(mount.join(caching)).expect("a folder");
        for number in 0..5 {
            let bytes = data::mixed(number, 600_000, 50_000);
            fs::write(mount.join(caching).join(format!("{number}")), bytes).expect("a file");
        }
        lab.zpool("sync tank").ok();
        let tree = Tree::of(&mount);
        // What FUSE has in memory is gone after this.
        lab.judge_and_return("tank", &mount, &tree);
    }
    lab.zfs("inherit primarycache tank").ok();
    assert_eq!(lab.zfs("get -H -o value,source primarycache tank").ok().stdout, "all\tdefault\n");
}
