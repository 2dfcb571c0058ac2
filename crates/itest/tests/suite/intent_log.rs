//! The intent log from a user's side: what was synced before the daemon died is there afterwards, OpenZFS's zdb reads
//! the log, and property `sync` means what it says.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use platter_device::project::FileProject;
use platter_itest::tree::Kind;
use platter_itest::{Lab, Tree, ZfsFuse, data, zdb};
use rustix::fs::{CWD, FallocateFlags, IFlags, RenameFlags, XattrFlags, fallocate, ioctl_getflags, ioctl_setflags};
use rustix::fs::{removexattr, renameat_with, setxattr};

const O_DSYNC: i32 = 0o10000;

/// What zdb prints of the pool's logs.
fn log(lab: &Lab, pool: &str) -> Option<String> {
    Some(zdb::zdb(&lab.dev(), &["-iii", pool])?.ok().stdout)
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

/// Changes whose records software from before feature flags does not know, each synced or followed by one that is.
fn change_what_only_new_pools_log(mount: &Path, round: u32) {
    let path = |name: &str| mount.join(format!("{name}{round}"));
    write_synced(&path("attributes"), &data::random(1, 200_000));
    for (name, value) in [("user.kept", "one"), ("user.changed", "two"), ("user.gone", "three")] {
        setxattr(path("attributes"), name, value.as_bytes(), XattrFlags::empty()).expect("setxattr");
    }
    setxattr(path("attributes"), "user.changed", &[7; 5000], XattrFlags::empty()).expect("setxattr");
    removexattr(path("attributes"), "user.gone").expect("removexattr");
    let file = OpenOptions::new().write(true).open(path("attributes")).expect("open");
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3000, 150_000).expect("punch a hole");
    fallocate(&file, FallocateFlags::empty(), 0, 300_000).expect("grow");
    file.sync_all().expect("sync");
    for name in ["left", "right", "covered"] {
        fs::write(path(name), name).expect("write");
    }
    change_flags(mount, round);
    let rename = |from: &str, to: &str, how| renameat_with(CWD, path(from), CWD, path(to), how).expect("rename");
    rename("left", "right", RenameFlags::EXCHANGE);
    rename("covered", "moved", RenameFlags::WHITEOUT);
    for name in ["left", "right", "moved"] {
        File::open(path(name)).and_then(|file| file.sync_all()).expect("sync");
    }
}

/// File flags and projects; what they forbid is done before they are set, or after they are taken back.
fn change_flags(mount: &Path, round: u32) {
    let path = |name: &str| mount.join(format!("{name}{round}"));
    let set = |file: &File, flags: IFlags| ioctl_setflags(file, flags).expect("flags");
    let give = |file: &File, project: u32| {
        let new = FileProject::of(file).expect("a project").with_id(project).with_inheritance(project != 0);
        new.store(file).expect("set");
    };
    fs::write(path("locked"), b"before it was locked").expect("write");
    let locked = File::open(path("locked")).expect("open");
    set(&locked, IFlags::IMMUTABLE | IFlags::NODUMP);
    locked.sync_all().expect("sync");
    fs::write(path("unlocked"), b"before").expect("write");
    let unlocked = File::open(path("unlocked")).expect("open");
    set(&unlocked, IFlags::IMMUTABLE);
    unlocked.sync_all().expect("sync");
    set(&unlocked, IFlags::empty());
    fs::write(path("unlocked"), b"after").expect("write");
    fs::rename(path("unlocked"), path("renamed")).expect("rename");
    unlocked.sync_all().expect("sync");
    fs::create_dir(path("project")).expect("mkdir");
    let folder = File::open(path("project")).expect("open");
    give(&folder, 7);
    folder.sync_all().expect("sync");
    write_synced(&path("project").join("inherits"), b"7");
    give(&folder, 8);
    write_synced(&path("project").join("inherits more"), b"8");
}

