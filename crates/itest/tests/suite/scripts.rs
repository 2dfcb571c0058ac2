//! What administrators' scripts rely on: exit codes, which file systems are mounted after a property changed, which
//! folders stay. Differences that OpenZFS's own test suite found.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;

use platter_itest::{Lab, binary, data, zdb, zhack};
use rustix::fs::{Mode, OFlags};

fn mounted(lab: &Lab, dataset: &str) -> String {
    lab.zfs(&format!("get -H -o value mounted {dataset}")).ok().stdout.trim().to_owned()
}

fn value(lab: &Lab, property: &str, dataset: &str) -> String {
    lab.zfs(&format!("get -Hp -o value {property} {dataset}")).ok().stdout.trim().to_owned()
}

/// A data set that got a mount point again was mounted, and what is below it was not.
#[test]
fn what_inherits_a_mount_point_is_mounted_with_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let place = lab.tmp().join("elsewhere");
    for before in ["none", "legacy"] {
        for change in ["inherit mountpoint tank/i".to_owned(), format!("set mountpoint={} tank/i", place.display())] {
            lab.zfs(&format!("create -o mountpoint={before} tank/i")).ok();
            lab.zfs("create tank/i/c").ok();
            lab.zfs("create -o mountpoint=none tank/i/none").ok();
            lab.zfs("create tank/i/none/c").ok();
            lab.zfs("create -o canmount=noauto tank/i/noauto").ok();
            lab.zfs(&change).ok();
            for (dataset, expected) in
                [("i", "yes"), ("i/c", "yes"), ("i/none", "no"), ("i/none/c", "no"), ("i/noauto", "no")]
            {
                assert_eq!(mounted(&lab, &format!("tank/{dataset}")), expected, "{change}, was {before}: {dataset}");
            }
            lab.zfs("destroy -r tank/i").ok();
        }
    }
}

/// One that was mounted by hand is mounted at its new place too.
#[test]
fn what_was_mounted_by_hand_moves_with_its_mount_point() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zfs("create -o canmount=noauto tank/a").ok();
    lab.zfs("mount tank/a").ok();
    lab.zfs(&format!("set mountpoint={} tank/a", lab.tmp().join("new").display())).ok();
    assert_eq!(mounted(&lab, "tank/a"), "yes");
}

/// It was refused as busy, for the child that is mounted inside.
#[test]
fn canmount_off_unmounts_a_parent_and_leaves_its_children() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let root = lab.create("", "tank", "d0");
    lab.zfs("create tank/par").ok();
    lab.zfs("create tank/par/kid").ok();
    fs::write(root.join("par/kid/file"), "here").expect("a file");
    lab.zfs("set canmount=off tank/par").ok();
    assert_eq!((mounted(&lab, "tank/par").as_str(), mounted(&lab, "tank/par/kid").as_str()), ("no", "yes"));
    assert_eq!(fs::read_to_string(root.join("par/kid/file")).expect("the file"), "here");
    // A child that is in use keeps both as they were.
    lab.zfs("set canmount=on tank/par").ok();
    assert_eq!(mounted(&lab, "tank/par"), "no", "it only may be mounted again");
    for command in ["unmount tank/par/kid", "mount tank/par", "mount tank/par/kid"] {
        lab.zfs(command).ok();
    }
    let held = fs::File::open(root.join("par/kid/file")).expect("open");
    assert_ne!(lab.zfs("set canmount=off tank/par").code, 0);
    assert_eq!(value(&lab, "canmount", "tank/par"), "on");
    drop(held);
}

