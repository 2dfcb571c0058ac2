//! Each vdev level × ashift 9 and 12, each compression × each checksum: what is written reads back, before and after
//! export and import, and zdb sees the same files with the same content.
//!
//! One pool for each level and ashift, one file system in it for each compression; from pool to pool the checksums move
//! on by one, so that all pools together have every pair.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use platter_itest::{Lab, Tree, data, zdb};

const COMPRESSIONS: [&str; 13] = [
    "off",
    "on",
    "lzjb",
    "zle",
    "lz4",
    "gzip",
    "gzip-1",
    "gzip-9",
    "zstd",
    "zstd-1",
    "zstd-19",
    "zstd-fast",
    "zstd-fast-1000",
];
const CHECKSUMS: [&str; 10] =
    ["on", "off", "fletcher2", "fletcher4", "sha256", "noparity", "sha512", "skein", "edonr", "blake3"];

/// Small, but with every block kind: embedded, hole, compressed and incompressible, part of a record, several records,
/// and enough records for an indirect block.
fn fill(dir: &Path, seed: u64) {
    let write = |name: &str, bytes: Vec<u8>| fs::write(dir.join(name), bytes).expect("a file can be written");
    write("empty", Vec::new());
    write("one-byte", vec![b'x']);
    write("embedded", data::text(seed, 112));
    write("sector", data::random(seed + 1, 512));
    write("odd-text", data::text(seed + 2, 77_777));
    write("odd-random", data::random(seed + 3, 77_777));
    write("records-text", data::text(seed + 4, 900_000));
    write("records-random", data::random(seed + 5, 500_001));
    write("records-mixed", data::mixed(seed + 6, 1_500_000, 131_072));
    write("zeros", vec![0; 300_000]);
    fs::create_dir_all(dir.join("sub/deeper")).expect("a folder can be made");
    write("sub/deeper/file", data::text(seed + 7, 5000));
}

