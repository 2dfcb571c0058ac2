//! What administrators' scripts rely on: exit codes, which file systems are mounted after a property changed, which
//! folders stay. Differences that OpenZFS's own test suite found.

use std::fs;

use platter_itest::{Lab, zdb};

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