/// Creating ended with 0 although nothing was mounted; setting a mount point with 1 although it was set.
#[test]
fn what_cannot_be_mounted_is_a_failure_of_create_and_none_of_set() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let full = lab.tmp().join("full");
    fs::create_dir(&full).expect("a folder");
    fs::write(full.join("file"), "").expect("a file");
    let run = lab.zfs(&format!("create -o overlay=off -o mountpoint={} tank/a", full.display()));
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.ends_with("filesystem successfully created, but not mounted\n"), "{run}");
    assert_eq!(mounted(&lab, "tank/a"), "no");
    lab.zfs("create -o overlay=off tank/b").ok();
    let run = lab.zfs(&format!("set mountpoint={} tank/b", full.display())).ok();
    assert!(run.stderr.contains("property may be set but unable to remount filesystem"), "{run}");
    assert_eq!(value(&lab, "mountpoint", "tank/b"), full.display().to_string());
}

/// They were invalid properties.
#[test]
fn quotas_of_users_can_be_given_when_something_is_created() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("-O userquota@root=7M -O groupobjquota@12=9", "tank", "d0");
    assert_eq!(
        (value(&lab, "userquota@0", "tank"), value(&lab, "groupobjquota@12", "tank")),
        ("7340032".into(), "9".into())
    );
    lab.zfs("create -o projectquota@3=2M -o userobjquota@root=none tank/a").ok();
    assert_eq!(
        (value(&lab, "projectquota@3", "tank/a"), value(&lab, "userobjquota@0", "tank/a")),
        ("2097152".into(), "0".into())
    );
    for bad in ["userquota@nobody-has-this-name=1M", "userquota@root=many", "userused@root=1M"] {
        let run = lab.zfs(&format!("create -o {bad} tank/b"));
        assert_eq!(run.code, 1, "{run}");
        assert_ne!(lab.zfs("list tank/b").code, 0, "{bad}: a create that fails leaves nothing");
    }
    // Nobody's numbers are no error to ask for.
    assert_eq!(value(&lab, "userquota@nobody-has-this-name", "tank"), "-");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The administrator's own folder was removed with what had been mounted there.
#[test]
fn a_folder_that_was_chosen_stays() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let root = lab.create("", "tank", "d0");
    let (chosen, other) = (lab.tmp().join("chosen"), lab.tmp().join("other"));
    let make = || lab.zfs(&format!("create -o mountpoint={} tank/a", chosen.display())).ok();
    make();
    lab.zfs("destroy tank/a").ok();
    assert!(chosen.is_dir(), "after destroy");
    make();
    lab.zfs(&format!("set mountpoint={} tank/a", other.display())).ok();
    assert!(chosen.is_dir() && other.is_dir(), "after set");
    lab.zfs("create tank/b").ok();
    lab.zfs("destroy tank/b").ok();
    assert!(!root.join("b").exists(), "one that nobody chose goes");
    lab.export("tank");
    assert!(other.is_dir(), "after export");
}

/// Nothing was written when nothing was dirty.
#[test]
fn a_forced_sync_writes_a_group() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zpool("sync tank").ok();
    let written = || {
        let text = lab.run("zdb", ["-e", "-u", "-p", &lab.dev().display().to_string(), "tank"]).ok().stdout;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("txg = ").map(str::to_owned));
        line.expect("a txg").parse::<u64>().expect("a number")
    };
    for _ in 0..3 {
        let before = written();
        lab.zpool("sync -f tank").ok();
        assert!(written() > before, "sync -f wrote no group after {before}");
    }
}

/// It ended with 0.
#[test]
fn clear_of_a_read_only_pool_is_refused() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.export("tank");
    lab.import("-o readonly=on", "tank");
    let run = lab.zpool("clear tank");
    assert_eq!((run.code, run.stderr.as_str()), (1, "cannot clear errors for tank: pool is read-only\n"));
}

/// An empty value was stored, and what nobody had set was not shown at all.
#[test]
fn an_empty_value_takes_a_pools_user_property_away() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let shown = || lab.zpool("get -H x:y tank").ok().stdout;
    assert_eq!(shown(), "tank\tx:y\t-\tdefault\n");
    lab.zpool("set x:y=z tank").ok();
    assert_eq!(shown(), "tank\tx:y\tz\tlocal\n");
    lab.zpool("set x:y= tank").ok();
    assert_eq!(shown(), "tank\tx:y\t-\tdefault\n");
    assert!(!lab.zpool("get -H all tank").ok().stdout.contains("x:y"));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    lab.import("", "tank");
    assert_eq!(shown(), "tank\tx:y\t-\tdefault\n");
}

