//! Export and import in every form: by name, by guid, under a new name, without mounting, under another root, from
//! moved and partly damaged devices.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use platter_itest::{Lab, Loop, Tree, damage, data, judge, zdb};

/// A small raidz pool `tank` with a child file system, exported; and what it holds.
fn exported(lab: &Lab) -> (Tree, Tree) {
    lab.disks(4, 128);
    let root = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2 d3");
    let child = lab.create_fs("-o compression=lz4", "tank/media");
    fs::write(child.join("photo"), data::random(1, 2_000_000)).expect("a file");
    fs::write(child.join("notes"), data::text(2, 40_000)).expect("a file");
    let trees = (Tree::of(&root), Tree::of(&child));
    lab.export("tank");
    assert!(lab.mounts().is_empty());
    trees
}

#[track_caller]
fn assert_there(lab: &Lab, child: &Path, tree: &Tree) {
    lab.wait_mounted(child);
    tree.assert_same(&Tree::of(child), "after import");
}

#[test]
fn without_a_name_import_lists_what_can_be_imported() {
    let Some(lab) = Lab::open() else { return };
    exported(&lab);
    let before = damage::fingerprints(&[lab.disk(0), lab.disk(1), lab.disk(2), lab.disk(3)]);
    let list = lab.zpool("import -d .").ok();
    let list = list.says("pool: tank").says("id: ").says("state: ONLINE").says("action: The pool can be imported");
    list.says("raidz1-0").says("d3");
    assert_eq!(
        before,
        damage::fingerprints(&[lab.disk(0), lab.disk(1), lab.disk(2), lab.disk(3)]),
        "looking writes nothing"
    );
    let empty = lab.tmp().join("empty");
    fs::create_dir(&empty).expect("a folder");
    let none = lab.zpool(&format!("import -d {}", empty.display()));
    assert!(none.code <= 1 && none.mentions("no pools available to import"), "{none}");
}

#[test]
fn a_pool_is_imported_by_name_from_a_relative_folder_and_from_single_devices() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    lab.zpool("import -d . tank").ok();
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.export("tank");
    lab.zpool("import -d d0 -d d1 -d d2 -d d3 tank").ok();
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.zpool("import -d . tank").refused().says("tank");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn a_pool_is_imported_by_guid_and_under_a_new_name() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    lab.zpool("import -d . tank").ok();
    let guid = lab.zpool("get -H -o value guid tank").ok().stdout.trim().to_owned();
    assert!(guid.parse::<u64>().is_ok(), "{guid}");
    lab.export("tank");
    lab.zpool(&format!("import -d . {guid}")).ok();
    assert_eq!(lab.health("tank"), "ONLINE");
    lab.export("tank");
    lab.zpool("import -d . tank renamed").ok();
    lab.zpool("list -H -o name").ok().says("renamed").says_not("tank");
    // The mount point was set by hand, so it stays.
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.zfs("list -H -o name").ok().says("renamed/media");
    lab.zpool("export renamed").ok();
    zdb::assert_clean(&lab.dev(), "renamed");
    zdb::assert_same_tree(&lab.dev(), "renamed/media", &media, 2);
    lab.zpool("import -d . tank").refused().says("tank");
    lab.zpool(&format!("import -d . {guid} tank")).ok();
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

#[test]
fn all_pools_of_a_folder_are_imported_at_once() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(4, 96);
    lab.create("", "one", "mirror d0 d1");
    lab.create("", "two", "mirror d2 d3");
    lab.export("one");
    lab.export("two");
    lab.zpool("import -a -d .").ok();
    lab.zpool("list -H -o name").ok().says("one").says("two");
    lab.zpool("export -a").ok();
    zdb::assert_clean(&lab.dev(), "one");
    zdb::assert_clean(&lab.dev(), "two");
}

#[test]
fn import_without_mounting_mounts_nothing_until_asked() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    lab.zpool("import -N -d . tank").ok();
    assert!(lab.mounts().is_empty(), "{:?}", lab.mounts());
    assert_eq!(lab.zfs("get -H -o value mounted tank/media").ok().stdout.trim(), "no");
    lab.zfs("mount tank/media").ok();
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.zfs("mount -a").ok();
    lab.wait_mounted(&lab.mnt("tank"));
    lab.export("tank");
}

#[test]
fn an_alternate_root_goes_before_every_mount_point() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    let root = lab.root().join("mnt/alt");
    lab.zpool(&format!("import -R {} -d . tank", root.display())).ok();
    let below = root.join(lab.mnt("tank/media").strip_prefix("/").expect("absolute"));
    assert_there(&lab, &below, &media);
    assert_eq!(lab.zpool("get -H -o value altroot tank").ok().stdout.trim(), root.to_str().expect("UTF-8"));
    lab.export("tank");
    // It is not remembered.
    lab.import("", "tank");
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.zpool("destroy tank").ok();
    lab.zpool(&format!("create -f -R {} other d0", root.display())).ok();
    lab.wait_mounted(&root.join("other"));
}

