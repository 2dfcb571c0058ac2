//! The space that files take: as it is shown, as properties decide, up to a quota.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use platter_itest::{Lab, data};

const MIB: u64 = 1 << 20;

fn number(lab: &Lab, property: &str, dataset: &str) -> u64 {
    lab.zfs(&format!("get -Hp -o value {property} {dataset}")).ok().stdout.trim().parse().expect("a number")
}

/// What the kernel keeps of a file does not outlive the group that tells how much space it takes.
#[test]
fn a_sync_shows_what_files_take_at_once() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 256);
    let mount = lab.create("", "tank", "d0");
    let paths = ["directory", "file", "grown", "link"].map(|name| mount.join(name));
    let blocks = |path: &Path| fs::symlink_metadata(path).expect("stat").blocks();
    let all = || paths.each_ref().map(|path| blocks(path));

    fs::create_dir(&paths[0]).expect("a folder");
    for number in 0..500 {
        File::create(paths[0].join(format!("a rather long name, so that it takes space {number}"))).expect("a file");
    }
    fs::write(&paths[1], data::random(1, 300_000)).expect("a file");
    fs::write(&paths[2], data::random(2, 10_000)).expect("a file");
    std::os::unix::fs::symlink("elsewhere/".repeat(200), &paths[3]).expect("a link");
    let before = all();
    assert!(before[0] < 8, "the space of a new folder is not known yet: {before:?}");
    lab.zpool("sync tank").ok();
    let first = all();
    fs::write(&paths[2], data::random(3, 900_000)).expect("a file");
    blocks(&paths[2]);
    lab.zpool("sync tank").ok();
    let second = all();
    // Nor does it when others have ended groups meanwhile.
    fs::write(&paths[2], data::random(4, 900_000)).expect("a file");
    blocks(&paths[2]);
    (0..8).for_each(|number| drop(lab.zfs(&format!("set a:b={number} tank")).ok()));
    lab.zpool("sync tank").ok();
    assert_eq!(all(), second);
    lab.export("tank");
    lab.import("", "tank");
    lab.wait_mounted(&mount);
    let after = all();
    assert_eq!(second, after, "{before:?}, {first:?}");
    assert_eq!([first[0], first[1], first[3]], [after[0], after[1], after[3]]);
    assert!(after[0] >= 8 && after[1] >= 586 && after[2] >= 1757 && first[2] < 100, "{first:?} {after:?}");
}

/// `dsl_pool_sync`: tasks come after the data of their group, so what was written before is written as it was asked.
#[test]
fn a_property_changes_what_is_written_after_it() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("", "tank", "d0");
    let mount = lab.create_fs("-o compression=off", "tank/fs");
    let kib = |name: &str| fs::metadata(mount.join(name)).expect("stat").blocks() / 2;
    // Some groups end by themselves meanwhile.
    for round in 0..3 {
        let (plain, packed) = (format!("plain{round}"), format!("packed{round}"));
        fs::write(mount.join(&plain), vec![b'a'; 8 << 20]).expect("a file");
        lab.zfs("set compression=lz4 tank/fs").ok();
        fs::write(mount.join(&packed), vec![b'a'; 8 << 20]).expect("a file");
        lab.zfs("set compression=off tank/fs").ok();
        lab.zpool("sync tank").ok();
        assert!(kib(&plain) >= 8 << 10 && kib(&packed) < 1 << 10, "{round}: {} and {} KiB", kib(&plain), kib(&packed));
    }
}

/// `dsl_dataset_check_quota`: as long as there is any room, a write goes in.
#[test]
fn a_quota_is_used_to_its_end() {
    let Some(lab) = Lab::open() else { return };
    lab.disks(1, 512);
    lab.create("-O compression=off", "tank", "d0");
    for (name, property, at_once) in
        [("a", "refquota", 128 << 10), ("b", "quota", 128 << 10), ("c", "refquota", 1 << 20), ("d", "refquota", 10_000)]
    {
        let dataset = format!("tank/{name}");
        let mount = lab.create_fs(&format!("-o {property}=15M"), &dataset);
        let mut file = File::create(mount.join("file")).expect("a file");
        let error = loop {
            if let Err(error) = file.write_all(&vec![7; at_once]) {
                break error;
            }
            assert!(file.metadata().expect("stat").len() < 20 * MIB, "nothing stops the writer");
        };
        assert_eq!(error.raw_os_error(), Some(122), "EDQUOT: {error}");
        drop(file);
        lab.zpool("sync tank").ok();
        let referenced = number(&lab, "referenced", &dataset);
        let range = 15 * MIB..=15 * MIB + (512 << 10);
        assert!(range.contains(&referenced), "{property} of {dataset} with {at_once} at once: {referenced}");
    }
}