/// Any name with a colon was taken for a pool, and names with a plus sign for both.
#[test]
fn user_properties_have_the_names_that_openzfs_gives_them() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let (long_name, long_value) = (format!("x:{}=y", "a".repeat(254)), format!("x:y={}", "A".repeat(8192)));
    for bad in ["x:V=1", "x:y&z=1", "x:y+z=1", "x:[=1", &long_name, &long_value] {
        for run in [lab.zpool(&format!("set {bad} tank")), lab.zfs(&format!("set {bad} tank"))] {
            assert_ne!(run.code, 0, "{run}");
        }
    }
    for good in ["x:y-z_0.1=V&+", ":=1"] {
        lab.zpool(&format!("set {good} tank")).ok();
        lab.zfs(&format!("set {good} tank")).ok();
    }
}

/// The zone was missing, which ends what is said of where a command ran.
#[test]
fn long_history_names_user_host_and_zone() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zfs("create tank/a").ok();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a host name");
    let end = format!("zfs create tank/a [user 0 (root) on {}:linux]\n", host.trim());
    let run = lab.zpool("history -l tank").ok();
    assert!(run.stdout.contains(&end), "{run}");
}

/// Nothing was said.
#[test]
fn status_says_that_features_are_not_enabled() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let said =
        |pool: &str| lab.zpool(&format!("status {pool}")).ok().stdout.contains("features are not enabled on the pool");
    lab.create("-d", "old", "d0");
    assert!(said("old"));
    assert_eq!(lab.zpool("status -x").ok().stdout, "all pools are healthy\n");
    lab.zpool("upgrade old").ok();
    assert!(!said("old"));
    lab.create("-o compatibility=legacy", "legacy", "d1");
    assert!(!said("legacy"), "they are not wanted there");
}

/// It was taken.
#[test]
fn a_feature_cannot_be_made_active() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let disk = lab.disk(0).display().to_string();
    let run = lab.platter(["zpool", "create", "-o", "feature@async_destroy=active", "tank", &disk]);
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("can only be set to 'enabled' or 'disabled'"), "{run}");
}

/// It became active with the first block.
#[test]
fn a_compression_that_needs_a_feature_activates_it_at_once() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let state = || lab.zpool("get -H -o value feature@zstd_compress tank").ok().stdout.trim().to_owned();
    assert_eq!(state(), "enabled");
    lab.zfs("create -o compression=zstd-5 tank/a").ok();
    assert_eq!(state(), "active", "by create");
    lab.zfs("destroy tank/a").ok();
    assert_eq!(state(), "enabled");
    lab.zfs("set compression=zstd tank").ok();
    assert_eq!(state(), "active", "by set");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// `f_bsize` was 512.
#[test]
fn programs_are_told_the_record_size() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    let mount = lab.create("-O recordsize=64K", "tank", "d0");
    let stat = rustix::fs::statvfs(&mount).expect("statvfs");
    assert_eq!((stat.f_bsize, stat.f_frsize), (64 << 10, 64 << 10));
    assert!(stat.f_blocks > stat.f_bavail && stat.f_bavail * stat.f_frsize > 100 << 20);
    fs::write(mount.join("file"), vec![1; 300_000]).expect("a file");
    assert_eq!(fs::metadata(mount.join("file")).expect("stat").blksize(), 64 << 10);
}