/// Flags and projects of what [`change_flags`] made, as they must be whatever is replayed.
fn assert_flags(mount: &Path, round: u32) {
    let open = |name: &str| File::open(mount.join(name)).expect("it was synced");
    let flags = |name: &str| ioctl_getflags(open(&format!("{name}{round}"))).expect("flags");
    assert_eq!(flags("locked"), IFlags::IMMUTABLE | IFlags::NODUMP);
    assert_eq!(flags("renamed"), IFlags::empty());
    let project = |name: &str| FileProject::of(&open(name)).expect("a project");
    let inherits = project(&format!("project{round}/inherits"));
    assert_eq!((inherits.id(), inherits.is_inherited()), (7, true));
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
        change_what_only_new_pools_log(&mount, round);
        change_everything(&mount, round);
        let before = without_times(Tree::of(&mount));
        lab.kill_daemon(true);
        zdb::assert_clean(&lab.dev(), "tank");
        let log = log(&lab, "tank");
        lab.revive("tank");
        without_times(Tree::of(&mount)).assert_same(&before, "after the kill");
        assert_flags(&mount, round);
        let Some(log) = log else { break };
        let kinds = [
            "MKDIR",
            "CREATE",
            "WRITE",
            "SYMLINK",
            "LINK",
            "REMOVE",
            "RMDIR",
            "RENAME",
            "SETATTR",
            "TRUNCATE",
            "SETSAXATTR",
            "RENAME_EXCHANGE",
            "RENAME_WHITEOUT",
        ];
        let missing: Vec<_> = kinds.iter().filter(|kind| records(&log, &format!("TX_{kind}")) == 0).collect();
        // ATTR_XVATTR and ATTR_CTIME.
        let tells_flags = log.contains("mask 0x80000040");
        if missing.is_empty() && tells_flags {
            assert!(records(&log, "TX_WRITE") >= 4, "a large write is split\n{log}");
            break;
        }
        // A group came between: then its part is not in the log.
        assert!(round < 10, "never in the log: {missing:?}, or file flags ({tells_flags})\n{log}");
    }
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(log) = log(&lab, "tank") {
        assert_eq!(records(&log, "TX_"), 0, "an exported pool has no log\n{log}");
    }
}

/// Changes of attributes that lie in files of their own; what belongs to `dir{round}` is synced at the end.
fn change_hidden_attributes(mount: &Path, round: u32) {
    let path = |name: &str| mount.join(format!("{name}{round}"));
    let set = |name: &str, attribute: &str, value: &[u8]| {
        setxattr(path(name), attribute, value, XattrFlags::empty()).expect("setxattr");
    };
    // One that has its hidden folder already.
    set("first", "user.second", b"beside another");
    // Without contents: nobody makes those stable.
    File::create(path("file")).expect("create");
    set("file", "user.large", &data::random(u64::from(round), 60_000));
    set("file", "user.changed", &[1; 5000]);
    set("file", "user.changed", b"shorter");
    set("file", "user.empty", b"");
    set("file", "user.gone", b"soon");
    removexattr(path("file"), "user.gone").expect("removexattr");
    File::create(path("removed")).expect("create");
    set("removed", "user.too", b"goes with it");
    fs::remove_file(path("removed")).expect("remove");
    fs::create_dir(path("dir")).expect("mkdir");
    set("dir", "user.of_a_folder", &[3; 700]);
    // What is made when the log is replayed has to leave the numbers of all this alone.
    write_synced(&path("dir").join("last"), b"x");
}