#[test]
fn properties_can_be_set_while_importing() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    let disks = [lab.disk(0), lab.disk(1), lab.disk(2), lab.disk(3)];
    let before = damage::fingerprints(&disks);
    lab.zpool("import -o readonly=on -d . tank").ok();
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    let error = fs::write(lab.mnt("tank/media").join("new"), b"x").expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(30), "EROFS, not {error}");
    lab.zfs("set compression=off tank").refused().says_one_of(&["read-only", "readonly", "read only"]);
    lab.export("tank");
    assert_eq!(before, damage::fingerprints(&disks), "a read-only import writes nothing");
    lab.zpool("import -o comment=hello -d . tank").ok();
    assert_eq!(lab.zpool("get -H -o value comment tank").ok().stdout.trim(), "hello");
}

#[test]
fn disks_are_found_under_other_names_and_paths() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    let other = lab.tmp().join("elsewhere");
    fs::create_dir(&other).expect("a folder");
    // Shuffled: nothing but the guids in the labels says which disk is which.
    for (old, new) in [(0, "zeta"), (1, "alpha"), (2, "disk with blanks"), (3, "beta")] {
        fs::rename(lab.disk(old), other.join(new)).expect("a device file can be moved");
    }
    lab.zpool(&format!("import -d {} tank", other.display())).ok();
    assert_eq!(lab.health("tank"), "ONLINE");
    assert_there(&lab, &lab.mnt("tank/media"), &media);
    lab.scrub("tank").says("repaired 0B");
    lab.zpool("status -P tank").ok().says("elsewhere/alpha");
    lab.export("tank");
    zdb::assert_clean(&other, "tank");
}

#[test]
fn any_one_label_of_four_is_enough() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    for survivor in 0..4u64 {
        for disk in 0..4 {
            let path = lab.disk(disk);
            for label in (0..4).filter(|label| *label != survivor) {
                damage::overwrite(&path, damage::label(label, damage::len(&path)), label + 10 * survivor);
            }
        }
        lab.zpool("import -d . tank").ok();
        assert_there(&lab, &lab.mnt("tank/media"), &media);
        assert_eq!(lab.health("tank"), "ONLINE");
        // Export writes all four labels again.
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
    }
}

#[test]
fn garbage_in_one_nvlist_or_uberblock_ring_is_passed_over() {
    let Some(lab) = Lab::open() else { return };
    let (_, media) = exported(&lab);
    const NVLIST: std::ops::Range<u64> = (16 << 10)..(128 << 10);
    const RING: std::ops::Range<u64> = (128 << 10)..(256 << 10);
    for (seed, part) in [NVLIST, RING].into_iter().enumerate() {
        for disk in 0..4 {
            let path = lab.disk(disk);
            for label in [0, 2] {
                let start = damage::label(label, damage::len(&path)).start;
                damage::overwrite(&path, start + part.start..start + part.end, seed as u64);
            }
        }
        lab.zpool("import -d . tank").ok();
        assert_there(&lab, &lab.mnt("tank/media"), &media);
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
    }
}

#[test]
fn a_pool_of_another_host_needs_force_and_says_so() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 96);
    let mount = lab.create("", "tank", "d0");
    fs::write(mount.join("file"), b"x").expect("a file");
    lab.zpool("sync tank").ok();
    // As if the machine had been switched off: the label says that the pool is in use.
    lab.kill_daemon(true);
    let Some(other) = Lab::open() else { return };
    let plain = other.zpool(&format!("import -d {} tank", lab.dev().display()));
    if plain.code != 0 {
        plain.refused().says("tank").says("-f");
        other.zpool(&format!("import -f -d {} tank", lab.dev().display())).ok();
    }
    other.zfs("list -H -o name").ok().says("tank");
    other.zpool("export tank").ok();
    zdb::assert_clean(&lab.dev(), "tank");
}

/// The kernel lets such a device be opened for writing and fails the writes: the import ended with "pool I/O is
/// suspended", and nobody said what would help.
#[test]
fn a_device_that_takes_no_writes_is_imported_for_reading_only() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 128);
    let mount = lab.create("", "tank", "d0");
    let tree = Tree::filled(&mount, 1);
    lab.export("tank");
    let Some(device) = Loop::read_only(&lab.disk(0)) else { return judge::skip("loop devices", "losetup fails here") };
    let links = lab.tmp().join("links");
    fs::create_dir(&links).and_then(|()| symlink(&device.0, links.join("d"))).expect("a link");
    let import = |options: &str| lab.zpool(&format!("import {options} -d {} tank", links.display()));
    import("")
        .refused()
        .says("the device is read-only")
        .says("'-o readonly=on' imports the pool without writing to it");
    lab.zpool(&format!("create -f -m none other {}", device.0)).refused().says("the device is read-only");
    import("-o readonly=on").ok();
    assert_there(&lab, &mount, &tree);
    lab.export("tank");
}