/// One too many for a fifth of all objects: raidz's share of a block is no whole sector.
#[test]
fn blocks_are_counted_as_openzfs_rounds_them() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(5, 128);
    lab.create("-o ashift=9", "tank", "raidz d0 d1 d2 d3 d4");
    let mount = lab.create_fs("", "tank/a");
    for size in (1..40).map(|step| step * 3000) {
        fs::write(mount.join(format!("f{size}")), platter_itest::data::random(size as u64, size)).expect("a file");
    }
    lab.zpool("sync tank").ok();
    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    let shown: Vec<(u64, u64)> = fs::read_dir(&mount)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").metadata().expect("stat"))
        .map(|metadata| (metadata.ino(), metadata.blocks()))
        .collect();
    lab.export("tank");
    for (object, blocks) in shown {
        let dev = lab.dev().display().to_string();
        let text = lab.run("zdb", ["-e", "-p", &dev, "-P", "-dddd", "tank/a", &object.to_string()]).ok().stdout;
        // Object lvl iblk dblk dsize dnsize lsize ...
        let row = text.lines().find(|line| line.split_whitespace().next() == Some(&object.to_string()));
        let row: Vec<u64> = row.expect("its row").split_whitespace().take(6).map(|n| n.parse().expect("n")).collect();
        let (dsize, dnsize) = (row[4], row[5]);
        // The dnode itself is counted too.
        assert_eq!(blocks, (dsize + dnsize) / 512, "object {object}: {row:?}");
    }
}

/// `chattr +a` files let their attributes be changed.
#[test]
fn what_may_only_grow_keeps_its_attributes() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    let path = mount.join("log");
    fs::write(&path, "one").expect("a file");
    let set = |value: &[u8]| {
        rustix::fs::setxattr(&path, "user.x", value, rustix::fs::XattrFlags::empty())
            .map_err(|error| error.raw_os_error())
    };
    set(b"1").expect("before");
    lab.run("chattr", ["+a", &path.display().to_string()]).ok();
    const EPERM: i32 = 1;
    assert_eq!(set(b"2"), Err(EPERM));
    let removed = rustix::fs::removexattr(&path, "user.x").map_err(|error| error.raw_os_error());
    assert_eq!(removed, Err(EPERM));
    File::options().append(true).open(&path).expect("open").write_all(b"two").expect("it grows");
    lab.run("chattr", ["-a", &path.display().to_string()]).ok();
    set(b"2").expect("after");
}

/// One of several writers at a quota was told that the disk is full.
#[test]
fn writers_at_a_quota_are_told_of_the_quota() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O compression=off", "tank", "d0");
    for property in ["quota", "refquota"] {
        let mount = lab.create_fs(&format!("-o {property}=24M"), &format!("tank/{property}"));
        let writers: Vec<_> = (0..6)
            .map(|writer| {
                let path = mount.join(format!("f{writer}"));
                std::thread::spawn(move || {
                    let mut file = File::create(path)?;
                    let block = platter_itest::data::random(writer, 128 << 10);
                    (0..200).try_for_each(|_| file.write_all(&block)).and_then(|()| file.sync_all())
                })
            })
            .collect();
        for writer in writers {
            let error = writer.join().expect("it ended").expect_err("more than fits");
            assert_eq!(error.raw_os_error(), Some(122), "{property}: {error}");
        }
    }
}

/// A name that no pool can have listed no events and ended with 0.
#[test]
fn events_of_what_cannot_be_a_pool_are_refused() {
    let Some(lab) = Lab::open() else { return };
    let run = lab.zpool("events -v /tmp/");
    assert_eq!(run.code, 2, "{run}");
    assert!(run.stderr.starts_with("invalid pool name '/tmp/'\n"), "{run}");
    assert!(lab.zpool("upgrade -v").ok().stdout.contains("\n 28  Multiple vdev replacements\n"));
}

/// It was `-`, and the next daemon opened the pool again.
#[test]
fn a_pool_below_another_root_is_not_for_the_next_start() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let root = lab.root().join("mnt/alt");
    let cachefile = |pool: &str| lab.zpool(&format!("get -H -o value,source cachefile {pool}")).ok().stdout;
    lab.zpool(&format!("create -R {} tank d0", root.display())).ok();
    lab.zpool(&format!("create -o altroot={} other d1", root.display())).ok();
    assert_eq!((cachefile("tank").trim(), cachefile("other").trim()), ("none\tlocal", "-\tdefault"));
    lab.platter(["daemon", "stop"]).ok();
    assert_eq!(lab.zpool("list -H -o name").ok().stdout, "other\n");
    // It was closed, not exported.
    lab.zpool(&format!("import -R {} -d . tank", root.display())).ok();
    assert_eq!(cachefile("tank").trim(), "none\tlocal");
    lab.export("tank");
    lab.export("other");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The pool was suspended at once, and could not be exported.