#[test]
fn attributes_in_files_of_their_own_have_records_and_survive_a_kill() {
    // They had none once: whoever synced a file with such an attribute waited for the whole group.
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    let mount = lab.create("-O xattr=dir", "tank", "mirror d0 d1");
    for round in 0.. {
        write_synced(&mount.join(format!("first{round}")), b"x");
        setxattr(mount.join(format!("first{round}")), "user.first", b"1", XattrFlags::empty()).expect("setxattr");
        lab.zpool("sync tank").ok();
        change_hidden_attributes(&mount, round);
        let before = without_times(Tree::of(&mount));
        lab.kill_daemon(true);
        zdb::assert_clean(&lab.dev(), "tank");
        let log = log(&lab, "tank");
        lab.revive("tank");
        without_times(Tree::of(&mount)).assert_same(&before, "after the kill");
        let Some(log) = log else { break };
        let counts =
            ["MKXATTR", "CREATE", "WRITE", "TRUNCATE", "REMOVE"].map(|kind| records(&log, &format!("TX_{kind}")));
        let least = [3, 10, 6, 1, 2];
        if counts.iter().zip(least).all(|(count, least)| *count >= least) {
            break;
        }
        // A group came between: then its part is not in the log.
        assert!(round < 10, "never in the log: {counts:?} of {least:?}\n{log}");
    }
    lab.judge_and_return("tank", &mount, &Tree::of(&mount));
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
        lab.kill_daemon(true);
        in_log = log(&lab, "tank").is_some_and(|log| records(&log, "TX_CREATE") > 0);
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
    lab.kill_daemon(true);
    if let Some(log) = log(&lab, "tank") {
        let (_, about_disabled) = log.split_once("Dataset tank/disabled").unwrap_or_default();
        let own = about_disabled.split("Dataset ").next().unwrap_or_default();
        assert_eq!(records(own, "TX_"), 0, "sync=disabled logs nothing\n{own}");
    }
    lab.revive("tank");
    lab.wait_mounted(&always);
    assert_eq!(fs::read(always.join("dir/renamed")).expect("sync=always"), b"stable at once");
    assert_eq!(fs::read(mount.join("dsync")).expect("O_DSYNC"), b"stable too");
    assert!(quick < Duration::from_secs(60), "200 files in {quick:?} with sync=disabled");
    lab.zfs("get -H -o value sync tank/always").ok().says("always");
    lab.zfs("set sync=standard tank/always").ok();
    lab.zfs("set sync=nonsense tank").refused().says("must be one of");
}

/// The tree without what a replay does not bring back to the nanosecond, or zfs-fuse's mounts do not show.
fn shape(mount: &Path) -> Tree {
    let mut tree = without_times(Tree::of(mount));
    tree.0.values_mut().filter(|entry| entry.kind == Kind::Dir).for_each(|entry| entry.size = 0);
    tree
}

#[test]
fn zfs_fuse_replays_a_log_of_platter_and_platter_one_of_zfs_fuse() {
    let Some(lab) = Lab::open() else { return };
    let Some(fuse) = ZfsFuse::start(lab.root()) else { return };
    lab.disks(3, 128);
    let mount = lab.create("-o version=23", "elder", "raidz d0 d1 d2");
    write_synced(&mount.join("first"), b"x");
    let mut before = Tree::default();
    for round in 0..=10 {
        lab.zpool("sync elder").ok();
        change_everything(&mount, round);
        before = shape(&mount);
        lab.kill_daemon(true);
        let Some(log) = log(&lab, "elder") else { break };
        let kinds = ["MKDIR", "CREATE", "WRITE", "SYMLINK", "LINK", "REMOVE", "RMDIR", "RENAME", "SETATTR"];
        if kinds.iter().all(|kind| records(&log, &format!("TX_{kind}")) > 0) {
            break;
        }
        assert!(round < 10, "a group came between each time\n{log}");
        lab.revive("elder");
    }
    fuse.zpool(&format!("import -f -d {} elder", lab.dev().display())).ok();
    before.assert_same(&shape(&mount), "replayed by zfs-fuse");

    // And back: zfs-fuse dies with its log full.
    fuse.zpool("list").ok();
    change_everything(&mount, 100);
    let before = shape(&mount);
    fuse.kill();
    for mount in lab.mounts() {
        let _ = lab.run("umount", ["-l", mount.to_str().expect("UTF-8")]);
    }
    if let Some(log) = log(&lab, "elder") {
        assert!(records(&log, "TX_WRITE") > 0, "zfs-fuse left no log\n{log}");
    }
    lab.revive("elder");
    before.assert_same(&shape(&mount), "replayed by Platter");
    lab.scrub("elder").says("repaired 0B").says("with 0 errors");
    lab.export("elder");
    zdb::assert_clean(&lab.dev(), "elder");
    // It remembers the pool; the next one lets it go while its disks are still there.
    drop(ZfsFuse::start(lab.root()));
}