fn one_pool(shift: usize, level: &str, disks: usize, ashift: u32) {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(disks, 128).join(" ");
    lab.create(&format!("-o ashift={ashift} -O atime=off"), "tank", &format!("{level} {disks}"));
    let mut before = BTreeMap::new();
    for (number, compression) in COMPRESSIONS.iter().enumerate() {
        let checksum = CHECKSUMS[(number + shift) % CHECKSUMS.len()];
        let dataset = format!("tank/{compression}-{checksum}");
        let mount = lab.create_fs(&format!("-o compression={compression} -o checksum={checksum}"), &dataset);
        fill(&mount, number as u64 * 100);
        before.insert(dataset, Tree::of(&mount));
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    if let Some(listings) = zdb::list_pool(&lab.dev(), "tank") {
        for (number, (dataset, tree)) in before.iter().enumerate() {
            let Some(listing) = listings.get(dataset) else { panic!("zdb lists no {dataset}") };
            zdb::assert_listing(listing, tree, dataset);
            // All checksums were just verified. What is left is that zdb can decompress it: all pools together have
            // that of each compression three times, as zdb takes half a second to start.
            if (number + shift) % COMPRESSIONS.len() < 4 {
                zdb::assert_contents(&lab.dev(), dataset, tree, 2);
            }
        }
    }
    lab.import("", "tank");
    for (dataset, tree) in &before {
        lab.wait_mounted(&lab.mnt(dataset));
        tree.assert_same(&Tree::of(&lab.mnt(dataset)), &format!("in {dataset} after export and import"));
    }
    lab.scrub("tank").says("repaired 0B").says("with 0 errors");
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

macro_rules! matrix {
    ($($name:ident: shift $shift:literal, $level:literal, $disks:literal disks, ashift $ashift:literal;)*) => {
        $(#[test]
        fn $name() {
            one_pool($shift, $level, $disks, $ashift);
        })*
    };
}

matrix! {
    stripe_ashift_9: shift 0, "", 3 disks, ashift 9;
    stripe_ashift_12: shift 1, "", 3 disks, ashift 12;
    mirror_ashift_9: shift 2, "mirror", 2 disks, ashift 9;
    mirror_ashift_12: shift 3, "mirror", 2 disks, ashift 12;
    raidz1_ashift_9: shift 4, "raidz1", 4 disks, ashift 9;
    raidz1_ashift_12: shift 5, "raidz1", 4 disks, ashift 12;
    raidz2_ashift_9: shift 6, "raidz2", 5 disks, ashift 9;
    raidz2_ashift_12: shift 7, "raidz2", 5 disks, ashift 12;
    raidz3_ashift_9: shift 8, "raidz3", 7 disks, ashift 9;
    raidz3_ashift_12: shift 9, "raidz3", 7 disks, ashift 12;
}

#[test]
fn every_record_size_reads_back() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(4, 256).join(" ");
    lab.create("-o ashift=12", "tank", &format!("raidz {disks}"));
    let mut before = BTreeMap::new();
    for (number, size) in ["512", "4K", "128K", "1M", "16M"].iter().enumerate() {
        let dataset = format!("tank/rs{size}");
        let mount = lab.create_fs(&format!("-o recordsize={size} -o compression=lz4"), &dataset);
        let len = if *size == "512" { 400_000 } else { 20_000_000 };
        fs::write(mount.join("random"), data::random(number as u64, len + 12_345)).expect("a file can be written");
        fs::write(mount.join("mixed"), data::mixed(number as u64, len, 50_000)).expect("a file can be written");
        fs::write(mount.join("small"), data::text(number as u64, 3000)).expect("a file can be written");
        before.insert(dataset, Tree::of(&mount));
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    for (dataset, tree) in &before {
        zdb::assert_same_tree(&lab.dev(), dataset, tree, 3);
    }
    lab.import("", "tank");
    for (dataset, tree) in &before {
        lab.wait_mounted(&lab.mnt(dataset));
        tree.assert_same(&Tree::of(&lab.mnt(dataset)), &format!("in {dataset} after export and import"));
    }
}

#[test]
fn large_sectors_work_up_to_ashift_16() {
    let Some(lab) = Lab::open() else { return };
    for ashift in [13, 14, 16] {
        lab.disks(3, 256);
        let pool = format!("tank{ashift}");
        let mount = lab.create(&format!("-f -o ashift={ashift}"), &pool, "raidz d0 d1 d2");
        fill(&mount, ashift);
        let before = Tree::of(&mount);
        lab.export(&pool);
        zdb::assert_clean(&lab.dev(), &pool);
        zdb::assert_same_tree(&lab.dev(), &pool, &before, 2);
    }
}

#[test]
fn every_level_of_every_compression_is_written_as_openzfs_reads_it() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(1, 512).join(" ");
    lab.create("-o ashift=9 -O atime=off", "tank", &disks);
    let fast = (1..=10).chain((20..=100).step_by(10)).chain([500, 1000]).map(|level| format!("zstd-fast-{level}"));
    let names: Vec<String> =
        (1..=9).map(|n| format!("gzip-{n}")).chain((1..=19).map(|n| format!("zstd-{n}"))).chain(fast).collect();
    let text = data::text(7, 300_000);
    let mut before = BTreeMap::new();
    for (number, name) in names.iter().enumerate() {
        let dataset = format!("tank/{name}");
        let checksum = CHECKSUMS[number % CHECKSUMS.len()];
        let mount = lab.create_fs(&format!("-o compression={name} -o checksum={checksum}"), &dataset);
        fs::write(mount.join("text"), &text).expect("a file can be written");
        // Two names of one number: the first is shown.
        let shown = match name.as_str() {
            "gzip-6" => "gzip",
            "zstd-fast-1" => "zstd-fast",
            other => other,
        };
        lab.zfs(&format!("get -H -o value compression {dataset}")).ok().says(shown);
        before.insert(dataset, Tree::of(&mount));
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
    for (dataset, tree) in &before {
        zdb::assert_contents(&lab.dev(), dataset, tree, 1);
    }
    lab.import("", "tank");
    for (dataset, tree) in &before {
        lab.wait_mounted(&lab.mnt(dataset));
        tree.assert_same(&Tree::of(&lab.mnt(dataset)), &format!("in {dataset} after export and import"));
        let ratio = lab.zfs(&format!("get -H -p -o value compressratio {dataset}")).ok().stdout;
        assert!(ratio.trim().parse::<f64>().expect("a ratio") > 1.2, "{dataset} is hardly compressed: {ratio}");
    }
}

#[test]
fn a_checksums_feature_is_active_while_a_data_set_has_blocks_with_it() {
    let Some(lab) = Lab::open() else { return };
    let disks = lab.disks(1, 128).join(" ");
    lab.create("-o feature@edonr=disabled", "tank", &disks);
    lab.zfs("create -o checksum=edonr tank/refused").refused().says("edonr");
    lab.zfs("set checksum=edonr tank").refused().says("edonr");
    for (feature, checksum) in [("skein", "skein"), ("blake3", "blake3"), ("sha512", "sha512")] {
        let state = || lab.zpool(&format!("get -H -o value feature@{feature} tank")).ok().stdout.trim().to_owned();
        assert_eq!(state(), "enabled");
        let mount = lab.create_fs(&format!("-o checksum={checksum}"), "tank/sums");
        fs::write(mount.join("file"), data::random(1, 300_000)).expect("a file can be written");
        lab.zpool("sync tank").ok();
        assert_eq!(state(), "active", "{feature} after a write");
        lab.export("tank");
        zdb::assert_clean(&lab.dev(), "tank");
        lab.import("", "tank");
        assert_eq!(state(), "active", "{feature} after an import");
        lab.zfs("destroy tank/sums").ok();
        lab.zpool("sync tank").ok();
        assert_eq!(state(), "enabled", "{feature} after the data set is gone");
    }
}