#[test]
fn a_deleted_file_serves_for_as_long_as_it_is_needed_and_open() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let root = lab.create("", "tank", "d0 d1");
    fs::write(root.join("before"), vec![1; 3_000_000]).expect("write");
    fs::remove_file(lab.disk(1)).expect("rm");
    let status = lab.zpool("status tank").ok().says("the file was deleted").says("gone with an export");
    lab.zpool("status -x").ok().says("Put another device in the place of each");
    assert_eq!(lab.health("tank"), "DEGRADED", "{status}");
    fs::write(root.join("after"), vec![2; 3_000_000]).expect("write");
    lab.zpool("sync tank").ok();
    assert_eq!(fs::read(root.join("before")).expect("read"), vec![1; 3_000_000]);
    assert_eq!(fs::read(root.join("after")).expect("read"), vec![2; 3_000_000]);
    // Its data would be gone without a word.
    lab.zpool("export tank").refused().says("cannot be imported again").says("'-f'");
    lab.platter(["daemon", "stop"]).refused().says("cannot be imported again").says("export -f tank");
    assert_eq!(fs::read(root.join("after")).expect("read"), vec![2; 3_000_000]);
    lab.zpool("export -f tank").ok();
    lab.zpool("import -d . tank").refused();
}

/// A device that is resilvered yet counted as a copy.
#[test]
fn a_deleted_file_is_kept_until_another_device_has_everything() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 256);
    let root = lab.create("-O recordsize=8K", "tank", "d0");
    let content = data::random(1, 100 << 20);
    fs::write(root.join("file"), &content).expect("write");
    lab.zpool("sync tank").ok();
    fs::remove_file(lab.disk(0)).expect("rm");
    lab.zpool("status tank").ok().says("the file was deleted");
    lab.zpool("attach tank d0 d1").ok();
    // The resilver may be quick; what an export lets go can be imported, in any case.
    let run = lab.zpool("export tank");
    if run.code != 0 {
        run.refused().says("must be resilvered first");
        lab.zpool("wait -t resilver tank").ok();
        lab.zpool("export tank").ok();
    }
    lab.import("", "tank");
    assert!(fs::read(root.join("file")).expect("read") == content);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_deleted_file_that_others_stand_for_keeps_no_pool() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    let root = lab.create("", "tank", "mirror d0 d1");
    fs::write(root.join("before"), vec![1; 3_000_000]).expect("write");
    fs::remove_file(lab.disk(1)).expect("rm");
    lab.wait_health("tank", "DEGRADED");
    lab.export("tank");
    lab.import("", "tank");
    assert_eq!(fs::read(root.join("before")).expect("read"), vec![1; 3_000_000]);
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// It was healthy as soon as the counts of its device began anew.
#[test]
fn a_pool_with_a_degraded_device_is_not_healthy() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zpool("status -x").ok().says("all pools are healthy");
    lab.zpool("offline -f tank d0").ok();
    assert_eq!(lab.health("tank"), "DEGRADED");
    lab.zpool("status -x").ok().says("zpool replace");
    assert!(lab.zpool("status -x -j").ok().stdout.contains("\"tank\""));
}

/// They ended with 0.
#[test]
fn force_does_not_unmount_what_somebody_uses() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let a = lab.create_fs("", "tank/a");
    let held = File::create(a.join("held")).expect("a file");
    for command in ["unmount -f tank/a", "destroy -f tank/a", "unmount -f tank"] {
        let run = lab.zfs(command);
        assert_eq!(run.code, 1, "{run}");
        assert!(run.stderr.contains("pool or dataset is busy"), "{run}");
    }
    assert_eq!(mounted(&lab, "tank/a"), "yes");
    drop(held);
    lab.zfs("destroy -f tank/a").ok();
}

/// "already mounted", for as long as the file was open.
#[test]
fn what_was_unmounted_lazily_is_mounted_again_although_a_file_is_open() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let root = lab.create("", "tank", "d0");
    fs::write(root.join("file"), "here").expect("write");
    let held = File::open(root.join("file")).expect("open");
    lab.run("umount", ["-l", root.to_str().expect("UTF-8")]).ok();
    assert_eq!(mounted(&lab, "tank"), "no");
    lab.zfs("mount tank").ok();
    assert_eq!(fs::read_to_string(root.join("file")).expect("the file"), "here");
    drop(held);
    // Many files without a name, whose end takes the kernel a while.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let nameless: Vec<_> =
        (0..500).map(|_| rustix::fs::open(&root, flags, Mode::RUSR).expect("a file without a name")).collect();
    lab.run("umount", ["-l", root.to_str().expect("UTF-8")]).ok();
    lab.zfs("mount tank").ok();
    drop(nameless);
    assert_eq!(fs::read_to_string(root.join("file")).expect("the file"), "here");
    lab.export("tank");
}

/// It was taken; the id that is made up from the machine may be that of a copy of it, too.
#[test]
fn multihost_needs_a_hostid_that_somebody_chose() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    lab.zpool("create -m none -o multihost=on tank d0").ok();
    lab.export("tank");
    lab.platter(["daemon", "stop"]).ok();
    if !std::path::Path::new("/etc/hostid").exists() || !rustix::process::geteuid().is_root() {
        return;
    }
    let without = |words: &str| {
        let script = format!(
            "mount --bind /dev/null /etc/hostid; unset PLATTER_HOSTID; exec {} zpool {words}",
            binary::platter().display()
        );
        lab.run_command(lab.apart(&[], "sh").args(["-c", &script]))
    };
    let advice = "Set a unique system hostid with the zgenhostid(8) command.";
    without("create -m none -o multihost=on other d1").refused().says("requires a non-zero system hostid").says(advice);
    without("create -m none other d1").ok();
    without("set multihost=on other").refused().says(advice);
    without("import -d . tank").refused().says("the multihost property on").says(advice);
    without("import -d .").ok().says("state: UNAVAIL").says(advice);
    without("import -N -o readonly=on -d . tank").ok();
    lab.export("tank");
}

/// The listing said "can be imported".
#[test]
fn the_listing_says_that_a_pool_can_only_be_read() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.export("tank");
    let feature = "com.example:read_me";
    let enable = ["feature", "enable", "-r", "-d", "for a test", "tank", feature];
    let Some(run) = zhack::zhack(&lab.dev(), &enable) else { return };
    run.ok();
    lab.zpool("import -d .").ok().says("state: ONLINE").says("can be imported using its name");
    zhack::activate_feature(&lab.dev(), "tank", feature, false);
    let list = lab.zpool("import -d .").ok().says("can only be accessed in read-only mode").says(feature);
    assert!(list.stdout.contains("state: UNAVAIL") && list.stdout.contains("-o readonly=on"), "{list}");
}

/// There was no `mount.zfs`.
#[test]
fn mount_mounts_what_has_a_legacy_mount_point() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zfs("create -o mountpoint=legacy tank/old").ok();
    lab.zfs("create -o mountpoint=legacy tank/old/inner").ok();
    let place = lab.tmp().join("a place");
    fs::create_dir(&place).expect("a folder");
    let at = place.to_str().expect("UTF-8");
    // As mount(8) calls its helper.
    let mount = |words: &[&str]| lab.platter(["mount.zfs"].iter().chain(words));
    mount(&["tank/old", at, "-o", "rw,noatime,nofail,x-systemd.automount"]).ok();
    fs::write(place.join("file"), "here").expect("write");
    assert_eq!(mounted(&lab, "tank/old"), "yes");
    assert_eq!(mount(&["tank/old", at]).code, 32, "it is mounted already");
    let run = lab.zfs("unmount tank/old").refused();
    assert!(run.stderr.contains("legacy mountpoint\nuse umount(8) to unmount this filesystem"), "{run}");
    // What the daemon has to mount anew stays where it is.
    lab.zfs("set atime=off tank/old").ok();
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "here");
    lab.umount(&place);
    assert_eq!((mounted(&lab, "tank/old").as_str(), place.join("file").exists()), ("no", false));
    mount(&["tank/old", at, "-o", "ro"]).ok();
    fs::write(place.join("file"), "there").expect_err("read-only");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "here");
    // `mount -o remount,rw DIR` comes with all that the kernel shows: to `mount.fuse.zfs`, or by mount.fuse to `zfs`.
    let shown = "relatime,remount,user_id=0,group_id=0,default_permissions,allow_other,max_read=1048576";
    mount(&["tank/old", at, "-v", "-o", &format!("rw,{shown}")]).ok();
    fs::write(place.join("file"), "there").expect("writable");
    lab.platter(["zfs", "tank/old", at, "-o", &format!("ro,{shown},dev,suid")]).ok();
    fs::write(place.join("file"), "nowhere").expect_err("read-only");
    lab.umount(&place);
    for (words, code, said) in [
        (&["tank", at][..], 2, "cannot be mounted using 'mount'"),
        (&["tank/none", at], 2, "dataset does not exist"),
        (&["tank/old", "/nonexistent"], 2, "No such file or directory"),
        (&["tank/old", at, "-o", "dirsync"], 1, "invalid option 'dirsync'"),
        (&["tank/old"], 1, "missing mountpoint argument"),
    ] {
        let run = mount(words);
        assert_eq!(run.code, code, "{run}");
        assert!(run.stderr.contains(said), "{run}");
    }
    // What has a mount point of its own, elsewhere; and this way only that.
    lab.zfs("unmount tank").ok();
    assert_eq!(mount(&["-o", "zfsutil", "tank/old", at]).code, 2);
    mount(&["-o", "zfsutil,ro", "tank", at]).ok();
    fs::write(place.join("file"), "there").expect_err("read-only");
    lab.umount(&place);
    // A device stands for its pool.
    let device = lab.disk(0);
    mount(&["-o", "zfsutil", device.to_str().expect("UTF-8"), at]).ok();
    assert_eq!(mounted(&lab, "tank"), "yes");
    lab.umount(&place);
    assert_eq!(mount(&["-o", "zfsutil", at, at]).code, 2);
    lab.zfs("mount tank").ok();
    mount(&["-s", "tank/old", at, "-o", "dirsync"]).ok();
    // The folder is the administrator's.
    lab.export("tank");
    assert!(place.is_dir());
}

/// Programs that make backups mount the snapshot that they read.
#[test]
fn mount_mounts_snapshots_where_their_file_system_is_mounted() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    lab.zfs("create -o setuid=off tank/data").ok();
    let (root, place) = (lab.mnt("tank/data"), lab.tmp().join("a place"));
    fs::write(root.join("file"), "before").expect("write");
    lab.zfs("snapshot tank/data@one").ok();
    fs::write(root.join("file"), "after").expect("write");
    fs::create_dir(&place).expect("a folder");
    let at = place.to_str().expect("UTF-8");
    let mount = |words: &[&str]| lab.platter(["mount.zfs"].iter().chain(words));
    for (name, said) in [
        ("tank/data@none", "cannot open 'tank/data@none': dataset does not exist"),
        ("tank/data@../snapshot", "invalid dataset name"),
        ("tank/data@..", "invalid dataset name"),
        ("tank/none@one", "'tank/none' is not mounted"),
    ] {
        let run = mount(&[name, at, "-o", "ro"]);
        assert!(run.code == 2 && run.stderr.contains(said), "{run}");
    }
    mount(&["tank/data@one", at, "-o", "rw,noexec"]).ok();
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "before");
    assert_eq!(fs::read_to_string(root.join("file")).expect("read"), "after");
    fs::write(place.join("file"), "again").expect_err("read-only");
    let shown = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let escaped = at.replace(' ', "\\040");
    let line = shown.lines().find(|line| line.contains(&format!(" {escaped} "))).expect("it is listed");
    assert!(line.contains(" ro,") && line.contains("noexec") && line.contains("nosuid"), "{line}");
    assert_eq!(mount(&["tank/data@one", at]).code, 32, "it is mounted already");
    // Until it is unmounted its file system stays.
    lab.zfs("unmount tank/data").refused().says("busy");
    lab.zpool("export tank").refused().says("busy");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "before");
    lab.umount(&place);
    assert_eq!(fs::read_to_string(root.join("file")).expect("read"), "after");
    // The kernel knows it by its old name, and a snapshot's name may begin with a dot.
    lab.zfs("snapshot tank/data@.two").ok();
    lab.zfs("rename -u tank/data tank/new").ok();
    mount(&["tank/new@.two", at]).ok();
    assert_eq!(mount(&["tank/new@.two", at]).code, 32, "it is mounted already");
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "after");
    // A daemon that is killed leaves a mount that answers nobody; the next one to mount there finds it so.
    lab.kill_daemon(false);
    lab.zfs("list").ok();
    assert!(fs::read_dir(&place).is_err(), "nobody answers there");
    mount(&["tank/new@one", at]).ok();
    assert_eq!(fs::read_to_string(place.join("file")).expect("read"), "before");
    lab.umount(&place);
    assert!(!place.join("file").exists(), "the dead mount is still below");
    lab.zfs("rename tank/new tank/data").ok();
    lab.zfs("destroy tank/data@one").ok();
    lab.zfs("unmount tank/data").ok();
    let run = mount(&["tank/data@one", at]);
    assert!(run.code == 2 && run.stderr.contains("'tank/data' is not mounted"), "{run}");
    lab.export("tank");
}

/// The export ended with 0, and the next daemon opened the exported pool again: it may be another machine's by then.
#[test]
fn what_could_not_be_forgotten_is_said_and_not_opened_again() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(2, 128);
    lab.create("", "tank", "d0");
    // The new list cannot be written beside the old one, as on a full disk.
    let new = lab.home().join("pools.new");
    fs::create_dir(&new).expect("a folder");
    let run = lab.zpool("export tank");
    assert_eq!(run.code, 1, "{run}");
    assert!(run.stderr.contains("pools.json"), "{run}");
    let run = lab.zpool("create -m none other d1");
    assert!(run.code == 1 && run.stderr.contains("'other' was created, but cannot write"), "{run}");
    lab.zpool("list other").ok();
    lab.platter(["daemon", "stop"]).ok();
    fs::remove_dir(&new).expect("there is room again");
    assert_eq!(lab.health("tank"), "UNAVAIL");
    lab.zpool("status tank").ok().says("it was exported");
    lab.zpool("import tank").ok();
    lab.zpool("import -d . other").ok();
    for pool in ["tank", "other"] {
        lab.export(pool);
        zdb::assert_clean(&lab.dev(), pool);
    }
}

/// A command in a mount name space of its own heard nothing of it: what it found at the mount point was another folder.
#[test]
fn a_daemon_whose_mounts_are_not_seen_is_told_of() {
    let Some(lab) = Lab::open() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    lab.disks(1, 128);
    lab.create("", "tank", "d0");
    let run = lab.run_command(lab.apart(&[], binary::platter()).args(["zfs", "list", "-H", "-o", "name"])).ok();
    assert_eq!(run.stdout, "tank\n");
    assert!(run.stderr.contains("lives in another mount namespace"), "{run}");
    assert_eq!(lab.zfs("list -H -o name").ok().stderr, "");
    lab.export("tank");
}
